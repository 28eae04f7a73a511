"""Classes, scores and choices from logits of whole sequences; whether one sentence follows another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.model.heads import NextSentenceHead, Pooler
from bert_jax.predict.engine import COLUMNS, INPUTS, Engine
from bert_jax.predict.heads import HeadLogits
from bert_jax.predict.records import Choice, Classification
from bert_jax.predict.texts import Inputs, Limit, as_strings, read_texts, shortened
from bert_jax.tasks.classification import mean_by_owner
from bert_jax.tasks.task import Params


def classify(engine: Engine, call: HeadLogits, inputs: Inputs, labels: Sequence[str]) -> list[Classification]:
    """The classes of texts; the logits of a text's windows are averaged."""
    results = []
    for row in softmax(_mean_logits(engine, call, inputs)):
        order = [int(i) for i in np.argsort(-row, kind="stable")]
        shares = {labels[i]: float(row[i]) for i in order}
        results.append(Classification(labels[order[0]], float(row[order[0]]), shares))
    return results


def rate(engine: Engine, call: HeadLogits, inputs: Inputs) -> list[float]:
    """The scores that a regressor gives texts, on the scale of its training data."""
    return _mean_logits(engine, call, inputs)[:, 0].tolist()


def choose(
    engine: Engine,
    call: HeadLogits,
    contexts: Sequence[str],
    endings: Sequence[Any],
    limit: Limit,
    *,
    truncate: bool,
) -> list[Choice]:
    """The likeliest ending of each context.

    Raises:
        ValueError: contexts and endings of different numbers, a context without an ending, a pair that is too long.
    """
    if len(contexts) != len(endings):
        raise ValueError(f"{len(contexts)} contexts but endings for {len(endings)}; give each context its endings")
    for number, own in enumerate(endings):
        if isinstance(own, str):
            raise ValueError(f"context {number} has {shortened(own)} for endings; give a list of strings for each")
    given = [as_strings(own, f"context {number}: ending") for number, own in enumerate(endings)]
    if empty := [number for number, own in enumerate(given) if not own]:
        raise ValueError(f"context {empty[0]} has no ending to choose; give two or more")
    pairs = [(context, ending) for context, own in zip(contexts, given, strict=True) for ending in own]
    inputs = read_texts(pairs, engine.tokenizer, limit, truncate=truncate, special_tokens=False)
    logits = _mean_logits(engine, call, inputs)[:, 0]
    results, first = [], 0
    for own in given:
        shares = softmax(logits[first : first + len(own)]).tolist()
        first += len(own)
        best = int(np.argmax(shares))
        results.append(Choice(own[best], best, shares[best], shares))
    return results


@dataclass(frozen=True)
class NextSentence:
    """``Call``: "logits" [r, m, 2], of which 0 says that B follows A."""

    config: BertConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS + COLUMNS

    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        states: Any = Bert(self.config).apply(
            {"params": params}, *(batch[name] for name in INPUTS), columns=batch["example_columns"]
        )
        pooled: Any = Pooler(self.config).apply({"params": params["pooler"]}, states.last_hidden_state)
        return {"logits": NextSentenceHead(self.config).apply({"params": params["nsp_head"]}, pooled)}


def next_sentence(engine: Engine, inputs: Inputs) -> list[float]:
    """The probability that B follows A, of each pair."""
    logits = engine.run(NextSentence(engine.config), inputs.examples).get("logits", np.zeros((0, 2)))
    return softmax(logits)[:, 0].tolist()


def softmax(logits: Float[np.ndarray, "*n c"]) -> Float[np.ndarray, "*n c"]:
    """Over the last axis, in double precision."""
    weights = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _mean_logits(engine: Engine, call: HeadLogits, inputs: Inputs) -> Float[np.ndarray, "n c"]:
    logits = engine.run(call, inputs.examples).get("logits", np.zeros((0, call.num_outputs), np.float32))
    return mean_by_owner(logits, inputs.owners, int(inputs.owners.max(initial=-1)) + 1)
