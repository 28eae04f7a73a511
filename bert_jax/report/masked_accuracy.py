"""Where a pre-trained model is right: masked-LM accuracy by position and by how frequent the piece is.

One pass over a few hundred held-out examples, with masks drawn as in an evaluation, the same for every run.
``masked_accuracy.json`` in the workdir keeps the counts, so that a page of many runs compares them without computing
anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Bool, Int, Integer

from bert_jax.data.corpus import Corpus
from bert_jax.data.stored_corpus import INFO, known_copy
from bert_jax.data.writing import write_json
from bert_jax.predict import Predictor
from bert_jax.report.charts import Across, Series, line_chart
from bert_jax.report.elements import percent
from bert_jax.report.run import Run, read_json
from bert_jax.tasks.pretraining import predicted_pieces
from bert_jax.tasks.task import Task
from bert_jax.training.step import eval_step
from bert_jax.training.workdir import read_workdir

FILE = "masked_accuracy.json"
MOST_EXAMPLES, ROWS = 512, 16
# Parameters x tokens of the whole pass: some twenty seconds of two CPU cores, or of an accelerator.
WORK = {"cpu": 1e12, "other": 1e15}
POSITIONS = 8  # bins over the sequence
RANKS = (1, 11, 31, 101, 301, 1001, 3001, 10001, 30001, 100001)  # where the bins begin; 1 is the most frequent piece


@dataclass(frozen=True)
class Bin:
    """Predictions of which something lies between ``first`` and ``last``: how many, and how many of them right."""

    first: int
    last: int
    right: int
    count: int


@dataclass(frozen=True)
class MaskedAccuracy:
    """Counts by position in the sequence (from 0), and by the rank of the right piece in the training text (from 1).

    ``step`` of the checkpoint, ``examples`` looked at; bins without a prediction are left out.
    """

    step: int
    examples: int
    position: tuple[Bin, ...]
    rank: tuple[Bin, ...]


@dataclass(frozen=True)
class Predictions:
    """Of every predicted place: its position, the piece that is right, and whether the model's likeliest is that."""

    positions: Int[np.ndarray, "n"]
    pieces: Int[np.ndarray, "n"]
    right: Bool[np.ndarray, "n"]


