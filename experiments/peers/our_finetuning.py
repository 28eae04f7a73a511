"""Our worker of ``compare_finetuning``: ``bert_jax.train`` itself, with a clock.

python -m experiments.peers.our_finetuning '{"cache": "..."}'
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
from experiments.peers.line_protocol import Channel, serve
from experiments.program import keep_memory_in_huge_pages


class TimedLog(MetricLog):
    """The loop's log, which also takes the time: of training (compilation and logging with it) and of evaluation."""

    training_seconds = 0.0
    evaluation_seconds = 0.0
    steps = 0

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        TimedLog.training_seconds = TimedLog.evaluation_seconds = 0.0
        TimedLog.steps = self.total
        self.clock = time.perf_counter()

    @contextmanager
    def pause(self) -> Iterator[None]:
        jax.block_until_ready(self.pending[-1:])
        start = time.perf_counter()
        TimedLog.training_seconds += start - self.clock
        with super().pause():
            yield
        self.clock = time.perf_counter()
        TimedLog.evaluation_seconds += self.clock - start


def run(config: dict[str, Any], workdir: str) -> dict[str, Any]:
    """A whole run; ``whole_seconds`` has reading, tokenising, compiling and saving in it as well."""
    start = time.perf_counter()
    scores = loop.train(config, workdir)
    return {
        "scores": scores,
        "steps": TimedLog.steps,
        "training_seconds": TimedLog.training_seconds,
        "evaluation_seconds": TimedLog.evaluation_seconds,
        "whole_seconds": time.perf_counter() - start,
    }


def work(cache: str) -> None:
    """``run`` commands. Programs compiled for one seed are kept in ``cache`` for the next."""
    channel = Channel()
    jax.config.update("jax_compilation_cache_dir", cache)
    # The loop makes its log by this name; everything else in it stays as it is.
    loop.MetricLog = TimedLog  # pyright: ignore[reportPrivateImportUsage]
    serve(channel, {"run": run})


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(**json.loads(sys.argv[1]))
