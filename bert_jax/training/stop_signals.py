"""SIGTERM and Ctrl-C as a wish that the loop grants between two steps."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

import jax
from jax.experimental import multihost_utils


class StopSignals:
    """While open, the first SIGTERM or SIGINT is only noted; a second SIGINT interrupts at once.

    Of several processes any may get a SIGTERM: JAX's own handler tells the others, so that all stop after one step.
    """

    def __init__(self) -> None:
        self.received = 0
        self.previous: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        # Handlers belong to the main thread; a run in another thread (a notebook's, a test's) has none.
        if threading.current_thread() is threading.main_thread() and jax.process_count() == 1:
            for number in (signal.SIGTERM, signal.SIGINT):
                self.previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.previous.items():
            signal.signal(number, handler)

    def after(self, step: int) -> bool:
        """Whether to stop after this step, the same in every process; to be asked at every step."""
        if jax.process_count() > 1 and multihost_utils.reached_preemption_sync_point(step):
            self.received = signal.SIGTERM
        return bool(self.received)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number
