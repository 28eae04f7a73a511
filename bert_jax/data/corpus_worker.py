"""What one process does when a corpus is built: a unit of text -> arrays ready to be appended."""

from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int32, Integer, UInt64

from bert_jax.data.corpus import SPLITS, token_dtype
from bert_jax.data.documents import Documents, Reading, Unit, parse
from bert_jax.data.duplicates import hash_sentences
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer

_CHECKED_SENTENCES, _CHECKED_CHARACTERS = 100, 2_000  # of each part of a unit, for warnings about the script


@dataclass(frozen=True)
class Arrays:
    """Whole documents: ids, tokens of each sentence, sentences of each document; none of them empty."""

    ids: Integer[np.ndarray, " tokens"]
    sentence_lengths: Int32[np.ndarray, " sentences"]
    document_lengths: Int32[np.ndarray, " documents"]

    @property
    def num_documents(self) -> int:
        return len(self.document_lengths)


@dataclass(frozen=True)
class EncodedUnit:
    """The documents of a unit: the rest of the one before (`head`), then those of each split in order."""

    head: Arrays
    head_hash: int
    head_split: str  # where the head belongs if it turns out to be a document of its own
    splits: dict[str, Arrays]
    document_hashes: UInt64[np.ndarray, " documents"]
    sentence_hashes: UInt64[np.ndarray, " sentences"]
    last_split: str | None  # of the last document; None where the unit has only a head
    ends_open: bool
    one_sentence_documents: int
    problems: Problems
    decomposes: bool
    size: int
    file_bytes: int


class UnitEncoder:
    """(Tokenizer, Reading, share of held-out documents) -> a function of units."""

    def __init__(self, tokenizer: Tokenizer, reading: Reading, held_out: float):
        self.tokenizer, self.reading, self.held_out = tokenizer, reading, held_out

    def __call__(self, unit: Unit) -> EncodedUnit:
        documents = parse(unit, self.reading)
        hashes = hash_documents(documents)
        arrays, filled = self._encode(documents)
        hashes, has_head = hashes[filled], bool(documents.continues and filled[:1].any())
        held_out = is_held_out(hashes, self.held_out)
        in_head = np.zeros(len(hashes), bool)
        in_head[:1] = has_head
        train, held = ~held_out & ~in_head, held_out & ~in_head
        last = None if train.sum() + held.sum() == 0 else SPLITS[int(held_out[-1])]
        return EncodedUnit(
            head=_select(arrays, in_head),
            head_hash=int(hashes[0]) if has_head else 0,
            head_split=SPLITS[int(held_out[0])] if has_head else SPLITS[0],
            splits={"train": _select(arrays, train), "held_out": _select(arrays, held)},
            document_hashes=hashes[~in_head],
            sentence_hashes=hash_sentences(arrays.ids, arrays.sentence_lengths, self.tokenizer.vocab_size),
            last_split=last,
            ends_open=documents.ends_open and bool(filled[-1:].any()),
            one_sentence_documents=int((arrays.document_lengths[~in_head] == 1).sum()),
            problems=documents.problems,
            decomposes=any(not text.isascii() and self.tokenizer.decomposes(text) for text in _samples(documents)),
            size=unit.size,
            file_bytes=unit.file_bytes,
        )

    def _encode(self, documents: Documents) -> tuple[Arrays, Bool[np.ndarray, " documents"]]:
        """Tokenise; sentences without tokens and documents without sentences are dropped (False) and counted."""
        ids, lengths = self.tokenizer.encode_words(documents.sentences)
        owners = np.repeat(np.arange(len(documents.lengths)), documents.lengths)
        kept = lengths > 0
        if not kept.all():
            place = documents.source(int(np.argmin(kept)))
            documents.problems.add("sentence without tokens", place, int((~kept).sum()))
        sizes = np.bincount(owners[kept], minlength=len(documents.lengths))
        filled = sizes > 0
        lost = ~filled & (np.array(documents.lengths, np.int64) > 0)
        if lost.any():
            place = documents.source(int(np.argmax(lost[owners])))
            documents.problems.add("document without tokens", place, int(lost.sum()))
        arrays = Arrays(
            ids.astype(token_dtype(self.tokenizer.vocab_size)),
            lengths[kept].astype(np.int32),
            sizes[filled].astype(np.int32),
        )
        return arrays, filled


def _samples(documents: Documents) -> Iterator[str]:
    """The beginning of each part: parts, unlike units, depend on the inputs alone and not on what is read with them."""
    starts = [start for start, _ in documents.parts]
    for start, end in itertools.pairwise([*starts, len(documents.sentences)]):
        yield " ".join(documents.sentences[start : min(end, start + _CHECKED_SENTENCES)])[:_CHECKED_CHARACTERS]


def hash_documents(documents: Documents) -> UInt64[np.ndarray, " documents"]:
    """64 bits of the text of each document: the same whatever the tokenizer, the order and the workers."""
    hashes = np.zeros(len(documents.lengths), np.uint64)
    start = 0
    for number, length in enumerate(documents.lengths):
        text = "\n".join(documents.sentences[start : start + length])
        start += length
        digest = hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest()
        hashes[number] = int.from_bytes(digest, "little")
    return hashes


def is_held_out(hashes: UInt64[np.ndarray, " n"], share: float) -> Bool[np.ndarray, " n"]:
    """Which documents are for evaluation only: told by their own hash, so that duplicates stay together."""
    return hashes < np.uint64(int(share * 2**63) * 2) if share < 1 else np.ones(len(hashes), bool)


def start_worker(tokenizer: Tokenizer, reading: Reading, held_out: float) -> None:
    """Set up a worker process: leave Ctrl-C to the parent, and end when the parent is gone."""
    global _encode
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _encode = UnitEncoder(tokenizer, reading, held_out)


def encode_in_worker(unit: Unit) -> EncodedUnit:
    assert _encode is not None, "start_worker was not run"
    return _encode(unit)


_encode: UnitEncoder | None = None


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _select(arrays: Arrays, chosen: Bool[np.ndarray, " documents"]) -> Arrays:
    """The chosen documents, in order."""
    if chosen.all():
        return arrays
    sentences = np.repeat(chosen, arrays.document_lengths)
    tokens = np.repeat(sentences, arrays.sentence_lengths)
    return Arrays(arrays.ids[tokens], arrays.sentence_lengths[sentences], arrays.document_lengths[chosen])
