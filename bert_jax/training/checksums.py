"""Whether a checkpoint is as it was written: the SHA-256 of each of its files, in a list that ``sha256sum -c`` reads.

TensorStore's own checksums cover its index, not the arrays' numbers: a flipped bit there would load as another number.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

SUMS = "SHA256SUMS"
# Orbax writes these when everything else is there, the sums too.
WRITTEN_LAST = {"commit_success.txt", "_CHECKPOINT_METADATA", SUMS}


def write_sums(directory: Path) -> None:
    """Lists the files in ``directory`` and below with their sums."""
    lines = [f"{_sum(directory / name)}  {name}\n" for name in _files(directory)]
    (directory / SUMS).write_text("".join(lines), encoding="utf-8")


def find_damage(directory: Path, items: Sequence[str] = ("",)) -> str | None:
    """What is wrong with the files below ``items`` of ``directory``, for a message; None: nothing.

    A directory without a list (from before there was one) cannot be checked: None.
    """
    if not (directory / SUMS).is_file():
        return None
    try:
        lines = (directory / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except ValueError:
        return f"{SUMS} is no list of sums"
    here = set(_files(directory))
    for name in sorted(here | sums.keys()):
        if not any(name.startswith(f"{item}/" if item else "") for item in items):
            continue
        if name not in here:
            return f"{name} is missing"
        if name not in sums:
            return f"{name} is not in {SUMS}"
        if _sum(directory / name) != sums[name]:
            return f"{name} is not as it was written"
    return None


def _files(directory: Path) -> list[str]:
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name not in WRITTEN_LAST)
    return sorted(path.relative_to(directory).as_posix() for path in paths)


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
