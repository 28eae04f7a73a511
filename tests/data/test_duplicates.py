"""The share of repetitions: exact while small, an estimate in bounded memory when large."""

import numpy as np
import pytest

from bert_jax.data.duplicates import DuplicateShare, hash_sentences
from bert_jax.data.keyed_random import random_bits


def test_small_streams_are_counted_exactly():
    share = DuplicateShare()
    assert share.share == 0 and share.exact
    share.add(np.array([1, 2, 3], np.uint64))
    share.add(np.array([3, 1, 1, 9], np.uint64))
    assert share.share == pytest.approx(3 / 7) and share.exact


def test_large_streams_are_estimated_in_bounded_memory():
    share = DuplicateShare(capacity=2_000)
    items = np.arange(1_000_000) % 700_000  # 300,000 repeat an earlier one
    for part in np.split(items, 100):
        share.add(random_bits(7, part))
    assert not share.exact
    assert share.share == pytest.approx(0.3, abs=0.03)  # about 1,500 distinct kept: the deviation is 0.01
    assert len(share._hashes) <= 2_000


def test_the_estimate_does_not_depend_on_the_order():
    hashes = random_bits(7, np.arange(600_000) % 400_000)
    shares = []
    for order in (hashes, hashes[::-1]):
        share = DuplicateShare(capacity=1_000)
        for part in np.split(order, 10):
            share.add(part)
        shares.append(share.share)
    assert shares[0] == shares[1]


def test_sentence_hashes_tell_sentences_apart():
    sentences = [[1, 2, 3], [3, 2, 1], [1, 2], [3], [1, 2, 3], [1], [2], [1, 1], [0], [0, 0]]
    ids = np.array([i for sentence in sentences for i in sentence], np.uint16)
    hashes = hash_sentences(ids, np.array([len(s) for s in sentences], np.int32), 5).tolist()
    assert hashes[0] == hashes[4]
    assert len(set(hashes)) == len(sentences) - 1


def test_no_sentences_no_hashes():
    assert hash_sentences(np.zeros(0, np.uint16), np.zeros(0, np.int32), 5).tolist() == []
