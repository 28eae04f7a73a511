"""The peer's worker of ``compare_pretraining``: ``BertForPreTraining`` on our exported batches.

python -m experiments.peers.torch_training '{"directory": "...", "model": {...}, ...}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from experiments.machine import available_cores
from experiments.peers.line_protocol import Channel, serve
from experiments.peers.torch_bert import NOT_PREDICTED, BertAdam, linear_rate, load_parameters, make_model, tensors


class Training:
    """A run over the arrays in ``directory`` (written by ``compare_pretraining.export``).

    model: fields of ``BertConfig``; optimizer: peak ``learning_rate`` and the arguments of ``BertAdam``.
    """

    def __init__(
        self,
        directory: str,
        model: dict[str, Any],
        optimizer: dict[str, Any],
        train_steps: int,
        warmup_steps: int,
        seed: int,
    ) -> None:
        torch.manual_seed(seed)
        self.directory, self.train_steps, self.warmup_steps = Path(directory), train_steps, warmup_steps
        self.model = make_model(model)
        with np.load(self.directory / "initial.npz") as params:
            load_parameters(self.model, params)
        self.peak = optimizer.pop("learning_rate")
        self.optimizer = BertAdam(self.model, **optimizer)
        self.arrays = {path.stem: np.load(path, mmap_mode="r") for path in (self.directory / "train").glob("*.npy")}
        self.step = 0

    def train(self, until: int) -> dict[str, Any]:
        """Steps up to ``until``; seconds of all but the very first, which is told apart as our compiling one."""
        first_step_seconds, losses = 0.0, []
        clock = time.perf_counter()
        while self.step < until:
            batch = tensors({name: values[self.step] for name, values in self.arrays.items()})
            loss = self.model(**batch).loss
            loss.backward()
            self.optimizer.step(linear_rate(self.step, self.peak, self.warmup_steps, self.train_steps))
            losses.append(loss.item())
            self.step += 1
            if self.step == 1:
                first_step_seconds = time.perf_counter() - clock
                clock = time.perf_counter()
        seconds = time.perf_counter() - clock
        return {
            "step": self.step,
            "seconds": seconds,
            "first_step_seconds": first_step_seconds,
            "loss": float(np.mean(losses)),
        }

    def evaluate(self) -> dict[str, float]:
        """Means over the held-out examples, as our evaluation's: losses in nats and accuracies, without dropout."""
        sums = np.zeros(6)
        self.model.eval()
        with torch.no_grad():
            for batch in self._held_out():
                sums += self._sums(tensors(batch))
        self.model.train()
        loss, right, predicted, nsp_loss, nsp_right, examples = sums
        return {
            "mlm_loss": loss / predicted,
            "mlm_accuracy": right / predicted,
            "nsp_loss": nsp_loss / examples,
            "nsp_accuracy": nsp_right / examples,
        }

    def _sums(self, batch: dict[str, torch.Tensor]) -> np.ndarray:
        labels, next_labels = batch.pop("labels"), batch.pop("next_sentence_label")
        output = self.model(**batch)
        predicted = labels != NOT_PREDICTED
        logits, targets = output.prediction_logits[predicted], labels[predicted]
        cross_entropy = torch.nn.functional.cross_entropy
        return np.asarray(
            [
                cross_entropy(logits, targets, reduction="sum").item(),
                (logits.argmax(-1) == targets).sum().item(),
                len(targets),
                cross_entropy(output.seq_relationship_logits, next_labels, reduction="sum").item(),
                (output.seq_relationship_logits.argmax(-1) == next_labels).sum().item(),
                len(next_labels),
            ]
        )

    def _held_out(self) -> Iterator[dict[str, np.ndarray]]:
        for path in sorted((self.directory / "held_out").glob("*.npz")):
            with np.load(path) as arrays:
                yield dict(arrays)


def work(settings: dict[str, Any]) -> None:
    """Commands ``train(until)`` and ``evaluate``."""
    channel = Channel()
    torch.set_num_threads(available_cores())
    training = Training(**settings)
    serve(channel, {"train": training.train, "evaluate": training.evaluate})


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
