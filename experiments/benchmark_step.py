"""The pre-training step: ours and PyTorch's in turn, against the machine's matrix product; and where the time goes.

    python -m experiments.benchmark_step '{"size": "base", "seq": 128, "batch": 8, "dtype": "float32"}'

is our worker, which ``measure`` starts and drives (see ``peers/line_protocol.py``); the program for people is
``experiments.benchmark``. Our step is the one that training compiles: masking on the device, forward, backward,
clip, update, with the state donated. The peer's is ``BertForPreTraining`` with SDPA, fed ready-masked batches of
the same shape, then clip and fused AdamW; like every user of it, it computes logits at all positions. Our worker
keeps its memory in huge pages, as our programs do (``program.py``); set ``GLIBC_TUNABLES`` to its
``MALLOC_TUNABLES`` in the environment to give the peer the same.
"""

from __future__ import annotations

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.bert import BertForPreTraining
from bert_jax.model.config import BertConfig
from bert_jax.tasks.pretraining import figures, forward, initial_parameters, masked_language_model
from bert_jax.tasks.task import Task
from bert_jax.training.checkpoint import Checkpoints
from bert_jax.training.optimizer import OptimizerSettings
from bert_jax.training.settings import Phase, TrainSettings
from bert_jax.training.sharding import MeshShape, make_mesh, put_batch
from bert_jax.training.train import begin
from experiments.machine import matmul_speeds
from experiments.peers.line_protocol import Channel, Worker, serve
from experiments.program import keep_memory_in_huge_pages

PEERS = {"transformers": "experiments.peers.torch_step"}
PEER_PACKAGES = ("torch", "transformers")
MASKED_SHARE = 0.15

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CLS_ID, SEP_ID, MASK_ID = 2, 3, 4


class Setting(NamedTuple):
    """One case: a size of ``BertConfig.of_size``, tokens a row, rows, compute dtype, vocabulary."""

    size: str = "base"
    seq: int = 128
    batch: int = 8
    dtype: str = "float32"
    vocab_size: int = 30522


def measure(
    setting: Setting, *, peer: str | None = "transformers", rounds: int = 5, steps: int = 2, parts: bool = False
) -> dict[str, Any]:
    """Seconds a step of ours and the peer's in alternating rounds of ``steps`` steps, and what they amount to.

    ``ours_seconds`` and ``peer_seconds`` list every step; ``ratio`` is peer over ours of the medians,
    ``ratio_of_minima`` of the minima. ``efficiency`` is the FLOPs really needed over the time of our median step, as
    a fraction of the best matrix product seen in the same run; ``efficiency_of_minimum`` of our best step.
    ``parts``: also milliseconds of the step's parts (``benchmark_parts``).
    """
    values = setting._asdict()
    missing = missing_packages(*PEER_PACKAGES) if peer else []
    result: dict[str, Any] = {"setting": values, "rounds": rounds, "steps_a_round": steps}
    if missing:
        result["peer_missing"] = f"peer left out: {', '.join(missing)} not installed (pip install '.[peers]')"
    with ExitStack() as stack:
        workers = {"ours": stack.enter_context(Worker("experiments.benchmark_step", values))}
        if peer and not missing:
            workers["peer"] = stack.enter_context(Worker(PEERS[peer], values))
        seconds: dict[str, list[float]] = {name: [] for name in workers}
        speeds: dict[str, float] = {}
        result["first_step_seconds"] = {name: worker.ask("first") for name, worker in workers.items()}
        for _ in range(rounds):
            for name, worker in workers.items():
                seconds[name] += worker.ask("step", count=steps)["seconds"]
            for shape, speed in workers["ours"].ask("matmul").items():
                speeds[shape] = max(speed, speeds.get(shape, 0.0))
        if parts:
            result["parts"] = workers["ours"].ask("parts")
    return result | summary(setting, seconds, speeds)


