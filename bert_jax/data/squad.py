"""Questions on a text in SQuAD's layout (1.1, 2.0, XQuAD, KorQuAD 1.0), and the windows in which BERT reads them.

A context longer than a sequence is read in overlapping windows [CLS] question [SEP] part of the context [SEP].
Windows and the rule of maximum context are those of `run_squad.py` of google-research/bert; answers are placed by
their characters rather than by joining white-space words, so that nothing is skipped for odd white space and a
Korean answer may end inside a word (서울 of 서울은).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.data import sequences
from bert_jax.data.tables import check_characters
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import max_context
from bert_jax.data.windows import windows as window_starts

Dataset = str | os.PathLike[str] | Mapping[str, Any]

# What is counted rather than refused.
MOVED = "answer not at its answer_start, found by search"
NOT_FOUND = "answer not in its context"
CONTRADICTION = "is_impossible question with answers, taken as unanswerable"
NO_TARGET = "question with no answer to be found in its context, no training target"
QUESTION_CUT = "question longer than max_query_length, cut"
QUESTION_EMPTY = "question without a token"
CONTEXT_EMPTY = "context without a token"


@dataclass(frozen=True)
class Answer:
    """An accepted answer as the file writes it, and its (start, end) in characters of the context, None if absent."""

    text: str
    span: tuple[int, int] | None


@dataclass(frozen=True)
class Question:
    """A question on a context. No answers and not `is_impossible`: unlabelled. `place` names its source in messages."""

    id: str
    question: str
    context: str
    answers: tuple[Answer, ...] = ()
    is_impossible: bool = False
    title: str = ""
    place: str = ""


@dataclass(frozen=True)
class WindowSettings:
    """Lengths in tokens; the original's defaults. ValueError if a question could leave no room for its context."""

    max_seq_length: int = 384
    doc_stride: int = 128
    max_query_length: int = 64

    def __post_init__(self) -> None:
        if self.max_seq_length <= self.max_query_length + 3:
            raise ValueError(
                f"max_seq_length {self.max_seq_length} leaves no room for a context after a question of "
                f"max_query_length {self.max_query_length} and 3 special tokens: raise the first or lower the second"
            )
        if self.doc_stride < 1 or self.max_query_length < 1:
            raise ValueError(
                f"doc_stride is {self.doc_stride}, max_query_length {self.max_query_length}: both must be at least 1"
            )


@dataclass(frozen=True, slots=True)
class Window:
    """A part of a question's context with the question, ready for BERT.

    question_index: of the question in the list the windows were made from.
    first_column: the column of the first context token in `sequence`; context token i is at first_column + i.
    offsets: (start, end) of each context token in characters of the whole context.
    max_context: whether no other window shows the token with more on both sides (answers start only at these).
    start_column, end_column: of the answer's first and last token; 0, 0 ([CLS]) if the answer is not in this window
      or there is none; -1, -1 if the question is unlabelled or its answer cannot be found: not for training.
    """

    sequence: sequences.Sequence
    question_index: int
    first_column: int
    offsets: Int[np.ndarray, "c 2"]
    max_context: Bool[np.ndarray, " c"]
    start_column: int
    end_column: int

    @property
    def has_target(self) -> bool:
        """Whether the window can be trained on."""
        return self.start_column >= 0


def read_questions(source: Dataset, problems: Problems | None = None) -> list[Question]:
    """All questions of a file (or of its parsed content), in order; `problems` counts what had to be treated.

    Raises ValueError naming file, article, paragraph and question for a wrong layout or an id given twice
    (predictions are kept by id), FileNotFoundError for no file.
    """
    problems = Problems() if problems is None else problems
    questions: list[Question] = []
    places: dict[str, str] = {}
    for qa, context, title, place in walk(source):
        question = _question_of(qa, context, title, place, problems)
        if question.id in places:
            raise ValueError(f"{place}: the id {question.id!r} was given at {places[question.id]}: ids must differ")
        places[question.id] = place
        questions.append(question)
    return questions


def make_question(
    id: str,
    question: str,
    context: str,
    answers: Iterable[tuple[str, int | None]] = (),
    *,
    is_impossible: bool = False,
    title: str = "",
    place: str = "",
    problems: Problems | None = None,
) -> Question:
    """A question from any source; `answers` are texts and where each starts in the context (None: search).

    A text that is not at its start is looked for, the nearest occurrence taken and counted; white space may differ.
    """
    problems = Problems() if problems is None else problems
    place = place or f"question {id!r}"
    placed = []
    for text, start in answers:
        span = _find_answer(text, start, context)
        if span is None:
            problems.add(NOT_FOUND, place)
        elif start is not None and context[start : start + len(text)] != text:
            problems.add(MOVED, place)
        placed.append(Answer(text, span))
    if is_impossible and placed:
        problems.add(CONTRADICTION, place)
        placed = []
    return Question(id, question, context, tuple(placed), is_impossible, title, place)


