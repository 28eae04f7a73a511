"""Reads the parameters in a ``flax_model.msgpack``, as transformers' Flax models were saved before version 5.

Of the names and orientations there: transformers' modeling_flax_pytorch_utils.py (version 4).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from flax.serialization import msgpack_restore

REMEDY = "copy it again, or ask for model.safetensors"


def read_flax(path: Path) -> dict[str, np.ndarray]:
    """The parameters under PyTorch's names and in its orientation, e.g. ``bert.pooler.dense.weight`` [outputs, inputs].

    A ``kernel`` [inputs, outputs] becomes a ``weight`` [outputs, inputs]; an ``embedding`` and a layer norm's
    ``scale`` become a ``weight`` as they are; other names stay. The arrays are read-only, of the file's dtypes.

    Raises:
        ValueError: damaged, incomplete, or no nested dict of arrays.
        OSError: there is no such file, or it cannot be read.
    """
    data = path.read_bytes()
    try:
        tree = msgpack_restore(data)
    except Exception as error:  # msgpack's, or NumPy's or flax's on whatever shape and dtype a damaged file names
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise ValueError(
            f"{path} is no whole flax_model.msgpack ({reason}; it starts with {data[:24]!r}): {REMEDY}"
        ) from None
    try:
        return _arrays(tree)
    except ValueError as error:
        raise ValueError(f"{path}: {error}; {REMEDY}") from None


def _arrays(tree: Any) -> dict[str, np.ndarray]:
    arrays: dict[str, np.ndarray] = {}
    # A stack, since a damaged file may nest deeper than Python's calls.
    pending: list[tuple[tuple[str, ...], Any]] = [((), tree)]
    while pending:
        path, value = pending.pop()
        if type(value) is dict:
            if any(type(key) is not str for key in value):
                raise ValueError(f"{_shown(path)} has keys that are no strings, expected names")
            pending += [((*path, key), child) for key, child in reversed(value.items())]
            continue
        if not isinstance(value, np.ndarray) or not path:
            raise ValueError(f"{_shown(path)} is a {type(value).__name__}, expected a nested dict of arrays")
        if value.dtype.kind not in "biuf" and value.dtype != ml_dtypes.bfloat16:
            raise ValueError(f"{_shown(path)} is an array of {value.dtype}, expected numbers")
        name, array = _as_pytorch(path, value)
        if name in arrays:
            raise ValueError(f"{_shown(path)} is there twice as {name!r}, expected once")
        arrays[name] = array
    if not arrays:
        raise ValueError("it has no arrays, expected a model's parameters")
    return arrays


def _as_pytorch(path: tuple[str, ...], value: np.ndarray) -> tuple[str, np.ndarray]:
    *parents, leaf = path
    if leaf == "kernel":
        if value.ndim != 2:
            raise ValueError(f"{_shown(path)} is {value.shape}, expected a matrix")
        value = value.T
    return ".".join([*parents, "weight" if leaf in ("kernel", "embedding", "scale") else leaf]), value


def _shown(path: tuple[str, ...]) -> str:
    return repr(".".join(path)[:200]) if path else "the whole"
