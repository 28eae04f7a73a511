"""What the sources of data share: the options that a config gives them, and where the files of a split are."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bert_jax.data.object_cache import local_copy
from bert_jax.data.object_store import is_url

Files = str | tuple[str, ...]


def check_options(function: Callable[..., Any], field: str, /, *given: Any, **options: Any) -> None:
    """ValueError for an option that ``function`` needs or does not know, said with the config's ``field``.

    Before the call, for what it raises itself is its own.
    """
    try:
        inspect.signature(function).bind(*given, **options)
    except TypeError as error:
        reason = str(error).replace("keyword-only ", "")  # which Python 3.13 says and 3.11 does not
        raise ValueError(f"config.{field}: {reason}") from None


def split_paths(files: Mapping[str, Files], split: str, data_dir: str | Path) -> list[Path]:
    """The files of a split, relative to ``data_dir`` or at URLs; none for a run without a development set.

    ValueError: no such split, or one without a file.
    """
    if split not in files:
        raise ValueError(f"there is no split {split!r}; choose from {', '.join(files)}")
    names = files[split]
    names = [names] if isinstance(names, str) else list(names)
    if not any(names):
        if split == "dev":
            return []
        raise ValueError(f"{split} is not set: give its file, relative to data_dir")
    return [local_copy(name) if is_url(name) else Path(data_dir) / name for name in names]
