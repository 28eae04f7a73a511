"""Our worker of ``compare_pretraining``: ``bert_jax.train`` itself, held up between slices of steps.

python -m experiments.peers.our_training '{"config": {...}, "workdir": "..."}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from bert_jax.training import train as loop
from bert_jax.training.metric_log import MetricLog
from experiments.peers.line_protocol import READY, Channel
from experiments.program import keep_memory_in_huge_pages


class SlicedLog(MetricLog):
    """The loop's log, which also takes the time and, after each evaluation, waits for leave to go on.

    The clock runs while the loop trains, logs and saves; it stands while it evaluates and while it waits. The first
    step, which compiles, is told apart.
    """

    channel: Channel

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.first_step_seconds, self.seconds = 0.0, 0.0
        self.clock = time.perf_counter()

    def train(self, step: int, figures: Any, tokens: int, wait_seconds: float) -> None:
        super().train(step, figures, tokens, wait_seconds)
        if step == 1:
            jax.block_until_ready(figures)
            self.first_step_seconds = time.perf_counter() - self.clock
            self.clock = time.perf_counter()

    @contextmanager
    def pause(self) -> Iterator[None]:
        jax.block_until_ready(self.pending[-1:])
        self.seconds = time.perf_counter() - self.clock
        with super().pause():
            yield

    def evaluation(self, step: int, result: dict[str, float], details: dict[str, Any]) -> None:
        super().evaluation(step, result, details)
        self.channel.send(
            {
                "step": step,
                "seconds": self.seconds,
                "first_step_seconds": self.first_step_seconds,
                "evaluation": result,
            }
        )
        if step < self.total and self.channel.receive() is None:
            sys.exit("the comparison has ended early")
        self.first_step_seconds = 0.0
        self.clock = time.perf_counter()


def work(config: dict[str, Any], workdir: str) -> None:
    """``train`` commands, each answered after the next evaluation of the run."""
    SlicedLog.channel = Channel()
    SlicedLog.channel.send(READY)
    if SlicedLog.channel.receive() is None:
        return
    # The loop makes its log by this name; everything else in it stays as it is.
    loop.MetricLog = SlicedLog  # pyright: ignore[reportPrivateImportUsage]
    loop.train(config, workdir)
    SlicedLog.channel.receive()


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(**json.loads(sys.argv[1]))
