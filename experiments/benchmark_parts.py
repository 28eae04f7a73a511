"""Where the time of our training step goes: each part's forward and backward pass compiled and timed on its own.

What a part costs inside the whole step can be less, where XLA fuses it with its neighbours, or more, where it
keeps arrays for the backward pass; so the sum is printed beside the whole. ``python -m experiments.benchmark
--only parts`` prints the table.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from bert_jax.model.config import BertConfig
from bert_jax.model.embeddings import Embeddings
from bert_jax.model.encoder import EncoderLayer, FeedForward, SelfAttention
from bert_jax.model.heads import MaskedLanguageModelHead, NextSentenceHead, Pooler
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.training.optimizer import OptimizerSettings, make_optimizer

if TYPE_CHECKING:
    from experiments.benchmark_step import OurStep

Run = Callable[[], Any]


def measure_parts(ours: OurStep, repeats: int = 5) -> dict[str, Any]:
    """Milliseconds of one training step and of its parts, medians of ``repeats``: {"whole", "parts": {name: ms}, "sum",
    "without_dropout"}. One layer is timed for all but the last, which computes only the predicted columns.

    ``dropout randomness`` is the whole step's difference with and without dropout; it is also inside the other
    parts, so it stays out of the sum.
    """
    from experiments.benchmark_step import OurStep

    parts = part_times(ours, repeats)
    whole = _median_ms(lambda: ours.run(1), repeats)
    plain = OurStep(ours.setting, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    without = _median_ms(lambda: plain.run(1), repeats)
    return {
        "whole": whole,
        "without_dropout": without,
        "sum": sum(parts.values()),
        "parts": parts | {"dropout randomness": whole - without},
    }


def part_times(ours: OurStep, repeats: int = 5) -> dict[str, float]:
    """Milliseconds of each part in one step; only the parts are compiled."""
    return {name: times * _median_ms(run, repeats) for name, (times, run) in _parts(ours).items()}


def _parts(ours: OurStep) -> dict[str, tuple[int, Run]]:
    """Name -> (how often in a step, a function that runs it once)."""
    config, params = ours.config, ours.state.params
    key = jax.random.key(1)
    batch = jax.jit(ours.task.prepare)(key, ours.batch)
    rows, length = batch["input_ids"].shape
    x = jax.random.normal(key, (rows, length, config.hidden_size), jnp.float32).astype(config.dtype)
    layer = params["encoder"]["layer_0"]
    layers = config.num_hidden_layers
    sequence_ids = batch["sequence_ids"]

    def embed(p: Any) -> jax.Array:
        ids = batch["input_ids"], batch["segment_ids"], batch["position_ids"]
        return Embeddings(config, parent=None).apply({"params": p}, *ids, dropout_key=key)  # pyright: ignore

    def attend(p: Any, x: jax.Array) -> jax.Array:
        module = SelfAttention(config, parent=None)
        return module.apply({"params": p}, x, sequence_ids, *jax.random.split(key))  # pyright: ignore

    def feed(p: Any, x: jax.Array) -> jax.Array:
        return FeedForward(config, parent=None).apply({"params": p}, x, key)  # pyright: ignore

    def last_layer(p: Any, x: jax.Array) -> jax.Array:
        columns = jnp.concatenate([batch["masked_positions"], batch["example_columns"]], axis=1)
        module = EncoderLayer(config, parent=None)
        return module.apply({"params": p}, x, sequence_ids, jax.random.split(key, 3), columns)  # pyright: ignore

    def masked_lm(p: Any, x: jax.Array) -> jax.Array:
        return _masked_lm_loss(config, p, x, batch)

    def next_sentence(p: Any, x: jax.Array) -> jax.Array:
        return _next_sentence_loss(config, p, x, batch)

    mlm = {"head": params["mlm_head"], "table": params["embeddings"]["word"]["embedding"]}
    nsp = {"pooler": params["pooler"], "head": params["nsp_head"]}
    return {
        "masking": (1, _compiled(ours.task.prepare, key, ours.batch)),
        "embedding": (1, _both_passes(embed, params["embeddings"])),
        "attention": (layers - 1, _both_passes(attend, layer["attention"], x)),
        "feed-forward": (layers - 1, _both_passes(feed, layer["feed_forward"], x)),
        "last layer": (1, _both_passes(last_layer, layer, x)),
        "MLM head and loss": (1, _both_passes(masked_lm, mlm, x[:, : batch["masked_positions"].shape[1]])),
        "pooler, NSP head and loss": (1, _both_passes(next_sentence, nsp, x[:, :1])),
        "optimizer": (1, _update(params)),
    }


def _masked_lm_loss(config: BertConfig, p: Any, x: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    head = MaskedLanguageModelHead(config, parent=None)
    logits: Any = head.apply({"params": p["head"]}, x, p["table"])
    total, weight = cross_entropy(logits, batch["masked_targets"], batch["masked_weights"])["loss"]
    return total / weight


def _next_sentence_loss(config: BertConfig, p: Any, x: jax.Array, batch: dict[str, jax.Array]) -> jax.Array:
    pooled: Any = Pooler(config, parent=None).apply({"params": p["pooler"]}, x)
    logits: Any = NextSentenceHead(config, parent=None).apply({"params": p["head"]}, pooled)
    labels, weights = batch["next_sentence_labels"], batch["example_weights"]
    total, weight = cross_entropy(logits, labels, weights)["loss"]
    return total / weight


def _both_passes(function: Callable[..., jax.Array], *primals: Any) -> Run:
    """Forward, then backward from a cotangent of the output's shape, to the gradients of all arguments."""
    cotangent = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), jax.eval_shape(function, *primals))

    def passes(cotangent: jax.Array, *primals: Any) -> Any:
        _, pull_back = jax.vjp(function, *primals)
        return pull_back(cotangent)

    return _compiled(passes, cotangent, *primals)


def _update(params: Any) -> Run:
    """Clip, Adam and decay over every parameter, with the old state donated as in the step."""
    optimizer = make_optimizer(OptimizerSettings(), params)

    def update(state: tuple[Any, Any], grads: Any) -> tuple[Any, Any]:
        parameters, moments = state
        rate = jnp.asarray(1e-6, jnp.float32)
        decay, step = jnp.asarray(0.01, jnp.float32), jnp.asarray(7, jnp.int32)
        extra = {"learning_rate": rate, "weight_decay": decay, "step": step}
        updates, moments = optimizer.update(grads, moments, parameters, **extra)
        return jax.tree.map(jnp.add, parameters, updates), moments

    grads = jax.tree.map(lambda w: jnp.full_like(w, 1e-3), params)
    state = [jax.tree.map(jnp.copy, params), optimizer.init(params)]
    compiled = jax.jit(update, donate_argnums=0)

    def run() -> Any:
        state[:] = compiled((state[0], state[1]), grads)
        return state

    return run


def _compiled(function: Callable[..., Any], *arguments: Any) -> Run:
    compiled = jax.jit(function)
    return lambda: compiled(*arguments)


def _median_ms(run: Run, repeats: int) -> float:
    jax.block_until_ready(run())
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run())
        seconds.append(time.perf_counter() - start)
    return 1000 * statistics.median(seconds)