def accuracy_of_run(run: Run, model: Predictor) -> MaskedAccuracy | None:
    """Of a pre-training run's newest checkpoint; computed where the file does not tell of its step.

    None for other runs, and where the corpus is gone, is not the model's any more, or holds nothing out.
    """
    corpus = str(run.config.get("corpus") or "")
    if run.task != "pretraining" or not corpus:
        return None
    found = read_accuracy(run.directory)
    if found is not None and found.step == model.step:
        return found
    try:
        directory = known_copy(corpus)
        if not (directory / INFO).is_file():
            return None
        settings, task = read_workdir(run.directory)
        counts = Corpus.open(directory).unigrams
    except (OSError, ValueError):
        return None
    if task.tokenizer.fingerprint() != model.tokenizer.fingerprint():
        return None
    length = settings.phases[-1].max_seq_length if settings.phases else settings.max_seq_length
    predictions, examples = held_out_predictions(task, model, length)
    if not examples:
        return None
    found = MaskedAccuracy(
        step=model.step,
        examples=examples,
        position=in_bins(predictions.positions, predictions.right, range(0, length, -(-length // POSITIONS)), length),
        rank=in_bins(ranks(counts)[predictions.pieces], predictions.right, RANKS, len(counts) + 1),
    )
    write_json(run.directory / FILE, asdict(found))
    return found


def read_accuracy(directory: Path) -> MaskedAccuracy | None:
    """What the file in a workdir says; None where there is none that can be read."""
    values = read_json(directory / FILE)
    try:
        bins = {name: tuple(Bin(**one) for one in values[name]) for name in ("position", "rank")}
        return MaskedAccuracy(values["step"], values["examples"], **bins)
    except (KeyError, TypeError):
        return None


def held_out_predictions(task: Task, model: Predictor, length: int) -> tuple[Predictions, int]:
    """The model's predictions for held-out examples of ``length`` tokens, and how many examples."""
    work = WORK.get(jax.default_backend(), WORK["other"])
    examples = min(MOST_EXAMPLES, max(ROWS, int(work / (model.num_parameters * length))))
    batches = task.evaluation(task.eval_split, ROWS, length, 1).batches
    looked = jax.jit(partial(eval_step, task=replace(task, outputs=predicted_pieces)))
    key, rows, parts = jax.random.key(0), 0, []
    for index, batch in enumerate(islice(batches, -(-examples // ROWS))):
        _, found = looked(model.params, jax.random.fold_in(key, index), batch)
        real = np.asarray(found["weights"]) > 0
        parts.append([np.asarray(found[name])[real] for name in ("positions", "pieces", "right")])
        rows += int(batch["example_weights"].sum())
    if not parts:
        empty = np.zeros(0, np.int32)
        return Predictions(empty, empty, empty.astype(bool)), 0
    return Predictions(*(np.concatenate(part) for part in zip(*parts, strict=True))), rows


def ranks(counts: Int[np.ndarray, "v"]) -> Int[np.ndarray, "v"]:
    """Of every piece its place by frequency: 1 for the most frequent; of equals the one with the lower id first."""
    result = np.empty(len(counts), np.int64)
    result[np.argsort(-counts, kind="stable")] = np.arange(1, len(counts) + 1)
    return result


def in_bins(
    values: Integer[np.ndarray, "n"], right: Bool[np.ndarray, "n"], starts: Sequence[int], end: int
) -> tuple[Bin, ...]:
    """Counts of the values in each bin; ``end`` is where the last would end. Empty bins are left out."""
    edges = [start for start in starts if start < end] + [end]
    of = np.searchsorted(edges, values, side="right") - 1
    counts = np.bincount(of, minlength=len(edges))
    rights = np.bincount(of[right], minlength=len(edges))
    return tuple(
        Bin(first, after - 1, int(rights[i]), int(counts[i]))
        for i, (first, after) in enumerate(pairwise(edges))
        if counts[i]
    )


def added(found: Sequence[MaskedAccuracy]) -> MaskedAccuracy:
    """The counts of several runs together, as of the latest step."""

    def sums(bins: Sequence[Bin]) -> tuple[Bin, ...]:
        places = sorted({(one.first, one.last) for one in bins})
        own = {place: [one for one in bins if (one.first, one.last) == place] for place in places}
        return tuple(
            Bin(*place, sum(o.right for o in own[place]), sum(o.count for o in own[place])) for place in places
        )

    return MaskedAccuracy(
        step=max(one.step for one in found),
        examples=sum(one.examples for one in found),
        position=sums([bin for one in found for bin in one.position]),
        rank=sums([bin for one in found for bin in one.rank]),
    )


def accuracy_charts(runs: Sequence[tuple[str, str, MaskedAccuracy]], *, interval: bool = False) -> Iterator[str]:
    """Both charts, a line for each (label, colour, counts), with the 95 % interval if asked for."""
    ranked = [one.last for _, _, found in runs for one in found.rank]
    powers = [10**k for k in range(math.ceil(math.log10(max([10, *ranked]))) + 1)]
    axes = (
        ("position", "By position in the sequence", Across("position")),
        ("rank", "By frequency of the piece", Across("rank in the training text, 1 = most frequent", True, powers)),
    )
    for name, title, across in axes:
        series = [accuracy_line(label, kind, getattr(found, name), name, interval) for label, kind, found in runs]
        yield line_chart(title, series, write="{:.1%}".format, tick=percent, limits=(0.0, None), across=across)


def accuracy_line(label: str, kind: str, bins: Sequence[Bin], name: str, interval: bool) -> Series:
    """Every bin at its middle, of ranks the geometric one; the legend says the accuracy over all bins."""
    x = [math.sqrt(b.first * b.last) if name == "rank" else (b.first + b.last) / 2 for b in bins]
    y = [b.right / b.count for b in bins]
    tips = [f"{label}, {name} {b.first:,} to {b.last:,}: {b.right / b.count:.1%} of {b.count:,}" for b in bins]
    limits = [wilson(one.right, one.count) for one in bins]
    band = ([low for low, _ in limits], [high for _, high in limits]) if interval else None
    total = sum(one.right for one in bins) / sum(one.count for one in bins)
    return Series(label, x, y, kind, band=band, dots=list(zip(x, y, tips, strict=True)), value=total)


def wilson(right: int, count: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    share, spread = right / count, z * z / count
    middle = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return middle - half, middle + half
