"""Several processes on this machine as one run: the same numbers as one process, and no way to hang."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.training.checkpoint import read_params
from bert_jax.training.hosts import join
from bert_jax.training.metric_log import read_metrics
from bert_jax.training.train import train

pytestmark = pytest.mark.end_to_end
ROOT = Path(__file__).parents[2]
DEVICES = 8


def config(corpus: Path, **changes: Any) -> dict[str, Any]:
    """A tiny pre-training with dropout and masking on."""
    model = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    return {
        "task": "pretraining",
        "corpus": str(corpus),
        "model": model | {"max_position_embeddings": 64},
        "batch_size": 16,
        "max_seq_length": 32,
        "train_steps": 20,
        "warmup_steps": 2,
        "eval_examples": 32,
        "eval_every_steps": 10,
        "checkpoint_every_steps": 10,
        "log_every_steps": 1,
        "seed": 0,
        "optimizer": {"learning_rate": 1e-3},
        "mesh": {"data": -1},
    } | changes


def write_config(path: Path, corpus: Path, **changes: Any) -> Path:
    values = config(corpus, **changes)
    path.write_text(
        f"from ml_collections import ConfigDict\n\n\ndef get_config():\n    return ConfigDict({values!r})\n"
    )
    return path


def start(
    config_file: Path,
    workdir: Path,
    process: int = 0,
    processes: int = 1,
    port: int = 0,
    limits: str = "true",
) -> subprocess.Popen[str]:
    """``experiments.train`` as one of several processes, which share ``DEVICES``; ``limits``: of bash's ulimit."""
    command = [sys.executable, "-m", "experiments.train", f"--config={config_file}", f"--workdir={workdir}"]
    if processes > 1:
        command += [f"--coordinator=127.0.0.1:{port}", f"--num_processes={processes}", f"--process_id={process}"]
    flags = re.sub(r"device_count=\d+", f"device_count={DEVICES // processes}", os.environ["XLA_FLAGS"])
    return subprocess.Popen(
        ["bash", "-c", f'{limits}; exec "$@"', "bash", *command],
        cwd=ROOT,
        # Compiled programs of their own: what is killed may leave half of one.
        env=os.environ
        | {"XLA_FLAGS": flags, "JAX_COMPILATION_CACHE_DIR": f"{os.environ['JAX_COMPILATION_CACHE_DIR']}_hosts"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def start_all(configs: Sequence[Path], workdir: Path) -> list[subprocess.Popen[str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [start(config, workdir, process, len(configs), port) for process, config in enumerate(configs)]


def ends(processes: Sequence[subprocess.Popen[str]], seconds: float = 240) -> list[tuple[int, str]]:
    """Exit code and standard error of each; a failure where one does not end in time."""
    try:
        texts = [process.communicate(timeout=seconds)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [(process.returncode, text) for process, text in zip(processes, texts, strict=True)]


def wait_for_step(workdir: Path, step: int, process: subprocess.Popen[str]) -> None:
    while process.poll() is None and not (workdir / "checkpoints" / str(step)).is_dir():
        time.sleep(0.1)
    assert process.poll() is None, process.communicate()[1]


def losses(workdir: Path) -> list[float]:
    return [line["loss"] for line in read_metrics(workdir) if "loss" in line]


@pytest.fixture(scope="session")
def alone(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workdir of one process with all devices along ``data``."""
    directory = tmp_path_factory.mktemp("alone")
    train(config(tiny_corpus), directory)
    return directory


@pytest.mark.parametrize(
    "processes, mesh",
    [(2, {"data": 2, "fsdp": 2, "tensor": 2}), (4, {"data": 1, "fsdp": 2, "tensor": 4})],
    ids=["2", "4, tensor across processes"],
)
def test_as_one_process_and_as_one_after_the_other(
    processes: int, mesh: dict[str, int], alone: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    """All steps by several processes; then the last ten again by one, from what the several saved."""
    several = write_config(tmp_path / "several.py", tiny_corpus, mesh=mesh)
    for code, text in ends(start_all([several] * processes, tmp_path / "run")):
        assert code == 0, text
    same_run(tmp_path / "run", alone)
    assert (tmp_path / "run" / "report.html").is_file()
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "20")
    train(config(tiny_corpus), tmp_path / "run")
    same_run(tmp_path / "run", alone)


def same_run(one: Path, other: Path) -> None:
    assert [read_params(run)[1]["step"] for run in (one, other)] == [20, 20]
    np.testing.assert_allclose(losses(one), losses(other), rtol=1e-6)
    for a, b in zip(*(jax.tree.leaves(read_params(run)[0]) for run in (one, other)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-6)


def test_one_that_is_told_to_go_takes_the_others_along(tiny_corpus: Path, tmp_path: Path) -> None:
    endless = write_config(tmp_path / "config.py", tiny_corpus, train_steps=100_000)
    running = start_all([endless] * 2, tmp_path / "run")
    wait_for_step(tmp_path / "run", 10, running[0])
    running[1].send_signal(signal.SIGTERM)
    (code, text), (other, _) = ends(running, seconds=60)
    assert (code, other) == (143, 143), text
    said = re.search(r"stopped at step ([\d,]+) and saved", text)
    assert said and read_params(tmp_path / "run")[1]["step"] == int(said[1].replace(",", ""))


def test_another_config_stops_all(tiny_corpus: Path, tmp_path: Path) -> None:
    configs = [write_config(tmp_path / f"{size}.py", tiny_corpus, batch_size=size) for size in (16, 32)]
    for code, text in ends(start_all(configs, tmp_path / "run"), seconds=60):
        assert code == 1
        assert "error: process 1 of 2 differs from process 0 (config.batch_size: 16 -> 32" in text
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_one_that_dies_stops_the_others_and_the_next_start_goes_on(tiny_corpus: Path, tmp_path: Path) -> None:
    endless = write_config(tmp_path / "config.py", tiny_corpus, train_steps=100_000)
    running = start_all([endless] * 2, tmp_path / "run")
    wait_for_step(tmp_path / "run", 10, running[0])
    running[1].kill()
    (code, text), _ = ends(running, seconds=60)
    assert code not in (0, None)
    assert re.search("heartbeat|unhealthy|Connection (closed|reset)|Socket closed", text), text
    step = max(int(path.name) for path in (tmp_path / "run" / "checkpoints").iterdir() if path.name.isdecimal())
    again = write_config(tmp_path / "again.py", tiny_corpus, train_steps=step + 2)
    for code, text in ends(start_all([again] * 2, tmp_path / "run")):
        assert code == 0, text
    assert read_params(tmp_path / "run")[1]["step"] == step + 2


def test_one_that_never_comes_is_not_waited_for_ever(tiny_corpus: Path, tmp_path: Path) -> None:
    path = write_config(tmp_path / "config.py", tiny_corpus)
    command = [sys.executable, "-m", "experiments.train", f"--config={path}", f"--workdir={tmp_path / 'run'}"]
    command += ["--coordinator=127.0.0.1:1", "--num_processes=2", "--process_id=1", "--meeting_seconds=5"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 1
    assert "error: nobody listens at 127.0.0.1:1 after 5 s" in result.stderr, result.stderr


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("10.0.0.1:80", None, None), "needs num_processes and process_id"),
        (("10.0.0.1:80", 2, 2), "process_id=2 of num_processes=2: they are counted from 0 to 1"),
        (("10.0.0.1", 2, 0), "must be HOST:PORT"),
        (("auto", 2, 0), "give no numbers"),
    ],
)
def test_arguments_that_do_not_belong_together(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        join(*arguments)


def test_two_runs_in_one_workdir(tiny_corpus: Path, tmp_path: Path) -> None:
    endless = write_config(tmp_path / "config.py", tiny_corpus, train_steps=100_000)
    first = start(endless, tmp_path / "run")
    try:
        wait_for_step(tmp_path / "run", 10, first)
        ((code, text),) = ends([start(endless, tmp_path / "run")])
        assert code == 1
        assert re.search(rf"run is in use by process {first.pid} on \S+; wait for it, stop it, or give another", text)
        assert first.poll() is None
    finally:
        first.kill()
        first.communicate()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train_steps"] == 100_000
