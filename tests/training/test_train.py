"""The loop as a whole: it learns, it stops and goes on bit for bit, it hands over between phases."""

import dataclasses
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.wordpiece import WordPiece
from bert_jax.training import debug_step as debug_module
from bert_jax.training import step as step_module
from bert_jax.training.checkpoint import read_params
from bert_jax.training.metric_log import MetricLog, _Spikes, read_metrics
from bert_jax.training.result import read_result
from bert_jax.training.settings import learning_rate_fraction, plan, read_config
from bert_jax.training.train import train
from bert_jax.training.workdir import prepare_workdir

pytestmark = pytest.mark.end_to_end
# What learns within some hundred steps: without bias correction the first thousand are far larger than asked for.
FAST = {"learning_rate": 5e-3, "bias_correction": True, "b2": 0.98}


def config(corpus: Path, **changes: Any) -> dict[str, Any]:
    model = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 64,
    }
    base = {
        "task": "pretraining",
        "corpus": str(corpus),
        "model": model,
        "batch_size": 16,
        "max_seq_length": 32,
        "train_steps": 20,
        "warmup_steps": 4,
        "optimizer": {"learning_rate": 1e-3},
        "log_every_steps": 5,
        "eval_every_steps": 10,
        "checkpoint_every_steps": 1000,
        "eval_examples": 64,
        "mesh": {"data": 1},
    }
    return base | changes


def assert_same(first: Any, second: Any) -> None:
    jax.tree.map(np.testing.assert_array_equal, first, second)


def test_learns_below_the_unigram_baseline(tiny_corpus: Path, tmp_path: Path) -> None:
    result = train(
        config(tiny_corpus, train_steps=400, warmup_steps=40, optimizer=FAST, eval_every_steps=400),
        tmp_path,
    )
    assert result["mlm_loss"] < 0.9 * result["unigram_loss"]
    assert result["nsp_accuracy"] > 0.6
    assert result["perplexity"] == pytest.approx(np.exp(result["mlm_loss"]))


def test_writes_what_its_readers_need(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus), tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 15, 20]
    assert [line["step"] for line in lines if "eval/mlm_loss" in line] == [10, 20]
    assert {line["total_steps"] for line in lines} == {20}
    training = next(line for line in lines if "loss" in line)
    assert {
        "learning_rate",
        "tokens_per_second",
        "mlm_loss",
        "nsp_loss",
        "data_wait",
        "compilations",
    } <= training.keys()
    assert training["loss"] == pytest.approx(training["mlm_loss"] + training["nsp_loss"])
    evaluation = next(line for line in lines if "eval/mlm_loss" in line)
    assert {"eval/unigram_loss", "eval/nsp_accuracy", "eval/perplexity"} <= evaluation.keys()
    for name in ("config.json", "bert_config.json", "environment.json", "tokenizer/vocab.txt", "tensorboard"):
        assert (tmp_path / name).exists(), name


