"""How fast the input pipeline alone is, and what a huge corpus costs to open.

    python -m experiments.benchmark_input [--json FILE] [--corpus_tokens 3000000000] [--scratch DIR]

Prints examples a second and core (pairs drawn, order, rows assembled; a whole epoch, so that drawing is paid
for), and, in a fresh process, the seconds and the resident memory of opening a synthetic corpus of three
billion tokens and taking the batch of step 500,000. Its token file is sparse, its offsets are real: about 1.3
GB in --scratch, removed afterwards.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.batches import PretrainingBatches
from bert_jax.data.corpus import Corpus, token_dtype, write_info
from bert_jax.data.examples import ExampleSettings

VOCAB_SIZE = 30522
SPEED_TOKENS = 8_000_000


class SpecialIds(NamedTuple):
    """Those of the original vocabulary."""

    pad_id: int = 0
    cls_id: int = 101
    sep_id: int = 102


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus_tokens", type=int, default=3_000_000_000, help="of the corpus to open")
    parser.add_argument("--step", type=int, default=500_000, help="the step to start from")
    parser.add_argument("--scratch", help="where to put the synthetic corpora (the temporary directory)")
    parser.add_argument("--json", help="write the figures to this file as well")
    args = parser.parse_args(arguments)
    figures = measure(args.corpus_tokens, args.step, args.scratch)
    print(report(figures))
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def measure(
    corpus_tokens: int = 3_000_000_000,
    step: int = 500_000,
    scratch: str | None = None,
    speed_tokens: int = SPEED_TOKENS,
) -> dict[str, Any]:
    """All figures: {"speed": [one entry for each length and batch size], "opening": {...}}."""
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        small = write_synthetic_corpus(Path(directory) / "small", speed_tokens)
        speed = [
            measure_speed(small, max_seq_length, batch_size, fill)
            for max_seq_length in (128, 512)
            for batch_size in (32, 256)
            for fill in ("document", "across_documents")
        ]
        large = write_synthetic_corpus(Path(directory) / "large", corpus_tokens, sparse=True)
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # a process with nothing else in memory
            opening = pool.apply(measure_opening, (large, step))
    return {"speed": speed, "opening": opening}


def measure_speed(directory: Path, max_seq_length: int, batch_size: int, fill: str) -> dict[str, Any]:
    """One whole epoch on one core, the drawing of its pairs included."""
    settings = ExampleSettings(max_seq_length, fill=fill)
    batches = PretrainingBatches(Corpus.open(directory), SpecialIds(), settings, 0, batch_size)
    wall, cpu, used = time.perf_counter(), time.process_time(), 0
    for step in range(batches.steps_per_epoch):
        used += int(batches.batch(step)["sequence_ids"].sum())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    examples = batches.steps_per_epoch * batch_size
    return {
        "max_seq_length": max_seq_length,
        "batch_size": batch_size,
        "fill_rule": fill,
        "fill": used / (examples * max_seq_length),
        "examples": examples,
        "examples_per_second": examples / wall,
        "examples_per_cpu_second": examples / cpu,
        "milliseconds_per_batch": 1000 * wall / batches.steps_per_epoch,
    }


def measure_opening(directory: Path, step: int) -> dict[str, Any]:
    """Seconds to open and to take the first batches of 256 x 128, and this process's resident memory."""
    before = resident_megabytes()
    start = time.perf_counter()
    corpus = Corpus.open(directory)
    batches = PretrainingBatches(corpus, SpecialIds(), ExampleSettings(128), 0, 256)
    opened = time.perf_counter()
    batches.batch(step)
    first = time.perf_counter()
    for later in range(step + 1, step + 1000):
        batches.batch(later)
    return {
        "tokens": corpus.num_tokens,
        "sentences": corpus.num_sentences,
        "documents": corpus.num_documents,
        "examples_per_epoch": batches.num_examples,
        "step": step,
        "seconds_to_open": opened - start,
        "seconds_to_first_batch": first - opened,
        "seconds_for_1000_more": time.perf_counter() - first,
        "megabytes_before": before,
        "peak_megabytes": resident_megabytes(),
    }


