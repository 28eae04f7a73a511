"""Speed of WordPiece for a corpus beside the Rust `tokenizers` library alone, on one core, and whether ids agree.

    python -m experiments.benchmark_tokenizer --input 'TEXT/*.txt' --vocab vocab.txt

MB (10^6 bytes of UTF-8) per second of processor time. `first` starts with an empty memory, `again` with the
chunks of the same text remembered, which is how a corpus of any size goes after its first few megabytes.
"""

import argparse
import glob
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import numpy as np
import tokenizers

from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.wordpiece import WordPiece, read_vocabulary

BATCH = 1000  # lines


def measure(path: str, vocab: str, *, lowercase: bool | None = None, rounds: int = 3) -> dict[str, float | int | bool]:
    """Tokenizes the lines of the files that `path` (a glob) matches, ours and the peer in turn; medians."""
    files = sorted(glob.glob(path, recursive=True))
    if not files:
        raise FileNotFoundError(f"no file matches {path}: give text files")
    lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    ours = load_tokenizer(vocab, lowercase=lowercase)
    if not isinstance(ours, WordPiece):
        raise ValueError(f"{vocab} is a {ours.kind} model, the peer knows WordPiece alone: give a vocab.txt")
    pieces = {piece: i for i, piece in enumerate(read_vocabulary(Path(vocab)))}
    peer = tokenizers.BertWordPieceTokenizer(vocab=pieces, lowercase=ours.lowercase)
    speeds: dict[str, list[float]] = {"first": [], "again": [], "peer": []}
    same = True
    for _ in range(rounds):
        ours = load_tokenizer(vocab, lowercase=lowercase)
        first = _timed(lambda block, t=ours: t.encode_batch(block)[0], lines)
        again = _timed(lambda block, t=ours: t.encode_batch(block)[0], lines)
        theirs = _timed(lambda block: _peer_ids(peer, block), lines)
        for name, (_, seconds) in (("first", first), ("again", again), ("peer", theirs)):
            speeds[name].append(megabytes / seconds)
        same = same and np.array_equal(first[0], theirs[0]) and np.array_equal(again[0], theirs[0])
    medians = {name: statistics.median(values) for name, values in speeds.items()}
    return {
        "megabytes": round(megabytes, 2),
        "tokens": len(theirs[0]),
        "first_mb_per_s": round(medians["first"], 2),
        "again_mb_per_s": round(medians["again"], 2),
        "peer_mb_per_s": round(medians["peer"], 2),
        "first_ratio": round(medians["first"] / medians["peer"], 2),
        "again_ratio": round(medians["again"] / medians["peer"], 2),
        "identical_ids": same,
    }


def _timed(encode: Callable[[Sequence[str]], np.ndarray | list[int]], lines: Sequence[str]) -> tuple[np.ndarray, float]:
    """All ids, and the seconds of processor time spent on them."""
    seconds = 0.0
    ids = []
    for start in range(0, len(lines), BATCH):
        block = lines[start : start + BATCH]
        before = time.process_time()
        found = encode(block)
        seconds += time.process_time() - before
        ids.append(np.asarray(found, np.int32))
    return np.concatenate(ids), seconds


def _peer_ids(peer: tokenizers.BertWordPieceTokenizer, block: Sequence[str]) -> list[int]:
    return [i for found in peer.encode_batch(list(block), add_special_tokens=False) for i in found.ids]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", required=True, help="glob of text files")
    parser.add_argument("--vocab", required=True, help="vocab.txt")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        print(json.dumps(measure(arguments.input, arguments.vocab, rounds=arguments.rounds), indent=2))
    except (ValueError, FileNotFoundError) as error:
        parser.exit(1, f"error: {error}\n")


if __name__ == "__main__":
    main()
