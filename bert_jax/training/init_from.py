"""What a run begins with: the parameters of an earlier run, or of a Hugging Face or Google directory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.interop.layouts import OF_LABELS
from bert_jax.interop.translate import listed
from bert_jax.tasks.task import Params
from bert_jax.training.rules import path_of
from bert_jax.training.source import open_source

# Without these it would not be the earlier run's encoder; heads may be new.
ENCODER = ("embeddings/", "encoder/")


def load_initial(directory: str | Path, fresh: Params, labels: Sequence[str] | None = None) -> Params:
    """``fresh`` with every parameter that the model in ``directory`` has under the same path.

    No optimizer state comes along, as in the original. A head of another shape stays fresh, and so does one of other
    classes than ``labels``, or of the same in another order. What is new or left over is named on standard error.

    Raises:
        ValueError: an encoder parameter that it lacks or that has another shape.
    """
    model = open_source(directory).read(strict=False)
    found = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(model.params)}
    new, size = [], len(found)
    same_labels = model.labels == (None if labels is None else tuple(labels))

    def choose(key_path: tuple, leaf: jax.Array) -> Any:
        path = path_of(key_path)
        value = found.get(path)
        if value is not None and np.shape(value) == leaf.shape and (same_labels or path.split("/")[0] not in OF_LABELS):
            if not np.isfinite(value).all():
                raise ValueError(f"{path} in {directory} is not finite; that run has diverged, give another")
            return found.pop(path)
        if path.startswith(ENCODER):
            if value is None:
                raise ValueError(f"{directory} has no parameter {path!r}; init_from needs a run of the same encoder")
            raise ValueError(
                f"{path} is {np.shape(value)} in {directory} but {leaf.shape} here; make config.model and the"
                " tokenizer those of init_from"
            )
        new.append(path)
        return leaf

    params = jax.tree_util.tree_map_with_path(choose, fresh)
    if new or found or model.unexpected:
        unused = ", ".join(filter(None, (parts(found), listed(model.unexpected))))
        unused = unused if len(found) < size else "all that is there"
        print(f"init_from {directory}: new: {parts(new) or 'none'}; unused: {unused or 'none'}", file=sys.stderr)
    return params


def parts(paths: Iterable[str]) -> str:
    """The parts of the model that parameters are of: the first names of their paths."""
    return ", ".join(dict.fromkeys(path.split("/")[0] for path in paths))


def read_encoder(directory: str | Path) -> Params:
    """The encoder's parameters alone (numpy arrays), of whatever directory holds a model."""
    params = open_source(directory).read(strict=False).params
    return {part.rstrip("/"): params[part.rstrip("/")] for part in ENCODER}
