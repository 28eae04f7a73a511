"""Which rows are computed together: nothing lost, few shapes, short calls short, holes filled."""

import numpy as np
import pytest

from bert_jax.data.packing import COLUMNS_A_SLOT
from bert_jax.predict.batching import Batching

BATCHING = Batching(longest=512, hidden_size=384, tokens=1024, single_share=0.75)


def shapes(batching: Batching, lengths: list[int] | np.ndarray) -> list[tuple[int, int]]:
    """(rows, columns) of every batch."""
    return [(part.placement.num_rows, part.shape.columns) for part in batching.plan(np.asarray(lengths, np.int64))]


@pytest.mark.parametrize("seed", range(8))
def test_every_sequence_has_a_place_of_its_own(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, rng.integers(3, 514), rng.integers(1, 300))
    found = []
    for part in BATCHING.plan(lengths):
        rows, columns, numbers, num_rows = part.placement
        taken = np.zeros((num_rows, part.shape.columns), int)
        for item, row, column in zip(part.items, rows, columns, strict=True):
            taken[row, column : column + lengths[item]] += 1
            found.append(int(item))
        assert taken.max() == 1 and taken.sum() == lengths[part.items].sum()
        assert numbers.max() < part.shape.slots and len({*zip(rows, numbers, strict=True)}) == len(rows)
    assert sorted(found) == list(range(len(lengths)))


def test_a_handful_of_shapes_serves_everything() -> None:
    rng = np.random.default_rng(0)
    found = set()
    for _ in range(300):
        lengths = rng.integers(2, rng.integers(3, 514), rng.integers(1, 100))
        found |= set(shapes(BATCHING, lengths))
    assert found <= {*((1, width) for width in (32, 64, 128, 256, 512)), (8, 128), (4, 256), (2, 512)}


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([2], [(1, 32)]),
        ([32], [(1, 32)]),
        ([33], [(1, 64)]),
        ([129], [(1, 256)]),
        ([512], [(1, 512)]),
        ([20, 20, 20], [(1, 64)]),  # three texts in one row
        ([100] * 6, [(1, 128)] * 6),
        ([100] * 7, [(8, 128)]),  # nearly full: one batch with an empty row
        ([100] * 9, [(8, 128), (1, 128)]),
        ([2] * 5, [(1, 64)]),  # a narrower row has places for four
    ],
)
def test_rows_left_over_are_as_narrow_as_they_can_be(lengths: list[int], expected: list[tuple[int, int]]) -> None:
    assert shapes(BATCHING, lengths) == expected
    assert COLUMNS_A_SLOT == 8


def test_short_texts_fill_what_long_ones_leave() -> None:
    # 300 of 512 columns leave 212: ten texts of 20 tokens need no row of their own.
    assert shapes(BATCHING, [300, *[20] * 10]) == [(1, 512)]


def test_rows_are_wider_where_that_wastes_less() -> None:
    # 70 tokens waste 45 % of 128 columns, 18 % of 256, more than attention costs more there.
    found = shapes(BATCHING, [70] * 1200)
    assert {columns for _, columns in found} == {256}
    assert {columns for _, columns in shapes(BATCHING, [120] * 64)} == {128}


def test_rows_are_nearly_full_of_mixed_lengths() -> None:
    lengths = np.random.default_rng(0).lognormal(3.7, 0.7, 2000).astype(int).clip(3, 512)
    computed = sum(rows * columns for rows, columns in shapes(BATCHING, lengths))
    assert lengths.sum() > 0.97 * computed


def test_models_of_other_lengths() -> None:
    short = Batching(longest=80, hidden_size=16, tokens=1024, single_share=0.75)
    assert set(shapes(short, [80, 3, 50, *[60] * 40])) <= {(1, 32), (1, 64), (1, 80), (12, 80)}
    long = Batching(longest=2048, hidden_size=384, tokens=1024, single_share=0.75)
    assert shapes(long, [2000, 600, 30]) == [(1, 2048)] * 2
    assert BATCHING.plan(np.zeros(0, np.int64)) == []
