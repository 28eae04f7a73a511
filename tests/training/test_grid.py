"""Members of a grid: each takes the steps that it takes alone, stops and goes on, and is a run like any other."""

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.training.checkpoint import newest_step, read_params
from bert_jax.training.evaluate import evaluate_workdir
from bert_jax.training.grid import common_row_counts, grid_mesh, groups, train_grid
from bert_jax.training.metric_log import MetricLog, read_metrics
from bert_jax.training.settings import read_config
from bert_jax.training.sharding import MeshShape
from bert_jax.training.train import train
from tests.tasks.test_classification import config as of_table
from tests.tasks.test_classification import folder  # noqa: F401  (a fixture)
from tests.training.test_train import config as of_corpus

RATES, SEEDS = (3e-3, 1e-3), (0, 1)


def members(config: dict[str, Any], rates: tuple[float, ...] = RATES, data: int = -1) -> list[dict[str, Any]]:
    """Every rate with every seed, on all devices that divide them."""
    optimizer = config["optimizer"]
    every = [{"optimizer": optimizer | {"learning_rate": rate}, "seed": seed} for rate in rates for seed in SEEDS]
    return [config | one | {"mesh": {"data": data}} for one in every]


def assert_close(one: Path, other: Path) -> None:
    """Parameters to 1e-5 and every recorded loss and score."""
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), read_params(one)[0], read_params(other)[0]
    )
    timed = {"time", "tokens_per_second", "steps_per_second", "data_wait", "compilations"}
    lines = [[{k: v for k, v in line.items() if k not in timed} for line in read_metrics(run)] for run in (one, other)]
    assert len(lines[0]) == len(lines[1]) > 0
    for first, second in zip(*lines, strict=True):
        assert first == pytest.approx(second, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("variant", ["packed pairs, begun from a run", "pre-training in two pieces"])
def test_members_take_the_steps_they_take_alone(
    variant: str,
    folder: Path,  # noqa: F811
    tiny_corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Twenty steps with dropout, over four devices."""
    if variant.startswith("packed"):
        train(of_table(folder, train_steps=1), tmp_path / "first")
        base = of_table(
            folder, init_from=str(tmp_path / "first"), model={}, labels=("same", "other"), eval_every_steps=10
        )
        del base["tokenizer"]
    else:
        base = of_corpus(tiny_corpus, accumulation_steps=2)
    configs = members(base)
    capsys.readouterr()
    results = train_grid(configs, [tmp_path / f"together{i}" for i in range(4)])
    assert "4 runs in one program, on 4 device(s)" in capsys.readouterr().err
    for i in (1, 2):
        alone = configs[i] | {"mesh": {"data": 1}}
        assert train(alone, tmp_path / f"alone{i}") == pytest.approx(results[i], rel=1e-4)
        assert_close(tmp_path / f"together{i}", tmp_path / f"alone{i}")
    assert len({tuple(result.values()) for result in results}) == 4
    assert evaluate_workdir(tmp_path / "together3") == pytest.approx(results[3], rel=1e-4)
    assert read_config(configs[3])[0].seed == 1


def test_a_stopped_grid_goes_on(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed after the checkpoints of step 10; one member has lost its own and gets a program of its own."""
    configs = members(of_corpus(tiny_corpus, checkpoint_every_steps=5), rates=(1e-3,), data=1)
    straight, stopped = ([tmp_path / kind / str(seed) for seed in SEEDS] for kind in ("straight", "stopped"))
    first = train_grid(configs, straight)
    original = MetricLog.train

    def dies(self: MetricLog, step: int, *rest: Any) -> None:
        if step == 13:
            raise KeyboardInterrupt
        original(self, step, *rest)

    monkeypatch.setattr(MetricLog, "train", dies)
    with pytest.raises(KeyboardInterrupt):
        train_grid(configs, stopped)
    monkeypatch.setattr(MetricLog, "train", original)
    assert [newest_step(run) for run in stopped] == [10, 10]
    shutil.copytree(tmp_path / "stopped", tmp_path / "uneven")
    assert train_grid(configs, stopped) == first
    for one, other in zip(straight, stopped, strict=True):
        jax.tree.map(np.testing.assert_array_equal, read_params(one)[0], read_params(other)[0])

    uneven = [tmp_path / "uneven" / str(seed) for seed in SEEDS]
    shutil.rmtree(uneven[1] / "checkpoints" / "10")
    capsys.readouterr()
    again = train_grid(configs, uneven)
    assert "grid: 1: a program of its own, for the step at which it goes on, 5" in capsys.readouterr().err
    for result, expected in zip(again, first, strict=True):
        assert result == pytest.approx(expected, rel=1e-5)


def test_who_is_trained_with_whom(tiny_corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = of_corpus(tiny_corpus)
    runs = [tmp_path / name for name in "abcd"]
    decay = {"optimizer": base["optimizer"] | {"weight_decay": 0.1}}
    configs = [base, base | {"batch_size": 8}, base | {"seed": 3} | decay, base | {"batch_size": 8, "seed": 1}]
    assert groups(configs, runs) == [[0, 2], [1, 3]]
    assert capsys.readouterr().err == "grid: b, d: a program of its own, for batch_size: 16 -> 8\n"
    cut = [base | {"mesh": {"tensor": 2}}, base | {"mesh": {"tensor": 2}, "seed": 1}]
    assert groups(cut, runs[:2]) == [[0], [1]]
    assert "grid: a, b: mesh.fsdp=1 mesh.tensor=2 cut one model over devices; the runs are" in capsys.readouterr().err
    assert groups([base, *cut], runs[:3]) == [[0], [1], [2]]
    assert "grid: b, c: mesh.fsdp=1 mesh.tensor=2 cut" in capsys.readouterr().err
    phases = base | {"train_steps": None, "phases": [{"train_steps": 2, "learning_rate": 1e-3}]}
    assert groups([phases, phases | {"seed": 1}], runs[:2]) == [[0], [1]]
    assert "the phases have learning rates of their own" in capsys.readouterr().err
    with pytest.raises(ValueError, match="2 configs and 1 workdirs; give at least one, and one for each"):
        train_grid(configs[:2], runs[:1])


def test_a_member_that_diverges_is_named(tiny_corpus: Path, tmp_path: Path) -> None:
    configs = members(of_corpus(tiny_corpus, warmup_steps=0, checkpoint_every_steps=5), rates=(1e-3, 1e30), data=1)[:3]
    with pytest.raises(FloatingPointError, match=r"r2: loss .* in step \d+: --debug_step"):
        train_grid(configs, [tmp_path / f"r{i}" for i in range(3)])


@pytest.mark.parametrize(("members", "data", "devices"), [(4, -1, 4), (12, -1, 6), (7, -1, 7), (9, 4, 3), (11, 8, 1)])
def test_the_devices_of_a_grid(members: int, data: int, devices: int) -> None:
    mesh = grid_mesh(members, MeshShape(data=data))
    assert dict(mesh.shape) == {"member": devices, "data": 1, "fsdp": 1, "tensor": 1}


def test_the_rows_that_do_for_all(folder: Path) -> None:  # noqa: F811
    _, task = read_config(of_table(folder))
    streams = [task.seeded(seed).stream(32, 32, 1) for seed in range(3)]
    counts = common_row_counts(streams)
    assert all(any(count >= stream.rows(step) for count in counts) for stream in streams for step in range(20))
    batch, more = streams[0].batch(3), streams[0].batch(3, rows=counts[-1])
    assert more["input_ids"].shape[0] == 32 > batch["input_ids"].shape[0] == streams[0].rows(3)
    for name, values in batch.items():
        np.testing.assert_array_equal(values, more[name][: len(values)])
    assert not more["sequence_ids"][len(batch["input_ids"]) :].any()
    assert (streams[0].batch(0)["example_indices"] != streams[1].batch(0)["example_indices"]).any()