def summary(setting: Setting, seconds: dict[str, list[float]], speeds: dict[str, float]) -> dict[str, Any]:
    """Medians, minima, ratios and the fraction of the machine's peak."""
    config = BertConfig.of_size(setting.size, vocab_size=setting.vocab_size)
    flops = required_flops(config, setting.batch, setting.seq, predictions_of(setting.seq))
    peak = max(speeds.values()) * 1e9
    result: dict[str, Any] = {"matmul_gflops": speeds, "peak_gflops": peak / 1e9, "required_gflop": flops / 1e9}
    for name, values in seconds.items():
        result[f"{name}_seconds"] = values
        result[f"{name}_median"], result[f"{name}_min"] = statistics.median(values), min(values)
    result["efficiency"] = flops / result["ours_median"] / peak
    result["efficiency_of_minimum"] = flops / result["ours_min"] / peak
    if "peer" in seconds:
        result["ratio"] = result["peer_median"] / result["ours_median"]
        result["ratio_of_minima"] = result["peer_min"] / result["ours_min"]
    return result


def required_flops(config: BertConfig, rows: int, length: int, predictions: int) -> float:
    """Floating-point operations of the matrix products that one training step cannot do without.

    With 2 a multiply-add, forward, for each token and layer: 4 d^2 for keys and values, 4 d^2 for queries and output,
    4 d f for the feed-forward block, 4 t d for scores and context. Of the last layer only the keys and values are
    needed of every token, the rest of the predicted tokens and [CLS] alone. For each predicted token 2 d^2 + 2 d v for
    the masked-LM head, over the true vocabulary; for each row 2 d^2 + 4 d for pooler and next sentence. The backward
    pass needs two products for each of these, so three times the sum. Element-wise work and lookups count nothing.
    """
    d, f = config.hidden_size, config.intermediate_size
    keys, queries = 4 * d * d, 4 * d * d + 4 * d * f + 4 * length * d
    tokens = config.num_hidden_layers * length * keys
    tokens += ((config.num_hidden_layers - 1) * length + predictions + 1) * queries
    head = 2 * d * d + 2 * d * config.vocab_size
    return 3.0 * rows * (tokens + predictions * head + 2 * d * d + 4 * d)


def matmul_shapes(config: BertConfig, rows: int, length: int, predictions: int) -> list[tuple[int, int, int]]:
    """(m, k, n) of a large square product and of the model's own: the true peak is the best of these."""
    d, f, tokens = config.hidden_size, config.intermediate_size, rows * length
    own = [(tokens, d, d), (tokens, d, f), (tokens, f, d), (d, tokens, f), (rows * predictions, d, config.vocab_size)]
    return [(2048, 2048, 2048), *own]


def predictions_of(length: int) -> int:
    """Predicted tokens of a full row: 19 of 128, 77 of 512."""
    return max(1, round(length * MASKED_SHARE))


