"""Corpora in memory whose token ids are their own places, so that a batch shows where its tokens come from."""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class SyntheticText:
    """Stands in for a `Corpus`; `released` counts the calls of release_pages."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    vocab_size: int
    released: list = field(default_factory=list)

    def release_pages(self) -> None:
        self.released.append(1)


@dataclass(frozen=True)
class SpecialIds:
    """[PAD], [CLS] and [SEP] outside of the text's ids."""

    pad_id: int = 1_000_000_000
    cls_id: int = 1_000_000_001
    sep_id: int = 1_000_000_002


def text_of(documents: list[list[int]]) -> SyntheticText:
    """Documents given by the lengths of their sentences; token i has id i."""
    sentences = np.cumsum([0] + [length for document in documents for length in document])
    borders = np.cumsum([0] + [len(document) for document in documents])
    size = int(sentences[-1])
    return SyntheticText(np.arange(size, dtype=np.uint32), sentences, borders, max(size, 1))


def random_text(seed: int, documents: int, sentences: tuple[int, int], mean_length: int = 20) -> SyntheticText:
    """Documents of `sentences` = (fewest, most) sentences of 1 to 2 * mean_length - 1 tokens, both uniform."""
    random = np.random.default_rng(seed)
    counts = random.integers(sentences[0], sentences[1] + 1, documents)
    lengths = random.integers(1, 2 * mean_length, counts.sum())
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    size = int(offsets[-1])
    borders = np.concatenate([[0], np.cumsum(counts)])
    return SyntheticText(np.arange(size, dtype=np.uint32), offsets, borders, size)
