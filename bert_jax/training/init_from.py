"""What a run begins with: model, tokenizer and parameters of an earlier run or of a Hugging Face directory."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import jax
import numpy as np

from bert_jax.interop import hugging_face
from bert_jax.model.config import BertConfig
from bert_jax.tasks.task import Params
from bert_jax.training.checkpoint import read_params
from bert_jax.training.rules import path_of

MODEL_CONFIG, TOKENIZER = "bert_config.json", "tokenizer"
# Without these it would not be the earlier run's encoder; heads may be new.
ENCODER = ("embeddings/", "encoder/")


def read_model(source: str | Path) -> tuple[BertConfig, str]:
    """Of ``source``, a workdir or a Hugging Face directory: the model's configuration, where its tokenizer is.

    Raises:
        FileNotFoundError: it is neither.
    """
    directory = Path(source)
    if (directory / MODEL_CONFIG).is_file() and (directory / TOKENIZER).is_dir():
        return BertConfig.from_json(directory / MODEL_CONFIG), str(directory / TOKENIZER)
    if hugging_face.is_hugging_face(directory):
        return hugging_face.read_config(directory), str(directory)
    raise FileNotFoundError(
        f"init_from={str(source)!r} is neither the workdir of a run nor a Hugging Face directory with config.json and"
        " model.safetensors; give one of the two"
    )


def load_initial(source: str | Path, fresh: Params) -> Params:
    """``fresh`` with every parameter that ``source`` has under the same path; as the original, no optimizer state.

    A head of another shape (another number of classes) stays fresh. What is new or left over is named on standard
    error.

    Raises:
        ValueError: an encoder parameter that ``source`` lacks or that has another shape.
    """
    loaded = read_all(source)
    found = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(loaded)}
    new, size = [], len(found)

    def choose(key_path: tuple, leaf: jax.Array) -> Any:
        path = path_of(key_path)
        value = found.get(path)
        if value is not None and np.shape(value) == leaf.shape:
            return found.pop(path)
        if path.startswith(ENCODER):
            if value is None:
                raise ValueError(f"{source} has no parameter {path!r}; init_from needs a run of the same encoder")
            raise ValueError(
                f"{path} is {np.shape(value)} in {source} but {leaf.shape} here; make config.model and the"
                " tokenizer those of init_from"
            )
        new.append(path)
        return leaf

    params = jax.tree_util.tree_map_with_path(choose, fresh)
    if new or found:
        unused = parts(found) if len(found) < size else "all that is there"
        print(f"init_from {source}: new: {parts(new) or 'none'}; unused: {unused or 'none'}", file=sys.stderr)
    return params


def parts(paths: Iterable[str]) -> str:
    """The parts of the model that parameters are of: the first names of their paths."""
    return ", ".join(dict.fromkeys(path.split("/")[0] for path in paths))


def read_encoder(source: str | Path) -> Params:
    """The encoder's parameters alone (numpy arrays), of a workdir or a Hugging Face directory."""
    loaded = read_all(source)
    return {part.rstrip("/"): loaded[part.rstrip("/")] for part in ENCODER}


def read_all(source: str | Path) -> Params:
    """All parameters of ``source``, at our paths."""
    if hugging_face.is_hugging_face(Path(source)):
        return hugging_face.read_params(source)
    return read_params(source)[0]
