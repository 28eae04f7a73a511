"""Points as processes: their results, their failures, their devices, and the table that shows them."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from experiments import sweep_processes
from experiments.sweep_processes import Board, Running, run_at_a_time, share, visible_gpus

# A "run": says its steps as a run does, writes a score, and ends well or badly.
RUN = """
import json, pathlib, sys, time
folder, score, seconds = pathlib.Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
print("step 5/20  loss 1.0", flush=True)
time.sleep(seconds)
if score < 0:
    sys.exit("error: it diverged")
folder.mkdir(exist_ok=True)
(folder / "score").write_text(str(score))
"""


def commands(workdir: Path, scores: dict[str, float], seconds: float = 0.0) -> dict[str, list[str]]:
    return {name: ["-c", RUN, str(workdir / name), str(score), str(seconds)] for name, score in scores.items()}


def test_every_point_and_what_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def record(name: str) -> float:
        return float((tmp_path / name / "score").read_text())

    run_at_a_time(commands(tmp_path, {"a": 0.5, "b": 0.25, "c": 1.0}), tmp_path, 2, "score", record)
    said = capsys.readouterr().out
    assert f"a: running, see {tmp_path}/a.log\n" in said and all((tmp_path / name / "score").exists() for name in "abc")
    failed = run_at_a_time(commands(tmp_path, {"runs/d": -1, "e": 2.0}), tmp_path, 1, "score", record)
    assert failed == {"runs/d": f"error: it diverged ({tmp_path}/runs/d.log)"} and record("e") == 2.0
    with pytest.raises(ValueError, match="--at_a_time needs a local --workdir, not memory://b/w; use --list"):
        run_at_a_time({}, "memory://b/w", 2, "score", record)


def test_an_order_to_stop_is_passed_on(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    timer = threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    began = time.monotonic()
    with pytest.raises(SystemExit) as stopped:
        run_at_a_time(commands(tmp_path, {"a": 0.5, "b": 0.5}, seconds=60), tmp_path, 2, "score", lambda _: 0.0)
    assert stopped.value.code == 128 + signal.SIGTERM and time.monotonic() - began < 30
    assert signal.getsignal(signal.SIGTERM) == before


def test_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = Board(["lr=1,seed=0", "lr=1,seed=1", "lr=2,seed=0"], tmp_path, "score")
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        one = Running("lr=1,seed=1", process, tmp_path / "log", 0, started=time.monotonic() - 50)
    (tmp_path / "lr=1,seed=1").mkdir()
    lines = '{"step": 100, "total_steps": 1200, "eval/score": 0.25}\n{"step": 500, "total_steps": 1200, "loss": 1}\n'
    (tmp_path / "lr=1,seed=1" / "metrics.jsonl").write_text(lines)
    board.state |= {"lr=1,seed=0": "finished", "lr=1,seed=1": "running"}
    board.scores["lr=1,seed=0"] = 0.5
    board.started -= 100
    assert board.rows([one]) == [
        "point        state                    score      left",
        "lr=1,seed=0  finished                0.5000          ",
        "lr=1,seed=1  step 500 of 1,200       0.2500     01:10",
        "lr=2,seed=0  waiting                                 ",
        "1 finished, 1 running, 1 waiting, about 03:20 left",
    ]
    monkeypatch.setattr(sweep_processes.shutil, "get_terminal_size", lambda: os.terminal_size((50, 6)))
    assert board.rows([one])[1:] == [
        "lr=1,seed=1  step 500 of 1,200       0.2500     0",
        "1 finished, 1 running, 1 waiting, about 03:20 lef",
    ]


def test_each_gets_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert visible_gpus() == ["2", "5"]
    assert share(1, 2) == {"CUDA_VISIBLE_DEVICES": "5", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.90"}
    assert share(0, 1)["CUDA_VISIBLE_DEVICES"] == "2,5"
    assert share(2, 4) == {"CUDA_VISIBLE_DEVICES": "2", "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.45"}
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setattr(sweep_processes.shutil, "which", lambda _: None)
    assert visible_gpus() == []
    monkeypatch.setattr(sweep_processes, "tpu_chips", lambda: 4)
    assert share(3, 4)["TPU_VISIBLE_CHIPS"] == "3"
    with pytest.raises(ValueError, match="--at_a_time=5 on 4 TPU chips, each of one process; take at most 4"):
        share(0, 5)