def make_windows(
    questions: Sequence[Question],
    tokenizer: Tokenizer,
    settings: WindowSettings | None = None,
    problems: Problems | None = None,
) -> list[Window]:
    """The windows of all questions, in order, at least one for each; targets are of the first answer that is found.

    Encodes a context once for the questions that follow each other on it.
    """
    settings = settings or WindowSettings()
    problems = Problems() if problems is None else problems
    windows: list[Window] = []
    context: str | None = None
    ids, offsets = np.zeros(0, np.int32), np.zeros((0, 2), np.int32)
    for index, question in enumerate(questions):
        if question.context != context:
            context = question.context
            encoding = tokenizer.encode(context)
            ids = np.asarray(encoding.ids, np.int32)
            offsets = np.asarray(encoding.offsets, np.int32).reshape(-1, 2)
        if not len(ids):
            problems.add(CONTEXT_EMPTY, question.place)
        query = _query(question, tokenizer, settings.max_query_length, problems)
        target = _target(question, offsets, problems)
        room = settings.max_seq_length - len(query) - 2 - tokenizer.pair_separators
        starts = window_starts(len(ids), room, settings.doc_stride)
        ends = np.minimum(starts + room, len(ids))
        owner = max_context(starts, ends)
        for number, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            sequence = sequences.pair(query, ids[start:end].tolist(), tokenizer)
            first = len(query) + 1 + tokenizer.pair_separators
            columns = _target_columns(target, start, end, first)
            most = owner[start:end] == number
            windows.append(Window(sequence, index, first, offsets[start:end], most, *columns))
    return windows


def load_dataset(source: Dataset) -> tuple[Mapping[str, Any], str]:
    """The parsed content of a file and its name. ValueError for no JSON or no list in "data"."""
    if isinstance(source, Mapping):
        content, name = source, "the data set given"
    else:
        name = str(source)
        if not Path(name).is_file():
            raise FileNotFoundError(f"{name} is no file: give a JSON file in SQuAD's layout")
        try:
            content = json.loads(Path(name).read_bytes())
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{name} is not JSON in UTF-8 ({error}): give a file in SQuAD's layout") from None
    if not isinstance(content, Mapping) or not isinstance(content.get("data"), list):
        raise ValueError(f'{name} has no list in "data": give a JSON file in SQuAD\'s layout')
    return content, name


def walk(source: Dataset) -> Iterator[tuple[Mapping[str, Any], str, str, str]]:
    """(question record, context, title, place) of every question in a data set, in order."""
    content, name = load_dataset(source)
    for a, article in enumerate(content["data"]):
        place = f"{name}, article {a}"
        title = str(_field(article, "title", str, place, default=""))
        for p, paragraph in enumerate(_field(article, "paragraphs", list, place)):
            inside = f"{place}, paragraph {p}"
            context = _field(paragraph, "context", str, inside)
            for q, qa in enumerate(_field(paragraph, "qas", list, inside)):
                identifier = _field(qa, "id", (str, int), f"{inside}, question {q}")
                yield qa, context, title, f"{inside}, question {q} ({identifier})"


_REQUIRED = object()


def _field(record: Any, key: str, kind: type | tuple[type, ...], place: str, default: Any = _REQUIRED) -> Any:
    if not isinstance(record, Mapping):
        raise ValueError(f"{place} is no object but {type(record).__name__}: see SQuAD's layout")
    value = record.get(key, default)
    if value is _REQUIRED:
        raise ValueError(f"{place} has no {key!r}: add it, as SQuAD's layout has it")
    # A bool is an int to Python, but not to SQuAD's layout.
    if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
        raise ValueError(f"{place} has {type(value).__name__} in {key!r}: see SQuAD's layout")
    if isinstance(value, str):
        check_characters(value, f"{place}: {key!r}")
    return value


def _question_of(qa: Mapping[str, Any], context: str, title: str, place: str, problems: Problems) -> Question:
    answers = []
    for answer in _field(qa, "answers", list, place, default=()):
        text = _field(answer, "text", str, place)
        answers.append((text, _field(answer, "answer_start", int, place, default=None)))
    # As the official evaluator has it: a list without an answer says that there is none.
    impossible = _field(qa, "is_impossible", bool, place, default="answers" in qa and not answers)
    question = _field(qa, "question", str, place)
    return make_question(
        str(qa["id"]),
        question,
        context,
        answers,
        is_impossible=impossible,
        title=title,
        place=place,
        problems=problems,
    )


def _find_answer(text: str, start: int | None, context: str) -> tuple[int, int] | None:
    """(start, end) without white space around it."""
    stripped = text.strip()
    if not stripped:
        return None
    if start is not None and start >= 0 and context[start : start + len(text)] == text:
        first = start + text.index(stripped)
        return first, first + len(stripped)
    pattern = r"\s+".join(map(re.escape, stripped.split()))
    found = min(re.finditer(pattern, context), key=lambda match: abs(match.start() - (start or 0)), default=None)
    return found.span() if found else None


def _query(question: Question, tokenizer: Tokenizer, most: int, problems: Problems) -> list[int]:
    ids = tokenizer.encode_ids(question.question)
    if not ids:
        problems.add(QUESTION_EMPTY, question.place)
    if len(ids) > most:
        problems.add(QUESTION_CUT, question.place)
    return ids[:most]


def _target(question: Question, offsets: Int[np.ndarray, "c 2"], problems: Problems) -> tuple[int, int] | None:
    """The first and last context token of the tightest span over the answer: (-1, -1) for none, None if unknown."""
    if question.is_impossible:
        return -1, -1
    for answer in question.answers:
        if answer.span is None:
            continue
        start, end = answer.span
        inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
        if len(inside):
            return int(inside[0]), int(inside[-1])
    if question.answers:
        problems.add(NO_TARGET, question.place)
    return None


def _target_columns(target: tuple[int, int] | None, start: int, end: int, first: int) -> tuple[int, int]:
    if target is None:
        return -1, -1
    if target[0] < start or target[1] >= end:
        return 0, 0
    return target[0] - start + first, target[1] - start + first
