import numpy as np

from bert_jax.data.keyed_random import below, binomial_half, coins, key_of, permutation, random_bits


def test_bits_are_splitmix64():
    # The published outputs of SplitMix64 for seed 0.
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert random_bits(0, np.arange(1, 4)).tolist() == expected


def test_keys_depend_on_every_part_and_on_the_order():
    keys = {key_of(), key_of(0), key_of(0, 0), key_of(1, 0), key_of(0, 1), key_of(1, 2), key_of(2, 1), key_of(-1)}
    assert len(keys) == 8
    assert all(0 <= key < 1 << 64 for key in keys)


def test_a_number_does_not_depend_on_the_others():
    key = key_of(3, 1)
    assert random_bits(key, np.array([5, 17])).tolist() == random_bits(key, np.arange(20))[[5, 17]].tolist()


def test_below_is_uniform_and_independent_of_the_coin():
    bits = random_bits(key_of(1), np.arange(120_000))
    numbers, heads = below(bits, np.full(len(bits), 6)), coins(bits)
    table = np.histogram2d(numbers, heads, bins=[np.arange(7), [0, 1, 2]])[0]
    assert np.abs(table - 10_000).max() < 5 * np.sqrt(10_000)
    assert below(bits[:3], np.array([0, 1, 1 << 31])).tolist()[:2] == [0, 0]


def test_permutation_holds_everything_once_in_another_order():
    order = permutation(key_of(4), 1000)
    assert sorted(order.tolist()) == list(range(1000))
    assert not np.array_equal(order, permutation(key_of(5), 1000))
    assert permutation(0, 0).shape == (0,)
    places = np.array([permutation(key, 4) for key in range(6_000)])
    share = np.stack([(places == value).mean(axis=0) for value in range(4)])
    assert np.abs(share - 0.25).max() < 0.03


def test_binomial_has_the_exact_law_for_few_coins():
    counts = np.bincount(binomial_half(key_of(2), np.full(160_000, 4)), minlength=5)
    expected = 10_000 * np.array([1, 4, 6, 4, 1])
    assert np.abs(counts - expected).max() < 5 * np.sqrt(60_000)


def test_binomial_moments_for_any_number_of_coins():
    for trials in (0, 1, 63, 64, 65, 200, 4096, 5000, 3_000_000):
        heads = binomial_half(key_of(9, trials), np.full(20_000, trials))
        assert heads.min() >= 0
        assert heads.max() <= trials
        deviation = np.sqrt(trials) / 2
        assert abs(heads.mean() - trials / 2) <= 5 * deviation / np.sqrt(20_000)
        assert abs(heads.std() - deviation) <= 0.03 * deviation


def test_binomial_of_mixed_sizes_counts_each_its_own_bits():
    trials = np.array([0, 1, 130, 0, 64, 0])
    mean = np.mean([binomial_half(key, trials) for key in range(2000)], axis=0)
    assert np.abs(mean - trials / 2).max() < 0.5
    assert mean[[0, 3, 5]].tolist() == [0, 0, 0]
