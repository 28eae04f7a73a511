"""Fine-tuning as users of PyTorch ``transformers`` write it: the peer of ``compare_finetuning``.

python -m experiments.peers.torch_finetuning '{"family": "glue", "task": "STS-B", "encoder": "...", ...}'

The model for the task from a Hugging Face directory, its own fast tokenizer, a plain loop over shuffled batches
that are each padded to their longest sequence, in float32 or by autocast in bfloat16. Texts are read by our readers,
so that both sides have the same rows, and predictions are scored by our scorers; everything between is the peer's.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch

from bert_jax.data.packing import epoch_order
from experiments.machine import available_cores
from experiments.peers.line_protocol import Channel, serve
from experiments.peers.torch_bert import BertAdam, linear_rate
from experiments.peers.torch_tasks import FAMILIES, Batch, Feature


@dataclass(frozen=True)
class Settings:
    """A case and its hyperparameters.

    family, task, files: what is read, see ``torch_tasks``. optimizer: peak ``learning_rate`` and the arguments of
    ``BertAdam``. padding: "longest" of the batch, or "max_length". device: "cpu" or "cuda"; dtype: "bfloat16" is
    autocast.
    """

    family: str
    task: str
    files: dict[str, str]
    encoder: str
    optimizer: dict[str, Any]
    batch_size: int = 32
    max_seq_length: int = 128
    train_epochs: float = 3.0
    warmup_ratio: float = 0.1
    padding: str = "longest"
    device: str = "cpu"
    dtype: str = "float32"
    options: dict[str, Any] = field(default_factory=dict)


class FineTuning:
    """One case: ``start(seed)`` makes a fresh model, ``train`` trains it, ``evaluate`` and ``predict`` use it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        start = time.perf_counter()
        self.task = FAMILIES[settings.family](settings)
        self.train_features = self.task.features("train")
        self.read_seconds = time.perf_counter() - start
        per_epoch = -(-len(self.train_features) // settings.batch_size)
        self.train_steps = max(1, int(per_epoch * settings.train_epochs))
        self.start(0)

    def start(self, seed: int) -> dict[str, Any]:
        """A fresh head and optimizer."""
        torch.manual_seed(seed)
        self.model = self.task.model().to(self.settings.device).train()
        optimizer = dict(self.settings.optimizer)
        self.peak = optimizer.pop("learning_rate")
        self.optimizer = BertAdam(self.model, **optimizer)
        self.step, self.batches = 0, self._shuffled(seed)
        return {"train_steps": self.train_steps, "read_seconds": self.read_seconds}

    def train(self, steps: int | None = None) -> dict[str, Any]:
        """So many steps (None: to the end) from where the last call stopped: seconds, examples, mean loss.

        Beyond the last step of the schedule the learning rate is 0, for measurements.
        """
        steps = self.train_steps - self.step if steps is None else steps
        warmup = int(self.settings.warmup_ratio * self.train_steps)
        examples, losses = 0, []
        self.model.train()
        clock = time.perf_counter()
        for _ in range(steps):
            chosen = next(self.batches)
            with self._autocast():
                loss = self.model(**self._collate(chosen)).loss
            loss.backward()
            self.optimizer.step(linear_rate(self.step, self.peak, warmup, self.train_steps))
            losses.append(loss.detach())
            examples += len(chosen)
            self.step += 1
        loss = float(np.mean([loss.item() for loss in losses]))  # waits for a GPU, once, with the clock running
        seconds = time.perf_counter() - clock
        return {"seconds": seconds, "examples": examples, "steps": steps, "loss": loss}

    def evaluate(self) -> dict[str, Any]:
        """The scores on dev; ``seconds`` are those of the model and of decoding and scoring its outputs."""
        features = self.task.features("dev")
        clock = time.perf_counter()
        scores = self.task.score(self._outputs(features))
        return {"seconds": time.perf_counter() - clock, "examples": self.task.examples("dev"), "scores": scores}

    def predict(self, rows: int | None = None) -> dict[str, Any]:
        """From the texts of the first rows of dev to the model's outputs, tokenising included."""
        clock = time.perf_counter()
        features = self.task.tokenize("dev", rows)
        self._outputs(features)
        return {"seconds": time.perf_counter() - clock, "examples": rows or self.task.examples("dev")}

    def _outputs(self, features: Sequence[Feature]) -> list[np.ndarray]:
        """The logits of every feature, in order; padding is cut off where there are logits for every token."""
        self.model.eval()
        outputs: list[np.ndarray] = []
        with torch.inference_mode(), self._autocast():
            for first in range(0, len(features), self.settings.batch_size):
                chosen = features[first : first + self.settings.batch_size]
                outputs += self.task.outputs(self.model(**self._collate(chosen, labelled=False)), chosen)
        return outputs

    def _collate(self, features: Sequence[Feature], labelled: bool = True) -> Batch:
        length = self.settings.max_seq_length if self.settings.padding == "max_length" else None
        batch = self.task.collate(features, length, labelled)
        return {name: value.to(self.settings.device) for name, value in batch.items()}

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.settings.device, torch.bfloat16, enabled=self.settings.dtype == "bfloat16")

    def _shuffled(self, seed: int) -> Iterator[list[Feature]]:
        """In the order of our side: on some thousand rows the order decides more of a score than all else drawn."""
        size = self.settings.batch_size
        for epoch in count():
            order = epoch_order(seed, epoch, len(self.train_features))
            for first in range(0, len(order), size):
                yield [self.train_features[i] for i in order[first : first + size]]


def handlers(settings: Settings) -> dict[str, Callable[..., dict[str, Any]]]:
    """The commands of the worker."""
    run = FineTuning(settings)
    return {"start": run.start, "train": run.train, "evaluate": run.evaluate, "predict": run.predict}


def work(settings: Settings) -> None:
    channel = Channel()
    torch.set_num_threads(available_cores())
    serve(channel, handlers(settings))


if __name__ == "__main__":
    work(Settings(**json.loads(sys.argv[1])))
