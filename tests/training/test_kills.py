"""A run that is killed anywhere, or finds its last checkpoint damaged, ends with the bits of one that was not."""

import random
import re
import signal
import subprocess
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from bert_jax.training.checkpoint import _reason, read_params
from bert_jax.training.train import train
from tests.training.test_hosts import config, ends, start, write_config

pytestmark = pytest.mark.end_to_end
STEPS, KILLS = 60, 50


def checkpoints(workdir: Path) -> list[int]:
    folder = workdir / "checkpoints"
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal()) if folder.is_dir() else []


def same_parameters(one: Path, other: Path) -> None:
    for a, b in zip(*(jax.tree.leaves(read_params(run)[0]) for run in (one, other)), strict=True):
        np.testing.assert_array_equal(a, b)


def damage(workdir: Path, how: str) -> None:
    """To a random file of the newest checkpoint's arrays."""
    step = checkpoints(workdir)[-1]
    files = [path for path in (workdir / "checkpoints" / str(step)).rglob("d/*") if path.is_file()]
    file = random.choice(sorted(files))
    content = bytearray(file.read_bytes())
    if how == "truncated":
        del content[len(content) // 2 :]
    else:
        content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    file.write_bytes(content)


@pytest.mark.slow
def test_fifty_random_kills(tiny_corpus: Path, tmp_path: Path) -> None:
    """python -m pytest -m slow -n 0 -s tests/training/test_kills.py prints how it went."""
    often = {"train_steps": STEPS, "checkpoint_every_steps": 2, "eval_every_steps": 20, "mesh": {"data": 2, "fsdp": 4}}
    path = write_config(tmp_path / "config.py", tiny_corpus, **often)
    began = time.monotonic()
    assert ends([start(path, tmp_path / "straight")])[0][0] == 0
    whole = time.monotonic() - began  # of a run; the first one compiles
    random.seed(0)
    moments, done, aside = {"before a step": 0, "in training": 0, "finished": 0}, 0, 0
    for number in range(KILLS):
        began, process = time.monotonic(), start(path, tmp_path / "killed")
        signals = signal.SIGTERM if number % 5 == 4 else signal.SIGKILL
        try:
            process.communicate(timeout=random.uniform(0, whole))
        except subprocess.TimeoutExpired:
            process.send_signal(signals)
            text = process.communicate()[1]
        else:
            text = ""
        before, done = done, max(checkpoints(tmp_path / "killed"), default=0)
        moments["finished" if process.returncode == 0 else "in training" if done > before else "before a step"] += 1
        assert process.returncode in (0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM), text
        if process.returncode == 0:  # anew, from the oldest checkpoint, and killed sooner
            whole = time.monotonic() - began
            for step in checkpoints(tmp_path / "killed")[1:]:
                (tmp_path / "killed" / "checkpoints" / str(step)).rename(tmp_path / f"{number}-{step}")
        elif number % 7 == 6 and len(checkpoints(tmp_path / "killed")) > 1:
            damage(tmp_path / "killed", random.choice(("truncated", "flipped")))
            aside += 1
    assert ends([start(path, tmp_path / "killed")])[0][0] == 0
    same_parameters(tmp_path / "killed", tmp_path / "straight")
    print(f"\n{KILLS} kills: {moments}, {aside} damaged checkpoints; the same parameters to the bit")


def test_the_system_says_why_a_checkpoint_was_not_written() -> None:
    page = f"{'Error opening ' * 30}[os_error_code='28'] {'{spec} ' * 60}"
    assert _reason(OSError(page)) == "No space left on device"
    assert _reason(ValueError("x " * 300)) == f"... {('x ' * 300).strip()[-200:]}"


def test_a_full_disk_stops_the_run_and_loses_nothing(tiny_corpus: Path, tmp_path: Path) -> None:
    model = {"hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 64}
    changes = {"model": model | {"intermediate_size": 64}, "train_steps": 10, "checkpoint_every_steps": 5}
    train(config(tiny_corpus, **changes), tmp_path / "straight")
    path = write_config(tmp_path / "config.py", tiny_corpus, **changes)
    # No file may grow beyond so many KiB: what is small is written, an array's is not.
    limits = "export JAX_ENABLE_COMPILATION_CACHE=false; ulimit -f 16"
    ((code, text),) = ends([start(path, tmp_path / "full", limits=limits)])
    assert code == 1
    said = r"^error: .*checkpoints/5 could not be written .*File too large.*make room"
    assert re.search(said, text, re.MULTILINE), text
    assert not checkpoints(tmp_path / "full")
    train(config(tiny_corpus, **changes), tmp_path / "full")
    same_parameters(tmp_path / "full", tmp_path / "straight")
