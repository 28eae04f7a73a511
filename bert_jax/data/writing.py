"""Files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A temporary file's path beside ``path``, which takes its place when the block ends; an error leaves neither.

    Folders above are made. What is no regular file, /dev/stdout say, is written as it is. ValueError: a folder.
    """
    check_output(path)
    if path.exists() and not path.is_file():
        yield path
        return
    path = Path(os.path.realpath(path))  # a link stays one
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Indented, in UTF-8."""
    with written(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def check_output(path: Path, *, folder: bool = False) -> None:
    """ValueError where a file is to be written but ``path`` is a folder, or the other way round."""
    if folder and path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file, but the output is several; give a folder")
    if not folder and path.is_dir():
        raise ValueError(f"{path} is a folder, but the output is one file; give its name")