def missing_packages(*names: str) -> list[str]:
    """Those that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def synthetic_batch(setting: Setting) -> dict[str, np.ndarray]:
    """Full rows of random words in two segments, as the data pipeline shapes them."""
    generator = np.random.default_rng(0)
    shape = (setting.batch, setting.seq)
    ids = generator.integers(1000 % setting.vocab_size, setting.vocab_size, shape).astype(np.int32)
    ids[:, 0], ids[:, setting.seq // 2], ids[:, -1] = CLS_ID, SEP_ID, SEP_ID
    column = np.broadcast_to(np.arange(setting.seq, dtype=np.int32), shape)
    return {
        "input_ids": ids,
        "segment_ids": (column > setting.seq // 2).astype(np.int32),
        "sequence_ids": np.ones(shape, np.int32),
        "position_ids": np.ascontiguousarray(column),
        "example_columns": np.zeros((setting.batch, 1), np.int32),
        "next_sentence_labels": generator.integers(0, 2, (setting.batch, 1)).astype(np.int32),
        "example_weights": np.ones((setting.batch, 1), np.float32),
    }


def whole_words(vocab_size: int) -> WordPiece:
    """A vocabulary in which every piece is a word, its special tokens first."""
    return WordPiece([*SPECIAL_TOKENS, *(f"w{i}" for i in range(len(SPECIAL_TOKENS), vocab_size))], lowercase=True)


def make_task(config: BertConfig) -> Task:
    """The pre-training task without a corpus: the real masking, figures and objective."""
    module = BertForPreTraining(config)
    tokenizer = whole_words(config.vocab_size)

    def nothing(*_: Any) -> Any:
        raise NotImplementedError("this task has no data; the benchmark brings its own batch")

    return Task(
        name="pretraining",
        model=config,
        tokenizer=tokenizer,
        seeded=nothing,
        data_hash=nothing,
        init=lambda key: initial_parameters(module, key),
        stream=nothing,
        evaluation=nothing,
        prepare=masked_language_model({}, config, tokenizer),
        forward=partial(forward, module),
        figures=partial(figures, jnp.zeros(config.padded_vocab_size, jnp.float32)),
        outputs=lambda logits, batch: {},
        objective=("mlm_loss", "nsp_loss"),
        summary=lambda means: means,
        selection=("mlm_loss", "min"),
    )


class NoCheckpoints(Checkpoints):
    """Nothing to go on from, and no directory."""

    def __init__(self) -> None:
        pass

    def restore(self, like: Any) -> None:
        return None


class OurStep:
    """Our compiled training step with its state on the device."""

    def __init__(self, setting: Setting, **changes: Any) -> None:
        config = BertConfig.of_size(
            setting.size,
            vocab_size=setting.vocab_size,
            dtype=setting.dtype,
            max_position_embeddings=max(512, setting.seq),
            **changes,
        )
        self.setting, self.config, self.task = setting, config, make_task(config)
        # A long run with the rate still low: the work of a step does not depend on it.
        phase = Phase(train_steps=1_000_000, max_seq_length=setting.seq, batch_size=setting.batch)
        settings = TrainSettings(
            task="pretraining",
            batch_size=setting.batch,
            max_seq_length=setting.seq,
            train_steps=phase.train_steps,
            warmup_steps=10_000,
            optimizer=OptimizerSettings(),
        )
        mesh = make_mesh(MeshShape(data=1))
        with jax.set_mesh(mesh):
            self.state, self.step, _ = begin(settings, (phase,), self.task, mesh, NoCheckpoints())
            self.batch = put_batch(synthetic_batch(setting), mesh)

    def run(self, count: int = 1) -> list[float]:
        """Seconds of each of ``count`` updates."""
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.state, computed = self.step(self.state, self.batch, 1)
            jax.block_until_ready((self.state, computed))
            seconds.append(time.perf_counter() - start)
        return seconds

    def compile(self) -> float:
        """Compiles the step without running it, so that the device stays free for others; seconds."""
        start = time.perf_counter()
        compiled = self.step.lower(self.state, self.batch, 1).compile()
        self.step = lambda state, batch, _: compiled(state, batch)
        return time.perf_counter() - start

    def run_queued(self, count: int) -> float:
        """Seconds of ``count`` updates sent off one behind the other, as training does; needed on a GPU, where waiting
        for each would put the time of sending into every step."""
        start, computed = time.perf_counter(), None
        for _ in range(count):
            self.state, computed = self.step(self.state, self.batch, 1)
        jax.block_until_ready((self.state, computed))
        return time.perf_counter() - start


def seconds_of_rounds(run: Callable[[int], float], rounds: int, seconds: float) -> list[float]:
    """Seconds a step in each of ``rounds`` rounds of about ``seconds`` s, after some steps to warm up.

    ``run(n)`` gives the seconds of n steps together.
    """
    run(2)
    count = min(200, max(1, round(seconds * 2 / run(2))))
    return [run(count) / count for _ in range(rounds)]


def work(setting: Setting) -> None:
    """Our worker: ``first`` (compiles), ``step(count)``, ``matmul``, ``parts``."""
    channel = Channel()
    ours = OurStep(setting)
    shapes = matmul_shapes(ours.config, setting.batch, setting.seq, predictions_of(setting.seq))

    def parts() -> dict[str, Any]:
        from experiments.benchmark_parts import measure_parts

        return measure_parts(ours)

    serve(
        channel,
        {
            "first": lambda: {"seconds": ours.run(2)[0]},
            "step": lambda count: {"seconds": ours.run(count)},
            "matmul": lambda: matmul_speeds(shapes, dtype=setting.dtype),
            "parts": parts,
        },
    )


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(Setting(**json.loads(sys.argv[1])))
