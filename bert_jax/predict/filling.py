"""Filling masks: the likeliest pieces at every [MASK] of a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from bert_jax.data.packing import Examples
from bert_jax.data.sequences import Sequence as Input
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.model.bert import BertForPreTraining
from bert_jax.model.config import BertConfig
from bert_jax.predict.engine import INPUTS, Engine
from bert_jax.predict.records import DIGITS
from bert_jax.predict.texts import Limit, as_strings, read_texts, shortened
from bert_jax.tasks.task import Params

# Masks that a row answers, of one text or of several packed into it: a static number must be chosen.
MASKS_A_ROW = 8
PLACEHOLDER = re.compile(r"\[unused\d+\]|madeupword\d+|")  # BERT's, RoBERTa's, a gap in the numbers


class Piece(NamedTuple):
    """A piece of the vocabulary and its probability."""

    piece: str
    probability: float

    def __repr__(self) -> str:
        return f"({self.piece!r}, {self.probability:.{DIGITS}g})"


Filling = list[Piece]


@dataclass(frozen=True)
class TopFillings:
    """``Call``: "ids" and "probabilities" [r, MASKS_A_ROW, k] of the likeliest offered pieces at "masked_columns".

    offered: a byte for each row of the vocabulary, 0 for what cannot fill a mask.
    """

    config: BertConfig
    offered: bytes
    k: int

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*INPUTS, "masked_columns")

    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        module = BertForPreTraining(self.config, next_sentence=False)
        columns = batch["masked_columns"]
        logits: Any = module.apply({"params": params}, *(batch[name] for name in INPUTS), columns, columns)
        probabilities = jax.nn.softmax(logits[0], axis=-1)
        offered = jnp.asarray(np.frombuffer(self.offered, bool))
        best, ids = jax.lax.top_k(jnp.where(offered, probabilities, -1.0), self.k)
        return {"ids": ids, "probabilities": best}


def offered_pieces(tokenizer: Tokenizer, size: int) -> Bool[np.ndarray, "size"]:
    """True for pieces that can fill a mask: no special tokens, no placeholders, no padding of the vocabulary."""
    offered = np.zeros(size, bool)
    offered[: tokenizer.vocab_size] = [PLACEHOLDER.fullmatch(piece) is None for piece in tokenizer.pieces]
    offered[list(tokenizer.special_ids)] = False
    return offered


def fill_masks(
    engine: Engine, texts: Sequence[Any], offered: Bool[np.ndarray, "v"], top_k: int, limit: Limit
) -> list[list[Filling]]:
    """For every text and each of its masks the likeliest pieces; see ``Predictor.fill_mask``."""
    sequences, columns = _masked(engine, texts, limit)
    # A power of two, so that other top_k do not compile anew each.
    k = min(1 << max(top_k - 1, 7).bit_length(), engine.config.vocab_size)
    call = TopFillings(engine.config, offered.tobytes(), k)
    results: list[list[Filling]] = [[] for _ in sequences]
    one = [(i, own) for i, own in enumerate(columns) if len(own) == 1]
    several = [
        (i, own[first : first + MASKS_A_ROW])
        for i, own in enumerate(columns)
        if len(own) > 1
        for first in range(0, len(own), MASKS_A_ROW)
    ]
    # Texts with one mask share rows; one with several has a row for itself, or more rows than one.
    for chosen, masks in ((one, 1), (several, MASKS_A_ROW)):
        padded = [np.pad(own, (0, masks - len(own)), mode="edge") for _, own in chosen]
        examples = Examples.of([sequences[i] for i, _ in chosen])
        examples = replace(examples, column_targets={"masked_columns": np.reshape(padded, (-1, masks)).astype(int)})
        found = engine.run(call, examples, slots=MASKS_A_ROW // masks)
        if not found:
            continue
        ids, shares = (found[name].reshape(-1, masks, k)[..., :top_k].tolist() for name in ("ids", "probabilities"))
        for (i, own), numbers, values in zip(chosen, ids, shares, strict=True):
            for mask in range(len(own)):
                pieces = [engine.tokenizer.readable(number) for number in numbers[mask]]
                results[i].append([Piece(*found) for found in zip(pieces, values[mask], strict=True)])
    return results


def _masked(engine: Engine, texts: Sequence[Any], limit: Limit) -> tuple[list[Input], list[Int[np.ndarray, " k"]]]:
    """The sequences of texts, and of each the columns that tell of its masks."""
    tokenizer = engine.tokenizer
    names = {"[MASK]", tokenizer.pieces[tokenizer.mask_id]}
    for number, text in enumerate(as_strings(texts, "text")):
        if not any(name in text for name in names):
            raise ValueError(f"text {number} has no [MASK]: {shortened(text)}; write [MASK] where a word is wanted")
    sequences = read_texts(texts, tokenizer, limit, remedy="shorten it").sequences
    # A language model says at a column what comes next (or before).
    shift = {"left_to_right": -1, "right_to_left": 1}.get(engine.config.attention_direction, 0)
    return sequences, [np.flatnonzero(sequence.ids == tokenizer.mask_id) + shift for sequence in sequences]
