"""Weights of Hugging Face directories -> arrays by PyTorch's names; neither PyTorch nor transformers is needed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from bert_jax.data.writing import written
from bert_jax.interop.flax_file import read_flax
from bert_jax.interop.torch_file import read_state_dict

# In the order of preference; an index names the files of a model that is spread over several.
SAFETENSORS, PYTORCH, FLAX = "model.safetensors", "pytorch_model.bin", "flax_model.msgpack"
INDEX = ".index.json"
FILES = (SAFETENSORS, SAFETENSORS + INDEX, PYTORCH, PYTORCH + INDEX, FLAX)
_READERS = {".bin": read_state_dict, ".msgpack": read_flax}


def find_weights(directory: Path) -> Path | None:
    """The file with the weights, or the index of several; None where there is none."""
    return next((directory / name for name in FILES if (directory / name).is_file()), None)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """All tensors of a file, or of all files of an index.

    Raises:
        ValueError, FileNotFoundError: what cannot be read, with the file and what to do.
    """
    return _read_index(path) if path.name.endswith(INDEX) else _read_file(path)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata: dict[str, str] | None = None) -> None:
    """Writes a file, whole or not at all, that who may read new files may read; the library's own are for the owner."""
    with written(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(tensors, temporary, metadata)
        except SafetensorError as error:  # a full disk, say
            raise OSError(f"{path} cannot be written: {error}") from None
        temporary.chmod(mode)


def _read_file(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"no {path}, which the index names: copy the whole directory")
    return _READERS.get(path.suffix, _read_safetensors)(path)


def _read_safetensors(path: Path) -> dict[str, np.ndarray]:
    try:
        with safe_open(path, framework="np") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no dict)
    except SafetensorError as error:
        raise ValueError(f"{path} cannot be read ({error}): copy it again") from None
    except AttributeError as error:  # the library's, for 8 bits
        raise ValueError(f"{path} cannot be read ({error}): take a checkpoint that is not quantized") from None


def _read_index(path: Path) -> dict[str, np.ndarray]:
    try:
        files = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        by_file = {str(file): [name for name, one in files.items() if one == file] for file in files.values()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ValueError(f"{path} has no weight_map of tensor names to files: copy it again") from None
    tensors = {}
    for file, names in by_file.items():
        if Path(file).name != file:
            raise ValueError(f"{path} names the file {file!r}, which is not beside it: write the model again")
        found = _read_file(path.parent / file)
        if missing := [name for name in names if name not in found]:
            raise ValueError(
                f"{path.parent / file} has no {missing[0]}, which {path.name} says is there: copy both again"
            )
        tensors |= {name: found[name] for name in names}
    return tensors
