"""Parameters from an earlier run, for continued pre-training and fine-tuning."""

from __future__ import annotations

import sys
from pathlib import Path

import jax
import numpy as np

from bert_jax.tasks.task import Params
from bert_jax.training.checkpoint import read_params
from bert_jax.training.rules import path_of

# Without these it would not be the earlier run's encoder; heads may be new.
ENCODER = ("embeddings/", "encoder/")


def load_initial(source: str | Path, fresh: Params) -> Params:
    """``fresh`` with every parameter that ``source`` has under the same path; as the original, no optimizer state.

    What is new (a head) or left over is named on standard error.

    Raises:
        ValueError: a parameter of another shape, or an encoder parameter that ``source`` lacks.
    """
    loaded, _ = read_params(source)
    found = {path_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(loaded)}
    new: list[str] = []

    def choose(key_path: tuple, leaf: jax.Array) -> jax.Array:
        path = path_of(key_path)
        value = found.pop(path, None)
        if value is None:
            if path.startswith(ENCODER):
                raise ValueError(f"{source} has no parameter {path!r}; init_from needs a run of the same encoder")
            new.append(path)
            return leaf
        if np.shape(value) != leaf.shape:
            raise ValueError(
                f"{path} is {np.shape(value)} in {source} but {leaf.shape} here; make config.model and the"
                " tokenizer those of init_from"
            )
        return value

    params = jax.tree_util.tree_map_with_path(choose, fresh)
    if new or found:
        print(
            f"init_from {source}: new: {', '.join(new) or 'none'}; unused: {', '.join(found) or 'none'}",
            file=sys.stderr,
        )
    return params
