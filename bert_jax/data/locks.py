"""Locks that the system takes back however their process ends."""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

LOCK = "lock"


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """While open no other process may lock the directory; the system takes the lock back however the process ends.

    Raises:
        ValueError: one does, said with its process.
    """
    with (directory / LOCK).open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"{directory} is in use by {file.read().strip() or 'another process'}; wait for it, stop it, or give"
                " another directory"
            ) from None
        except OSError:
            pass  # a file system without locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        yield


@contextmanager
def waited_for(path: Path) -> Iterator[None]:
    """Open in one process at a time; the others wait."""
    with path.open("a") as file:
        with suppress(OSError):  # a file system without locks: files still appear whole, but may be fetched twice
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
