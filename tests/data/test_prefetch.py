import threading
import time

import pytest

from bert_jax.data.prefetch import Prefetch, one_behind


def test_order_and_end():
    with Prefetch(lambda step: step * step, start_step=3, stop_step=7) as batches:
        assert list(batches) == [9, 16, 25, 36]
    assert list(batches) == []


def test_never_more_than_depth_ahead():
    made = []
    with Prefetch(lambda step: made.append(step), depth=2) as batches:
        for taken in range(1, 6):
            next(batches)
            time.sleep(0.02)
            assert len(made) <= taken + 2
        assert len(made) == 7


def test_exception_comes_in_the_place_of_its_batch():
    def fails(step: int) -> int:
        if step == 2:
            raise KeyError("no such block")
        return step

    batches = Prefetch(fails, depth=4)
    assert [next(batches), next(batches)] == [0, 1]
    with pytest.raises(KeyError, match="no such block"):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    assert not batches._thread.is_alive()


def test_waiting_time():
    with Prefetch(lambda step: time.sleep(0.05), stop_step=4) as slow:
        list(slow)
    assert 0.15 < slow.seconds_waited < 2
    with Prefetch(lambda step: step, depth=3) as fast:
        time.sleep(0.1)
        next(fast)
    assert fast.seconds_waited < 0.05


def test_closing_ends_the_thread():
    before = threading.active_count()
    for close_twice in (False, True):
        batches = Prefetch(lambda step: step)
        next(batches)
        batches.close()
        if close_twice:
            batches.close()
        assert threading.active_count() == before
        with pytest.raises(StopIteration):
            next(batches)


def test_depth_of_zero():
    with pytest.raises(ValueError, match="depth is 0"):
        Prefetch(lambda step: step, depth=0)


def test_one_behind_makes_the_next_before_it_gives_one() -> None:
    made: list[int] = []

    def items():
        for number in range(3):
            made.append(number)
            yield number

    assert [(one, len(made)) for one in one_behind(items())] == [(0, 2), (1, 3), (2, 3)]
    assert list(one_behind([])) == []
