"""Inputs of any kind -> documents, each a list of sentences, in bounded memory.

`read_units` runs in one process and hands out units of work; `parse` turns a unit into sentences and may run
anywhere. Inputs are names or URLs of files or globs (also of gzip, zstd, bzip2, xz files), `tfds:NAME[:split]`, or
documents in memory as (name, text).
"""

from __future__ import annotations

import glob
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from bert_jax.data.object_store import glob_urls, is_url, size_of
from bert_jax.data.sentences import split_sentences
from bert_jax.data.text_files import FORMATS, SUFFIXES, UNDECODABLE, Block, Format, Problems, read_blocks
from bert_jax.data.tfds_texts import read_tfds, tfds_size

Input = str | Path | tuple[str, str]


@dataclass(frozen=True)
class Reading:
    """How inputs become documents.

    format: "lines" = one sentence a line, blank lines between documents (the original's format);
      "text" = running text: lines are joined, blank lines separate paragraphs, paragraphs are split into
      sentences; "jsonl" = one document a line, in `text_field` of an object, whose line breaks separate
      paragraphs; "auto" decides for each file (`text_files.detect_format`).
    documents: of "text" files: "file" = each file is a document, "blank_line" = each paragraph is one.
    language: for the sentence splitter.
    block_bytes: the size of a unit of work; a document longer than this is decided on by its first block.
    """

    format: str = "auto"
    documents: str = "file"
    text_field: str = "text"
    language: str = "en"
    block_bytes: int = 4 << 20

    def __post_init__(self) -> None:
        if self.format not in ("auto", *FORMATS):
            raise ValueError(f"format {self.format!r} is not one of auto, {', '.join(FORMATS)}")
        if self.documents not in ("file", "blank_line"):
            raise ValueError(f"documents {self.documents!r} is not one of file, blank_line")


@dataclass(frozen=True)
class Texts:
    """Documents that came as strings. `wrapped`: line breaks are no paragraph ends."""

    source: str
    first: int
    texts: tuple[str, ...]
    wrapped: bool


@dataclass
class Unit:
    """A few megabytes of work: parts in order, at most the first of which continues a document."""

    parts: list[Block | Texts] = field(default_factory=list)
    size: int = 0  # of the text, in bytes (characters of documents in memory)
    file_bytes: int = 0  # read from the disk for it, compressed or not


@dataclass
class Documents:
    """What a unit holds: all sentences in order, and how many of them each document has (0 is possible)."""

    sentences: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    continues: bool = False  # the first document goes on from the unit before, if that one ended open
    ends_open: bool = False  # nothing in the unit says that its last document is over
    problems: Problems = field(default_factory=Problems)
    parts: list[tuple[int, str]] = field(default_factory=list)  # first sentence and source of each of the unit's parts

    def source(self, sentence: int) -> str:
        """Where a sentence is from."""
        return self.parts[bisect_right(self.parts, sentence, key=lambda part: part[0]) - 1][1]


def expand_inputs(inputs: Input | Iterable[Input]) -> list[str] | Iterable[Input]:
    """Globs -> sorted file names without repetitions; documents in memory are passed on as they are.

    FileNotFoundError for a pattern without a file.
    """
    if isinstance(inputs, (str, Path)):
        inputs = [inputs]
    elif not isinstance(inputs, (list, tuple)) or any(isinstance(item, tuple) for item in inputs):
        return inputs
    names: dict[str, None] = {}
    for item in map(str, inputs):
        found = [item] if item.startswith("tfds:") else _files(item)
        names.update(dict.fromkeys(found))
    return list(names)


def total_bytes(names: list[str] | Iterable[Input], compressed: bool = False) -> int | None:
    """The size of the inputs on disk, where it is known before reading; or only of the compressed ones."""
    if not isinstance(names, list):
        return None
    sizes = []
    for name in names:
        if not isinstance(name, str):
            return None
        if name.startswith("tfds:"):
            sizes.append(0 if compressed else tfds_size(name))
        elif not compressed or Path(name).suffix.lower() in SUFFIXES:
            sizes.append(size_of(name) if is_url(name) else Path(name).stat().st_size)
    return sum(sizes)


def read_units(
    names: list[str] | Iterable[Input],
    reading: Reading,
    problems: Problems,
    formats: dict[str, int] | None = None,
) -> Iterator[Unit]:
    """Units of about `reading.block_bytes`, in the order of the inputs; `formats` counts files by kind."""
    unit = Unit()
    for part in _read_parts(names, reading, problems, formats if formats is not None else {}):
        if unit.parts and isinstance(part, Block) and part.continues:
            yield unit
            unit = Unit()
        unit.parts.append(part)
        unit.size += len(part.data) if isinstance(part, Block) else sum(map(len, part.texts))
        unit.file_bytes += part.file_bytes if isinstance(part, Block) else 0
        if unit.size >= reading.block_bytes // 2:
            yield unit
            unit = Unit()
    if unit.parts:
        yield unit


