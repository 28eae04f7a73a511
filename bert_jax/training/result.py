"""``result.json``: what a finished run reached, by which config, from which data, by which code, on which machine."""

from __future__ import annotations

import hashlib
import json
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Any

import jax

from bert_jax.data.object_store import Store, is_url
from bert_jax.data.writing import write_json
from bert_jax.training.source import CONFIG
from bert_jax.training.workdir import environment

FILE = "result.json"
PACKAGE = Path(__file__).parents[1]


def write_result(workdir: Path, step: int, figures: dict[str, float], data: str, seconds: float) -> None:
    """Writes the file, with the config that the workdir has now; process 0 only.

    Args:
        figures: of the last held-out evaluation.
        data: the hash of what was learned from and evaluated on, see ``Task.data_hash``.
        seconds: of the last start, compilation and evaluations included.
    """
    if jax.process_index() == 0:
        about = {"date": time.strftime("%Y-%m-%d"), "environment": environment() | {"code": code_version()}}
        about |= {"data": data, "seconds": round(seconds, 1)}
        about |= {"config": json.loads((workdir / CONFIG).read_text(encoding="utf-8"))}
        write_json(workdir / FILE, {"step": step, "result": figures} | about)


def forget_result(workdir: Path) -> None:
    """Removes the file of a run that has steps left to take."""
    if jax.process_index() == 0:
        (workdir / FILE).unlink(missing_ok=True)


def read_result(workdir: str | Path) -> dict[str, Any] | None:
    """What the file says, in a directory or below a URL; None where the run is not finished."""
    if is_url(workdir):
        content = Store(str(workdir)).read(FILE)
    else:
        path = Path(workdir) / FILE
        content = path.read_bytes() if path.is_file() else None
    try:
        return None if content is None else json.loads(content)
    except ValueError:
        return None  # cut short: the run writes it again


@cache
def code_version() -> str:
    """The commit of the checkout, with ``-dirty`` where files differ from it; else a hash of the package's files.

    As it was at the first call, so ask when a run begins: a checkout may move on while it trains.
    """
    git = ["git", "-C", str(PACKAGE.parent)]
    try:
        if (PACKAGE.parent / ".git").exists():
            commit, changes = (
                subprocess.run([*git, *command], capture_output=True, text=True, check=True).stdout.strip()
                for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
            )
            return f"{commit}-dirty" if changes else commit
    except (OSError, subprocess.CalledProcessError):
        pass  # no git, or a checkout of another user's
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(str(path.relative_to(PACKAGE)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"sha256:{digest.hexdigest()}"
