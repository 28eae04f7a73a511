"""Prepares the next batches on a background thread while the device works on the current one."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Generic, TypeVar

T = TypeVar("T")


def one_behind(items: Iterable[T]) -> Iterator[T]:
    """Each item once the next has been made: where making one only starts the device, the host fetches the result
    of the one before meanwhile."""
    for before, _ in pairwise(chain(items, [None])):
        yield before  # pyright: ignore[reportReturnType]


class Prefetch(Generic[T]):
    """Iterates over batch_function(start_step), batch_function(start_step + 1), ..., up to `depth` batches
    ahead.

    An exception of `batch_function` is raised where its batch would have come. Close it (or use it in a
    `with` statement) to stop the thread. `seconds_waited` is the time the consumer has spent waiting for
    batches.
    """

    def __init__(
        self,
        batch_function: Callable[[int], T],
        start_step: int = 0,
        depth: int = 2,
        *,
        stop_step: int | None = None,
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth is {depth}; at least 1 batch must be prepared ahead")
        self.seconds_waited = 0.0
        self._batch_function = batch_function
        self._stop_step = stop_step
        self._room = threading.Semaphore(depth)
        self._ready: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._produce, args=(start_step,), daemon=True)
        self._thread.start()

    def __iter__(self) -> "Prefetch[T]":
        return self

    def __next__(self) -> T:
        if self._closed:
            raise StopIteration
        begin = time.perf_counter()
        batch, error = self._ready.get()
        self.seconds_waited += time.perf_counter() - begin
        if error is not None:
            self.close()
            raise error
        self._room.release()
        return batch  # type: ignore[return-value]  (a batch wherever there is no error)

    def close(self) -> None:
        """Stops the thread, after the batch it is working on. Nothing can be taken afterwards."""
        self._closed = True
        self._room.release()
        self._thread.join()

    def __enter__(self) -> "Prefetch[T]":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _produce(self, step: int) -> None:
        while True:
            self._room.acquire()
            if self._closed:
                return
            try:
                if step == self._stop_step:
                    raise StopIteration
                batch = self._batch_function(step)
            except BaseException as error:
                self._ready.put((None, error))
                return
            self._ready.put((batch, None))
            step += 1
