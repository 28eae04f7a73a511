"""Masked sentences whose missing word is known, taken from the documents that the run never trained on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Integer

from bert_jax.data.corpus import Corpus
from bert_jax.data.stored_corpus import known_copy
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.predict import Predictor

SHORTEST, LONGEST = 8, 28
CANDIDATES = 400
WORD = re.compile(r"[^\W\d_]{3,}|[^\W\d_ -~]+")  # a word of letters; other scripts' words may be shorter


class Sample(NamedTuple):
    """A text with one [MASK] or more, and the word that stood there, if known."""

    text: str
    answer: str | None = None


# For a run whose corpus is not at hand.
GENERAL = (
    Sample("The capital of France is [MASK]."),
    Sample("She opened the [MASK] and walked into the room."),
    Sample("He was born in the [MASK] of the nineteenth century."),
    Sample("It was a dark and [MASK] night."),
    Sample("The children went to [MASK] in the morning."),
)


def known(sample: Sample, model: Predictor) -> bool:
    """Whether the model can read the sentence: short enough, and no piece of it unknown."""
    ids = model.tokenizer.encode(sample.text, special_tokens=True).ids
    return len(ids) + 2 <= model.config.max_position_embeddings and model.tokenizer.unk_id not in ids


def held_out_samples(
    corpus: str | Path | None, tokenizer: Tokenizer, most_tokens: int, *, count: int = 5, seed: int = 0
) -> list[Sample]:
    """Up to ``count`` sentences of the corpus's held-out documents, one whole word of each masked.

    None where the corpus is gone, is not the tokenizer's any more, or holds nothing out: a report does without.
    """
    try:
        directory = known_copy(corpus or "")
        text, counts = Corpus.open(directory, "held_out"), Corpus.open(directory).unigrams
    except (OSError, ValueError):
        return []
    if text.vocab_size != tokenizer.vocab_size:
        return []
    random, starts = np.random.default_rng(seed), tokenizer.word_starts()
    found: dict[int, Sample] = {}  # at most one a document
    for index in random.permutation(text.num_sentences)[:CANDIDATES].tolist():
        document = int(np.searchsorted(text.documents, index, side="right"))
        ids = text.tokens[text.sentences[index] : text.sentences[index + 1]].astype(np.int64)
        fits = SHORTEST <= len(ids) <= min(LONGEST, most_tokens - 4)
        if document in found or not fits or tokenizer.unk_id in ids:
            continue
        words = list(maskable(ids, starts, counts, tokenizer))
        if len(words) >= 3:
            found[document] = masked(ids, words[int(random.integers(len(words)))], tokenizer)
        if len(found) == count:
            break
    return list(found.values())


def maskable(
    ids: Integer[np.ndarray, "t"], starts: Bool[np.ndarray, "v"], counts: Int[np.ndarray, "v"], tokenizer: Tokenizer
) -> Iterator[int]:
    """Columns of words that are one piece, of letters, and not rare in training."""
    for column, piece in enumerate(ids.tolist()):
        whole = starts[piece] and (column + 1 == len(ids) or starts[ids[column + 1]])
        if whole and counts[piece] >= 20 and WORD.fullmatch(tokenizer.decode([piece])):
            yield column


def masked(ids: Integer[np.ndarray, "t"], column: int, tokenizer: Tokenizer) -> Sample:
    """The sentence as text with [MASK] in place of the piece at ``column``."""
    before, after = tokenizer.decode(ids[:column].tolist()), tokenizer.decode(ids[column + 1 :].tolist())
    return Sample(closed_up(f"{before} [MASK] {after}".strip()), tokenizer.readable(int(ids[column])))


def closed_up(text: str) -> str:
    """Without the spaces around punctuation that WordPiece's text has; it is cut into the same pieces."""
    text = re.sub(r" ([,.;:!?)\]}])(?=[ ,.;:!?)\]}]|$)", r"\1", text)
    text = re.sub(r"(^| )([(\[{]) (?!MASK\])", r"\1\2", text)
    return re.sub(r"(\w) ' (s|t|re|ve|ll|d|m)\b", r"\1'\2", text)
