"""What to learn: one file a family of tasks. ``TASKS[name](...)`` makes the ``Task`` that the training loop runs."""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.tasks.classification import classification
from bert_jax.tasks.pretraining import pretraining
from bert_jax.tasks.task import Task

TASKS: dict[str, Callable[..., Task]] = {"pretraining": pretraining, "classification": classification}

__all__ = ["TASKS", "Task"]
