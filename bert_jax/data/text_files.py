"""Text files -> blocks of bytes that end where a document ends, whatever the compression and the size.

A block is the unit of work of corpus building: a few megabytes, read once, in order, in one process. Where
blocks end depends on the bytes of the file alone, so a corpus does not depend on who processes them.
"""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal

from bert_jax.data.object_store import is_url, open_url
from bert_jax.data.sentences import split_sentences

Format = Literal["lines", "text", "jsonl"]
FORMATS = ("lines", "text", "jsonl")

UNDECODABLE = "byte that is not UTF-8, dropped"  # as the original drops them
MAX_LINE_BYTES = 32 << 20  # a longer line is cut (text) or skipped (JSON), and counted
_READ_BYTES = 1 << 20
_SAMPLE_BYTES = 1 << 16  # of a file's beginning, to tell its format
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
SUFFIXES = {".gz": "gzip", ".zst": "zstd", ".bz2": "bzip2", ".xz": "xz"}
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, UnicodeError)


class Problems:
    """What was skipped or repaired: how often for each reason, and where first (file:line)."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, str] = {}

    def add(self, reason: str, place: str, count: int = 1) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + count
        self.first.setdefault(reason, place)

    def merge(self, later: Problems) -> None:
        for reason, count in later.counts.items():
            self.add(reason, later.first[reason], count)

    def as_dict(self) -> dict[str, dict]:
        return {reason: {"count": n, "first": self.first[reason]} for reason, n in sorted(self.counts.items())}


@dataclass(frozen=True)
class Block:
    """Whole lines of one file. `continues`: its first document began in the block before."""

    source: str
    first_line: int
    format: Format
    data: bytes
    continues: bool = False
    file_bytes: int = field(default=0, compare=False)  # of the file on disk, read for this block


def read_blocks(
    path: str | Path, file_format: Format | None, split_documents: bool, block_bytes: int, problems: Problems
) -> Iterator[Block]:
    """Blocks of about `block_bytes` of the decompressed file, each ending at the end of a document if it can.

    A document longer than a block comes in several, the later ones with `continues`. `file_format` None
    detects it (`detect_format`). `split_documents`: blank lines separate documents, else the file is one.
    Damage is no error: what was read before it is used, the rest counted in `problems`. A store that fails on the way
    is one, a RuntimeError.
    """
    try:
        with open_url(str(path)) if is_url(path) else Path(path).open("rb") as file:
            yield from _Cutter(path, file, file_format, split_documents, block_bytes, problems).blocks()
    except OSError as error:
        problems.add("unreadable file", f"{path} ({_reason(error)})")


def detect_format(sample: bytes, name: str = "") -> Format:
    """The format of a file from its name and beginning; the rules, in order:

    1. jsonl: the name ends in .jsonl, .ndjson or .json, or the first line that is not blank is a JSON object.
    2. lines (one sentence a line, the original's format): lines are not filled up to a common width, hold at
       most 1.5 sentences on average, and at least half of them end like a sentence, or hardly any line of the
       file has a sentence mark at all.
    3. text otherwise.
    """
    if Path(name).suffix.lower() in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    lines = [line.strip() for line in sample.decode("utf-8", "ignore").split("\n")]
    if len(sample) >= _SAMPLE_BYTES and len(lines) > 1:
        lines = lines[:-1]  # the last one is cut off
    filled = [line for line in lines if line]
    if not filled:
        return "text"
    if filled[0].startswith("{") and _is_json_object(filled[0]):
        return "jsonl"
    if _is_wrapped(lines):
        return "text"
    sentences = sum(len(split_sentences(line)) for line in filled)
    ends = sum(bool(_SENTENCE_END.search(line)) for line in filled)
    marks = sum(len(_SENTENCE_MARK.findall(line)) for line in filled)
    one_each = sentences <= 1.5 * len(filled)
    return "lines" if one_each and (2 * ends >= len(filled) or 10 * marks <= len(filled)) else "text"


_SENTENCE_MARK = re.compile(r"[.!?…。！？।։؟](?=\W|$)")
_SENTENCE_END = re.compile(r"[.!?…。！？।։؟]\W*$")


def _is_json_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _is_wrapped(lines: list[str]) -> bool:
    """Whether most lines end only because the next word would not have fitted into the common width."""
    lengths = sorted(len(line) for line in lines if line)
    width = lengths[int(0.98 * (len(lengths) - 1))]
    pairs = [(a, b) for a, b in itertools.pairwise(lines) if a and b]
    full = sum(len(a) + 1 + len(b.split(None, 1)[0]) > width for a, b in pairs)
    return width <= 200 and len(pairs) >= 3 and 2 * full > len(pairs)


class _Cutter:
    """Cuts one open file into blocks."""

    def __init__(
        self,
        path: str | Path,
        file: BinaryIO,
        file_format: Format | None,
        split_documents: bool,
        block_bytes: int,
        problems: Problems,
    ):
        self.source, self.path, self.file, self.problems = str(path), Path(path), file, problems
        self.given_format: Format | None = file_format
        self.format: Format = file_format or "text"
        self.split_documents, self.block_bytes = split_documents, block_bytes
        self.line, self.reported = 1, 0
        self.continues = self.ended = self.damaged = False
        self.buffer = bytearray()

    def blocks(self) -> Iterator[Block]:
        pieces = _decompressed(self.path, self.file)
        self._fill(pieces, _SAMPLE_BYTES)
        if self.buffer[:2] in (b"\xff\xfe", b"\xfe\xff"):
            self.problems.add("file in UTF-16 (convert it to UTF-8)", self.source)
            return
        if self.buffer[:3] == b"\xef\xbb\xbf":
            del self.buffer[:3]
        name = self.path.name
        if self.path.suffix.lower() in SUFFIXES:
            name = self.path.stem
        self.format = self.given_format or detect_format(bytes(self.buffer[:_SAMPLE_BYTES]), name)
        if self.ended and not self.buffer.strip():
            if not self.damaged:
                self.problems.add("empty file", self.source)
            return
        while True:
            self._fill(pieces, self.block_bytes)
            if self.ended and len(self.buffer) <= self.block_bytes:
                break
            cut, ends_document = self._cut()
            if cut == 0:
                cut, ends_document = self._long_line(pieces)
            if cut:
                yield self._block(cut, ends_document)
        if self.buffer:
            yield self._block(len(self.buffer), ends_document=True)

    def _fill(self, pieces: Iterator[bytes], size: int) -> None:
        try:
            while len(self.buffer) < size and not self.ended:
                piece = next(pieces, None)
                if piece is None:
                    self.ended = True
                else:
                    self.buffer += piece
        except _DAMAGE as error:
            self.ended = self.damaged = True
            line = self.line + self.buffer.count(b"\n")
            self.problems.add("damaged file, rest skipped", f"{self.source}:{line} ({_reason(error)})")

    def _cut(self) -> tuple[int, bool]:
        """Where the block ends, and whether a document ends there; 0 if one line fills the whole buffer."""
        window = self.block_bytes
        newline = self.buffer.rfind(b"\n", 0, window) + 1
        if self.format == "jsonl":
            return newline, True
        blank = max(self.buffer.rfind(mark, 0, window) + len(mark) for mark in (b"\n\n", b"\n\r\n", b"\n \n"))
        if blank > 3:  # found: not just -1 + the longest mark
            return blank, self.format == "lines" or self.split_documents
        return newline, False

    def _long_line(self, pieces: Iterator[bytes]) -> tuple[int, bool]:
        """The buffer begins with a line longer than a block: read on to its end, within the limit."""
        searched = 0
        while (newline := self.buffer.find(b"\n", searched) + 1) == 0 and len(self.buffer) <= MAX_LINE_BYTES:
            if self.ended:
                return len(self.buffer), True
            searched = len(self.buffer)
            self._fill(pieces, searched + _READ_BYTES)
        if newline:
            return newline, self.format == "jsonl"
        limit, place = f"{MAX_LINE_BYTES >> 20} MB", f"{self.source}:{self.line}"
        if self.format == "jsonl":
            self.problems.add(f"JSON line longer than {limit}", place)
            self._drop_line(pieces)
            return 0, True
        self.problems.add(f"line longer than {limit}, cut", place)
        cut = self.buffer.rfind(b" ", 0, MAX_LINE_BYTES) + 1 or MAX_LINE_BYTES
        while self.buffer[cut] & 0xC0 == 0x80:  # not inside of a character
            cut -= 1
        return cut, False

    def _drop_line(self, pieces: Iterator[bytes]) -> None:
        while (newline := self.buffer.find(b"\n") + 1) == 0 and not self.ended:
            self.buffer.clear()
            self._fill(pieces, _READ_BYTES)
        del self.buffer[: newline or len(self.buffer)]
        self.line += 1

    def _block(self, size: int, ends_document: bool) -> Block:
        data = bytes(self.buffer[:size])
        del self.buffer[:size]
        position = self.file.tell()
        read, self.reported = position - self.reported, position
        block = Block(self.source, self.line, self.format, data, self.continues, read)
        self.line += data.count(b"\n")
        self.continues = not ends_document
        return block


def _decompressed(path: Path, file: BinaryIO) -> Iterator[bytes]:
    """The decompressed contents, piece by piece. The contents tell the compression, which must fit the name."""
    start = file.read(6)
    file.seek(0)
    kind = next((kind for magic, kind in _MAGIC.items() if start.startswith(magic)), None)
    named = SUFFIXES.get(path.suffix.lower())
    if named and start and kind != named:
        raise OSError(f"not a {named} file in spite of its name")
    if kind == "zstd":
        yield from _zstd(file)
        return
    stream: Any = file
    if kind == "gzip":
        stream = gzip.GzipFile(fileobj=file)
    elif kind is not None:
        stream = {"bzip2": bz2.BZ2File, "xz": lzma.LZMAFile}[kind](file)
    while piece := stream.read1(_READ_BYTES):  # not read(): it would lose what comes right before damage
        yield piece


def _zstd(file: BinaryIO) -> Iterator[bytes]:
    """Frame by frame: the library's own stream reader takes a cut-off file for a finished one."""
    import zstandard

    frame = None
    try:
        while piece := file.read(_READ_BYTES >> 3):
            while piece:
                frame = frame or zstandard.ZstdDecompressor().decompressobj()
                yield frame.decompress(piece)
                piece, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    except zstandard.ZstdError as error:
        raise OSError(str(error)) from None
    if frame is not None:
        raise EOFError("the file ends within a zstd frame")


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
