"""A checkpoint that is not as it was written is recognised, whatever happened to it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from bert_jax.training.checksums import SUMS, find_damage, write_sums


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    for name, content in {"params/d/one": b"numbers", "training/two": b"moments", "meta/three": b"{}"}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    write_sums(tmp_path)
    (tmp_path / "commit_success.txt").touch()  # Orbax's last act
    return tmp_path


def test_one_as_it_was_written_has_none(checkpoint: Path) -> None:
    assert find_damage(checkpoint) is None
    (checkpoint / SUMS).unlink()
    assert find_damage(checkpoint) is None


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="sha256sum of GNU coreutils is not installed")
def test_sha256sum_reads_the_list(checkpoint: Path) -> None:
    check = ["sha256sum", "--strict", "--check", SUMS]
    assert subprocess.run(check, cwd=checkpoint, check=False, capture_output=True).returncode == 0
    (checkpoint / "meta/three").write_bytes(b"{ }")
    assert subprocess.run(check, cwd=checkpoint, check=False, capture_output=True).returncode != 0


def test_damage_is_named(checkpoint: Path) -> None:
    (checkpoint / "params/d/one").write_bytes(b"numbert")
    assert find_damage(checkpoint) == "params/d/one is not as it was written"
    assert find_damage(checkpoint, ("training", "meta")) is None
    (checkpoint / "params/d/one").write_bytes(b"number")
    assert find_damage(checkpoint, ("params",)) == "params/d/one is not as it was written"
    (checkpoint / "params/d/one").unlink()
    assert find_damage(checkpoint) == "params/d/one is missing"


def test_a_file_too_many_and_a_broken_list_are_damage(checkpoint: Path) -> None:
    (checkpoint / "training/four").touch()
    assert find_damage(checkpoint) == f"training/four is not in {SUMS}"
    (checkpoint / "training/four").unlink()
    text = (checkpoint / SUMS).read_text()
    (checkpoint / SUMS).write_text(text[: len(text) // 2])
    assert find_damage(checkpoint) is not None
    (checkpoint / SUMS).write_bytes(b"\xff\xfe")
    assert find_damage(checkpoint) == f"{SUMS} is no list of sums"
