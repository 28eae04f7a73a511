"""Windows and max-context against the loops of run_squad.py, written out."""

from itertools import pairwise

import numpy as np
import pytest

from bert_jax.data.windows import max_context, windows, windows_at


def loop_windows(length, size, stride):
    starts, start = [], 0
    while start < length:
        part = min(length - start, size)
        starts.append(start)
        if start + part == length:
            break
        start += min(part, stride)
    return starts


def loop_owner(starts, ends, position):
    best_score, best = None, None
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if not start <= position < end:
            continue
        score = min(position - start, end - 1 - position) + 0.01 * (end - start)
        if best_score is None or score > best_score:
            best_score, best = score, index
    return best


@pytest.mark.parametrize(
    ("length", "size", "stride", "expected"),
    [
        (10, 4, 2, [0, 2, 4, 6]),
        (11, 4, 2, [0, 2, 4, 6, 8]),
        (4, 4, 1, [0]),
        (5, 4, 9, [0, 4]),
        (1, 4, 2, [0]),
        (0, 4, 2, [0]),
    ],
)
def test_windows_by_hand(length, size, stride, expected):
    assert windows(length, size, stride).tolist() == expected


def test_max_context_by_hand():
    # The original's comment: windows of "the man went to the store and bought a gallon of milk".
    starts = np.array([0, 4, 8])
    ends = np.array([8, 12, 16])
    assert max_context(starts, ends).tolist() == [0] * 6 + [1] * 4 + [2] * 6
    # 5 is 2 from both ends' nearer side in windows 0 and 1: the first wins; the longer one wins if second.
    assert max_context(np.array([0, 3]), np.array([8, 11])).tolist() == [0] * 6 + [1] * 5
    assert max_context(np.array([0, 3]), np.array([8, 12])).tolist() == [0] * 5 + [1] * 7


def test_equal_the_loops():
    rng = np.random.default_rng(0)
    for length in [*range(1, 30), *rng.integers(30, 1200, 20).tolist()]:
        size, stride = (int(n) for n in rng.integers(1, 400 if length > 30 else 9, 2))
        starts = windows(length, size, stride)
        assert starts.tolist() == loop_windows(length, size, stride)
        ends = np.minimum(starts + size, length)
        owner = max_context(starts, ends)
        assert owner.tolist() == [loop_owner(starts.tolist(), ends.tolist(), i) for i in range(length)]


def test_irregular_windows_and_gaps():
    starts, ends = np.array([0, 0, 9, 7]), np.array([3, 5, 12, 20])
    expected = [loop_owner(starts.tolist(), ends.tolist(), i) for i in range(20)]
    assert [None if i < 0 else i for i in max_context(starts, ends).tolist()] == expected
    assert max_context(np.array([0]), np.array([0])).tolist() == []


@pytest.mark.parametrize(
    ("bounds", "size", "stride", "expected"),
    [
        ([0, 3, 5, 8, 9], 9, 1, [(0, 9)]),
        ([0, 3, 5, 8, 9], 6, 2, [(0, 5), (3, 9)]),
        ([0, 3, 5, 8, 9], 5, 5, [(0, 5), (5, 9)]),
        ([0, 3, 5, 8, 9], 5, 3, [(0, 5), (3, 8), (5, 9)]),
        ([0, 1, 2, 3, 4, 5, 6, 7], 4, 2, [(0, 4), (2, 6), (3, 7)]),  # the last one is full
        ([0, 0, 2, 2, 4, 4], 2, 1, [(0, 2), (2, 4)]),
        ([0, 0], 4, 2, [(0, 0)]),
    ],
)
def test_windows_at_bounds_by_hand(bounds, size, stride, expected):
    starts, ends = windows_at(bounds, size, stride)
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == expected


def test_windows_at_bounds_are_full_and_hold_every_stretch():
    rng = np.random.default_rng(1)
    for _ in range(200):
        size, stride = (int(n) for n in rng.integers(5, 40, 2))
        bounds = np.cumsum([0, *rng.integers(1, min(size, 9) + 1, 30)]).tolist()
        starts, ends = (found.tolist() for found in windows_at(bounds, size, stride))
        assert (starts[0], ends[-1]) == (0, bounds[-1])
        assert sorted(set(ends)) == ends
        for start, end in zip(starts, ends, strict=True):
            left = [bound for bound in bounds if bound < start]
            right = [bound for bound in bounds if bound > end]
            assert end - start <= size
            assert all(end - bound > size for bound in left) and all(bound - start > size for bound in right)
        for first, last in pairwise(bounds):
            assert any(start <= first and last <= end for start, end in zip(starts, ends, strict=True))
        assert (max_context(np.array(starts), np.array(ends)) >= 0).all()


def test_bounds_too_far_apart_are_refused():
    for bounds in ([0, 5, 6], [0, 1, 6], [0, 5]):
        with pytest.raises(ValueError, match="add bounds"):
            windows_at(bounds, 4, 2)


@pytest.mark.parametrize(("size", "stride"), [(0, 1), (-3, 1), (4, 0)])
def test_impossible_settings_are_refused(size, stride):
    with pytest.raises(ValueError, match=r"give 1 or more|at least 1"):
        windows(10, size, stride)
