"""What a run begins with: model, tokenizer and parameters of an earlier run or of a Hugging Face directory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.interop import hugging_face
from bert_jax.model.config import BertConfig
from bert_jax.tasks.task import Params
from bert_jax.training.checkpoint import read_params
from bert_jax.training.rules import path_of

CONFIG, MODEL_CONFIG, TOKENIZER = "config.json", "bert_config.json", "tokenizer"
# Without these it would not be the earlier run's encoder; heads may be new.
ENCODER = ("embeddings/", "encoder/")
# Heads whose outputs mean one class each.
OF_LABELS = ("classifier/", "tagging_head/")


def is_model(directory: str | Path) -> bool:
    """Whether a run has begun in this workdir."""
    return (Path(directory) / MODEL_CONFIG).is_file() and (Path(directory) / TOKENIZER).is_dir()


def read_model(source: str | Path) -> tuple[BertConfig, str]:
    """Of ``source``, a workdir or a Hugging Face directory: the model's configuration, where its tokenizer is.

    Raises:
        FileNotFoundError: it is neither.
    """
    directory = Path(source)
    if is_model(directory):
        return BertConfig.from_json(directory / MODEL_CONFIG), str(directory / TOKENIZER)
    if hugging_face.is_hugging_face(directory):
        return hugging_face.read_config(directory), str(directory)
    raise FileNotFoundError(
        f"init_from={str(source)!r} is neither the workdir of a run nor a Hugging Face directory with config.json and"
        " model.safetensors; give one of the two"
    )


def load_initial(source: str | Path, fresh: Params, labels: Sequence[str] | None = None) -> Params:
    """``fresh`` with every parameter that ``source`` has under the same path; as the original, no optimizer state.

    A head of another shape stays fresh, and so does one of other classes than ``labels``, or of the same in another
    order. What is new or left over is named on standard error.

    Raises:
        ValueError: an encoder parameter that ``source`` lacks or that has another shape.
    """
    loaded = read_all(source)
    found = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(loaded)}
    new, size = [], len(found)
    same_labels = read_labels(source) == (None if labels is None else tuple(labels))

    def choose(key_path: tuple, leaf: jax.Array) -> Any:
        path = path_of(key_path)
        value = found.get(path)
        if value is not None and np.shape(value) == leaf.shape and (same_labels or not path.startswith(OF_LABELS)):
            if not np.isfinite(value).all():
                raise ValueError(f"{path} in {source} is not finite; that run has diverged, give another")
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


def read_labels(source: str | Path) -> tuple[str, ...] | None:
    """The names of the classes that a run was trained on, if it has any."""
    config = Path(source) / CONFIG
    labels = json.loads(config.read_text()).get("labels") if config.is_file() else None
    return None if labels is None else tuple(labels)


def read_encoder(source: str | Path) -> Params:
    """The encoder's parameters alone (numpy arrays), of a workdir or a Hugging Face directory."""
    loaded = read_all(source)
    return {part.rstrip("/"): loaded[part.rstrip("/")] for part in ENCODER}


def read_all(source: str | Path) -> Params:
    """All parameters of ``source``, at our paths."""
    if hugging_face.is_hugging_face(Path(source)):
        return hugging_face.read_params(source)
    return read_params(source)[0]
