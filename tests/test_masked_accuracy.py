"""Masked-LM accuracy by position and frequency: counts by hand, and a model that is right where we say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load
from bert_jax.report import masked_accuracy
from bert_jax.report.masked_accuracy import (
    RANKS,
    Bin,
    MaskedAccuracy,
    accuracy_charts,
    accuracy_of_run,
    added,
    held_out_predictions,
    in_bins,
    ranks,
    read_accuracy,
    wilson,
)
from bert_jax.report.run import read_run
from bert_jax.tasks.pretraining import predicted_pieces
from bert_jax.training.train import train
from bert_jax.training.workdir import read_workdir


@pytest.fixture(scope="module")
def run(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "run"
    model = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = {
        "task": "pretraining",
        "corpus": str(tiny_corpus),
        "model": model | {"max_position_embeddings": 32},
        "batch_size": 16,
        "max_seq_length": 24,
        "train_steps": 2,
        "mesh": {"data": 1},
    }
    train(config, path)
    return path


def test_bins_by_hand() -> None:
    values, right = np.array([0, 3, 4, 7, 9, 9]), np.array([True, False, True, True, False, True])
    assert in_bins(values, right, range(0, 10, 4), 10) == (Bin(0, 3, 1, 2), Bin(4, 7, 2, 2), Bin(8, 9, 1, 2))
    # Bins that begin after the end, and those without a value, are left out.
    assert in_bins(np.array([1, 10, 40]), np.array([True, False, True]), RANKS, 60) == (
        Bin(1, 10, 1, 2),
        Bin(31, 59, 1, 1),
    )


def test_ranks_by_hand() -> None:
    assert ranks(np.array([5, 9, 0, 9])).tolist() == [3, 1, 4, 2]


def test_the_interval_of_a_share() -> None:
    # 5 of 10: (0.5 + 0.19208) / 1.38416 and 1.96 * sqrt(0.025 + 0.009604) / 1.38416.
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert wilson(0, 10)[0] == pytest.approx(0, abs=1e-9) and wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-4)


def test_which_pieces_are_predicted_right() -> None:
    batch = {
        "masked_positions": jnp.array([[2, 5]]),
        "masked_targets": jnp.array([[1, 0]]),
        "masked_weights": jnp.array([[1.0, 1.0]]),
    }
    logits = jnp.array([[[0.0, 3.0, 1.0], [0.0, 3.0, 1.0]]])
    found = predicted_pieces((logits, None), batch)
    assert found["right"].tolist() == [[True, False]] and found["positions"].tolist() == [[2, 5]]


def test_a_model_that_is_right_in_the_first_half(run: Path) -> None:
    _, task = read_workdir(run)

    def forward(params: Any, batch: Any, key: Any) -> Any:
        size, early = 128, batch["masked_positions"] < 12
        wrong = (batch["masked_targets"] + 1) % size
        return jax.nn.one_hot(jnp.where(early, batch["masked_targets"], wrong), size, dtype=jnp.float32), None

    found, examples = held_out_predictions(replace(task, forward=forward), load(run), 24)
    assert examples > 30 and len(found.right) > 60
    assert (found.right == (found.positions < 12)).all()
    assert found.positions.min() >= 1 and found.positions.max() < 24
    assert (found.pieces >= 5).all()  # never a special one


def test_a_run_is_looked_at_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(run)
    found = accuracy_of_run(read_run(run), model)
    assert found is not None and found.step == 2
    assert sum(one.count for one in found.position) == sum(one.count for one in found.rank)
    assert sum(one.right for one in found.position) == sum(one.right for one in found.rank)
    assert [one.first for one in found.position][:2] == [0, 3] and found.rank[-1].last <= 65
    assert read_accuracy(run) == found
    monkeypatch.setattr(masked_accuracy, "held_out_predictions", None)
    assert accuracy_of_run(read_run(run), model) == found  # as the file says
    for content in ("{", "{}", '{"step": 2, "examples": 1, "position": [{}], "rank": []}'):
        (run / masked_accuracy.FILE).write_text(content)
        assert read_accuracy(run) is None


def test_without_the_corpus_there_is_nothing_to_look_at(run: Path) -> None:
    (run / masked_accuracy.FILE).unlink(missing_ok=True)
    model, found = load(run), read_run(run)
    for corpus in ("", "/no/such/corpus"):
        assert accuracy_of_run(replace(found, config=found.config | {"corpus": corpus}), model) is None
    assert accuracy_of_run(replace(found, config=found.config | {"task": "tagging"}), model) is None
    assert not (run / masked_accuracy.FILE).exists()


def test_several_runs_are_added_up() -> None:
    one = MaskedAccuracy(10, 4, (Bin(0, 3, 1, 2), Bin(4, 7, 1, 1)), (Bin(1, 10, 2, 3),))
    other = MaskedAccuracy(20, 6, (Bin(4, 7, 0, 3),), (Bin(1, 10, 0, 3),))
    both = added([one, other])
    assert both == MaskedAccuracy(20, 10, (Bin(0, 3, 1, 2), Bin(4, 7, 1, 4)), (Bin(1, 10, 2, 6),))
    position, rank = accuracy_charts([("a", "s0", both)], interval=True)
    assert "a, position 4 to 7: 25.0% of 4" in position and "a, rank 1 to 10: 33.3% of 6" in rank
    assert 'class="band s0"' in position and "a <b>33.3%</b>" in position  # of all, not of the last bin
