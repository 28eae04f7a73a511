"""Raw text -> a corpus directory, streamed, in parallel, the same to the byte for any number of workers.

One process reads units of a few megabytes that end where documents end, workers turn them into ids, and the
first process appends the results in order. At any time only a few units are in memory, whatever the corpus.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.corpus import SPLITS, SplitWriter, write_info
from bert_jax.data.corpus_worker import (
    Arrays,
    EncodedUnit,
    UnitEncoder,
    encode_in_worker,
    hash_documents,
    is_held_out,
    start_worker,
)
from bert_jax.data.documents import Input, Reading, Unit, expand_inputs, parse, read_units, total_bytes
from bert_jax.data.duplicates import DuplicateShare
from bert_jax.data.object_store import is_url
from bert_jax.data.stored_corpus import check_place, corpus_output
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer, unknown_warning

# (inputs, what encodes a unit, what reading meets, files by kind) -> the encoded units of all inputs in order. The
# last two are filled by the time that the iterator ends.
EncodeAll = Callable[
    [list[str] | Iterable[Input], UnitEncoder, Problems, dict[str, int]],
    Iterator[EncodedUnit],
]
VOCABULARY_BYTES = 128 << 20  # of text, at most about this much is looked at to learn a vocabulary
_COMPRESSION = 4  # assumed ratio of compressed inputs, only to spread that sample
_DECOMPOSES = (
    "the text has Hangul or kana, which this uncased tokenizer takes apart into Jamo and base letters (as the "
    "original BERT does); use a cased vocabulary"
)


def build(
    inputs: Input | Iterable[Input],
    tokenizer: Tokenizer | str | Path,
    output: str | Path,
    *,
    held_out: float = 0.01,
    workers: int | None = None,
    overwrite: bool = False,
    reading: Reading | None = None,
    progress: bool = True,
    encode_all: EncodeAll | None = None,
) -> dict[str, Any]:
    """Build the corpus directory `output`, here or at a URL; the contents of its `corpus.json`.

    inputs: file names, globs, also URLs, `tfds:NAME[:split]`, or documents as (name, text), also a stream of them.
    held_out: the share of documents for evaluation, chosen by their contents.
    workers: processes; None = the cores of this machine, 1 = no other process. The corpus is the same.
    overwrite: replace a finished corpus; anything else in `output` is never touched.
    encode_all: does the reading and tokenising instead of `workers` (`corpus_beam`). The corpus is the same.

    What cannot be read is skipped and counted in the result, with the first place of each kind. No document at
    all is a ValueError, a pattern without a file a FileNotFoundError. `output` appears when all is done.
    """
    check_arguments(output, held_out, workers, overwrite)
    reading = reading or Reading()
    names = expand_inputs(inputs)
    if not isinstance(tokenizer, Tokenizer):
        tokenizer = load_tokenizer(tokenizer)
    total = total_bytes(names)
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if total is not None and total <= reading.block_bytes:
            workers = 1  # starting processes would take longer
    from tqdm import tqdm  # here, because worker processes import this module too and do without

    with corpus_output(output) as place, _building(place) as directory:
        corpus = _Builder(directory, tokenizer)
        problems, formats = Problems(), {}
        encoder = UnitEncoder(tokenizer, reading, held_out)
        encode_all = encode_all or partial(_encode_here, workers)
        try:
            with tqdm(total=total, unit="B", unit_scale=True, desc="corpus", disable=not progress) as bar:
                for encoded in encode_all(names, encoder, problems, formats):
                    corpus.append(encoded)
                    bar.update(encoded.file_bytes or encoded.size)
            problems.merge(corpus.problems)
            return corpus.finish(names, formats, problems, held_out)
        finally:
            corpus.close_files()


def check_arguments(output: str | Path, held_out: float, workers: int | None, overwrite: bool) -> None:
    """ValueError for what `build` would refuse, before anything is read."""
    if not 0 <= held_out < 1:
        raise ValueError(f"held_out {held_out} is not a share; give 0 <= held_out < 1")
    if workers is not None and workers < 1:
        raise ValueError(f"workers {workers} < 1; give the number of processes, or None for all cores")
    if is_url(output):
        return check_place(str(output), overwrite)
    output = Path(output)
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "corpus.json").is_file():
        raise ValueError(f"{output} exists and is no corpus; choose another output or remove it")
    if not overwrite:
        raise ValueError(f"{output} is a finished corpus; choose another output or pass --overwrite")


def sample_texts(inputs: Input | Iterable[Input], reading: Reading, held_out: float = 0.0) -> Iterator[str]:
    """Text to learn a vocabulary from: sentences, document by document, without those that are held out.

    All of a small corpus; of one larger than `VOCABULARY_BYTES`, units at regular distances through all inputs,
    about that much together and never more than twice as much. ValueError where there is no sentence at all.
    """
    names = expand_inputs(inputs)
    expected = (total_bytes(names) or 0) + (_COMPRESSION - 1) * (total_bytes(names, compressed=True) or 0)
    stride = max(1, round(expected / VOCABULARY_BYTES))
    size, skipping, empty = 0, False, True
    problems = Problems()
    for number, unit in enumerate(read_units(names, reading, problems)):
        if number % stride:
            continue
        documents = parse(unit, reading)
        problems.merge(documents.problems)
        skipped = is_held_out(hash_documents(documents), held_out)
        if documents.continues and len(skipped):
            skipped[0] = skipping or stride > 1  # where units are left out, nobody knows which half it is
        start = 0
        for length, skip in zip(documents.lengths, skipped, strict=True):
            if not skip:
                yield from documents.sentences[start : start + length]
            start += length
            skipping = bool(skip)
        size += unit.size
        empty &= not documents.sentences
        if size >= 2 * VOCABULARY_BYTES:
            return
    if empty:
        raise ValueError(_no_document(problems))


class _Builder:
    """Appends encoded units to both splits and counts."""

    def __init__(self, directory: Path, tokenizer: Tokenizer):
        self.directory, self.tokenizer = directory, tokenizer
        tokenizer.save(directory / "tokenizer")
        self.writers = {split: SplitWriter(directory / split, tokenizer.vocab_size) for split in SPLITS}
        self.document_duplicates, self.sentence_duplicates = DuplicateShare(), DuplicateShare()
        self.problems = Problems()
        self.open_split: str | None = None  # where the last document went, if the next unit may continue it
        self.one_sentence_documents = self.text_bytes = 0
        self.decomposes = False

    def append(self, unit: EncodedUnit) -> None:
        if unit.head.num_documents:
            self._append_head(unit)
        for split, arrays in unit.splits.items():
            _append(self.writers[split], arrays)
        self.document_duplicates.add(unit.document_hashes)
        self.sentence_duplicates.add(unit.sentence_hashes)
        self.problems.merge(unit.problems)
        if not unit.ends_open:
            self.open_split = None
        elif unit.last_split is not None:
            self.open_split = unit.last_split
        self.one_sentence_documents += unit.one_sentence_documents
        self.text_bytes += unit.size
        self.decomposes |= unit.decomposes

    def _append_head(self, unit: EncodedUnit) -> None:
        if self.open_split is not None:
            _append(self.writers[self.open_split], unit.head, continues=True)
            return
        # The document before ended after all (a blank line of unusual white space at the border of the units).
        self.open_split = unit.head_split
        _append(self.writers[unit.head_split], unit.head)
        self.document_duplicates.add(np.array([unit.head_hash], np.uint64))

    def close_files(self) -> None:
        for writer in self.writers.values():
            writer.abandon()

    def finish(self, names: Any, formats: dict[str, int], problems: Problems, held_out: float) -> dict[str, Any]:
        """Write `corpus.json`, or a ValueError if there is nothing to write."""
        documents = sum(writer.num_documents for writer in self.writers.values())
        if documents == 0:
            raise ValueError(_no_document(problems))
        if self.writers["train"].num_documents == 0:
            raise ValueError(f"all {documents} documents are held out; use a held_out smaller than {held_out}")
        splits = {}
        for split, writer in self.writers.items():
            splits[split] = writer.close()
            splits[split]["unknown_tokens"] = int(writer.unigrams[self.tokenizer.unk_id])
        tokens = sum(counts["tokens"] for counts in splits.values())
        unknown = sum(counts["unknown_tokens"] for counts in splits.values())
        return write_info(
            self.directory,
            self.tokenizer.vocab_size,
            splits,
            tokenizer={
                "kind": self.tokenizer.kind,
                "lowercase": self.tokenizer.lowercase,
                "sha256": self.tokenizer.fingerprint(),
            },
            text_bytes=self.text_bytes,
            held_out=held_out,
            unknown_share=unknown / tokens,
            duplicate_documents={
                "share": self.document_duplicates.share,
                "exact": self.document_duplicates.exact,
            },
            duplicate_sentences={
                "share": self.sentence_duplicates.share,
                "exact": self.sentence_duplicates.exact,
            },
            one_sentence_documents=self.one_sentence_documents,
            # Documents in memory are text, and may be the whole corpus: their names are no record of it.
            inputs=names if isinstance(names, list) and _are_files(names) else ["documents in memory"],
            formats=formats,
            skipped=problems.as_dict(),
            warnings=self._warnings(splits, unknown, tokens, held_out),
        )

    def _warnings(self, splits: dict, unknown: int, tokens: int, held_out: float) -> list[str]:
        warnings = []
        if (unknown_text := unknown_warning(unknown, tokens)) is not None:
            warnings.append(unknown_text)
        if self.decomposes:
            warnings.append(_DECOMPOSES)
        if held_out > 0 and splits["held_out"]["documents"] == 0:
            warnings.append(
                f"no document was held out of {splits['train']['documents']}: there is nothing to evaluate on; "
                f"raise held_out (now {held_out}) or split the text into more documents"
            )
        if splits["train"]["documents"] == 1:
            warnings.append(
                "all training text is one document, so every 'random' next sentence comes from the same one: give "
                "more files, or separate documents by blank lines (lines, or text with documents=blank_line)"
            )
        if self.document_duplicates.share > 0.1:
            warnings.append(f"{self.document_duplicates.share:.0%} of the documents repeat another: remove them")
        if self.sentence_duplicates.share > 0.3:
            warnings.append(
                f"{self.sentence_duplicates.share:.0%} of the sentences repeat another: a corpus full of repetitions "
                "keeps the loss from falling; remove boilerplate"
            )
        return warnings


def _no_document(problems: Problems) -> str:
    reasons = ", ".join(f"{count} x {reason}" for reason, count in sorted(problems.counts.items()))
    return f"no document in the inputs ({reasons or 'they are empty'}); check --input and --format"


def _append(writer: SplitWriter, arrays: Arrays, continues: bool = False) -> None:
    writer.append(arrays.ids, arrays.sentence_lengths, arrays.document_lengths, continues)


def _encode_here(
    workers: int, names: list[str] | Iterable[Input], encoder: UnitEncoder, problems: Problems, formats: dict[str, int]
) -> Iterator[EncodedUnit]:
    """`EncodeAll` by processes of this machine."""
    return _map_in_order(read_units(names, encoder.reading, problems, formats), encoder, workers)


def _map_in_order(units: Iterable[Unit], encode: UnitEncoder, workers: int) -> Iterator[EncodedUnit]:
    """`encode` of every unit, in order, with at most two units a worker under way."""
    if workers == 1:
        yield from map(encode, units)
        return
    # Never fork: the caller may have started JAX, whose threads do not survive it.
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(encode.tokenizer, encode.reading, encode.held_out),
    )
    pending: deque[Future[EncodedUnit]] = deque()
    try:
        for unit in units:
            pending.append(executor.submit(encode_in_worker, unit))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool:
        raise RuntimeError(
            f"one of {workers} worker processes ended abruptly (out of memory?); try fewer with workers"
        ) from None
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _building(output: Path) -> Iterator[Path]:
    """A directory beside `output` to build in; renamed to it at the end, removed if anything goes wrong.

    What a killed build left behind is removed; that of a living one (it holds a lock) is a ValueError.
    """
    directory = output.with_name(output.name + ".building")
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"another process is building {output}; wait for it or choose another output") from None
        except OSError:
            pass  # a file system without locks
        _empty(directory)
        try:
            yield directory
            _replace(directory, output)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    finally:
        os.close(lock)


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _replace(directory: Path, output: Path) -> None:
    """The old corpus, if any, is there until the new one is: both steps are renames."""
    old = output.with_name(output.name + ".old")
    if output.exists():
        shutil.rmtree(old, ignore_errors=True)
        output.rename(old)
    directory.rename(output)
    shutil.rmtree(old, ignore_errors=True)


def _are_files(names: list[Any]) -> bool:
    return all(isinstance(name, (str, Path)) for name in names)
