"""``load(directory)`` -> ``Predictor``: text in, answers out, from any checkpoint directory."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_jax.data.tokenizer import Tokenizer, load_tokenizer
from bert_jax.model.bert import BertForPreTraining, check_batch
from bert_jax.model.config import BertConfig
from bert_jax.training.checkpoint import read_params
from bert_jax.training.workdir import MODEL_CONFIG, TOKENIZER

# Every compiled batch has one of these lengths, so many tokens in all, and so many masks a row: a handful of
# shapes serves every text. A text's shape depends on the text alone, so it gets the same numbers in any company.
LENGTHS = (32, 64, 128, 256, 512)
TOKENS_A_BATCH = 512
MASKS_A_ROW = 8

Filling = list[tuple[str, float]]


def load(directory: str | Path, *, step: int | None = None) -> Predictor:
    """The model of a training run's workdir, ready to use on this process's first device.

    Args:
        directory: a workdir; whatever mesh wrote its checkpoint.
        step: which checkpoint; None takes the newest.

    Raises:
        FileNotFoundError: no such directory, or no run or finished checkpoint in it.
    """
    directory = Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"no directory {directory}; give the --workdir of a training run")
    if not (directory / MODEL_CONFIG).is_file():
        raise FileNotFoundError(f"{directory} holds no {MODEL_CONFIG}; give the --workdir of a training run")
    config = BertConfig.from_json(directory / MODEL_CONFIG)
    tokenizer = load_tokenizer(directory / TOKENIZER)
    params, meta = read_params(directory, step)
    return Predictor(config, tokenizer, params, name=str(directory), step=meta["step"])


class Predictor:
    """A trained model with its tokenizer.

    Attributes: ``config``, ``tokenizer``, ``params`` (the nested dict of arrays), ``name``, ``step``,
    ``num_offered`` (how many pieces can fill a mask).
    """

    def __init__(self, config: BertConfig, tokenizer: Tokenizer, params: Any, *, name: str, step: int) -> None:
        if config.vocab_size != tokenizer.vocab_size:
            raise ValueError(
                f"{name}: the model has {config.vocab_size} pieces and its tokenizer {tokenizer.vocab_size};"
                " restore the tokenizer it was trained with"
            )
        self.config, self.tokenizer, self.params = config, tokenizer, jax.device_put(params)
        self.name, self.step = name, step
        longest = config.max_position_embeddings
        self._lengths = (*(length for length in LENGTHS if length < longest), longest)
        offered = offered_pieces(tokenizer, config.padded_vocab_size)
        self._offered, self.num_offered = jnp.asarray(offered), int(offered.sum())
        module = BertForPreTraining(config, next_sentence=False)
        self._fill = jax.jit(partial(top_fillings, module), static_argnames="k")

    def __repr__(self) -> str:
        config, tokenizer = self.config, self.tokenizer
        kind = {"wordpiece": "WordPiece", "sentencepiece": "SentencePiece"}.get(tokenizer.kind, tokenizer.kind)
        heads = ", ".join(name for name in self.params if name not in ("embeddings", "encoder", "pooler"))
        return (
            f"<Predictor {self.name!r} at step {self.step:,}: {config.num_hidden_layers} layers x"
            f" {config.hidden_size}, {self.num_parameters:,} parameters, {config.vocab_size:,} {kind} pieces"
            f" ({'uncased' if tokenizer.lowercase else 'cased'}), {heads or 'no head'}>"
        )

    @property
    def num_parameters(self) -> int:
        """Of encoder and heads, without the rows that only pad the vocabulary."""
        padding = self.config.padded_vocab_size - self.config.vocab_size
        rows = padding * (self.config.hidden_size + ("mlm_head" in self.params))
        return sum(leaf.size for leaf in jax.tree.leaves(self.params)) - rows

    @overload
    def fill_mask(self, text: str, top_k: int = 5) -> list[Filling]: ...
    @overload
    def fill_mask(self, text: Sequence[str], top_k: int = 5) -> list[list[Filling]]: ...
    def fill_mask(self, text: str | Sequence[str], top_k: int = 5) -> list[Filling] | list[list[Filling]]:
        """The likeliest pieces for every [MASK]: ``[(piece, probability), ...]`` each, likeliest first.

        One text gives a list with an entry for each of its masks, a list of texts a list of such lists. The
        probability is over the whole vocabulary; special tokens and [unused…] are left out of the answer. Several
        masks of one text are filled each for itself. A one-sided model reads the context on its side only.

        Raises:
            ValueError: a text without [MASK] or longer than the model, ``top_k`` out of range, a model without
                masked-LM head.
        """
        if "mlm_head" not in self.params:
            raise ValueError(f"{self.name} has no masked-LM head; load a pre-training run to fill masks")
        if not 1 <= top_k <= self.num_offered:
            raise ValueError(f"top_k={top_k} must be between 1 and the {self.num_offered:,} pieces to offer")
        if isinstance(text, str):
            return self._fill_all([text], top_k)[0]
        return self._fill_all(list(text), top_k)

    def _fill_all(self, texts: list[str], top_k: int) -> list[list[Filling]]:
        rows = [row for index, text in enumerate(texts) for row in self._rows(index, text)]
        # A power of two, so that other top_k do not compile anew each.
        k = min(1 << max(top_k - 1, 7).bit_length(), self.config.vocab_size)
        params = {name: self.params[name] for name in ("embeddings", "encoder", "mlm_head")}
        results: list[list[Filling]] = [[] for _ in texts]
        for length, group in batches(rows, self._lengths):
            batch = assemble(group, length, self.tokenizer.pad_id)
            check_batch(batch, self.config)
            probabilities, ids = jax.device_get(self._fill(params, batch, self._offered, k=k))
            for r, row in enumerate(group):
                for p in range(len(row.columns)):
                    found = zip(ids[r, p, :top_k].tolist(), probabilities[r, p, :top_k].tolist(), strict=True)
                    results[row.text].append([(self.tokenizer.pieces[i], share) for i, share in found])
        return results

    def _rows(self, index: int, text: str) -> Iterator[Row]:
        """A text as rows; one with more masks than a row answers takes part several times."""
        tokenizer = self.tokenizer
        ids = [tokenizer.cls_id, *tokenizer.encode(text, special_tokens=True).ids, tokenizer.sep_id]
        columns = [column for column, i in enumerate(ids) if i == tokenizer.mask_id]
        if not columns:
            raise ValueError(f"text {index} has no [MASK]: {shortened(text)}; write [MASK] where a word is wanted")
        if len(ids) > self.config.max_position_embeddings:
            raise ValueError(
                f"text {index} has {len(ids)} tokens with [CLS] and [SEP], max_position_embeddings is"
                f" {self.config.max_position_embeddings}: {shortened(text)}; shorten it"
            )
        # A language model says at a column what comes next (or before).
        shift = {"left_to_right": -1, "right_to_left": 1}.get(self.config.attention_direction, 0)
        for first in range(0, len(columns), MASKS_A_ROW):
            yield Row(index, ids, [column + shift for column in columns[first : first + MASKS_A_ROW]])


class Row(NamedTuple):
    """One sequence: the index of its text, its ids with [CLS] and [SEP], the columns to predict from."""

    text: int
    ids: list[int]
    columns: list[int]


def top_fillings(
    module: BertForPreTraining,
    params: Any,
    batch: dict[str, Int[Array, "r _"]],
    offered: Bool[Array, "v"],
    *,
    k: int,
) -> tuple[Float[Array, "r p k"], Int[Array, "r p k"]]:
    """Probabilities and ids of the ``k`` likeliest offered pieces at ``masked_positions``."""
    logits: Any = module.apply(
        {"params": params},
        batch["input_ids"],
        None,
        batch["sequence_ids"],
        None,
        batch["masked_positions"],
        jnp.zeros((batch["input_ids"].shape[0], 1), jnp.int32),
    )
    probabilities = jax.nn.softmax(logits[0], axis=-1)
    best, ids = jax.lax.top_k(jnp.where(offered, probabilities, -1.0), k)
    return best, ids


def batches(rows: Sequence[Row], lengths: Sequence[int]) -> Iterator[tuple[int, list[Row]]]:
    """(length, rows) of every batch; each row in the shortest length that holds it, in order."""
    previous = 0
    for length in lengths:
        fitting = [row for row in rows if previous < len(row.ids) <= length]
        size = rows_a_batch(length)
        for first in range(0, len(fitting), size):
            yield length, fitting[first : first + size]
        previous = length


def assemble(rows: Sequence[Row], length: int, pad_id: int) -> dict[str, Int[np.ndarray, "r _"]]:
    """The arrays of a batch, padded to ``length`` and to its fixed number of rows and masks."""
    shape = (rows_a_batch(length), length)
    input_ids, sequence_ids = np.full(shape, pad_id, np.int32), np.zeros(shape, np.int32)
    positions = np.zeros((shape[0], MASKS_A_ROW), np.int32)
    for r, row in enumerate(rows):
        input_ids[r, : len(row.ids)] = row.ids
        sequence_ids[r, : len(row.ids)] = 1
        positions[r, : len(row.columns)] = row.columns
    return {"input_ids": input_ids, "sequence_ids": sequence_ids, "masked_positions": positions}


def rows_a_batch(length: int) -> int:
    """How many rows of this length the compiled batch has."""
    return max(1, TOKENS_A_BATCH // length)


def offered_pieces(tokenizer: Tokenizer, size: int) -> Bool[np.ndarray, "size"]:
    """True for pieces that can fill a mask: no special tokens, no placeholders, no padding of the vocabulary."""
    offered = np.zeros(size, bool)
    offered[: tokenizer.vocab_size] = [re.fullmatch(r"\[unused\d+\]", piece) is None for piece in tokenizer.pieces]
    offered[list(tokenizer.special_ids)] = False
    return offered


def shortened(text: str, limit: int = 60) -> str:
    """The beginning of a text, quoted, on one line."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")
