"""What to learn: one file a family of tasks. ``TASKS[name](...)`` makes the ``Task`` that the training loop runs."""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.tasks.choice import choice
from bert_jax.tasks.classification import classification
from bert_jax.tasks.feature_tagging import feature_tagging
from bert_jax.tasks.pretraining import pretraining

# Not as ``squad``: that is the module, where ``bert_jax.tasks.squad.score`` is found.
from bert_jax.tasks.squad import squad as question_answering
from bert_jax.tasks.tagging import tagging
from bert_jax.tasks.task import Task

TASKS: dict[str, Callable[..., Task]] = {
    "pretraining": pretraining,
    "classification": classification,
    "choice": choice,
    "tagging": tagging,
    "features": feature_tagging,
    "squad": question_answering,
}

__all__ = ["TASKS", "Task"]
