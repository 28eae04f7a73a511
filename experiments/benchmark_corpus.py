"""Corpus building against the same work done by `transformers`' fast tokenizer and `datasets`, and its memory.

    python -m experiments.benchmark_corpus --input 'texts/*.txt' --vocab vocab.txt            # speed, alternating
    python -m experiments.benchmark_corpus --input 'texts/*.txt' --vocab vocab.txt --memory   # 10 MB -> 2 GB

Both read the same file of one sentence a line, tokenise it with the same uncased vocabulary in as many
processes, and write ids to the disk; the peer keeps no documents, counts and hashes. Every run is a process of
its own, and its clock starts after the imports. Peak memory is that of the first process plus the workers' largest
times their number.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.data.corpus_builder import build
from bert_jax.data.documents import Reading, expand_inputs, parse, read_units
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer


def measure(
    inputs: Sequence[str],
    vocab: str | Path,
    *,
    rounds: int = 3,
    workers: int = 2,
    repeat: int = 1,
    peer: bool = True,
) -> dict[str, Any]:
    """Medians over alternating rounds: MB/s of ours and the peer's, and the ratio.

    The `cpu` figures count processor seconds of all processes, which other load on the machine disturbs less.

    inputs: files of text; they are split into sentences first, outside of the clock. `repeat`: how often the
    text is written to the file (more words are known from before than in a real corpus of that size).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sentences.txt"
        write_sentences(inputs, path, repeat)
        megabytes = path.stat().st_size / 1e6
        times: dict[str, list[float]] = {"ours": [], "peer": []}
        cpu: dict[str, list[float]] = {"ours": [], "peer": []}
        tokens = {}
        for _ in range(rounds):
            for name in ("ours", "peer") if peer else ("ours",):
                run = _run(name, path, vocab, workers)
                times[name].append(run["seconds"])
                cpu[name].append(run["cpu_seconds"])
                tokens[name] = run["tokens"]
    result: dict[str, Any] = {"megabytes": megabytes, "workers": workers, "rounds": rounds, "tokens": tokens}
    for name, seconds in times.items():
        if seconds:
            result[f"{name}_mb_per_s"] = megabytes / statistics.median(seconds)
            result[f"{name}_mb_per_s_best"] = megabytes / min(seconds)
            result[f"{name}_mb_per_cpu_s"] = megabytes / statistics.median(cpu[name])
    if peer:
        result["ratio"] = statistics.median(times["peer"]) / statistics.median(times["ours"])
        result["cpu_ratio"] = statistics.median(cpu["peer"]) / statistics.median(cpu["ours"])
    return result


def measure_memory(
    inputs: Sequence[str], vocab: str | Path, *, megabytes: Sequence[int] = (10, 2_000), workers: int = 2
) -> dict[str, Any]:
    """Peak resident memory in MB for texts of several sizes, every tenth sentence with a word never seen before."""
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sentences.txt"
        for size in megabytes:
            _write_growing(inputs, path, size)
            peaks[f"{size} MB"] = _run("ours", path, vocab, workers)["peak_mb"]
            path.unlink()
    return {"workers": workers, "peak_mb": peaks, "growth_mb": max(peaks.values()) - min(peaks.values())}


def write_sentences(inputs: Sequence[str], path: Path, repeat: int = 1) -> None:
    """One sentence a line, blank lines between documents."""
    reading = Reading()
    with path.open("w", encoding="utf-8") as file:
        for _ in range(repeat):
            for unit in read_units(expand_inputs(list(inputs)), reading, Problems()):
                documents = parse(unit, reading)
                start = 0
                for length in documents.lengths:
                    file.write("\n".join(documents.sentences[start : start + length]) + "\n\n")
                    start += length


def build_ours(path: Path, vocab: str, workers: int, output: Path) -> int:
    tokenizer = load_tokenizer(vocab, lowercase=True)
    info = build(str(path), tokenizer, output, workers=workers, reading=Reading("lines"), progress=False)
    return sum(split["tokens"] for split in info["splits"].values())


def build_peer(path: Path, vocab: str, workers: int, output: Path) -> int:
    """As Hugging Face's own examples do it: a text data set, a batched map, saved to the disk."""
    import datasets
    from transformers import BertTokenizer

    datasets.disable_progress_bars()
    tokenizer = BertTokenizer(vocab, do_lower_case=True)

    def encode(batch: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        encoded = tokenizer(
            batch["text"], add_special_tokens=False, return_attention_mask=False, return_token_type_ids=False
        )
        return {"input_ids": encoded["input_ids"]}

    rows = datasets.load_dataset("text", data_files=str(path), split="train", cache_dir=str(output / "cache"))
    rows = rows.map(encode, batched=True, num_proc=workers, remove_columns=["text"])
    rows.save_to_disk(str(output / "ids"))
    return sum(len(ids.values) for ids in rows.data.column("input_ids").chunks)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", action="append", required=True, metavar="GLOB")
    parser.add_argument("--vocab", required=True, metavar="FILE", help="an uncased vocab.txt")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1, help="write the text this often (default %(default)s)")
    parser.add_argument("--memory", action="store_true", help="measure memory instead of speed")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[10, 2_000], help="sizes for --memory")
    parser.add_argument("--child", choices=("ours", "peer"), help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.child:
        result = _child(args.child, Path(args.input[0]), args.vocab, args.workers)
    elif args.memory:
        result = measure_memory(args.input, args.vocab, megabytes=args.megabytes, workers=args.workers)
    else:
        result = measure(args.input, args.vocab, rounds=args.rounds, workers=args.workers, repeat=args.repeat)
    print(json.dumps(result))


def _run(name: str, path: Path, vocab: str | Path, workers: int) -> dict[str, float]:
    """One building in a process of its own: {"seconds", "cpu_seconds", "tokens", "peak_mb"}."""
    command = [sys.executable, "-m", "experiments.benchmark_corpus", "--child", name, "--input", str(path)]
    command += ["--vocab", str(vocab), "--workers", str(workers)]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    if output.returncode:
        raise RuntimeError(f"building with {name} failed: {output.stderr[-2000:]}")
    return json.loads(output.stdout.splitlines()[-1])


def _child(name: str, path: Path, vocab: str, workers: int) -> dict[str, float]:
    if name == "peer":
        import datasets  # noqa: F401  (not on the clock)
        import transformers  # noqa: F401
    output = Path(tempfile.mkdtemp(dir=path.parent))
    try:
        cpu_before, start = time.process_time(), time.perf_counter()
        tokens = {"ours": build_ours, "peer": build_peer}[name](path, vocab, workers, output / "output")
        seconds = time.perf_counter() - start
    finally:
        shutil.rmtree(output)
    unit = 1e6 if sys.platform == "darwin" else 1e3  # ru_maxrss: bytes or kilobytes
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(used.ru_utime + used.ru_stime for used in usage) - cpu_before
    own, children = (used.ru_maxrss / unit for used in usage)
    return {
        "seconds": seconds,
        "cpu_seconds": cpu,
        "tokens": tokens,
        "peak_mb": own + (workers * children if workers > 1 else 0),
    }


def _write_growing(inputs: Sequence[str], path: Path, megabytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base.txt"
        write_sentences(inputs, base)
        lines = base.read_text(encoding="utf-8").split("\n")
    size, number = 0, 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1_000_000:
            number += 1
            new = [f"{line} w{number:x}x{i:x}" if line and i % 10 == 0 else line for i, line in enumerate(lines)]
            text = "\n".join(new)
            text = text[: megabytes * 1_000_000 - size] + "\n"
            size += file.write(text)


if __name__ == "__main__":
    main()
