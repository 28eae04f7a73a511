"""The benchmarks measure what they say: the arithmetic by hand, the peer's mathematics against ours."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.config import BertConfig
from bert_jax.training.optimizer import OptimizerSettings, make_optimizer, polynomial_schedule
from experiments.benchmark import input_share, main, parts_report, step_report
from experiments.benchmark_parts import measure_parts
from experiments.benchmark_step import (
    OurStep,
    Setting,
    make_task,
    measure,
    predictions_of,
    required_flops,
    summary,
    synthetic_batch,
)
from experiments.machine import describe, matmul_speeds
from experiments.peers.line_protocol import Worker

TINY = Setting("L2_H128", seq=16, batch=2, vocab_size=200)


@pytest.fixture(scope="module")
def torch_bert() -> Any:
    """The peer's module; importing torch and transformers warns of things that are not ours."""
    pytest.importorskip("torch", reason="the peer needs the extra `peers`", exc_type=ImportError)
    pytest.importorskip("transformers", reason="the peer needs the extra `peers`", exc_type=ImportError)
    from experiments.peers import torch_bert

    return torch_bert


def test_flops_by_hand() -> None:
    config = BertConfig(vocab_size=10, hidden_size=4, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    # A layer and token: 2 * (2 * 4 * 4) = 64 keys and values, as much queries and output, 2 * (2 * 4 * 8) = 128
    # feed-forward, 2 * 2 * 3 * 4 = 48 attention.
    layers = 5 * 3 * (64 + 64 + 128 + 48)  # the first of 2 layers, 5 rows of 3 tokens
    layers += 5 * (3 * 64 + 2 * (64 + 128 + 48))  # the last: 1 prediction a row and [CLS]
    head = 5 * 1 * (2 * 16 + 2 * 4 * 10)  # 1 prediction a row
    pairs = 5 * (2 * 16 + 2 * 4 * 2)
    assert required_flops(config, 5, 3, 1) == 3 * (layers + head + pairs)
    base = BertConfig.of_size("base")
    assert required_flops(base, 8, 128, 19) == pytest.approx(0.527e12, rel=0.01)


def test_predictions_are_as_many_as_the_masking_makes() -> None:
    assert [predictions_of(length) for length in (128, 512)] == [19, 77]
    batch = synthetic_batch(TINY)
    task = make_task(BertConfig.of_size(TINY.size, vocab_size=TINY.vocab_size))
    masked = task.prepare(jax.random.key(0), {name: jnp.asarray(value) for name, value in batch.items()})
    assert (np.asarray(masked["masked_weights"]).sum(1) == predictions_of(TINY.seq)).all()


def test_summary_and_tables() -> None:
    seconds = {"ours": [1.0, 2.0, 1.5], "peer": [3.0, 4.0, 2.0]}
    figures = {"setting": TINY._asdict()} | summary(TINY, seconds, {"jax": 2.0, "numpy": 4.0})
    assert figures["ratio"] == 2.0
    assert figures["ratio_of_minima"] == 2.0
    assert figures["peak_gflops"] == 4.0
    assert figures["efficiency"] == pytest.approx(figures["required_gflop"] / 1.5 / 4.0)
    text = step_report(figures | {"peer_missing": "peer left out"})
    assert "peer / ours" in text and "2.00" in text and "peer left out" in text
    parts = {"whole": 10.0, "sum": 5.0, "parts": {"attention": 5.0, "dropout randomness": 1.0}}
    assert "50.0%" in parts_report(parts)


def test_share_of_the_input() -> None:
    step = {"setting": TINY._asdict() | {"seq": 128, "batch": 64}, "ours_median": 0.5}
    speed = [
        {"max_seq_length": length, "batch_size": 32, "fill_rule": "document", "examples_per_second": rate}
        for length, rate in ((512, 1.0), (128, 6400.0))
    ]
    # 64 examples take 0.01 s, a step 0.5 s.
    assert input_share({"step": [step], "input": {"speed": speed}}) == [
        f"the input of {TINY.size}, 64 x 128 takes 2.00% of its step's time on one core"
    ]


def test_the_step_is_the_real_one() -> None:
    ours = OurStep(TINY)
    before = jax.device_get(ours.state.params["mlm_head"]["bias"])
    assert all(seconds > 0 for seconds in ours.run(2))
    assert int(ours.state.step) == 2
    assert np.abs(jax.device_get(ours.state.params["mlm_head"]["bias"]) - before).max() > 0


def test_parts_of_the_step() -> None:
    figures = measure_parts(OurStep(TINY), repeats=1)
    names = {"masking", "embedding", "attention", "feed-forward", "MLM head and loss", "optimizer"}
    assert names <= figures["parts"].keys()
    parts = {name: ms for name, ms in figures["parts"].items() if name != "dropout randomness"}
    assert min(parts.values()) > 0
    assert figures["sum"] == pytest.approx(sum(parts.values()))


def test_machine() -> None:
    assert describe()["cores"] >= 1
    assert describe()["versions"]["jax"] == jax.__version__
    speeds = matmul_speeds([(8, 8, 8)], repeats=1)
    assert set(speeds) == {"jax 8x8x8", "numpy 8x8x8"}
    assert set(matmul_speeds([(8, 8, 8)], repeats=1, dtype="bfloat16")) == {"jax 8x8x8"}


def test_a_dead_worker_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"worker experiments\.no_such ended with status 1; see"):
        Worker("experiments.no_such", {}, tmp_path / "log")


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(SystemExit, match="--only has steps; take some of step,parts"):
        main(["--only", "steps"])
    with pytest.raises(SystemExit, match="give --input GLOB and --vocab FILE"):
        main(["--only", "corpus"])


