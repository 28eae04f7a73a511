"""One or two texts with a label: the example of sentence and pair classification, and its tokens.

Readers (`tables.py`, `glue.py`, `korean.py`) make `TextExample`s; `label_ids` and `label_scores` turn their labels into
numbers, `to_sequences` their texts into [CLS] A [SEP] B [SEP].
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as List
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool, Float, Int

from bert_jax.data.sequences import Sequence
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import windows

TRUNCATED = "text longer than max_seq_length, cut"
IN_WINDOWS = "text longer than max_seq_length, read in windows"
LARGEST_SCORE = float(np.finfo(np.float32).max)


@dataclass(frozen=True, slots=True)
class TextExample:
    """One row of a task. `label`: the class as the file writes it, a score, or None where there is none.

    `source` and `line` (from 1) say where it was read, for messages; two examples are equal without them.
    """

    text_a: str
    text_b: str | None = None
    label: str | float | None = None
    row_id: str = ""
    source: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def place(self) -> str:
        """file:line, or the row's id where it came from no file."""
        return f"{self.source}:{self.line}" if self.source else f"row {self.row_id or '(without id)'}"


def find_labels(examples: Iterable[TextExample]) -> tuple[str, ...]:
    """The classes that occur, sorted: whole numbers by value, anything else by its characters.

    ValueError for an example without label, and for fewer than two classes.
    """
    found: dict[str, None] = {}
    sources: dict[str, None] = {}
    for example in examples:
        found[str(_label(example))] = None
        sources[example.source] = None
    if len(found) < 2:
        files = f" of {', '.join(filter(None, sources))}" if any(sources) else ""
        raise ValueError(
            f"the training examples{files} have {len(found)} different labels ({', '.join(found) or 'no rows'}): "
            "at least two are needed, check the label column"
        )
    if all(label.removeprefix("-").isdecimal() for label in found):
        return tuple(sorted(found, key=lambda label: (int(label), label)))
    return tuple(sorted(found))


def label_ids(examples: List[TextExample], labels: List[str]) -> Int[np.ndarray, " n"]:
    """The place of each example's label in `labels` (int32). ValueError for a label that is not among them."""
    number = {label: i for i, label in enumerate(labels)}
    ids = np.empty(len(examples), np.int32)
    for row, example in enumerate(examples):
        label = str(_label(example))
        if label not in number:
            shown = ", ".join(labels[:8]) + (", ..." if len(labels) > 8 else "")
            raise ValueError(
                f"{example.place}: label {label!r} was not seen in training, which has {len(labels)} ({shown}): "
                "correct it, or train with rows that have it"
            )
        ids[row] = number[label]
    return ids


def label_scores(examples: List[TextExample]) -> Float[np.ndarray, " n"]:
    """The examples' labels as float32. ValueError where one is no finite number."""
    scores = np.empty(len(examples), np.float32)
    for row, example in enumerate(examples):
        scores[row] = parse_score(_label(example), example.place)
    return scores


def parse_score(label: str | float, place: str) -> float:
    """A finite number. ValueError names the place."""
    try:
        score = float(label)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise ValueError(f"{place}: {label!r} is no score: write a number, or read the column as classes")
    if abs(score) > LARGEST_SCORE:
        raise ValueError(f"{place}: the score {label!r} is beyond {LARGEST_SCORE:.4g}, what 32 bits hold: rescale it")
    return score


def to_sequences(
    examples: List[TextExample], tokenizer: Tokenizer, max_seq_length: int, problems: Problems | None = None
) -> list[Sequence]:
    """Each example as [CLS] A [SEP] or [CLS] A [SEP] B [SEP], of at most `max_seq_length` tokens.

    A longer one loses tokens as in the original (`sequences.truncate_pair`); `problems` counts it (TRUNCATED). All
    texts are encoded in one batch and laid out in one array, of which the sequences are views.
    """
    a, b = _encoded(examples, tokenizer, max_seq_length)
    return assemble(a, b, tokenizer, max_seq_length, [example.place for example in examples], problems)


def to_windows(
    examples: List[TextExample],
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int,
    problems: Problems | None = None,
) -> tuple[list[Sequence], Int[np.ndarray, " s"]]:
    """Like `to_sequences` but nothing is cut: (sequences, the example each belongs to).

    Text A of an example that is too long is read in windows that start `stride` tokens apart, each followed by the
    whole of B. If B alone takes more than half of the room it is A that stays whole and B that is read in windows;
    where both do, both are, each window of one with each of the other. A window of A holds at most what B leaves.
    `problems` counts the examples (IN_WINDOWS).
    """
    a, b = _encoded(examples, tokenizer, max_seq_length)
    places = [example.place for example in examples]
    return assemble_windows(a, b, tokenizer, max_seq_length, stride, places, problems)


def assemble_windows(
    a: Tokens,
    b: Tokens,
    tokenizer: Tokenizer,
    max_seq_length: int,
    stride: int,
    places: List[str],
    problems: Problems | None,
) -> tuple[list[Sequence], Int[np.ndarray, " s"]]:
    """The windows of `to_windows`, of texts that are encoded already."""
    room = max_seq_length - 2 - b.present.astype(np.int64) * tokenizer.pair_separators
    fits = a.lengths + b.lengths <= room
    parts_a: list[tuple[int, int]] = []
    parts_b: list[tuple[int, int]] = []
    owner: list[int] = []
    for row, place in enumerate(places):
        start_a, start_b = int(a.starts[row]), int(b.starts[row])
        if fits[row]:
            pieces = [((start_a, int(a.lengths[row])), (start_b, int(b.lengths[row])))]
        else:
            spans = _window_spans(int(a.lengths[row]), int(b.lengths[row]), int(room[row]), stride)
            pieces = [((start_a + s, n), (start_b + t, m)) for (s, n), (t, m) in spans]
            if problems is not None:
                problems.add(IN_WINDOWS, place)
        parts_a += [piece[0] for piece in pieces]
        parts_b += [piece[1] for piece in pieces]
        owner += [row] * len(pieces)
    owners = np.asarray(owner, np.int64)
    cut_a = Tokens(a.ids, *_columns(parts_a), a.present[owners])
    cut_b = Tokens(b.ids, *_columns(parts_b), b.present[owners])
    return assemble(cut_a, cut_b, tokenizer, max_seq_length, [places[row] for row in owner], None), owners


