"""Rows of TSV, CSV and JSON files as `TextExample`s: any data of one's own, and the layouts of the benchmarks.

Formats, told from the name unless given (a .gz or .bz2 after it is decompressed):
  "tsv"         one row a line, cells between tabs, quotes are characters like any other (GLUE's text has them bare)
  "quoted_tsv"  tabs, but quoted as in "csv"
  "csv"         commas; a cell in double quotes may hold commas, line breaks and doubled quotes (RFC 4180)
  "jsonl"       one object a line; the columns are its keys, "a.b" is the key b of the object in a
  "json"        one array of objects
Lines end at \\n or \\r\\n only: other separators of Unicode occur within text.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bert_jax.data.text_examples import TextExample, parse_score
from bert_jax.data.text_files import Problems

TableFormat = Literal["auto", "tsv", "quoted_tsv", "csv", "jsonl", "json"]
Column = str | int
Row = tuple[int, list[str | None]]

EMPTY_TEXT = "empty sentence, kept as an empty text"
MALFORMED = "row with missing cells, skipped"
REPAIRED = "row with missing cells, kept with an empty text"
BLANK_LINE = "blank line, skipped"
EXTRA_CELLS = "row with more cells than columns, the first ones taken"
FEW_CELLS = "row with fewer cells than columns, none of those wanted"
_SUFFIXES = {".tsv": "tsv", ".txt": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


@dataclass(frozen=True)
class Columns:
    """Which column is what, by name or by position from 0. Without `row_id` rows are numbered from 0."""

    text_a: Column
    text_b: Column | None = None
    label: Column | None = None
    row_id: Column | None = None

    def named(self) -> dict[str, Column]:
        """Field -> column, those that are set."""
        return {field: column for field, column in vars(self).items() if column is not None}


def read_table(
    path: str | Path,
    columns: Columns,
    problems: Problems,
    *,
    kind: Literal["classes", "regression"] = "classes",
    table_format: TableFormat = "auto",
    header: bool = True,
    missing: Literal["error", "skip", "keep"] = "error",
) -> list[TextExample]:
    """The rows of a file, in order. `kind` "regression" makes labels floats.

    header: whether the first row of a TSV or CSV file names the columns; without, `columns` are positions.
    missing: what happens to a row without one of the cells. "error" names it; "skip" leaves it out and "keep" takes it
      with an empty text, both counted in `problems`. Empty texts are kept and counted.
    ValueError: a column that the file lacks, a missing cell, an empty label, a score that is no number, no rows.
    """
    wanted = columns.named()
    examples: list[TextExample] = []
    source = str(path)
    options: dict[str, Any] = {"table_format": table_format, "header": header, "refuse_short": missing == "error"}
    for line, cells in read_rows(path, list(wanted.values()), problems, **options):
        row = dict(zip(wanted, cells, strict=True))
        place = f"{source}:{line}"
        absent = [f"{wanted[field]!r}" for field, cell in row.items() if cell is None]
        if absent:
            if missing == "error":
                raise ValueError(f"{place}: the row has no {' and no '.join(absent)}: complete it or remove it")
            problems.add(MALFORMED if missing == "skip" else REPAIRED, place)
            if missing == "skip":
                continue
        example = _example(row, columns, kind == "regression", len(examples), source, line)
        for text in (example.text_a, example.text_b):
            if text is not None and not text.strip():
                problems.add(EMPTY_TEXT, place)
        examples.append(example)
    if not examples:
        raise ValueError(f"{path} has no rows{' below its header' if header else ''}: give a file with examples")
    return examples


def read_rows(
    path: str | Path,
    columns: List[Column],
    problems: Problems,
    *,
    table_format: TableFormat = "auto",
    header: bool = True,
    refuse_short: bool = True,
) -> Iterator[Row]:
    """(line of the row from 1, its cells in the order of `columns`); None for a cell that the row does not have.

    A row that has all of `columns` but fewer cells than the header (or, without, the first row) may have lost one
    before them: refused, or without `refuse_short` counted.
    ValueError for an unknown format or column, an empty file, and for text that is not of the format.
    """
    kind = _format(Path(path)) if table_format == "auto" else table_format
    if kind in ("jsonl", "json"):
        yield from _pick_keys(read_objects(path, kind == "json"), path, columns)
        return
    text = read_text(path)
    rows = (
        _split_lines(path, text, problems)
        if kind == "tsv"
        else _parse_quoted(path, text, "," if kind == "csv" else "\t")
    )
    width = None
    if header:
        _, names = next(rows, (1, None))
        if names is None:
            raise ValueError(f"{path} is empty: give a file with examples")
        positions = _positions(path, names, columns)
        width = len(names)
    else:
        positions = [_position_only(path, column) for column in columns]
    yield from _pick_cells(rows, positions, path, width, problems, refuse_short)


def read_objects(path: str | Path, array: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line, object) of JSON lines, or with `array` (number from 1, object) of one JSON array. ValueError."""
    text = read_text(path)
    doubtful = _SURROGATE.search(text) is not None
    if array:
        values = _json(path, 1, text)
        if not isinstance(values, list):
            raise ValueError(f"{path} is no JSON array of objects: give one, or one object a line as .jsonl")
        numbered: Iterator[tuple[int, Any]] = enumerate(values, 1)
    else:
        lines = enumerate(text.split("\n"), 1)
        numbered = ((number, _json(path, number, line)) for number, line in lines if line.strip())
    for number, value in numbered:
        if not isinstance(value, dict):
            raise ValueError(f"{path}:{number}: no JSON object: write the columns as its keys")
        if doubtful:
            check_characters(json.dumps(value, ensure_ascii=False), f"{path}:{number}")
        yield number, value