def test_peer_computes_the_same_loss_and_gradients(torch_bert: Any) -> None:
    config = BertConfig.of_size(
        TINY.size, vocab_size=TINY.vocab_size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    task = make_task(config)
    params = task.init(jax.random.key(3))
    batch = {name: jnp.asarray(value) for name, value in synthetic_batch(TINY).items()}
    batch["sequence_ids"] = batch["sequence_ids"].at[1, 10:].set(0)
    batch = task.prepare(jax.random.key(1), batch)

    def loss(params: Any) -> Any:
        figures = task.figures(task.forward(params, batch, None), batch)
        return sum(figures[name][0] / figures[name][1] for name in task.objective)

    value, grads = jax.value_and_grad(loss)(params)
    model = torch_bert.make_model(dataclasses.asdict(config))
    torch_bert.load_parameters(model, _flat(params))
    theirs = model(**torch_bert.tensors(jax.device_get(batch))).loss
    assert theirs.item() == pytest.approx(float(value), abs=1e-5)
    theirs.backward()
    ours = _flat(grads)
    for name, parameter in model.named_parameters():
        path = torch_bert.parameter_path(name)
        gradient = parameter.grad.numpy().T if path.endswith("/kernel") else parameter.grad.numpy()
        expected = ours[path][: len(gradient)] if path == "embeddings/word/embedding" else ours[path]
        expected = expected[: len(gradient)]
        if path.startswith("embeddings/word"):
            expected, gradient = expected[1:], gradient[1:]  # PyTorch gives [PAD] no gradient
        np.testing.assert_allclose(gradient, expected, atol=1e-4 * np.abs(expected).max() + 1e-8, err_msg=path)


def test_missing_parameters_are_named(torch_bert: Any) -> None:
    model = torch_bert.make_model(dataclasses.asdict(BertConfig.of_size("L2_H128", vocab_size=50)))
    with pytest.raises(ValueError, match="no counterpart embeddings/word/embedding"):
        torch_bert.load_parameters(model, {})


@pytest.mark.parametrize("bias_correction", [False, True])
def test_peer_optimizer_follows_ours(torch_bert: Any, bias_correction: bool) -> None:
    import torch

    module = torch.nn.ModuleDict({"dense": torch.nn.Linear(4, 3), "LayerNorm": torch.nn.LayerNorm(3)})
    names = {"dense.weight": "dense/kernel", "dense.bias": "dense/bias"}
    names |= {"LayerNorm.weight": "layer_norm/scale", "LayerNorm.bias": "layer_norm/bias"}
    theirs = dict(module.named_parameters())
    params = {names[name]: jnp.asarray(p.detach().numpy()) for name, p in theirs.items()}
    optimizer = make_optimizer(OptimizerSettings(bias_correction=bias_correction), params)
    state, rng = optimizer.init(params), np.random.default_rng(0)
    settings = {"weight_decay": 0.01, "b1": 0.9, "b2": 0.999, "eps": 1e-6, "clip_norm": 1.0}
    peer = torch_bert.BertAdam(module, **settings, bias_correction=bias_correction)
    for step in range(6):
        rate = torch_bert.linear_rate(step, 1e-2, 2, 10)
        fraction = polynomial_schedule(jnp.asarray(step, jnp.int32), 2, 10)
        assert rate == pytest.approx(1e-2 * float(fraction), rel=1e-6)
        gradients = {name: rng.normal(size=p.shape).astype(np.float32) for name, p in theirs.items()}
        for name, parameter in theirs.items():
            parameter.grad = torch.from_numpy(gradients[name].copy())
        peer.step(rate)
        updates, state = optimizer.update(
            {names[name]: jnp.asarray(g) for name, g in gradients.items()},
            state,
            params,
            learning_rate=jnp.asarray(rate, jnp.float32),
            weight_decay=jnp.asarray(0.01, jnp.float32),
            step=jnp.asarray(step, jnp.int32),
        )
        params = jax.tree.map(jnp.add, params, updates)
        for name, parameter in theirs.items():
            np.testing.assert_allclose(parameter.detach().numpy(), params[names[name]], rtol=2e-5, atol=2e-7)


@pytest.mark.slow
def test_ours_and_the_peer_in_turn(torch_bert: Any, tmp_path: Path) -> None:
    figures = measure(TINY, rounds=2, steps=1)
    assert len(figures["ours_seconds"]) == len(figures["peer_seconds"]) == 2
    assert figures["ratio"] > 0
    options = "--size L2_H128 --seq 16 --batch 2 --vocab_size 200 --rounds 1 --peer none"
    main([*options.split(), "--json", str(tmp_path / "f")])
    assert "ratio" not in json.loads((tmp_path / "f").read_text())["step"][0]


def _flat(params: Any) -> dict[str, np.ndarray]:
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    return {jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf) for path, leaf in leaves}
