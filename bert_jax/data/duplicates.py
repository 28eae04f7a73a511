"""How much of a stream repeats itself, in bounded memory."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int, Integer, UInt64

from bert_jax.data.keyed_random import random_bits

_POSITIONS = 1 << 12  # longer sentences reuse their multipliers: only an equal multiset 4,096 apart would collide
_MERGE_AT = 1 << 18


class DuplicateShare:
    """The share of items that repeat an earlier one: 1 - distinct / all, told from 64-bit hashes.

    Exact up to `capacity` distinct items. Beyond, only items whose hash lies under a limit are kept, and the
    limit is halved whenever they become too many (distinct sampling: Gibbons 2001), so the share is an estimate
    from at least `capacity` / 2 distinct items. The result does not depend on the order of the items.
    """

    def __init__(self, capacity: int = 1 << 19):
        self.capacity = capacity
        self.limit = 1 << 64
        self._hashes = np.zeros(0, np.uint64)
        self._counts = np.zeros(0, np.int64)
        self._new: list[np.ndarray] = []
        self._num_new = 0

    def add(self, hashes: UInt64[np.ndarray, " n"]) -> None:
        kept = hashes if self.limit == 1 << 64 else hashes[hashes < np.uint64(self.limit)]
        self._new.append(kept)
        self._num_new += len(kept)
        if self._num_new >= _MERGE_AT:
            self._merge()

    @property
    def exact(self) -> bool:
        self._merge()
        return self.limit == 1 << 64

    @property
    def share(self) -> float:
        """0 for an empty stream."""
        self._merge()
        total = int(self._counts.sum())
        return 1 - len(self._hashes) / total if total else 0.0

    def _merge(self) -> None:
        hashes = np.concatenate([self._hashes, *self._new])
        ones = np.ones(len(hashes) - len(self._hashes), np.int64)
        counts = np.concatenate([self._counts, ones])
        self._hashes, where = np.unique(hashes, return_inverse=True)
        self._counts = np.bincount(where, counts, minlength=len(self._hashes)).astype(np.int64)
        self._new, self._num_new = [], 0
        while len(self._hashes) > self.capacity:
            self.limit //= 2
            keep = self._hashes < np.uint64(self.limit)
            self._hashes, self._counts = self._hashes[keep], self._counts[keep]


def hash_sentences(
    ids: Integer[np.ndarray, " tokens"], lengths: Int[np.ndarray, " sentences"], vocab_size: int
) -> UInt64[np.ndarray, " sentences"]:
    """A 64-bit hash of each sentence's ids (all lengths > 0): equal ids, equal hash; else equal by chance only."""
    if len(lengths) == 0:
        return np.zeros(0, np.uint64)
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(len(ids)) - np.repeat(starts, lengths)
    of_id = random_bits(1, np.arange(vocab_size))
    of_position = random_bits(2, np.arange(_POSITIONS)) | np.uint64(1)
    terms = of_id[ids]
    terms *= of_position[positions % _POSITIONS]
    return random_bits(3, np.add.reduceat(terms, starts).view(np.int64))