@dataclass(frozen=True)
class Tokens:
    """Texts as slices of one array of ids: text i is `ids[starts[i] : starts[i] + lengths[i]]`; slices may overlap.

    `present` is False where there is no text at all (no B), which is not the same as an empty one.
    """

    ids: Int[np.ndarray, " ids"]
    starts: Int[np.ndarray, " n"]
    lengths: Int[np.ndarray, " n"]
    present: Bool[np.ndarray, " n"]

    def take(self, rows: Int[np.ndarray, " k"]) -> Tokens:
        return Tokens(self.ids, self.starts[rows], self.lengths[rows], self.present[rows])


def encode_texts(texts: List[str | None], tokenizer: Tokenizer) -> Tokens:
    """All texts in one batch; None is no text."""
    present = np.fromiter((text is not None for text in texts), bool, len(texts))
    ids, lengths = tokenizer.encode_batch([text or "" for text in texts])
    return Tokens(ids, np.cumsum(lengths) - lengths, lengths, present)


def assemble(
    a: Tokens,
    b: Tokens,
    tokenizer: Tokenizer,
    max_seq_length: int,
    places: List[str],
    problems: Problems | None,
) -> list[Sequence]:
    """[CLS] A [SEP] B [SEP] for all rows at once: what `single`, `pair` and `truncate_pair` give for each."""
    check_length(max_seq_length, tokenizer)
    has_b = b.present.astype(np.int64)
    separators = tokenizer.pair_separators
    length_a, length_b = _truncated(a.lengths, b.lengths, max_seq_length - 2 - has_b * separators)
    if problems is not None:
        for row in np.flatnonzero((length_a < a.lengths) | (length_b < b.lengths)).tolist():
            problems.add(TRUNCATED, places[row])
    totals = 2 + length_a + has_b * (length_b + separators)
    starts = np.cumsum(totals) - totals
    ids = np.full(int(totals.sum()), tokenizer.sep_id, np.int32)  # whatever is not written below is a [SEP]
    ids[starts] = tokenizer.cls_id
    _copy(ids, starts + 1, a, length_a)
    start_b = starts + length_a + 1 + separators
    _copy(ids, start_b, b, length_b)
    segments = np.zeros(len(ids), np.int32)
    segments[_positions(start_b, has_b * (length_b + 1))] = 1
    bounds = zip(starts.tolist(), (starts + totals).tolist(), strict=True)
    return [Sequence(ids[start:end], segments[start:end]) for start, end in bounds]


def check_length(max_seq_length: int, tokenizer: Tokenizer) -> None:
    least = 4 + tokenizer.pair_separators
    if max_seq_length < least:
        raise ValueError(
            f"max_seq_length={max_seq_length} has no room for [CLS] A [SEP] B [SEP] with a token each: give {least} or"
            " more"
        )


def _encoded(examples: List[TextExample], tokenizer: Tokenizer, max_seq_length: int) -> tuple[Tokens, Tokens]:
    check_length(max_seq_length, tokenizer)
    a = encode_texts([example.text_a for example in examples], tokenizer)
    return a, encode_texts([example.text_b for example in examples], tokenizer)


def _label(example: TextExample) -> str | float:
    if example.label is None:
        raise ValueError(f"{example.place}: no label: fill it in, or use the row for prediction only")
    return example.label


def _truncated(
    a: Int[np.ndarray, " n"], b: Int[np.ndarray, " n"], most: Int[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """The lengths that `truncate_pair` leaves, for all pairs."""
    over = np.maximum(a + b - most, 0)
    from_a = np.clip(a - b, 0, over)
    from_b = np.clip(b - a, 0, over)
    rest = over - from_a - from_b
    return a - from_a - rest // 2, b - from_b - (rest - rest // 2)


def _copy(
    target: Int[np.ndarray, " t"],
    starts: Int[np.ndarray, " n"],
    tokens: Tokens,
    lengths: Int[np.ndarray, " n"],
) -> None:
    target[_positions(starts, lengths)] = tokens.ids[_positions(tokens.starts, lengths)]


def _positions(starts: Int[np.ndarray, " n"], lengths: Int[np.ndarray, " n"]) -> Int[np.ndarray, " t"]:
    """start, start + 1 ... start + length - 1 of each, one after the other."""
    before = np.cumsum(lengths) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))


def _window_spans(
    length_a: int, length_b: int, room: int, stride: int
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """((start, length) in A, (start, length) in B) of each window."""
    half = room // 2
    size_a = room - length_b if length_b <= half else min(length_a, half)
    size_b = length_b if length_b <= half else room - size_a
    return [
        ((s, min(size_a, length_a - s)), (t, min(size_b, length_b - t)))
        for s in windows(length_a, max(size_a, 1), stride).tolist()
        for t in windows(length_b, max(size_b, 1), stride).tolist()
    ]


def _columns(pairs: list[tuple[int, int]]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    table = np.asarray(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()
