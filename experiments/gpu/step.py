"""Our worker of ``gpu_check``: the training step of ``benchmark_step``, compiled apart from running and run in queues.

python -m experiments.gpu.step '{"setting": {"size": "base", "seq": 128, "batch": 8}, "changes": {"scan_layers": true}}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import jax

from experiments.benchmark_step import OurStep, Setting, seconds_of_rounds
from experiments.machine import describe, matmul_speeds
from experiments.peers.line_protocol import Channel, failures_told, serve


def work(setting: dict[str, Any], changes: dict[str, Any]) -> None:
    """``compile``; ``measure(rounds, seconds)``; ``matmul(shapes, queued)`` in bfloat16; ``machine``."""
    channel = Channel()
    ours = OurStep(Setting(**setting), **changes)

    def measure(rounds: int, seconds: float) -> dict[str, Any]:
        found = seconds_of_rounds(ours.run_queued, rounds, seconds)
        memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use")  # the CPU keeps no count
        return {"seconds": found, "memory_gb": memory / 1e9 if memory else None}

    serve(
        channel,
        {
            "compile": failures_told(lambda: {"seconds": ours.compile()}),
            "measure": failures_told(measure),
            "matmul": lambda shapes, queued: matmul_speeds(shapes, dtype="bfloat16", queued=queued),
            "machine": lambda: describe() | {"platform": jax.default_backend()},
        },
    )


if __name__ == "__main__":
    work(**json.loads(sys.argv[1]))
