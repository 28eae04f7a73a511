"""Masking: counts, shares, strategies against a plain sequential walk, specials, padding, sharding."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from bert_jax.tasks import masking
from bert_jax.tasks.masking import Masked, MaskingConfig, mask_tokens

VOCAB, PAD, UNK, CLS, SEP, MASK = 1000, 0, 1, 2, 3, 4
SPECIAL = (PAD, CLS, SEP, MASK)
# Pieces from 700 on continue a word.
STARTS = jnp.asarray(np.arange(VOCAB) < 700)
TABLE_8 = [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.8, 0.0, 0.2), (0.8, 0.2, 0.0), (0.0, 0.2, 0.8), (0.0, 0.0, 1.0)]


def batch(rows: int = 64, length: int = 128, seed: int = 0, lengths: np.ndarray | None = None):  # type: ignore[no-untyped-def]
    """Rows [CLS] A [SEP] B [SEP] padding; returns ids and sequence ids."""
    rng = np.random.default_rng(seed)
    lengths = np.full(rows, length) if lengths is None else lengths
    ids = rng.integers(5, VOCAB, (rows, length)).astype(np.int32)
    ids[:, 0] = CLS
    ids[np.arange(rows), np.maximum(lengths // 2, 1)] = SEP
    ids[np.arange(rows), lengths - 1] = SEP
    present = np.arange(length) < lengths[:, None]
    return jnp.asarray(np.where(present, ids, PAD), jnp.int32), jnp.asarray(present, jnp.int32)


@partial(jax.jit, static_argnums=3)
def run(key: jax.Array, ids: jax.Array, sequence_ids: jax.Array, config: MaskingConfig) -> Masked:
    return mask_tokens(key, ids, sequence_ids, STARTS, config, vocab_size=VOCAB, mask_id=MASK, special_ids=SPECIAL)


def chosen(masked: Masked, length: int) -> np.ndarray:
    """Boolean [r, t] of the predicted columns."""
    result = np.zeros((len(masked.positions), length), bool)
    for row, (positions, weights) in enumerate(zip(masked.positions, masked.weights, strict=True)):
        used = np.asarray(positions)[np.asarray(weights) > 0]
        assert len(set(used.tolist())) == len(used)
        assert (np.diff(used) > 0).all()
        result[row, used] = True
    return result


@pytest.mark.parametrize("strategy", masking.STRATEGIES)
@pytest.mark.parametrize(
    ("length", "count"), [(10, 2), (30, 4), (50, 8), (70, 10), (90, 14), (110, 16), (128, 19), (4, 1)]
)
def test_counts_are_rounded_half_to_even_over_the_length_with_specials(strategy: str, length: int, count: int) -> None:
    ids, sequence_ids = batch(8, 128, lengths=np.full(8, length))
    masked = run(jax.random.key(0), ids, sequence_ids, MaskingConfig(strategy=strategy))
    counts = np.asarray(masked.weights).sum(1)
    if strategy == "token":
        assert (counts == count).all()
    assert (counts <= count).all()
    assert counts.max() == count


def test_512_tokens_give_77() -> None:
    ids, sequence_ids = batch(2, 512)
    for limit, count in [(77, 77), (80, 77), (76, 76), (20, 20)]:
        masked = run(jax.random.key(0), ids, sequence_ids, MaskingConfig(max_predictions=limit))
        assert masked.positions.shape == (2, limit)
        assert (np.asarray(masked.weights).sum(1) == count).all()


@pytest.mark.parametrize("strategy", masking.STRATEGIES)
def test_what_is_predicted_and_what_is_left_alone(strategy: str) -> None:
    lengths = np.random.default_rng(1).integers(5, 129, 64)
    ids, sequence_ids = batch(64, 128, 2, lengths)
    masked = run(jax.random.key(1), ids, sequence_ids, MaskingConfig(strategy=strategy))
    predicted = chosen(masked, 128)
    assert not (predicted & np.isin(ids, SPECIAL)).any()
    assert not (predicted & (np.asarray(sequence_ids) == 0)).any()
    np.testing.assert_array_equal(np.asarray(masked.input_ids)[~predicted], np.asarray(ids)[~predicted])
    weights = np.asarray(masked.weights)
    assert set(np.unique(weights)) <= {0.0, 1.0}
    assert (np.asarray(masked.positions)[weights == 0] == 0).all()
    assert (np.asarray(masked.targets)[weights == 0] == 0).all()
    targets = np.take_along_axis(np.asarray(ids), np.asarray(masked.positions), 1)
    np.testing.assert_array_equal(np.asarray(masked.targets)[weights > 0], targets[weights > 0])


@pytest.mark.parametrize("shares", TABLE_8)
@pytest.mark.parametrize("strategy", ["token", "whole_word"])
def test_every_row_of_table_8(strategy: str, shares: tuple[float, float, float]) -> None:
    ids, sequence_ids = batch(1024, 128, 3)
    mask, same, random = shares
    config = MaskingConfig(mask=mask, same=same, random=random, strategy=strategy)
    masked = run(jax.random.key(2), ids, sequence_ids, config)
    predicted = chosen(masked, 128)
    before, after = np.asarray(ids)[predicted], np.asarray(masked.input_ids)[predicted]
    total = len(before)
    assert abs(predicted.mean() - 19 / 128) < (1e-9 if strategy == "token" else 0.002)
    # A random token is [MASK], or the token itself, once in VOCAB draws.
    for found, share in [
        ((after == MASK).mean(), mask + random / VOCAB),
        ((after == before).mean(), same + random / VOCAB),
        (((after != MASK) & (after != before)).mean(), random * (1 - 2 / VOCAB)),
    ]:
        assert abs(found - share) <= 4.5 * np.sqrt(share * (1 - share) / total) + 1e-9


def test_random_tokens_are_uniform_over_the_whole_vocabulary() -> None:
    ids, sequence_ids = batch(4096, 128, 4)
    config = MaskingConfig(mask=0.0, same=0.0, random=1.0)
    masked = run(jax.random.key(3), ids, sequence_ids, config)
    drawn = np.asarray(masked.input_ids)[chosen(masked, 128)]
    counts = np.bincount(drawn, minlength=VOCAB)
    assert len(counts) == VOCAB
    expected = len(drawn) / VOCAB
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert abs(chi_square - VOCAB) / np.sqrt(2 * VOCAB) < 4.5
    assert (counts[list(SPECIAL)] > 0).all()


def test_columns_are_chosen_uniformly_and_anew_for_every_row_and_key() -> None:
    ids, sequence_ids = batch(4096, 128, 5)
    first = chosen(run(jax.random.key(4), ids, sequence_ids, MaskingConfig()), 128)
    candidates = ~np.isin(np.asarray(ids)[0], SPECIAL)
    share = 19 / candidates.sum()
    counts = first[:, candidates].sum(0)
    assert np.abs(counts - 4096 * share).max() < 4.5 * np.sqrt(4096 * share * (1 - share))
    second = chosen(run(jax.random.key(5), ids, sequence_ids, MaskingConfig()), 128)
    overlap = (first & second).sum() / first.sum()
    assert abs(overlap - share) < 0.005
    assert (first[0] != first[1]).any()


def words_of(ids: np.ndarray) -> list[list[int]]:
    """The original's candidate sets: a continuation joins the last set, even across [SEP]."""
    words: list[list[int]] = []
    for column, piece in enumerate(ids.tolist()):
        if piece in SPECIAL:
            continue
        if words and piece >= 700:
            words[-1].append(column)
        else:
            words.append([column])
    return words


