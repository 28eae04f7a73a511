"""BERT (arXiv:1810.04805) for JAX: from raw text to a pre-trained encoder and to every task of the paper.

The names below are the whole public surface. They are imported on first use, so that the data workers, which
import ``bert_jax.data`` alone, never load JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert_jax.data.tokenizer import load_tokenizer
    from bert_jax.model.config import BertConfig
    from bert_jax.predict import load
    from bert_jax.training.grid import train_grid
    from bert_jax.training.train import train

__version__ = "0.1.0"
__all__ = ["BertConfig", "load", "load_tokenizer", "train", "train_grid"]

_HOMES = {
    "BertConfig": "bert_jax.model.config",
    "load": "bert_jax.predict",
    "load_tokenizer": "bert_jax.data.tokenizer",
    "train": "bert_jax.training.train",
    "train_grid": "bert_jax.training.grid",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in ("data", "model", "tasks", "training", "predict", "report"):
        return importlib.import_module(f"bert_jax.{name}")
    raise AttributeError(f"module 'bert_jax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
