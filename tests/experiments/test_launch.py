"""The launch scripts, with stand-ins for srun, scontrol and gcloud: when they start again, and what they run."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "experiments" / "launch"


def stand_in(folder: Path, name: str, *codes: int) -> Path:
    """A command that notes its arguments and ends with the next of these codes."""
    calls = folder / f"{name}.calls"
    exits = " ".join(map(str, codes))
    (folder / name).write_text(
        f'#!/usr/bin/env bash\necho "$@" >> {calls}\ncodes=({exits})\nexit ${{codes[$(($(wc -l < {calls}) - 1))]}}\n'
    )
    (folder / name).chmod(0o755)
    return calls


def launch(folder: Path, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
    return subprocess.run([LAUNCH / script, *arguments], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("code", "restarts", "again", "end"),
    [(0, 0, False, 0), (1, 0, False, 1), (143, 0, True, 0), (134, 3, True, 0), (143, 100, False, 143)],
)
def test_slurm(tmp_path: Path, code: int, restarts: int, again: bool, end: int) -> None:
    """Stopped and saved, or ended by another's end: requeued, up to a hundred times; complete or wrong: not."""
    srun, scontrol = stand_in(tmp_path, "srun", code), stand_in(tmp_path, "scontrol", 0)
    done = launch(
        tmp_path,
        "slurm.sbatch",
        "--workdir",
        "a run",
        SLURM_JOB_ID="17",
        SLURM_RESTART_COUNT=str(restarts),
        PYTHON="py",
    )
    assert done.returncode == end, done.stderr
    assert srun.read_text() == "py -m experiments.train --coordinator=auto --workdir a run\n"
    assert (scontrol.read_text() == "requeue 17\n") if again else not scontrol.exists()


def test_tpu_vm(tmp_path: Path) -> None:
    """Again until it is complete, with the arguments quoted for the hosts' shells."""
    calls = stand_in(tmp_path, "gcloud", 255, 134, 0)
    where = {"POD": "pod", "ZONE": "zone", "SECONDS_BETWEEN": "0"}
    done = launch(tmp_path, "tpu_vm.sh", "--workdir", "/mnt/a run", **where)
    assert done.returncode == 0 and len(calls.read_text().splitlines()) == 3
    assert "--worker=all" in calls.read_text() and r"--workdir /mnt/a\ run" in calls.read_text()
    calls.unlink()
    stand_in(tmp_path, "gcloud", *[1] * 10)
    done = launch(tmp_path, "tpu_vm.sh", **where)
    assert done.returncode == 1 and len(calls.read_text().splitlines()) == 3 and "three starts in a row" in done.stderr
    assert "the name of the TPU VM" in launch(tmp_path, "tpu_vm.sh", ZONE="z").stderr


def test_the_flags_are_those_of_train() -> None:
    known = set(re.findall(r'DEFINE_\w+\(\s*"(\w+)"', (ROOT / "experiments" / "train.py").read_text())) | {"config"}
    for script in LAUNCH.iterdir():
        commands = [
            line for line in script.read_text().splitlines() if "-m experiments.train" in line or "- --" in line
        ]
        flags = re.findall(r" --(\w+)", "\n".join(commands))
        assert "coordinator" in flags and set(flags) <= known, (script, flags)
