"""What the predictor's methods give: small frozen records of plain Python values that read well in a notebook."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

# What a record shows of a number, and of a list.
DIGITS = 4
SHOWN = 12


def _readable(value: Any) -> str:
    """A value on one line, without digits or entries that nobody reads."""
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}"
    if isinstance(value, Mapping):
        entries = [f"{key!r}: {_readable(item)}" for key, item in value.items()]
        return "{" + ", ".join(entries[:SHOWN] + ["…"] * (len(entries) > SHOWN)) + "}"
    if isinstance(value, list):
        return "[" + ", ".join([_readable(item) for item in value[:SHOWN]] + ["…"] * (len(value) > SHOWN)) + "]"
    return repr(value)


def _show(self: Any) -> str:
    shown = ", ".join(f"{field.name}={_readable(getattr(self, field.name))}" for field in fields(self))
    return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, repr=False)
class Classification:
    """The likeliest class and its probability; ``probabilities`` has all classes, likeliest first."""

    label: str
    probability: float
    probabilities: dict[str, float]

    __repr__ = _show


@dataclass(frozen=True, repr=False)
class Choice:
    """The likeliest ending, which one it is (from 0), and its probability; those of all, in their order."""

    ending: str
    index: int
    probability: float
    probabilities: list[float]

    __repr__ = _show


@dataclass(frozen=True, repr=False)
class Answer:
    """``text`` is ``context[start:end]``, or "" where the context has no answer.

    probability: its share among the candidates of its question.
    """

    text: str
    probability: float
    start: int
    end: int

    __repr__ = _show


class Entity(NamedTuple):
    """Words ``start`` to ``end`` (exclusive) of a sentence, as text, and what they name."""

    text: str
    type: str
    start: int
    end: int


@dataclass(frozen=True, repr=False)
class Tagging:
    """A tag and its probability for each word, and the entities that the tags mark; none where tags mark none."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]
    entities: list[Entity]

    __repr__ = _show
