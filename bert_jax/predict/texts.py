"""What callers give, one text or many, as token sequences; nothing is cut off unless they ask for it."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.packing import Examples
from bert_jax.data.sequences import Sequence as Input
from bert_jax.data.text_examples import Tokens, assemble, assemble_windows, encode_texts
from bert_jax.data.tokenizer import Tokenizer

Text = str | tuple[str, str]
# One text or pair, or several; in a list a pair may be a list of two as well.
Texts = Text | Iterable[Any]


class Limit(NamedTuple):
    """The most tokens of a sequence, and what it is called."""

    tokens: int
    name: str


class Inputs(NamedTuple):
    """Sequences ready for the model, and the text that each is of: several of one are its windows."""

    sequences: list[Input]
    owners: Int[np.ndarray, " s"]

    @property
    def examples(self) -> Examples:
        """The sequences laid out for packing."""
        return Examples.of(self.sequences)


def one_or_many(texts: Any) -> tuple[list[Any], bool]:
    """The texts as a list, and whether they were one alone: a string, or a tuple, which is a pair."""
    if isinstance(texts, (str, tuple)):
        return [texts], True
    return as_list(texts, "no text; give a string, a pair of strings (a, b), or a list of them"), False


def as_list(values: Any, otherwise: str) -> list[Any]:
    """What a caller gives several of. ValueError, with ``otherwise``, for what is no list, array or iterator."""
    try:
        found = None if isinstance(values, (bytes, bytearray)) else iter(values)
    except TypeError:  # an array of no axis says that it is iterable, and is not
        found = None
    if found is None:
        raise ValueError(f"{shortened(values)} is {otherwise}")
    return list(found)


def as_pair(text: Any, number: int) -> tuple[str, str | None]:
    """(text, None) or (A, B). ValueError for anything else."""
    if isinstance(text, str):
        return text, None
    if isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text):
        return text[0], text[1]
    raise ValueError(f"text {number} is {shortened(text)}; give a string, or a pair of strings (a, b)")


def as_strings(values: Any, what: str) -> list[str]:
    """A list of strings. ValueError for anything else."""
    values = [values] if isinstance(values, str) else as_list(values, f"no {what}; give a string, or a list of them")
    for number, value in enumerate(values):
        if not isinstance(value, str):
            raise ValueError(f"{what} {number} is {shortened(value)}; give a string")
    return values


def whole(value: Any, name: str) -> int:
    """A whole number, as Python's int. ValueError for anything else."""
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {shortened(value)}; give a whole number") from None


def encoded(texts: Sequence[str | None], tokenizer: Tokenizer) -> Tokens:
    """All texts in one batch; [MASK] and other special tokens in them become their ids. None is no text."""
    names = {*tokenizer.special_tokens, *(tokenizer.pieces[i] for i in tokenizer.special_ids)}
    marked = [i for i, text in enumerate(texts) if text is not None and any(name in text for name in names)]
    plain = list(texts)
    for i in marked:
        plain[i] = ""
    found = encode_texts(plain, tokenizer)
    parts = [np.asarray(tokenizer.encode(texts[i] or "", special_tokens=True).ids, np.int32) for i in marked]
    starts, lengths = found.starts.copy(), found.lengths.copy()
    lengths[marked] = [len(part) for part in parts]
    starts[marked] = len(found.ids) + np.cumsum(lengths[marked]) - lengths[marked]
    return Tokens(np.concatenate([found.ids, *parts]), starts, lengths, found.present)


def read_texts(
    texts: Sequence[Any],
    tokenizer: Tokenizer,
    limit: Limit,
    *,
    truncate: bool = False,
    stride: int | None = None,
    special_tokens: bool = True,
    remedy: str = "give truncate=True to cut it",
) -> Inputs:
    """[CLS] A [SEP] or [CLS] A [SEP] B [SEP] of every text or pair.

    Args:
        truncate: whether those that are too long lose tokens by the original's rule.
        stride: they are read in windows that start so many tokens apart; goes before ``truncate``.
        special_tokens: whether [MASK] and others in a text become their ids; in training data they never do.
        remedy: what an error says to do.

    Raises:
        ValueError: a text that is too long, if neither is asked for; what is no text.
    """
    pairs = [as_pair(text, number) for number, text in enumerate(texts)]
    encode = encoded if special_tokens else encode_texts
    a, b = (encode([pair[side] for pair in pairs], tokenizer) for side in (0, 1))
    if not truncate and stride is None:
        lengths = 2 + a.lengths + b.present * (b.lengths + tokenizer.pair_separators)
        check_lengths(pairs, lengths, limit, remedy)
    places = [f"text {number}" for number in range(len(pairs))]
    if stride is None:
        sequences, owners = assemble(a, b, tokenizer, limit.tokens, places, None), np.arange(len(pairs))
    else:
        sequences, owners = assemble_windows(a, b, tokenizer, limit.tokens, stride, places, None)
    return Inputs(sequences, owners)


def check_lengths(texts: Sequence[Any], lengths: Int[np.ndarray, " n"], limit: Limit, remedy: str) -> None:
    """ValueError for the first text that is too long."""
    too_long = np.flatnonzero(lengths > limit.tokens)
    if len(too_long):
        first = int(too_long[0])
        text = texts[first]
        text = text[0] if isinstance(text, tuple) and text[1] is None else text
        others = f" ({len(too_long) - 1:,} more are too long)" if len(too_long) > 1 else ""
        raise ValueError(
            f"text {first} has {lengths[first]} tokens with [CLS] and [SEP], {limit.name} is {limit.tokens}:"
            f" {shortened(text)}{others}; {remedy}"
        )


def shortened(value: Any, limit: int = 60) -> str:
    """The beginning of a text, or what something else is, quoted, on one line."""
    if isinstance(value, str):
        return repr(value if len(value) <= limit else value[: limit - 1] + "…")
    if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
        return "(" + ", ".join(shortened(part, limit // 2) for part in value) + ")"
    return f"{type(value).__name__} {shortened(repr(value), limit)[1:-1]}"
