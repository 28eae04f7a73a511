"""Sliding windows over a text longer than the model takes, and which window has most context for each position."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int


def windows(length: int, size: int, stride: int) -> Int[np.ndarray, " w"]:
    """The first positions of windows of at most ``size`` that together hold ``length`` positions.

    The rule of ``run_squad.py``: the next window starts ``stride`` later (never more than ``size``, so that no
    position is left out) and the first one to reach the end is the last. A window ends at
    ``min(start + size, length)``. An empty text has one empty window, so no example is without one (the original
    has none).
    """
    if size < 1:
        raise ValueError(f"a window of {size} tokens: at least 1 must be left for it; raise the sequence length")
    if stride < 1:
        raise ValueError(f"stride={stride} would never reach the end of a text: give 1 or more")
    step = min(size, stride)
    return np.arange(1 + -(-max(length - size, 0) // step)) * step


def max_context(starts: Int[np.ndarray, " w"], ends: Int[np.ndarray, " w"]) -> Int[np.ndarray, " t"]:
    """The window in which each position has most context; ``t`` is the largest end, -1 where no window is.

    The score of ``run_squad.py`` (``_check_is_max_context``): the smaller of the contexts left and right plus 0.01 of
    the window's length, in the same double precision; of equal scores the first window wins.
    """
    total = int(ends.max(initial=0))
    if len(starts) == 1 and starts[0] == 0:
        return np.zeros(total, np.int64)
    owner = np.full(total, -1, np.int64)
    best = np.full(total, -1.0)
    for window, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        left = np.arange(end - start)
        score = np.minimum(left, left[::-1]) + 0.01 * (end - start)
        better = score > best[start:end]
        owner[start:end][better] = window
        best[start:end][better] = score[better]
    return owner


def windows_at(bounds: Sequence[int], size: int, stride: int) -> tuple[Int[np.ndarray, " w"], Int[np.ndarray, " w"]]:
    """(starts, ends) of windows that begin and end at ``bounds`` only, such as the bounds of sentences.

    ``bounds`` ascend from 0 to the length of the text, no two neighbours more than ``size`` apart. Every window is as
    full as it can be: the next window ends at least one bound later and starts as far left as fits. Starts move by
    about ``stride``; every stretch between two bounds is whole in some window.
    """
    if stride < 1:
        raise ValueError(f"stride={stride} would never reach the end of a text: give 1 or more")
    starts, ends = [], []
    start = 0
    while True:
        end = bounds[bisect_right(bounds, start + size) - 1]
        start = bounds[bisect_left(bounds, end - size)]
        starts.append(start)
        ends.append(end)
        if end == bounds[-1]:
            return np.array(starts), np.array(ends)
        following = bounds[bisect_right(bounds, end)]
        if following - end > size:
            raise ValueError(f"nothing between {end} and {following} is a bound, but a window has {size}: add bounds")
        within_stride = bounds[bisect_right(bounds, start + min(stride, size)) - 1]
        start = max(within_stride, bounds[bisect_left(bounds, following - size)])
