"""A corpus directory: tokenised text as flat, memory-mapped arrays that explain themselves.

    DIR/corpus.json                tokenizer, counts, hashes; written last, so its presence means "complete"
    DIR/tokenizer/                 everything needed to rebuild the tokenizer
    DIR/{train,held_out}/tokens.bin      token ids of all sentences, no special tokens; uint16, or uint32
                                         when the vocabulary has more than 65,536 entries
    DIR/{train,held_out}/sentences.bin   int64 [num_sentences + 1], where each begins in the tokens
    DIR/{train,held_out}/documents.bin   int64 [num_documents + 1], where each begins in the sentences
    DIR/{train,held_out}/unigrams.bin    int64 [vocab_size], how often each id occurs

All files are little-endian. Every sentence has at least one token and every document at least one sentence.
The text is stored once and unmasked: pairs, masks and order are drawn when training (`examples.py`).
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

FORMAT_VERSION = 1
SPLITS = ("train", "held_out")
_OFFSET = np.dtype("<i8")


@dataclass(frozen=True)
class Corpus:
    """One split of a corpus directory. The arrays are read-only maps of the files: opening costs nothing."""

    directory: Path
    split: str
    tokens: Integer[np.ndarray, " tokens"]
    sentences: Int[np.ndarray, " sentences_plus_1"]
    documents: Int[np.ndarray, " documents_plus_1"]
    unigrams: Int[np.ndarray, " v"]
    info: dict[str, Any] = field(repr=False)
    _maps: tuple[mmap.mmap, ...] = field(repr=False, default=())

    @classmethod
    def open(cls, directory: str | Path, split: str = "train") -> Corpus:
        """Open a finished corpus. FileNotFoundError where there is none, ValueError where it is damaged."""
        directory = Path(directory)
        info = read_info(directory)
        if split not in info["splits"]:
            raise ValueError(f"{directory} has no split {split!r}; it has {', '.join(info['splits'])}")
        counts = info["splits"][split]
        shapes = {
            "tokens": (np.dtype(info["dtype"]).newbyteorder("<"), counts["tokens"]),
            "sentences": (_OFFSET, counts["sentences"] + 1),
            "documents": (_OFFSET, counts["documents"] + 1),
            "unigrams": (_OFFSET, info["tokenizer"]["vocab_size"]),
        }
        arrays, maps = {}, []
        for name, (dtype, length) in shapes.items():
            arrays[name], mapped = _map_array(directory / split / f"{name}.bin", dtype, length)
            maps += [mapped] if mapped is not None else []
        return cls(directory=directory, split=split, info=info, _maps=tuple(maps), **arrays)

    @property
    def vocab_size(self) -> int:
        return len(self.unigrams)

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_sentences(self) -> int:
        return len(self.sentences) - 1

    @property
    def num_documents(self) -> int:
        return len(self.documents) - 1

    def release_pages(self) -> None:
        """Give the pages read so far back to the system; what is read again comes from its file cache.

        Only keeps the resident memory of a long run small: the arrays stay valid and unchanged.
        """
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in self._maps:
                mapped.madvise(mmap.MADV_DONTNEED)


def read_info(directory: str | Path) -> dict[str, Any]:
    """The contents of `corpus.json`. FileNotFoundError where the directory is no finished corpus."""
    path = Path(directory) / "corpus.json"
    if not path.is_file():
        raise FileNotFoundError(
            f"{directory} is not a finished corpus (no corpus.json); build one with experiments.build_corpus"
        )
    return parse_info(path.read_bytes(), str(path))


def parse_info(content: bytes, path: str) -> dict[str, Any]:
    """What a ``corpus.json`` says. ValueError, with its ``path``, where it is damaged or of another version."""
    try:
        info = json.loads(content.decode("utf-8"))
        version = info["format_version"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}); build the corpus again") from None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path} has format_version {version}, this code reads {FORMAT_VERSION}; build the corpus again"
        )
    return info


def token_dtype(vocab_size: int) -> np.dtype:
    """The smallest dtype of the two that holds every id below `vocab_size`."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