@pytest.mark.parametrize("strategy", ["whole_word", "ngram"])
def test_words_are_masked_whole_or_not_at_all(strategy: str) -> None:
    ids, sequence_ids = batch(64, 128, 6)
    predicted = chosen(run(jax.random.key(6), ids, sequence_ids, MaskingConfig(strategy=strategy)), 128)
    for row in range(64):
        for word in words_of(np.asarray(ids)[row]):
            assert predicted[row, word].all() or not predicted[row, word].any()


def test_whole_words_fill_the_budget_whenever_single_pieces_are_left() -> None:
    # A word that would exceed the budget is skipped, and the walk goes on to the next ones: with 83 one-piece words
    # in the row nothing of the budget can be left over.
    ids, sequence_ids = batch(256, 128, 7)
    masked = run(jax.random.key(7), ids, sequence_ids, MaskingConfig(strategy="whole_word"))
    assert (np.asarray(masked.weights).sum(1) == 19).all()


def test_whole_words_longer_than_the_budget_are_never_cut() -> None:
    row = [CLS, 10, *[800] * 17, SEP]
    ids = jnp.asarray([row] * 4, jnp.int32)
    masked = run(jax.random.key(8), ids, jnp.ones_like(ids), MaskingConfig(strategy="whole_word"))
    assert (np.asarray(masked.weights) == 0).all()
    np.testing.assert_array_equal(masked.input_ids, ids)


