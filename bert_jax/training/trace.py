"""What host and devices do during some steps, for TensorBoard's or Perfetto's trace viewer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax

FOLDER = "profile"


class Trace:
    """While open, ``before(step, state)`` starts the trace before its first step and ends it after its last."""

    def __init__(self, workdir: str | Path, steps: tuple[int, int] | None) -> None:
        self.directory, self.steps, self.on, self.taken = Path(workdir) / FOLDER, steps, False, False

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        if self.on:
            jax.profiler.stop_trace()
        elif self.steps is not None and not self.taken:
            print(f"profile_steps={self.steps}: the run took none of them, so there is no trace", file=sys.stderr)

    def before(self, step: int, state: Any) -> None:
        """To be called before every step, with the state that it begins with."""
        if self.steps is None:
            return
        if step == self.steps[0]:
            jax.block_until_ready(state)
            jax.profiler.start_trace(self.directory)
            self.on = self.taken = True
        elif self.on and step > self.steps[1]:
            jax.block_until_ready(state)
            jax.profiler.stop_trace()
            self.on = False