def read_text(path: str | Path) -> str:
    """A whole file, decompressed by its suffix (.gz, .bz2). A byte order mark is dropped.

    FileNotFoundError; ValueError for a damaged archive, and with the line of a byte that is not UTF-8.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: check the folder and the name")
    data = path.read_bytes()
    unpack = {".gz": gzip.decompress, ".bz2": bz2.decompress}.get(path.suffix)
    try:
        data = unpack(data) if unpack else data
    except (EOFError, OSError, ValueError, zlib.error) as error:
        raise ValueError(
            f"{path} cannot be decompressed ({error}): fetch or pack it again, or rename it if it is not compressed"
        ) from None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} is not UTF-8: convert the file, e.g. by iconv -t utf-8"
        ) from None


def check_characters(text: str, place: str) -> None:
    """ValueError for half of a surrogate pair, which JSON's escapes can write but no file can hold."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(text[error.start]):04x}"
        raise ValueError(f"{place} has {half}, half of a character: write both escapes or remove it") from None


def _example(
    row: dict[str, str | None], columns: Columns, scores: bool, number: int, source: str, line: int
) -> TextExample:
    label: str | float | None = row.get("label")
    if label is not None:
        label = str(label).strip()
        if not label:
            raise ValueError(f"{source}:{line}: the cell of {columns.label!r} is empty: give every row its label")
        if scores:
            label = parse_score(label, f"{source}:{line}")
    row_id = row.get("row_id")
    return TextExample(
        text_a=row.get("text_a") or "",
        text_b=None if columns.text_b is None else row.get("text_b") or "",
        label=label,
        row_id=str(number) if row_id is None else row_id,
        source=source,
        line=line,
    )


def _format(path: Path) -> str:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() not in (".gz", ".bz2")]
    if not suffixes or suffixes[-1] not in _SUFFIXES:
        known = ", ".join(_SUFFIXES)
        raise ValueError(f"{path}: the format is not told by the name ({known}): give table_format")
    return _SUFFIXES[suffixes[-1]]


