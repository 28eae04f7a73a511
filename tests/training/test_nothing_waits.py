"""Steps follow each other without a pause, whatever is logged and written; a second start compiles nothing."""

import json
import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import pytest

from bert_jax.training import checkpoint
from bert_jax.training.train import train
from tests.training.test_hosts import ROOT, config, write_config

pytestmark = pytest.mark.end_to_end
FIRST, LAST, SAVED = 11, 50, 30
WRITING = 3.0  # seconds that a checkpoint takes longer than it would
# Of the time of those steps the devices may rest; what is left is the start of each step and, at a checkpoint, the
# copy of the state.
REST = 0.1


def busy(trace: Path) -> list[tuple[float, float]]:
    """(begin, end) in seconds of everything that the device did, put together where it overlaps, in order."""
    (file,) = trace.rglob("*.xplane.pb")
    spans = [
        (event.start_ns * 1e-9, (event.start_ns + event.duration_ns) * 1e-9)
        for plane in jax.profiler.ProfileData.from_file(str(file)).planes
        for line in plane.lines
        if "PjRtCpuClient" in line.name  # the threads that run programs
        for event in line.events
        if event.duration_ns > 0
    ]
    together: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if together and begin <= together[-1][1]:
            together[-1] = (together[-1][0], max(end, together[-1][1]))
        else:
            together.append((begin, end))
    return together


def test_a_trace_shows_no_pause(tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty steps with eight log lines and a checkpoint whose writing takes seconds."""
    written: list[float] = []
    original = checkpoint.write_sums

    def slowly(directory: Path) -> None:
        time.sleep(WRITING)
        original(directory)
        written.append(time.monotonic())

    monkeypatch.setattr(checkpoint, "write_sums", slowly)
    model = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 512}
    changes: dict[str, Any] = {"model": model | {"max_position_embeddings": 64}, "max_seq_length": 64}
    changes |= {"mesh": {"data": 1}, "batch_size": 32, "train_steps": 60, "log_every_steps": 5}
    changes |= {"eval_every_steps": 1000, "checkpoint_every_steps": SAVED}
    train(config(tiny_corpus, **changes), tmp_path, profile_steps=(FIRST, LAST))
    spans = busy(tmp_path / "profile")
    whole = spans[-1][1] - spans[0][0]
    gaps = sorted((after[0] - before[1] for before, after in pairwise(spans)), reverse=True)
    rest = sum(gaps) / whole
    print(
        f"\n{LAST - FIRST + 1} steps in {whole:.2f} s, {rest:.1%} of it at rest, the longest pauses"
        f" {', '.join(f'{1e3 * gap:.1f}' for gap in gaps[:4])} ms"
    )
    assert len(written) == 2
    assert rest < REST
    assert gaps[0] < WRITING / 2


MEASURE = """
import json, runpy, sys

from experiments.program import keep_compilations

keep_compilations()  # as the program does, but before JAX is imported here
import jax

seconds, found = [], []

def listen(event, duration, **_):
    if event == "/jax/core/compile/backend_compile_duration":
        seconds.append(duration)

jax.monitoring.register_event_duration_secs_listener(listen)
jax.monitoring.register_event_listener(lambda event, **_: found.append(event.endswith("/cache_hits")))
sys.argv = ["experiments.train", *sys.argv[1:]]
try:
    runpy.run_module("experiments.train", run_name="__main__", alter_sys=True)
finally:
    print(json.dumps({"seconds": sum(seconds), "programs": len(seconds), "found": sum(found)}))
"""


def test_a_second_start_compiles_next_to_nothing(tiny_corpus: Path, tmp_path: Path) -> None:
    """Less than a tenth of the first's time, by the cache that is on by default; the smallest program is in it."""
    path = write_config(tmp_path / "config.py", tiny_corpus, mesh={"data": 1})
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_COMPILATION", "JAX_PERSIS"))}
    env |= {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XLA_FLAGS": "", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}

    def start(name: str) -> dict[str, float]:
        command = [sys.executable, "-c", MEASURE, f"--config={path}", f"--workdir={tmp_path / name}"]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    first, second = start("one"), start("two")
    print(
        f"\nfirst start {first['seconds']:.2f} s for {first['programs']} programs, second {second['seconds']:.2f} s:"
        f" {second['seconds'] / first['seconds']:.1%}"
    )
    assert second["found"] == second["programs"] == first["programs"]
    assert second["seconds"] < 0.1 * first["seconds"]
