"""Entities as spans and as IOB1, IOB2 or BIOES tags, and their exact scores as conlleval counts them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

SCHEMES = ("IOB1", "IOB2", "BIOES")
MARKS = ("B", "I", "O", "E", "S")


class Span(NamedTuple):
    """Words ``start`` to ``end`` (exclusive) of a sentence are one entity of a type."""

    start: int
    end: int
    type: str


def spans(tags: Sequence[str]) -> list[Span]:
    """The entities of a sentence, in order, whichever of the three schemes its tags are in.

    The rules of conlleval: an entity begins at B- and also at an I- that nothing of its type precedes, and goes on as
    long as I- of its type follow. E- ends one, as in conlleval, and S- is one. ValueError for a tag that is none.
    """
    found: list[Span] = []
    start, kind = 0, None  # of the open entity
    for i, tag in enumerate(tags):
        mark, _, tag_type = tag.partition("-")
        if mark not in MARKS or (mark != "O") != bool(tag_type):
            raise ValueError(f"tag {tag!r} is neither O nor B-, I-, E- or S- and a type: correct it")
        if kind is not None and (mark in "BSO" or tag_type != kind):
            found.append(Span(start, i, kind))
            kind = None
        if mark == "O":
            continue
        if kind is None:
            start, kind = i, tag_type
        if mark in "ES":
            found.append(Span(start, i + 1, kind))
            kind = None
    if kind is not None:
        found.append(Span(start, len(tags), kind))
    return found


def tags(entities: Iterable[Span], length: int, scheme: str) -> list[str]:
    """The tags of a sentence of ``length`` words in a scheme of `SCHEMES`.

    IOB1 has B- only where an entity directly follows one of its type. ValueError for an entity that is empty,
    reaches outside the sentence, or overlaps another.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"scheme={scheme!r} is not one of {', '.join(SCHEMES)}")
    out = ["O"] * length
    before = Span(0, 0, "")
    for span in sorted(entities):
        start, end, kind = span
        if not before.end <= start < end <= length:
            raise ValueError(f"{span} is empty, overlaps {before}, or leaves a sentence of {length} words: correct it")
        out[start:end] = [f"I-{kind}"] * (end - start)
        if scheme != "IOB1" or (before.end == start and before.type == kind):
            out[start] = f"B-{kind}"
        if scheme == "BIOES":
            out[end - 1] = f"S-{kind}" if end - start == 1 else f"E-{kind}"
        before = span
    return out


def convert(sentence: Sequence[str], scheme: str) -> list[str]:
    """The tags of a sentence in another scheme."""
    return tags(spans(sentence), len(sentence), scheme)


@dataclass(frozen=True)
class TypeScores:
    """How many entities there are, were predicted, and were predicted exactly; scores in per cent."""

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        return 100 * self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return 100 * self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 200 * self.correct / (self.gold + self.predicted) if self.correct else 0.0


@dataclass(frozen=True)
class EntityScores:
    """Scores in per cent over all types (micro-averaged), for each type, and the share of words with the exact tag."""

    total: TypeScores
    types: dict[str, TypeScores]
    words: int
    correct_words: int

    @property
    def precision(self) -> float:
        return self.total.precision

    @property
    def recall(self) -> float:
        return self.total.recall

    @property
    def f1(self) -> float:
        return self.total.f1

    @property
    def accuracy(self) -> float:
        return 100 * self.correct_words / self.words if self.words else 0.0

    @property
    def macro_f1(self) -> float:
        """The mean of the types' F1, which KLUE reports."""
        return sum(scores.f1 for scores in self.types.values()) / len(self.types) if self.types else 0.0

    def __str__(self) -> str:
        """The text that conlleval prints."""
        lines = [
            f"processed {self.words} tokens with {self.total.gold} phrases; "
            f"found: {self.total.predicted} phrases; correct: {self.total.correct}.",
            f"accuracy: {self.accuracy:6.2f}%; {_line(self.total)}",
        ]
        lines += [f"{kind:>17}: {_line(scores)}  {scores.predicted}" for kind, scores in self.types.items()]
        return "\n".join(lines)


def score(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> EntityScores:
    """Scores of the tags of sentences, both in any scheme (the accuracy compares tags as they are).

    An entity is correct if its first word, its last word and its type are. ValueError if the two do not have the same
    sentences and words.
    """
    gold, predicted = list(gold), list(predicted)
    correct_words, words = _same_words(gold, predicted)
    counts: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())  # gold, predicted, correct
    for ours, theirs in zip(gold, predicted, strict=True):
        wanted, found = set(spans(ours)), set(spans(theirs))
        for count, entities in zip(counts, (wanted, found, wanted & found), strict=True):
            count.update(entity.type for entity in entities)
    types = {kind: TypeScores(*(count[kind] for count in counts)) for kind in sorted(counts[0] | counts[1])}
    return EntityScores(TypeScores(*(count.total() for count in counts)), types, words, correct_words)


def word_accuracy(gold: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]) -> float:
    """The share of words with the right tag in per cent, for tags of any kind."""
    correct, words = _same_words(list(gold), list(predicted))
    return 100 * correct / words if words else 0.0


def _same_words(gold: list[Sequence[str]], predicted: list[Sequence[str]]) -> tuple[int, int]:
    """(words with the same tag, words)."""
    if len(gold) != len(predicted):
        raise ValueError(
            f"{len(gold)} sentences but predictions for {len(predicted)}: give them for the same sentences"
        )
    correct = words = 0
    for number, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        if len(ours) != len(theirs):
            raise ValueError(f"sentence {number} has {len(ours)} words but {len(theirs)} predictions: give one a word")
        words += len(ours)
        correct += sum(a == b for a, b in zip(ours, theirs, strict=True))
    return correct, words


def _line(scores: TypeScores) -> str:
    return f"precision: {scores.precision:6.2f}%; recall: {scores.recall:6.2f}%; FB1: {scores.f1:6.2f}"