def test_stopped_anywhere_it_ends_with_the_same_bits(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 26 steps of 16 examples are more than one epoch; the stop comes in the second.
    straight = config(tiny_corpus, train_steps=70, checkpoint_every_steps=30)
    train(straight, tmp_path / "straight")

    original = MetricLog.train

    def stop_at_47(self: MetricLog, step: int, *rest: Any) -> None:
        original(self, step, *rest)
        if step == 47:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(MetricLog, "train", stop_at_47)
    with pytest.raises(SystemExit) as stop:
        train(straight, tmp_path / "stopped")
    assert stop.value.code == 128 + signal.SIGTERM
    monkeypatch.undo()
    train(straight, tmp_path / "stopped")

    first, meta = read_params(tmp_path / "straight")
    second, _ = read_params(tmp_path / "stopped")
    assert meta["step"] == 70
    assert_same(first, second)

    def steps(path: Path) -> list[int]:
        return [line["step"] for line in read_metrics(path)]

    assert steps(tmp_path / "straight") == steps(tmp_path / "stopped")


def test_a_run_goes_on_with_the_rate_that_the_config_has_now(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus, train_steps=5), tmp_path)
    changed = config(tiny_corpus, train_steps=10, optimizer={"learning_rate": 7e-3}, log_every_steps=1)
    train(changed, tmp_path)
    rates = {line["step"]: line["learning_rate"] for line in read_metrics(tmp_path) if "learning_rate" in line}
    assert rates[6] == pytest.approx(7e-3 * 5 / 10)  # after 5 of 10 steps, beyond the warm-up


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "mlm"}, "objective: None -> 'mlm'"),
        ({"optimizer": {"name": "lamb"}}, "optimizer.name: None -> 'lamb'"),
        ({"model": {"hidden_size": 64}}, "model.hidden_size: 32 -> 64"),
    ],
)
def test_another_run_in_the_workdir_is_refused(
    tiny_corpus: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    _, task = read_config(config(tiny_corpus))
    prepare_workdir(tmp_path, config(tiny_corpus), task)
    first = config(tiny_corpus)
    changed = {name: {**first[name], **value} if isinstance(value, dict) else value for name, value in change.items()}
    with pytest.raises(ValueError, match="holds another run") as error:
        prepare_workdir(tmp_path, first | changed, task)
    assert message in str(error.value)
    # What changes neither the parameters nor their meaning may change.
    prepare_workdir(tmp_path, first | {"model": first["model"] | {"remat": True}}, task)
    with pytest.raises(ValueError, match="another tokenizer"):
        other = WordPiece([*task.tokenizer.pieces, "another"], lowercase=True)
        prepare_workdir(tmp_path, first, dataclasses.replace(task, tokenizer=other))


def test_what_is_no_number_is_never_saved(tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = MetricLog.train

    def poisoned(self: MetricLog, step: int, figures: Any, *rest: Any) -> None:
        norm, weight = figures["gradient_norm"]
        original(self, step, figures | {"gradient_norm": (norm * (jax.numpy.nan if step == 12 else 1), weight)}, *rest)

    monkeypatch.setattr(MetricLog, "train", poisoned)
    every = config(tiny_corpus, log_every_steps=1000, eval_every_steps=1000, checkpoint_every_steps=5)
    with pytest.raises(FloatingPointError, match="gradient norm nan in step 12: --debug_step=12"):
        train(every, tmp_path)
    assert read_params(tmp_path)[1]["step"] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": -1}, "seed=-1 must be between 0 and 4294967295"),
        ({"keep_last": 0}, "keep_last=0 must be at least 1"),
        ({"train_steps": None, "train_epochs": float("inf")}, "train_epochs=inf must be a number above 0"),
        ({"warmup_steps": None, "warmup_ratio": 5.0}, "warmup_ratio=5.0 must be between 0 and 1"),
        ({"schedule": "cosine"}, "schedule='cosine' is unknown; take one of linear, square_root, warmup_stable_decay"),
        ({"decay_ratio": 0.0}, "decay_ratio=0.0 must be above 0 and at most 1"),
        ({"optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate=nan must be >= 0"),
        ({"train_steps": None, "phases": 5}, "config.phases=5 must be a list"),
        ({"eval_examples": 0}, "eval_examples=0 must be at least 1"),
    ],
)
def test_senseless_values_are_refused(tiny_corpus: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_config(config(tiny_corpus, **change))


def test_a_damaged_checkpoint_is_set_aside(
    tiny_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit of an array's numbers, which would load as another number; then the run goes on from the one before."""
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    train(config(tiny_corpus, checkpoint_every_steps=10, train_steps=22), straight)
    shutil.copytree(straight, stopped)
    flip_a_bit(stopped / "checkpoints" / "22")
    with pytest.raises(
        ValueError, match=r"checkpoints/22: params/\S+ is not as it was written; copy it again, or delete"
    ):
        read_params(stopped)
    capsys.readouterr()
    train(config(tiny_corpus, checkpoint_every_steps=10, train_steps=22), stopped)
    said = capsys.readouterr().err
    assert re.search(r"checkpoints/22: params/\S+ is not as it was written; set aside in damaged_checkpoints", said)
    assert {path.name for path in (stopped / "damaged_checkpoints").iterdir()} == {"22"}
    for one, other in zip(*(jax.tree.leaves(read_params(run)[0]) for run in (straight, stopped)), strict=True):
        np.testing.assert_array_equal(one, other)
    lines = [json.loads(line)["step"] for line in (stopped / "metrics.jsonl").read_text().splitlines()]
    assert lines == sorted(lines)


def test_without_a_whole_checkpoint_nothing_begins_anew(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus, checkpoint_every_steps=10), tmp_path)
    for step in ("10", "20"):
        flip_a_bit(tmp_path / "checkpoints" / step)
    with pytest.raises(ValueError, match=r"checkpoints/20: .* and no older checkpoint is whole; copy it again, or"):
        train(config(tiny_corpus, checkpoint_every_steps=10), tmp_path)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"10", "20"}


def flip_a_bit(checkpoint: Path) -> None:
    """In the middle of the largest file of the parameters."""
    file = max((path for path in (checkpoint / "params").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def test_two_phases_hand_over(tiny_corpus: Path, tmp_path: Path) -> None:
    phases = [
        {"train_steps": 6, "max_seq_length": 16},
        {"train_steps": 4, "max_seq_length": 64, "batch_size": 8},
    ]
    train(config(tiny_corpus, train_steps=None, phases=phases, log_every_steps=1), tmp_path)
    rates = [line["learning_rate"] for line in read_metrics(tmp_path) if "loss" in line]
    # One schedule over both: warm-up of 4 steps from 0, then linear to 0 at step 10.
    expected = [0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    np.testing.assert_allclose(rates, 1e-3 * np.asarray(expected), rtol=1e-5)


def test_phases_with_their_own_rate(tiny_corpus: Path, tmp_path: Path) -> None:
    phases = [
        {"train_steps": 4, "learning_rate": 2e-3, "warmup_steps": 2},
        {"train_steps": 4, "learning_rate": 5e-4, "warmup_steps": 0},
    ]
    settings = config(tiny_corpus, train_steps=None, warmup_steps=None, phases=phases, log_every_steps=1)
    train(settings, tmp_path)
    rates = [line["learning_rate"] for line in read_metrics(tmp_path) if "loss" in line]
    expected = [0, 1e-3, 1e-3, 5e-4, 5e-4, 3.75e-4, 2.5e-4, 1.25e-4]
    np.testing.assert_allclose(rates, expected, rtol=1e-5)


@pytest.mark.parametrize("own", [False, True])
def test_warmup_stable_decay_over_phases(tiny_corpus: Path, own: bool) -> None:
    """One schedule over the run, or one over each phase with a rate of its own."""
    phases = [{"train_steps": 6}, {"train_steps": 4, "max_seq_length": 16}]
    if own:
        phases = [phase | {"learning_rate": rate} for phase, rate in zip(phases, (1e-3, 5e-4), strict=True)]
    changes = {"train_steps": None, "warmup_steps": None, "phases": phases, "warmup_ratio": 0.2}
    stable = {"schedule": "warmup_stable_decay", "decay_ratio": 0.5}
    settings, task = read_config(config(tiny_corpus, **changes, **stable))
    rates = [float(learning_rate_fraction(jnp.int32(s), settings, plan(settings, task))) for s in range(10)]
    one = [0, 0.5, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2]
    each = [0, 1, 1, 1, 2 / 3, 1 / 3, 0.5, 0.5, 0.5, 0.25]
    np.testing.assert_allclose(rates, each if own else one, atol=1e-6)


@pytest.mark.parametrize("objective", ["mlm", "mlm_sop", "ltr", "rtl"])
def test_every_objective_learns(objective: str, tiny_corpus: Path, tmp_path: Path) -> None:
    result = train(
        config(tiny_corpus, objective=objective, train_steps=150, optimizer=FAST, eval_every_steps=150),
        tmp_path,
    )
    assert result["mlm_loss"] < 0.97 * result["unigram_loss"]
    assert ("nsp_loss" in result) == (objective == "mlm_sop")
    params, _ = read_params(tmp_path)
    assert ("nsp_head" in params) == (objective == "mlm_sop")


def test_init_from_takes_the_encoder_and_names_new_heads(
    tiny_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config(tiny_corpus, objective="mlm", train_steps=3), tmp_path / "first")
    second = config(tiny_corpus, train_steps=1, init_from=str(tmp_path / "first"), optimizer={"learning_rate": 0.0})
    train(second, tmp_path / "second")
    before, _ = read_params(tmp_path / "first")
    after, _ = read_params(tmp_path / "second")
    assert_same(before["encoder"], after["encoder"])
    assert "new: nsp_head" in capsys.readouterr().err


def test_a_finished_run_only_evaluates(tiny_corpus: Path, tmp_path: Path) -> None:
    first = train(config(tiny_corpus), tmp_path)
    found = read_result(tmp_path)
    assert found is not None and (found["step"], found["result"]) == (20, first) and found["seconds"] > 0
    assert found["data"] == json.loads((tiny_corpus / "corpus.json").read_text())["content_sha256"]
    assert len(found["environment"]["code"]) >= 40 and found["environment"]["packages"]["jax"] == jax.__version__
    (tmp_path / "result.json").write_text(json.dumps(found | {"date": "2026-01-01"}))
    assert train(config(tiny_corpus, log_every_steps=7), tmp_path) == first
    kept = read_result(tmp_path) or {}
    assert kept["date"] == "2026-01-01" and kept["config"] == found["config"]  # of when it was reached
    assert found["config"]["log_every_steps"] != 7
    with pytest.raises(FloatingPointError):
        train(config(tiny_corpus, train_steps=30, optimizer={"learning_rate": 1e30}), tmp_path)
    assert read_result(tmp_path) is None  # it is not finished any more


def test_keeps_the_last_and_the_best(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus, keep_last=1, eval_every_steps=5, checkpoint_every_steps=5), tmp_path)
    scores = {line["step"]: line["eval/mlm_loss"] for line in read_metrics(tmp_path) if "eval/mlm_loss" in line}
    kept = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {20, min(scores, key=lambda step: scores[step])}


def test_a_loss_that_is_not_finite_stops_the_run(tiny_corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"in step .* lower optimizer.learning_rate"):
        train(config(tiny_corpus, optimizer={"learning_rate": 1e30}, warmup_steps=0), tmp_path)


def nan_in_steps(monkeypatch: pytest.MonkeyPatch, *steps: int) -> None:
    """Makes the loss of these steps (from 1) no number."""
    original = step_module.prepared

    def poisoned(state: Any, batch: Any, task: Any) -> Any:
        batch, key = original(state, batch, task)
        bad = jax.numpy.isin(state.step + 1, jax.numpy.asarray(steps))
        weights = jax.numpy.where(bad, jax.numpy.nan, batch["masked_weights"])
        return batch | {"masked_weights": weights.astype(jax.numpy.float32)}, key

    for module in (step_module, debug_module):
        monkeypatch.setattr(module, "prepared", poisoned)


def test_a_step_that_is_no_number_is_named_and_can_be_looked_into(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan_in_steps(monkeypatch, 13)
    every = config(tiny_corpus, log_every_steps=10, checkpoint_every_steps=10)
    with pytest.raises(FloatingPointError, match="in step 13: --debug_step=13 looks into it"):
        train(every, tmp_path)
    text = debug_module.debug_step(every, tmp_path, 13)
    assert "mlm_loss nan" in text and "parameters that are not finite: none" in text
    assert re.search(r"gradients that are not finite: .*embeddings/word/embedding", text)
    report = json.loads((tmp_path / "debug_step_13" / "report.json").read_text())
    assert report["parameters"]["encoder/layer_0/attention/query/kernel"]["gradient"]["not_finite"] == 1
    assert np.load(tmp_path / "debug_step_13" / "batch.npz")["input_ids"].shape == (16, 32)
    assert "gradients that are not finite: none" in debug_module.debug_step(every, tmp_path, 12)
    with pytest.raises(ValueError, match="debug_step=10 must be after the newest checkpoint, 10, and"):
        debug_module.debug_step(every, tmp_path, 10)


def test_steps_that_are_no_number_can_be_left_out(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nan_in_steps(monkeypatch, 13, 14)
    train(config(tiny_corpus, log_every_steps=10, skip_nonfinite=True), tmp_path)
    lines = [line for line in read_metrics(tmp_path) if "loss" in line]
    assert [line["skipped"] for line in lines] == [0.0, 0.2]
    assert all(np.isfinite(line["loss"]) for line in lines)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(read_params(tmp_path)[0]))


def test_a_loss_that_stands_out_is_said() -> None:
    spikes = _Spikes()
    rng = np.random.default_rng(0)
    usual = [3 - 0.01 * i + 0.02 * float(rng.normal()) for i in range(60)]
    assert not any(spikes.above(loss) for loss in usual)
    assert spikes.above(4.0) == pytest.approx(2.65, abs=0.1)


def test_a_trace_of_some_steps(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus, train_steps=6, eval_every_steps=100), tmp_path, profile_steps=(3, 4))
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1.0}, "config has no field 'learning_rat'"),
        ({"optimizer": {"learnin_rate": 1.0}}, "did you mean 'learning_rate'"),
        ({"model": {"hidden_size": 30, "num_attention_heads": 4}}, "hidden_size=30 is not divisible"),
        ({"batch_size": 12, "mesh": {"fsdp": 8}}, "12 rows does not divide over data x fsdp devices"),
        ({"accumulation_steps": 3}, "batch_size=16 does not divide into accumulation_steps=3"),
        ({"objective": "nsp"}, "objective='nsp' is unknown"),
        ({"task": "squat"}, "config.task='squat' is unknown"),
        ({"train_epochs": 1.0}, "exactly one of train_steps, train_epochs and phases"),
        ({"max_seq_length": 128}, "position_ids has .*, outside 0..63"),
        ({"masking": {"mask": 0.9}}, "add up to 1"),
        ({"mesh": {"data": 3, "fsdp": 3}}, "does not fit 8 devices"),
    ],
)
def test_bad_configs_are_refused_in_one_line(
    changes: dict[str, Any], message: str, tiny_corpus: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        train(config(tiny_corpus, **changes), tmp_path)
    assert "\n" not in str(error.value)


def test_another_model_in_the_workdir_is_refused(tiny_corpus: Path, tmp_path: Path) -> None:
    train(config(tiny_corpus, train_steps=1), tmp_path)
    other = config(tiny_corpus, train_steps=1)
    other["model"] = other["model"] | {"hidden_size": 64}
    with pytest.raises(ValueError, match=r"model\.hidden_size: 32 -> 64"):
        train(other, tmp_path)
