"""Tagged text in column files: one word and its tag a line, blank lines between sentences.

The formats differ in which column holds what, in their comments, and in how they show where a document begins:
`FORMATS` has CoNLL-2003, WNUT-17, GermEval 2014 and KLUE-NER, `ColumnFormat` describes any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

LEGAL_TAG = re.compile(r"O|[BIES]-.+")
DOCUMENT_START = "-DOCSTART-"
_SPACES = re.compile(" +")
_INNER_RETURN = re.compile(r"\r(?=[^\r\n])")
_Rows = list[tuple[int, str]]  # numbered lines
DOCUMENTS = ("auto", "docstart", "header", "sentence", "file")


@dataclass(frozen=True)
class ColumnFormat:
    """Where a file keeps what.

    token, tag: columns from 0, or from the end below 0 (then all lines must have equally many); tag None: text to be
      tagged.
    separator: between columns; None = a tab where the line has one, else spaces (a no-break space is of its word).
    comment: lines that begin with it are none of a sentence.
    documents: "docstart" = a line whose word is -DOCSTART- begins one (it is no sentence); "header" = a comment other
      than the last one does; "sentence" = each sentence is one; "file" = each file is one; "auto" = "docstart" in a
      file with such a line, else "sentence", for nothing then says that neighbours belong together.
    characters: a line holds one character, and a line with a white-space character separates words.
    entities: tags must be O or B-, I-, E- or S- and a type; False takes any (parts of speech, say).
    """

    token: int = 0
    tag: int | None = -1
    separator: str | None = None
    comment: str | None = None
    documents: str = "auto"
    characters: bool = False
    entities: bool = True

    def __post_init__(self) -> None:
        if self.documents not in DOCUMENTS:
            raise ValueError(f"documents={self.documents!r} is not one of {', '.join(DOCUMENTS)}")
        if self.token == self.tag:
            raise ValueError(f"token and tag are both column {self.token}: give two columns")


FORMATS = {
    "conll2003": ColumnFormat(0, -1),
    "wnut17": ColumnFormat(0, 1, "\t", documents="sentence"),
    "germeval2014": ColumnFormat(1, 2, "\t", "#", "header"),
    "germeval2014_inner": ColumnFormat(1, 3, "\t", "#", "header"),
    "klue_ner": ColumnFormat(0, 1, "\t", "##", "sentence", characters=True),
    "columns": ColumnFormat(),
}


@dataclass(frozen=True, slots=True)
class TaggedSentence:
    """Words and a tag for each (None: not tagged), which document they are of, and the line of the first word.

    `spaces` says before which words white space stands; None: before all. Words without belong to one chunk of text:
    a tokenizer has to see them together.
    """

    words: tuple[str, ...]
    tags: tuple[str, ...] | None
    document: int = 0
    file: str = ""
    line: int = 0
    spaces: tuple[bool, ...] | None = None


def read_columns(
    paths: str | Path | Iterable[str | Path], columns: ColumnFormat = FORMATS["columns"]
) -> list[TaggedSentence]:
    """The sentences of files in order; documents are numbered through all files.

    A white-space character in a file of characters is no word, as KLUE counts; a B- on one moves to the character
    after it, whose entity it begins. ValueError names file and line of a missing column, an empty word, a tag that is
    none; FileNotFoundError.
    """
    names = [paths] if isinstance(paths, (str, Path)) else list(paths)
    sentences: list[TaggedSentence] = []
    for path in map(Path, names):
        first = sentences[-1].document + 1 if sentences else 0
        width = None
        for document, rows in _groups(_lines(path), columns, first):
            width = width or _check_first(rows, columns, path)
            sentences.append(_sentence(rows, columns, document, path, width))
    return sentences


def format_of_file(path: str | Path, columns: ColumnFormat) -> ColumnFormat:
    """The format of a file to be tagged: that of the training data, less the tags where the first line has none."""
    untagged = replace(columns, tag=None)
    first = next((rows[:1] for _, rows in _groups(_lines(Path(path)), untagged, 0)), [])
    width = len(_split(first, columns)[0]) if first else 0
    if width == 1:
        return replace(untagged, token=0)
    return untagged if columns.tag is not None and columns.tag >= width else columns


def _lines(path: Path) -> list[str]:
    """Broken at line feeds only: words of tweets contain other characters that str.splitlines breaks at."""
    if not path.is_file():
        raise FileNotFoundError(f"no column file {path}: check the name")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: convert it to UTF-8") from None
    if found := _INNER_RETURN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        raise ValueError(
            f"{path}:{line}: a carriage return within the line: end lines with \\n or \\r\\n (tr '\\r' '\\n' converts)"
        )
    return text.split("\n")


def _groups(lines: list[str], columns: ColumnFormat, first: int) -> Iterator[tuple[int, _Rows]]:
    """(document, numbered lines) of each sentence; the first document has the number ``first``."""
    mode = columns.documents
    if mode == "auto":
        mode = "docstart" if any(line.startswith(DOCUMENT_START) for line in lines) else "sentence"
    document = first - 1
    rows: _Rows = []
    header, begins = None, True  # a document, with the next sentence
    bare_characters = columns.characters and columns.tag is None  # a line of one space separates words, then
    for number, line in enumerate([*lines, ""], 1):
        mark = line.startswith(DOCUMENT_START)
        # A byte-order mark alone, as at the end of WNUT-17's dev file, is no word.
        text = line.replace("\ufeff", "")
        if mark or not (text.strip("\r") if bare_characters else text.strip()):
            if rows:
                yield document, rows
                rows = []
                begins |= mode == "sentence"
            begins |= mark and mode == "docstart"
        elif columns.comment is not None and line.startswith(columns.comment):
            begins |= mode == "header" and line != header
            header = line
        else:
            document += begins
            begins = False
            rows.append((number, line.rstrip("\r")))


def _split(rows: _Rows, columns: ColumnFormat) -> list[list[str]]:
    if columns.separator is None:
        return [line.split("\t") if "\t" in line else _SPACES.split(line.strip(" ")) for _, line in rows]
    return [line.split(columns.separator) for _, line in rows]


def _sentence(rows: _Rows, columns: ColumnFormat, document: int, path: Path, width: int) -> TaggedSentence:
    table = _split(rows, columns)
    for (number, _), fields in zip(rows, table, strict=True):
        if len(fields) != width:  # rare: not worth a call for every line
            if width == 1:
                raise ValueError(
                    f"{path}:{number}: {len(fields)} columns where the first line has a word alone, so they may be "
                    "more words: put each on a line of its own, or give every line the columns of the training data"
                )
            _check_column(fields, columns.token, width, "word", f"{path}:{number}")
            _check_column(fields, columns.tag, width, "tag", f"{path}:{number}")
    words = [fields[columns.token] for fields in table]
    tags = None if columns.tag is None else [fields[columns.tag].strip() for fields in table]
    for i, (number, _) in enumerate(rows):
        if not words[i]:
            raise ValueError(
                f"{path}:{number}: the word (column {columns.token}) is empty; give it, or delete the line"
            )
        if tags is not None and not (LEGAL_TAG.fullmatch(tags[i]) if columns.entities else tags[i]):
            raise ValueError(_bad_tag(tags[i], words[i], f"{path}:{number}"))
    spaces = None
    if columns.characters:
        words, tags, spaces = _without_spaces(words, tags)
    return TaggedSentence(tuple(words), None if tags is None else tuple(tags), document, str(path), rows[0][0], spaces)


def _check_first(rows: _Rows, columns: ColumnFormat, path: Path) -> int:
    """How many columns the first line of a file has, if it has the two wanted."""
    width = len(_split(rows[:1], columns)[0])
    token, tag = (
        column if column is None or column >= 0 else column + width for column in (columns.token, columns.tag)
    )
    if token == tag or not all(0 <= column < width for column in (token, tag) if column is not None):
        raise ValueError(
            f"{path}:{rows[0][0]}: the word is column {columns.token} and the tag {columns.tag}, but the line has "
            f"{width} column{'s' if width > 1 else ''}; give other columns or another separator"
        )
    return width


def _check_column(fields: list[str], column: int | None, width: int, what: str, place: str) -> None:
    """Of a line with more or fewer columns than the first one of the file."""
    if column is not None and column < 0:
        raise ValueError(
            f"{place}: {len(fields)} columns where the first line has {width}, so column {column} ({what}) is "
            "unclear; mend the line, or count the column from 0"
        )
    if column is not None and column >= len(fields):
        raise ValueError(f"{place}: no column {column} ({what}), the line has {len(fields)}; mend it or its separator")


def _bad_tag(tag: str, word: str, place: str) -> str:
    if not tag:
        return f"{place}: the tag of the word {word!r} is empty; give it, or delete the line"
    return (
        f"{place}: tag {tag!r} of the word {word!r} is neither O nor B-, I-, E- or S- and a type; correct it, or "
        "choose another column, or entities=False for other tags"
    )


def _without_spaces(words: list[str], tags: list[str] | None) -> tuple[list[str], list[str] | None, tuple[bool, ...]]:
    """Characters, their tags, and which of them white space precedes."""
    white = [word.isspace() for word in words]
    kept = [i for i, is_white in enumerate(white) if not is_white]
    spaces = tuple(i == 0 or white[i - 1] for i in kept)
    if tags is not None:
        tags = list(tags)
        for i in range(1, len(tags)):
            if white[i - 1] and tags[i - 1][:2] == "B-" and tags[i] == "I" + tags[i - 1][1:]:
                tags[i] = tags[i - 1]
        tags = [tags[i] for i in kept]
    return [words[i] for i in kept], tags, spaces