def parse(unit: Unit, reading: Reading) -> Documents:
    """The documents of a unit, in order. Documents without a sentence have length 0."""
    documents = Documents()
    for index, part in enumerate(unit.parts):
        documents.parts.append((len(documents.sentences), part.source))
        if isinstance(part, Texts):
            for number, text in enumerate(part.texts, part.first):
                _add_text(documents, text, f"{part.source}:{number}", reading, part.wrapped)
            documents.ends_open = False
            continue
        documents.continues |= index == 0 and part.continues
        _PARSERS[part.format](documents, part, _decode(part, documents.problems), reading)
    return documents


def _files(pattern: str) -> list[str]:
    if is_url(pattern):
        return glob_urls(pattern)
    if Path(pattern).is_file():  # also names with [ or * in them
        return [pattern]
    found = sorted(name for name in glob.glob(pattern, recursive=True) if Path(name).is_file())
    if not found:
        raise FileNotFoundError(f"--input {pattern!r} matches no file; quote the pattern and check the folder")
    return found


def _read_parts(
    names: Iterable[Input], reading: Reading, problems: Problems, formats: dict[str, int]
) -> Iterator[Block | Texts]:
    def count(kind: str) -> None:
        formats[kind] = formats.get(kind, 0) + 1

    file_format = None if reading.format == "auto" else cast(Format, reading.format)
    split = reading.documents == "blank_line"
    for number, item in enumerate(names):
        if isinstance(item, tuple):
            formats["documents in memory"] = number + 1
            yield Texts(str(item[0]), 1, (item[1],), wrapped=True)
        elif str(item).startswith("tfds:"):
            count("tfds")
            for first, texts in read_tfds(str(item), reading.text_field, reading.block_bytes, problems):
                yield Texts(str(item), first, texts, wrapped=False)
        else:
            block = None
            for block in read_blocks(item, file_format, split, reading.block_bytes, problems):
                yield block
            if block is not None:
                count(block.format)


def _decode(block: Block, problems: Problems) -> str:
    """UTF-8; bytes that are none are dropped, as the original drops them, and counted."""
    try:
        return block.data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = block.data.decode("utf-8", "ignore")
        line = block.first_line + block.data.count(b"\n", 0, error.start)
        lost = len(block.data) - len(text.encode("utf-8"))
        problems.add(UNDECODABLE, f"{block.source}:{line}", lost)
        return text


def _parse_lines(documents: Documents, block: Block, text: str, reading: Reading) -> None:
    lines = [line.strip() for line in text.split("\n")]
    length = 0
    for line in lines:
        if line:
            length += 1
        elif length or (block.continues and not documents.lengths):
            documents.lengths.append(length)  # 0 where a blank line ends the document of the block before
            length = 0
    if length:
        documents.lengths.append(length)
    documents.sentences += filter(None, lines)
    documents.ends_open = bool(lines[-1] or (len(lines) > 1 and lines[-2]))


def _parse_text(documents: Documents, block: Block, text: str, reading: Reading) -> None:
    paragraphs = _paragraphs(text)
    before = len(documents.sentences)
    starts_blank = not text.split("\n", 1)[0].strip()
    if reading.documents == "blank_line" and block.continues and not documents.lengths and starts_blank:
        documents.lengths.append(0)
    for paragraph in paragraphs:
        sentences = split_sentences(paragraph, reading.language)
        documents.sentences += sentences
        if reading.documents == "blank_line":
            documents.lengths.append(len(sentences))
    if reading.documents == "file":
        documents.lengths.append(len(documents.sentences) - before)
    tail = text[-4096:].split("\n")
    documents.ends_open = reading.documents == "file" or bool("".join(tail[-2:]).strip())


def _parse_jsonl(documents: Documents, block: Block, text: str, reading: Reading) -> None:
    for number, line in enumerate(text.split("\n"), block.first_line):
        if not (line := line.strip()):
            continue
        place = f"{block.source}:{number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            documents.problems.add("line that is no JSON", place)
            continue
        value = record.get(reading.text_field) if isinstance(record, dict) else None
        if not isinstance(value, str):
            documents.problems.add(f"JSON line without a text in {reading.text_field!r}", place)
            continue
        _add_text(documents, value, place, reading, wrapped=False)
    documents.ends_open = False


_PARSERS = {"lines": _parse_lines, "text": _parse_text, "jsonl": _parse_jsonl}


def _add_text(documents: Documents, text: str, place: str, reading: Reading, wrapped: bool) -> None:
    text = _clean(text, place, documents)
    before = len(documents.sentences)
    for paragraph in _paragraphs(text) if wrapped else text.split("\n"):
        documents.sentences += split_sentences(paragraph, reading.language)
    documents.lengths.append(len(documents.sentences) - before)
    if documents.lengths[-1] == 0:
        documents.problems.add("document without text", place)


def _clean(text: str, place: str, documents: Documents) -> str:
    """Without lone surrogates, which JSON can spell but UTF-8 cannot."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        cleaned = text.encode("utf-8", "ignore").decode("utf-8")
        documents.problems.add("lone surrogate, dropped", place, len(text) - len(cleaned))
        return cleaned
    return text


def _paragraphs(text: str) -> list[str]:
    """Lines between blank lines, joined by spaces."""
    stripped = "\n".join([line.strip() for line in text.split("\n")])
    return [paragraph.replace("\n", " ") for paragraph in _BLANK.split(stripped) if paragraph]


_BLANK = re.compile("\n\n+")