def resident_megabytes() -> float:
    """The largest resident memory of this process so far."""
    status = Path("/proc/self/status")
    if status.exists():  # unlike getrusage, this leaves out the process that started this one
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def write_synthetic_corpus(directory: Path, tokens: int, *, sparse: bool = False) -> Path:
    """A corpus of documents of 5 to 40 sentences of 1 to 49 tokens; with `sparse` every token is id 0 and
    takes no space."""
    random = np.random.default_rng(0)
    train, held_out = directory / "train", directory / "held_out"
    train.mkdir(parents=True)
    held_out.mkdir()
    pattern = random.integers(1, 50, 1 << 20)
    lengths = np.resize(pattern, max(2, round(tokens / pattern.mean())))
    counts = np.resize(random.integers(5, 41, 1 << 18), max(1, round(len(lengths) / 22.5)))
    counts = counts[: max(1, int(np.searchsorted(np.cumsum(counts), len(lengths))))]
    sizes = {"documents": len(counts), "sentences": int(counts.sum())}
    sizes["tokens"] = _write_offsets(train / "sentences.bin", lengths[: sizes["sentences"]])
    _write_offsets(train / "documents.bin", counts)
    with (train / "tokens.bin").open("wb") as file:
        if sparse:
            file.truncate(sizes["tokens"] * token_dtype(VOCAB_SIZE).itemsize)
        else:
            file.write(random.integers(1000, VOCAB_SIZE, sizes["tokens"]).astype(token_dtype(VOCAB_SIZE)).tobytes())
    for split in (train, held_out):
        (split / "unigrams.bin").write_bytes(bytes(8 * VOCAB_SIZE))
    for name, size in (("tokens", 0), ("sentences", 8), ("documents", 8)):
        (held_out / f"{name}.bin").write_bytes(bytes(size))
    unhashed = {"file_sha256": dict.fromkeys(("tokens", "sentences", "documents", "unigrams"), "00" * 32)}
    nothing = {"documents": 0, "sentences": 0, "tokens": 0}
    write_info(directory, VOCAB_SIZE, {"train": sizes | unhashed, "held_out": nothing | unhashed})
    return directory


def _write_offsets(path: Path, lengths: np.ndarray) -> int:
    """Writes the offsets of runs of these lengths, in pieces; the last one."""
    total = 0
    with path.open("wb") as file:
        file.write(bytes(8))
        for first in range(0, len(lengths), 1 << 22):
            offsets = total + np.cumsum(lengths[first : first + (1 << 22)])
            file.write(offsets.astype("<i8").tobytes())
            total = int(offsets[-1])
    return total


def report(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    rows = ["columns  batch  fill rule         fill   examples/s   examples/s/core   ms/batch"]
    for entry in figures["speed"]:
        rows.append(
            f"{entry['max_seq_length']:7}  {entry['batch_size']:5}  {entry['fill_rule']:16} {entry['fill']:5.3f}"
            f"   {entry['examples_per_second']:10,.0f}   {entry['examples_per_cpu_second']:15,.0f}"
            f"   {entry['milliseconds_per_batch']:8.2f}"
        )
    opening = figures["opening"]
    rows.append(
        f"corpus of {opening['tokens']:,} tokens: opened in {opening['seconds_to_open']:.2f} s,"
        f" batch of step {opening['step']:,} after {opening['seconds_to_first_batch']:.2f} s more,"
        f" 1,000 more in {opening['seconds_for_1000_more']:.2f} s;"
        f" resident memory {opening['megabytes_before']:.0f} MB before, at most {opening['peak_megabytes']:.0f} MB"
    )
    return "\n".join(rows)


if __name__ == "__main__":
    main()
