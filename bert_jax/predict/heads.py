"""The heads that a model may have: what each is for, what to load where it is missing, and the logits it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from bert_jax.interop.layouts import FOR_TOKENS, TASK_HEADS
from bert_jax.model.config import BertConfig
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.predict.engine import COLUMNS, INPUTS, Engine
from bert_jax.tasks.fine_tuning import forward
from bert_jax.tasks.task import Params

ENCODER = ("embeddings", "encoder")


class _Head(NamedTuple):
    """How a head is called, what it is for, and what has one."""

    name: str
    purpose: str
    found_in: str


_HEADS = {
    "mlm_head": _Head("masked-LM head", "fill masks", "a pre-training run or a BertForMaskedLM"),
    "nsp_head": _Head("next-sentence head", "compare sentences", "an mlm_nsp pre-training run or a BertForPreTraining"),
    "pooler": _Head("pooler", "get pooled vectors", "a model that has one, or choose pooling='cls'"),
    "classifier": _Head("classification head", "classify", "a classification run or a BertForSequenceClassification"),
    "choice_head": _Head("multiple-choice head", "choose", "a SWAG run or a BertForMultipleChoice"),
    "tagging_head": _Head("tagging head", "tag", "a tagging run or a BertForTokenClassification"),
    "qa_head": _Head("question-answering head", "answer", "a SQuAD run or a BertForQuestionAnswering"),
}


def heads_of(params: Params) -> list[str]:
    """The names of a model's heads."""
    return [name for name in params if name in _HEADS or name in TASK_HEADS]


def require_encoder(engine: Engine) -> None:
    """ValueError for a head alone, as a run on stored features has it."""
    if missing := [part for part in ENCODER if part not in engine.params]:
        raise ValueError(
            f"{engine.name} has no {missing[0]}: its head was trained on stored features; load a run that fine-tunes"
        )


def require(engine: Engine, *heads: str) -> str:
    """The first of these heads that the model has.

    Raises:
        ValueError: it has none of them, or no encoder; says what it has and what to load.
    """
    require_encoder(engine)
    for head in heads:
        if head in engine.params:
            return head
    name, purpose, found_in = _HEADS[heads[0]]
    has = ", ".join(heads_of(engine.params)) or "no head at all"
    raise ValueError(f"{engine.name} has no {name} (it has {has}); to {purpose} load {found_in}")


@dataclass(frozen=True)
class HeadLogits:
    """``Call``: "logits" [r, m, c] of sequences, or [r, t, c] of tokens. The fields are ``BertWithHead``'s."""

    config: BertConfig
    head: str
    num_outputs: int
    bilstm_size: int = 0
    concatenated: bool = False

    @property
    def for_tokens(self) -> bool:
        return self.head in FOR_TOKENS

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS + COLUMNS

    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        module = BertWithHead(
            self.config,
            self.head,
            self.num_outputs,
            self.for_tokens,
            bilstm_size=self.bilstm_size,
            concatenated=self.concatenated,
        )
        return {"logits": forward(module, params, batch, None)}