def _split_lines(path: str | Path, text: str, problems: Problems) -> Iterator[tuple[int, list[str]]]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        line = line.removesuffix("\r")
        if line:
            yield number, line.split("\t")
        else:
            problems.add(BLANK_LINE, f"{path}:{number}")


def _parse_quoted(path: str | Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """All rows at once: the limit of the module's field size is a global, which must not stay changed."""
    rows: list[tuple[int, list[str]]] = []
    before = csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    line = 0
    try:
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        for row in reader:
            if row:
                rows.append((line + 1, row))
            line = reader.line_num
    except csv.Error as error:
        raise ValueError(
            f"{path}:{line + 1}: {error}: double the quotes within quotes, or read it as tsv where they are literal"
        ) from None
    finally:
        csv.field_size_limit(before)
    return iter(rows)


def _positions(path: str | Path, names: list[str], columns: List[Column]) -> list[int]:
    names = [name.strip() for name in names]
    positions = []
    for column in columns:
        if isinstance(column, int):
            if not 0 <= column < len(names):
                raise ValueError(f"{path} has {len(names)} columns, none at position {column}: count from 0")
            positions.append(column)
            continue
        if names.count(column) != 1:
            found = "no column" if column not in names else f"{names.count(column)} columns"
            raise ValueError(
                f"{path} has {found} {column!r}; its first row is {', '.join(map(_shown, names))}: "
                "name one of these, or give positions from 0 with header=False if this is no header"
            )
        positions.append(names.index(column))
    return positions


def _shown(cell: str) -> str:
    return repr(cell if len(cell) <= 30 else cell[:27] + "...")


def _position_only(path: str | Path, column: Column) -> int:
    if isinstance(column, str):
        raise ValueError(f"{path} is read without header, so {column!r} is no column: give its position from 0")
    return column


def _pick_cells(
    rows: Iterator[tuple[int, list[str]]],
    positions: list[int],
    path: str | Path,
    width: int | None,
    problems: Problems,
    refuse_short: bool,
) -> Iterator[Row]:
    for line, cells in rows:
        width = len(cells) if width is None else width
        if len(cells) > width:
            problems.add(EXTRA_CELLS, f"{path}:{line}")
        picked = [cells[position] if position < len(cells) else None for position in positions]
        if len(cells) < width and None not in picked:
            if refuse_short:
                raise ValueError(
                    f"{path}:{line}: the row has {len(cells)} of {width} cells, so which is missing is unclear: "
                    "complete it or remove it"
                )
            problems.add(FEW_CELLS, f"{path}:{line}")
        yield line, picked


def _json(path: str | Path, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        at = line + getattr(error, "lineno", 1) - 1
        raise ValueError(f"{path}:{at}: not JSON ({' '.join(str(error).split())}): mend the line") from None


def _pick_keys(objects: Iterator[tuple[int, dict[str, Any]]], path: str | Path, columns: List[Column]) -> Iterator[Row]:
    seen: set[str] = set()
    keys: set[str] = set()
    rows: list[Row] = []
    for line, value in objects:
        keys |= value.keys()
        cells = [_cell(path, line, value, column) for column in columns]
        seen |= {str(column) for column, cell in zip(columns, cells, strict=True) if cell is not None}
        rows.append((line, cells))
    for column in columns:
        if rows and str(column) not in seen:
            raise ValueError(f"{path} has no key {column!r}; its objects have {', '.join(sorted(keys))}: name one")
    return iter(rows)


def _cell(path: str | Path, line: int, value: dict[str, Any], column: Column) -> str | None:
    """The value as text: numbers as JSON writes them, true and false as these words."""
    found: Any = value
    for key in str(column).split(".") if str(column) not in value else [str(column)]:
        found = found.get(key) if isinstance(found, dict) else None
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, (bool, int, float)):
        return json.dumps(found)
    raise ValueError(f"{path}:{line}: {column!r} is a {type(found).__name__}: give text or a number")
