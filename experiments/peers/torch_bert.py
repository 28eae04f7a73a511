"""``transformers``' ``BertForPreTraining`` in PyTorch, trained by BERT's own rule: the peer to compare with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

NOT_PREDICTED = -100  # the label that PyTorch's cross-entropy leaves out


def make_model(fields: Mapping[str, Any]) -> Any:
    """A model with SDPA attention from the fields of our ``BertConfig`` that are BERT's own; in training mode."""
    names = (
        "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob"
        " attention_probs_dropout_prob max_position_embeddings type_vocab_size initializer_range layer_norm_eps"
    )
    chosen: dict[str, Any] = {name: fields[name] for name in names.split()}
    chosen["attn_implementation"] = "sdpa"
    config = transformers.BertConfig(**chosen)
    return transformers.BertForPreTraining(config).train()


def load_parameters(model: Any, params: Mapping[str, np.ndarray]) -> None:
    """Copies our parameters ("encoder/layer_0/attention/query/kernel" -> array) into the model.

    Raises:
        ValueError: a parameter of the model that ours have no value for.
    """
    vocab_size = model.config.vocab_size
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            path = parameter_path(name)
            if path not in params:
                raise ValueError(f"{name} of the peer has no counterpart {path} in our parameters")
            value = params[path]
            if path.startswith("embeddings/word/") or path == "mlm_head/bias":
                value = value[:vocab_size]
            parameter.copy_(torch.from_numpy(np.array(value.T if path.endswith("/kernel") else value)))


def parameter_path(name: str) -> str:
    """Our path of a parameter of ``BertForPreTraining``; kernels are transposed there."""
    for theirs, ours in _RENAMED:
        name = name.replace(theirs, ours)
    path, _, kind = name.replace(".", "/").rpartition("/")
    if kind == "weight":
        kind = "embedding" if path.endswith(_TABLES) else "scale" if path.endswith("layer_norm") else "kernel"
    return f"{path}/{kind}"


class BertAdam:
    """Our optimizer by PyTorch's fused AdamW: clipping, decoupled decay but for biases and LayerNorm.

    PyTorch always corrects the bias; the original does not (``bias_correction`` False). With c1 = 1 - b1^n and
    c2 = 1 - b2^n for update n, PyTorch's rule lr' m / c1 / (sqrt(v / c2) + eps') + lr' decay' w equals the original's
    lr (m / (sqrt(v) + eps) + decay w) for lr' = lr c1 / sqrt(c2), eps' = eps / sqrt(c2), decay' = decay sqrt(c2) / c1.
    """

    def __init__(
        self,
        model: Any,
        *,
        weight_decay: float,
        b1: float,
        b2: float,
        eps: float,
        clip_norm: float,
        bias_correction: bool = False,
    ) -> None:
        named = list(model.named_parameters())
        kept = [p for name, p in named if name.endswith(".bias") or "LayerNorm" in name]
        decayed = [p for name, p in named if not (name.endswith(".bias") or "LayerNorm" in name)]
        groups = [{"params": decayed, "decay": weight_decay}, {"params": kept, "decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, betas=(b1, b2), fused=True)
        self.parameters = [p for _, p in named]
        self.b1, self.b2, self.eps, self.clip_norm, self.bias_correction = b1, b2, eps, clip_norm, bias_correction
        self.updates = 0

    def step(self, learning_rate: float) -> None:
        """One update from the gradients, clipped by their global norm; then they are gone."""
        self.updates += 1
        c1, c2 = (1.0, 1.0) if self.bias_correction else (1 - self.b1**self.updates, 1 - self.b2**self.updates)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * c1 / c2**0.5
            group["eps"] = self.eps / c2**0.5
            group["weight_decay"] = group["decay"] * c2**0.5 / c1
        torch.nn.utils.clip_grad_norm_(self.parameters, self.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def linear_rate(step: int, peak: float, warmup_steps: int, train_steps: int) -> float:
    """The learning rate of the update after ``step`` updates, as our ``polynomial_schedule`` of power 1."""
    if step < warmup_steps:
        return peak * step / warmup_steps
    return peak * max(0.0, 1 - step / train_steps)


def tensors(batch: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """A prepared batch of ours as the arguments of ``BertForPreTraining``.

    ``masked_positions``, ``masked_targets``, ``masked_weights`` [r, p] become ``labels`` [r, t]; examples of weight 0
    must not be there.
    """
    labels = np.full(batch["input_ids"].shape, NOT_PREDICTED, np.int64)
    rows, slots = np.nonzero(batch["masked_weights"])
    labels[rows, batch["masked_positions"][rows, slots]] = batch["masked_targets"][rows, slots]
    arrays = {
        "input_ids": batch["input_ids"],
        "token_type_ids": batch["segment_ids"],
        "attention_mask": batch["sequence_ids"],
        "labels": labels,
        "next_sentence_label": batch["next_sentence_labels"][:, 0],
    }
    return {name: torch.from_numpy(np.asarray(value, np.int64)) for name, value in arrays.items()}


_RENAMED = (
    ("bert.pooler.dense", "pooler"),
    ("bert.", ""),
    ("encoder.layer.", "encoder.layer_"),
    ("attention.self.", "attention."),
    ("attention.output.dense", "attention.output"),
    ("attention.output.LayerNorm", "attention.layer_norm"),
    ("intermediate.dense", "feed_forward.intermediate"),
    (".output.dense", ".feed_forward.output"),
    (".output.LayerNorm", ".feed_forward.layer_norm"),
    ("LayerNorm", "layer_norm"),
    ("word_embeddings", "word"),
    ("position_embeddings", "position"),
    ("token_type_embeddings", "segment"),
    ("cls.predictions.transform", "mlm_head"),
    ("cls.predictions", "mlm_head"),
    ("cls.seq_relationship", "nsp_head"),
)
_TABLES = ("embeddings/word", "embeddings/position", "embeddings/segment")