def sequential_walk(order: list[int], lengths: np.ndarray, words: list[list[int]], budget: int) -> set[int]:
    """ALBERT's loop in plain Python, for given random choices."""
    covered: set[int] = set()
    for first in order:
        if len(covered) >= budget:
            break
        n = min(int(lengths[first]), len(words) - first)
        while n and len(covered) + sum(map(len, words[first : first + n])) > budget:
            n -= 1
        span = {column for word in words[first : first + n] for column in word}
        if n and not span & covered:
            covered |= span
    return covered


@pytest.mark.parametrize("max_words", [1, 3])
def test_spans_equal_a_sequential_walk_over_the_same_choices(max_words: int) -> None:
    ids, _ = batch(32, 64, 9)
    candidates = ~jnp.isin(ids, jnp.asarray(SPECIAL, jnp.int32))
    starts = STARTS[ids]
    budget = jnp.full(32, 10, jnp.int32)
    key = jax.random.key(10)
    result = np.asarray(masking._choose_spans(key, candidates, starts, budget, max_words))
    key_order, key_length = jax.random.split(key)
    words = [words_of(row) for row in np.asarray(ids)]
    count = np.asarray([len(row) for row in words])
    exists = jnp.asarray(np.arange(64) < count[:, None])
    ranks = np.asarray(masking._random_ranks(key_order, exists))
    left = jnp.asarray(count[:, None] - np.arange(64), jnp.int32)
    lengths = np.asarray(masking._span_lengths(key_length, left, max_words))
    for row in range(32):
        order = sorted(range(count[row]), key=lambda word: ranks[row, word])
        expected = sequential_walk(order, lengths[row], words[row], 10)
        assert set(np.flatnonzero(result[row]).tolist()) == expected


def test_span_lengths_are_proportional_to_one_over_n() -> None:
    many = jnp.full((64, 1024), 50, jnp.int32)
    lengths = np.asarray(masking._span_lengths(jax.random.key(11), many, 3))
    shares = np.asarray([6 / 11, 3 / 11, 2 / 11])
    found = np.bincount(lengths.ravel(), minlength=4)[1:] / lengths.size
    assert np.abs(found - shares).max() < 4.5 * np.sqrt(0.25 / lengths.size)
    two = np.asarray(masking._span_lengths(jax.random.key(12), jnp.full((64, 1024), 2, jnp.int32), 3))
    assert set(np.unique(two)) == {1, 2}
    assert abs((two == 1).mean() - 2 / 3) < 0.01


@pytest.mark.parametrize("strategy", masking.STRATEGIES)
def test_nothing_to_mask_gives_weights_zero(strategy: str) -> None:
    ids = jnp.asarray([[CLS, SEP, SEP, PAD], [PAD] * 4, [CLS, 10, SEP, PAD]], jnp.int32)
    sequence_ids = jnp.asarray([[1, 1, 1, 0], [0] * 4, [1, 1, 1, 0]], jnp.int32)
    masked = run(jax.random.key(13), ids, sequence_ids, MaskingConfig(strategy=strategy))
    assert masked.positions.shape == (3, 20)
    np.testing.assert_array_equal(np.asarray(masked.weights).sum(1), [0, 0, 1])
    np.testing.assert_array_equal(masked.input_ids[:2], ids[:2])
    assert masked.targets[2, 0] == 10


@pytest.mark.parametrize("strategy", masking.STRATEGIES)
def test_the_same_on_any_mesh(strategy: str) -> None:
    ids, sequence_ids = batch(16, 64, 14)
    config = MaskingConfig(strategy=strategy)
    expected = run(jax.random.key(15), ids, sequence_ids, config)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    result = run(jax.random.key(15), *jax.device_put((ids, sequence_ids), sharding), config)
    jax.tree.map(np.testing.assert_array_equal, result, expected)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mask": 0.9}, "add up to 1"),
        ({"mask": 1.2, "same": -0.2, "random": 0.0}, "at least 0"),
        ({"rate": 0.0}, "rate=0.0 must be above 0"),
        ({"strategy": "span"}, "strategy='span' is not one of token, whole_word, ngram"),
        ({"max_predictions": 0}, "max_predictions=0"),
    ],
)
def test_bad_settings_are_refused(values: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MaskingConfig(**values)  # type: ignore[arg-type]