class SplitWriter:
    """Appends documents to one split, in order, and hashes what it writes. Memory does not grow."""

    def __init__(self, directory: str | Path, vocab_size: int):
        self.directory = Path(directory)
        self.directory.mkdir(parents=True)
        self.vocab_size = vocab_size
        self.dtype = token_dtype(vocab_size)
        self.unigrams = np.zeros(vocab_size, np.int64)
        self.num_tokens = self.num_sentences = self.num_documents = 0
        names = ("tokens", "sentences", "documents")
        self._files = {name: (self.directory / f"{name}.bin").open("wb") for name in names}
        self._hashes = {name: hashlib.sha256() for name in (*names, "unigrams")}
        self._write("sentences", np.zeros(1, _OFFSET))
        self._last_end = np.zeros(1, _OFFSET)  # of the last document, not written yet: it may go on

    def append(
        self,
        ids: Integer[np.ndarray, " tokens"],
        sentence_lengths: Integer[np.ndarray, " sentences"],
        document_lengths: Integer[np.ndarray, " documents"],
        continues: bool = False,
    ) -> None:
        """Add documents: their ids, the tokens of each sentence, the sentences of each document.

        `continues`: the first of them is the rest of the last document so far.
        """
        if len(document_lengths) == 0:
            return
        if min(np.min(sentence_lengths, initial=1), np.min(document_lengths)) < 1:
            raise ValueError("a sentence without tokens or a document without sentences; drop it first")
        if int(np.sum(sentence_lengths)) != len(ids) or int(np.sum(document_lengths)) != len(sentence_lengths):
            raise ValueError(f"lengths do not add up: {len(ids)} ids, sentences of {np.sum(sentence_lengths)} tokens")
        low, high = int(np.min(ids)), int(np.max(ids))
        if low < 0 or high >= self.vocab_size:
            raise ValueError(f"token id {low if low < 0 else high} is outside of the vocabulary of {self.vocab_size}")
        self._write("tokens", ids.astype(self.dtype, copy=False))
        self._write("sentences", self.num_tokens + np.cumsum(sentence_lengths, dtype=_OFFSET))
        if not (continues and self.num_documents):
            self._write("documents", self._last_end)
            self.num_documents += 1
        ends = self.num_sentences + np.cumsum(document_lengths, dtype=_OFFSET)
        self._write("documents", ends[:-1])
        self._last_end = ends[-1:]
        self.unigrams += np.bincount(ids, minlength=self.vocab_size)
        self.num_tokens += len(ids)
        self.num_sentences += len(sentence_lengths)
        self.num_documents += len(document_lengths) - 1

    def close(self) -> dict[str, Any]:
        """Flush everything to the disk; the counts and file hashes of this split for `corpus.json`."""
        self._write("documents", self._last_end)
        self._files["unigrams"] = (self.directory / "unigrams.bin").open("wb")
        self._write("unigrams", self.unigrams.astype(_OFFSET, copy=False))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        return {
            "documents": self.num_documents,
            "sentences": self.num_sentences,
            "tokens": self.num_tokens,
            "file_sha256": {name: digest.hexdigest() for name, digest in self._hashes.items()},
        }

    def abandon(self) -> None:
        """Close the files, finished or not."""
        for file in self._files.values():
            file.close()

    def _write(self, name: str, array: np.ndarray) -> None:
        data = np.ascontiguousarray(array).data.cast("B")
        self._hashes[name].update(data)
        self._files[name].write(data)


def write_info(directory: str | Path, vocab_size: int, splits: Mapping[str, dict], **more: Any) -> dict[str, Any]:
    """Declare the corpus complete: write `corpus.json`, in one step, after everything else.

    `splits` are the results of `SplitWriter.close`; `more` is merged in (key `tokenizer` into its entry).
    """
    content = hashlib.sha256()
    for split in SPLITS:
        for name in ("tokens", "sentences", "documents", "unigrams"):
            content.update(bytes.fromhex(splits[split]["file_sha256"][name]))
    tokenizer = {"vocab_size": vocab_size} | more.pop("tokenizer", {})
    info = {
        "format_version": FORMAT_VERSION,
        "content_sha256": content.hexdigest(),
        "dtype": token_dtype(vocab_size).name,
        "tokenizer": tokenizer,
        "splits": {split: splits[split] for split in SPLITS},
        **more,
    }
    temporary = Path(directory) / "corpus.json.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(info, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(Path(directory) / "corpus.json")
    return info


def write_corpus(
    directory: str | Path,
    train: Iterable[Sequence[Sequence[int]]],
    held_out: Iterable[Sequence[Sequence[int]]] = (),
    *,
    vocab_size: int,
) -> None:
    """Write documents given as lists of sentences of ids: for tests and tokenizers of one's own.

    The directory gets no tokenizer; `corpus_builder.build` makes a whole corpus from text.
    """
    splits = {}
    for split, documents in (("train", train), ("held_out", held_out)):
        writer = SplitWriter(Path(directory) / split, vocab_size)
        try:
            for document in documents:
                lengths = np.array([len(sentence) for sentence in document], np.int64)
                ids = np.concatenate([np.asarray(sentence, np.int64) for sentence in document])
                writer.append(ids, lengths, np.array([len(document)], np.int64))
            splits[split] = writer.close()
        finally:
            writer.abandon()
    write_info(directory, vocab_size, splits)


def _map_array(path: Path, dtype: np.dtype, length: int) -> tuple[np.ndarray, mmap.mmap | None]:
    """A read-only array over a file of exactly `length` items, and its map (None where it is empty)."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; build the corpus again")
    size, expected = path.stat().st_size, length * dtype.itemsize
    if size != expected:
        raise ValueError(f"{path} has {size} bytes, corpus.json says {expected}; build the corpus again")
    if size == 0:
        return np.zeros(0, dtype), None
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return np.frombuffer(mapped, dtype), mapped  # read-only, as the map is
