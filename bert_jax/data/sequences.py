"""One or two token lists as a BERT input: [CLS] A [SEP] or [CLS] A [SEP] B [SEP].

Where the tokenizer has RoBERTa's layout, two [SEP] stand between A and B.
"""

from __future__ import annotations

from collections.abc import Sequence as List
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from bert_jax.data.batches import SpecialTokens


@runtime_checkable
class PairTokens(SpecialTokens, Protocol):
    """The part of a tokenizer that a pair needs."""

    @property
    def pair_separators(self) -> int: ...


class Sequence(NamedTuple):
    """Token ids with [CLS] and [SEP], and their segments (0 for [CLS] A [SEP], 1 for B [SEP])."""

    ids: Int[np.ndarray, " t"]
    segment_ids: Int[np.ndarray, " t"]


def single(a: List[int], tokenizer: SpecialTokens) -> Sequence:
    """[CLS] A [SEP]."""
    ids = np.asarray([tokenizer.cls_id, *a, tokenizer.sep_id], np.int32)
    return Sequence(ids, np.zeros(len(ids), np.int32))


def pair(a: List[int], b: List[int], tokenizer: PairTokens) -> Sequence:
    """[CLS] A [SEP] B [SEP]."""
    separators = [tokenizer.sep_id] * tokenizer.pair_separators
    ids = np.asarray([tokenizer.cls_id, *a, *separators, *b, tokenizer.sep_id], np.int32)
    return Sequence(ids, (np.arange(len(ids)) > len(a) + len(separators)).astype(np.int32))


def truncate_pair(a: List[int], b: List[int], most: int) -> tuple[List[int], List[int]]:
    """Both lists with at most ``most`` tokens in all: the original's rule drops the last token of the longer, of B
    where both are equally long (``run_classifier.py``, ``_truncate_seq_pair``)."""
    over = len(a) + len(b) - most
    if over <= 0:
        return a, b
    # Level the longer one first, then take from both in turn, B first.
    from_a = min(max(len(a) - len(b), 0), over)
    from_b = min(max(len(b) - len(a), 0), over)
    rest = over - from_a - from_b
    from_a, from_b = from_a + rest // 2, from_b + rest - rest // 2
    return a[: len(a) - from_a], b[: len(b) - from_b]
