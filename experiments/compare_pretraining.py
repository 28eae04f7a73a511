"""A real pre-training run of ours and of PyTorch's BERT on equal terms: which learns more, and which is sooner done.

    python -m experiments.compare_pretraining --input 'texts/*.txt' --workdir runs/comparison

Learns an uncased WordPiece vocabulary, builds the corpus, and trains two models of one size from the same initial
weights on the same batches in the same order with the same masks, the same update rule and the same schedule:
ours by ``bert_jax.train``, ``transformers``' ``BertForPreTraining`` by a plain PyTorch loop. Dropout differs, since
each draws its own. They take turns in slices of steps, only one works at a time, and each is timed only while it
trains; both are evaluated on the same masked held-out examples. Writes a page, a plot and all figures to
--results. Both models keep the paper's dropout of 0.1; both have Adam with bias correction and an output bias that
begins at the pieces' log frequencies, since so short a run learns nothing without them.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.corpus_builder import build, sample_texts
from bert_jax.data.documents import Reading, expand_inputs
from bert_jax.data.vocabulary import learn_wordpiece
from bert_jax.tasks.task import Task
from bert_jax.training.settings import read_config
from bert_jax.training.step import Means
from experiments.benchmark_step import PEER_PACKAGES, missing_packages
from experiments.comparison_page import write_page
from experiments.machine import describe
from experiments.peers.line_protocol import Worker

# Pieces of a book, in characters: a document must be long enough to fill rows, and there must be enough of them.
PIECE = 15_000
# What the peer needs of a batch, in the smallest types that hold it.
EXPORTED = {
    "input_ids": np.int32,
    "segment_ids": np.uint8,
    "sequence_ids": np.uint8,
    "masked_positions": np.uint16,
    "masked_targets": np.int32,
    "masked_weights": np.uint8,
    "next_sentence_labels": np.uint8,
}

SHARED_OPTIMIZER = ("learning_rate", "weight_decay", "b1", "b2", "eps", "clip_norm", "bias_correction")


def main(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = _parser().parse_args(given)
    try:
        run(args, f"python -m experiments.compare_pretraining {shlex.join(given)}")
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"compare_pretraining: {' '.join(str(error).split())}")


def run(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """The whole comparison; the figures that are written to ``results/pretraining_comparison.json``."""
    if missing := missing_packages(*PEER_PACKAGES):
        raise ValueError(f"{', '.join(missing)} not installed; pip install '.[peers]'")
    workdir = Path(args.workdir).absolute()
    if (workdir / "ours").exists():
        raise ValueError(f"{workdir / 'ours'} exists; a comparison starts afresh, remove it or take another --workdir")
    corpus = build_corpus(args.input, workdir / "corpus", args.vocab_size)
    config = training_config(args, workdir / "corpus")
    _, task = read_config(config)
    initial = export(task, config, workdir / "batches")
    results = {
        "command": command,
        "config": config | {"corpus": "corpus"},
        "corpus": {
            "content_sha256": corpus["content_sha256"],
            "text_bytes": corpus["text_bytes"],
            "tokenizer": corpus["tokenizer"],
            "splits": {
                name: {key: split[key] for key in ("documents", "sentences", "tokens")}
                for name, split in corpus["splits"].items()
            },
        },
        "machine": describe(),
        "initial": initial,
    }
    results |= take_turns(config, task, workdir)
    write_page(results, Path(args.results))
    return results


def training_config(args: argparse.Namespace, corpus: Path) -> dict[str, Any]:
    """The config of ``bert_jax.train``, from which the peer's settings are taken as well."""
    return {
        "task": "pretraining",
        "corpus": str(corpus),
        "seed": args.seed,
        "model": {
            "num_hidden_layers": args.layers,
            "hidden_size": args.hidden_size,
            "num_attention_heads": max(1, args.hidden_size // 64),
            "intermediate_size": 4 * args.hidden_size,
            "max_position_embeddings": args.max_seq_length,
        },
        "batch_size": args.batch_size,
        "max_seq_length": args.max_seq_length,
        "train_steps": args.train_steps,
        "warmup_steps": max(1, args.train_steps // 10),
        # The original's uncorrected Adam stands still at the unigram loss for a run's first thousand steps.
        "optimizer": {"learning_rate": args.learning_rate, "bias_correction": True, "b2": 0.98},
        "unigram_bias": True,
        "eval_examples": args.eval_examples,
        "eval_every_steps": args.slice_steps,
        "log_every_steps": args.slice_steps,
        "checkpoint_every_steps": args.train_steps,
        "mesh": {"data": 1},
    }


def documents(inputs: Sequence[str]) -> list[tuple[str, str]]:
    """(name, text) of every document: articles of WikiText files, pieces of about ``PIECE`` characters of others."""
    result = []
    for name in expand_inputs(list(inputs)):
        text = Path(str(name)).read_text(encoding="utf-8", errors="replace")
        pieces = _articles(text) if text.lstrip().startswith("= ") else _pieces(text)
        result += [(f"{Path(str(name)).name}#{i}", piece) for i, piece in enumerate(pieces)]
    return result


def build_corpus(inputs: Sequence[str], directory: Path, vocab_size: int) -> dict[str, Any]:
    """The corpus directory, built unless it is there: the contents of its ``corpus.json``."""
    if not (directory / "corpus.json").exists():
        texts = documents(inputs)
        held_out = 0.05
        tokenizer = learn_wordpiece(sample_texts(texts, Reading(), held_out), vocab_size, lowercase=True)
        build(iter(texts), tokenizer, directory, held_out=held_out)  # a list would be copied into corpus.json
    return json.loads((directory / "corpus.json").read_text(encoding="utf-8"))


def export(task: Task, config: dict[str, Any], directory: Path) -> dict[str, float]:
    """Writes what both models must share, for the peer: initial weights, every training batch with the masks that
    ``train_step`` will draw, the held-out batches with the masks of the evaluation. Returns the held-out figures of
    the initial weights by our model."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "train").mkdir(parents=True)
    (directory / "held_out").mkdir()
    params = task.init(jax.random.key(jnp.asarray(config["seed"], jnp.uint32)))
    flat: dict[str, Any] = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in _leaves(params)
    }
    np.savez(directory / "initial.npz", **flat)
    _export_training(task, config, directory / "train")
    figures = jax.jit(lambda params, batch: task.figures(task.forward(params, batch, None), batch))
    means = Means()
    for index, batch in enumerate(_held_out_batches(task, config)):
        means.add([figures(params, batch)])
        real = np.asarray(batch["example_weights"])[:, 0] > 0
        arrays: dict[str, Any] = {name: np.asarray(batch[name])[real].astype(kind) for name, kind in EXPORTED.items()}
        np.savez(directory / "held_out" / f"{index:05}.npz", **arrays)
    return task.summary(means.ratios())


def take_turns(config: dict[str, Any], task: Task, workdir: Path) -> dict[str, Any]:
    """Trains both in alternating slices: {"ours": {...}, "peer": {...}} with curves and times."""
    optimizer = read_config(config)[0].optimizer
    settings = {
        "directory": str(workdir / "batches"),
        "model": asdict(task.model),
        "optimizer": {name: getattr(optimizer, name) for name in SHARED_OPTIMIZER},
        "train_steps": config["train_steps"],
        "warmup_steps": config["warmup_steps"],
        "seed": config["seed"],
    }
    ends = [
        *range(config["eval_every_steps"], config["train_steps"], config["eval_every_steps"]),
        config["train_steps"],
    ]
    curves: dict[str, list[dict[str, Any]]] = {"ours": [], "peer": []}
    with ExitStack() as stack:
        ours = {"config": config, "workdir": str(workdir / "ours")}
        workers = {
            "ours": stack.enter_context(Worker("experiments.peers.our_training", ours, workdir / "ours.log")),
            "peer": stack.enter_context(Worker("experiments.peers.torch_training", settings, workdir / "peer.log")),
        }
        peer_initial = workers["peer"].ask("evaluate")
        for number, until in enumerate(ends):
            # Who begins changes, so that neither always follows the other.
            for name in ("ours", "peer") if number % 2 == 0 else ("peer", "ours"):
                answer = workers[name].ask("train", until=until)
                if name == "peer":
                    answer["evaluation"] = workers["peer"].ask("evaluate")
                curves[name].append(answer)
            print(_progress(curves), flush=True)
            (workdir / "curves.json").write_text(json.dumps(curves, indent=1) + "\n", encoding="utf-8")
    result: dict[str, Any] = {name: _summary(points) for name, points in curves.items()}
    result["peer"]["initial"] = peer_initial
    result["loss_ratio"] = result["ours"]["mlm_loss"] / result["peer"]["mlm_loss"]
    result["time_ratio"] = result["peer"]["seconds"] / result["ours"]["seconds"]
    return result


def _export_training(task: Task, config: dict[str, Any], directory: Path) -> None:
    """One array [steps, r, ...] a name, row for row what ``train_step`` will see."""
    stream = task.stream(config["batch_size"], config["max_seq_length"], 1)
    seed = jnp.asarray(config["seed"], jnp.uint32)

    @jax.jit
    def prepared(step: jax.Array, batch: dict[str, jax.Array]) -> dict[str, jax.Array]:
        prepare_key, _ = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))  # as in train_step
        return task.prepare(prepare_key, batch)

    files: dict[str, np.ndarray] = {}
    for step in range(config["train_steps"]):
        batch = jax.device_get(prepared(jnp.asarray(step, jnp.int32), stream.batch(step)))
        for name, kind in EXPORTED.items():
            if name not in files:
                shape = (config["train_steps"], *batch[name].shape)
                files[name] = np.lib.format.open_memmap(directory / f"{name}.npy", "w+", kind, shape)
            files[name][step] = batch[name]
    for file in files.values():
        file.flush()  # pyright: ignore[reportAttributeAccessIssue]


def _held_out_batches(task: Task, config: dict[str, Any]) -> Iterator[dict[str, jax.Array]]:
    prepare, key = jax.jit(task.prepare), jax.random.key(config["seed"])  # as in make_evaluate
    evaluation = task.evaluation("held_out", config["batch_size"], config["max_seq_length"], 1)
    for index, batch in enumerate(evaluation.batches):
        yield prepare(jax.random.fold_in(key, index), batch)


def _leaves(params: Any) -> list[tuple[Any, Any]]:
    return jax.tree_util.tree_flatten_with_path(params)[0]


def _summary(points: list[dict[str, Any]]) -> dict[str, Any]:
    """The curve with cumulated seconds, and the figures of its end. Seconds leave out the first step and evaluation."""
    seconds, curve = 0.0, []
    for point in points:
        seconds += point["seconds"]
        curve.append({"step": point["step"], "seconds": seconds, **point["evaluation"]})
    steps, first = points[-1]["step"], sum(point["first_step_seconds"] for point in points)
    slices = [
        point["seconds"] / max(1, point["step"] - max(before, 1))
        for before, point in zip([0, *(p["step"] for p in points)], points, strict=False)
    ]
    return {
        "steps": steps,
        "seconds": seconds,
        "seconds_with_first_step": seconds + first,
        "first_step_seconds": first,
        "seconds_per_step": seconds / max(1, steps - 1),
        "seconds_per_step_median": float(np.median(slices)),
        **points[-1]["evaluation"],
        "curve": curve,
    }


def _progress(curves: dict[str, list[dict[str, Any]]]) -> str:
    texts = [
        f"{name} mlm_loss {points[-1]['evaluation']['mlm_loss']:.4f} nsp {points[-1]['evaluation']['nsp_accuracy']:.3f}"
        f" {sum(p['seconds'] for p in points):.1f} s"
        for name, points in curves.items()
    ]
    return f"step {curves['ours'][-1]['step']:,}  " + "  |  ".join(texts)


def _articles(text: str) -> list[str]:
    """A WikiText file by its titles: lines " = Title = " begin an article, " = = Section = = " do not."""
    parts: list[list[str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        title = stripped.startswith("= ") and stripped.endswith(" =") and not stripped.startswith("= =")
        if title or not parts:
            parts.append([])
        if not stripped.startswith("= "):  # titles are no sentences
            parts[-1].append(line)
    return ["\n\n".join(part) for part in parts if any(map(str.strip, part))]


def _pieces(text: str) -> list[str]:
    """Runs of whole paragraphs of about ``PIECE`` characters."""
    pieces, current, size = [], [], 0
    for paragraph in text.split("\n\n"):
        current.append(paragraph)
        size += len(paragraph)
        if size >= PIECE:
            pieces.append("\n\n".join(current))
            current, size = [], 0
    return [*pieces, "\n\n".join(current)] if size else pieces


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compare_pretraining", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--input", action="append", required=True, metavar="GLOB", help="text files; may be repeated")
    add("--workdir", required=True, metavar="DIR", help="receives corpus, batches, logs and our run")
    add("--results", default="experiments/results", metavar="DIR", help="receives page, plot and figures")
    add("--train_steps", type=int, default=1500, help="default %(default)s")
    add("--batch_size", type=int, default=32, help="default %(default)s")
    add("--max_seq_length", type=int, default=128, help="default %(default)s")
    add("--learning_rate", type=float, default=1e-3, help="at the end of the warm-up (default %(default)s)")
    add("--layers", type=int, default=4, help="default %(default)s")
    add("--hidden_size", type=int, default=256, help="64 a head (default %(default)s)")
    add("--vocab_size", type=int, default=8192, help="pieces to learn (default %(default)s)")
    add("--eval_examples", type=int, default=512, help="held-out examples an evaluation (default %(default)s)")
    add("--slice_steps", type=int, default=50, help="steps before the other's turn (default %(default)s)")
    add("--seed", type=int, default=0, help="default %(default)s")
    return parser


if __name__ == "__main__":
    main()
