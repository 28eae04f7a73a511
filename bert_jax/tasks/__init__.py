"""What to learn: one file a family of tasks. ``TASKS[name](...)`` makes the ``Task`` that the training loop runs."""

from __future__ import annotations

from collections.abc import Callable

from bert_jax.tasks import choice, classification, feature_tagging, pretraining, squad, tagging
from bert_jax.tasks.task import Task

TASKS: dict[str, Callable[..., Task]] = {
    "pretraining": pretraining.pretraining,
    "classification": classification.classification,
    "choice": choice.choice,
    "tagging": tagging.tagging,
    "features": feature_tagging.feature_tagging,
    "squad": squad.squad,
}

__all__ = ["TASKS", "Task"]
