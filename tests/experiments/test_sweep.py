"""The sweep: its points, what is run again and what is refused, the table by hand."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bert_jax
from bert_jax.data.object_cache import local_output
from bert_jax.data.object_store import Store
from bert_jax.data.wordpiece import WordPiece
from bert_jax.data.writing import write_json
from bert_jax.model.config import BertConfig
from bert_jax.training.result import FILE as RESULT
from bert_jax.training.workdir import environment
from configs import classify, pretrain
from experiments.sweep_points import Point, begin, command_of, common, config_arguments, points_of, with_point
from experiments.sweep_runs import run_points
from experiments.sweep_table import hint, table
from tests.shaky_store import clean_stores  # noqa: F401  (a fixture)

RATES, SEEDS = (5e-5, 2e-5), (0, 1)
POINTS: list[Point] = [{"optimizer.learning_rate": rate, "seed": seed} for rate in RATES for seed in SEEDS]
# By hand: means 0.65 and 0.75, medians the same, deviations 0.1 / sqrt(2) and 0.3 / sqrt(2).
SCORES = {"5e-05,seed=0": 0.6, "5e-05,seed=1": 0.7, "2e-05,seed=0": 0.9, "2e-05,seed=1": 0.6}
TABLE = """\
score                    mean       std    median      best    n  degenerate
learning_rate=5e-05    0.6500    0.0707    0.6500    0.7000    2           0
learning_rate=2e-05    0.7500    0.2121    0.7500    0.9000    2           1
best by median: learning_rate=2e-05"""


@pytest.fixture
def config(tmp_path: Path) -> Any:
    """A run to begin with and two classes."""
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad"], lowercase=False)
    tokenizer.save(tmp_path / "run" / "tokenizer")
    BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16).to_json(
        tmp_path / "run" / "bert_config.json"
    )
    (tmp_path / "train.tsv").write_text("text\tlabel\ngood\tyes\nbad\tno\n")
    config: Any = classify.get_config()
    config.update({"init_from": str(tmp_path / "run"), "data_dir": str(tmp_path)})
    config.data.update({"train": "train.tsv", "dev": "train.tsv", "text_a": "text"})
    return config.lock()


def finish(workdir: str | Path, config: Any, result: dict[str, float]) -> dict[str, float]:
    """What a run leaves at its end."""
    about = {
        "step": 3,
        "result": result,
        "environment": environment() | {"code": "c0ffee"},
        "data": "d",
        "seconds": 1.5,
    }
    about["config"] = json.loads(config.to_json())
    with local_output(f"{workdir}/{RESULT}") as path:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, about)
    return result


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """(learning rate, seed) of every run that was asked for; none is trained."""
    runs: list[tuple[float, int]] = []

    def fake(config: Any, workdir: Path) -> dict[str, float]:
        runs.append((config.optimizer.learning_rate, config.seed))
        score = SCORES[workdir.name.removeprefix("learning_rate=")]
        return finish(workdir, config, {"score": score, "degenerate": float(runs[-1] == (2e-5, 1))})

    monkeypatch.setattr(bert_jax, "train", fake)
    return runs


def test_every_point_once_and_the_table(
    config: Any, trained: list[tuple[float, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workdir = tmp_path / "my grid"
    said = run_points(config, POINTS, workdir)
    assert trained == [(5e-5, 0), (5e-5, 1), (2e-5, 0), (2e-5, 1)]
    shown, best, command = said.rsplit("\n", 2)
    assert shown == TABLE
    assert best == "best run: learning_rate=2e-05,seed=0, score 0.9000"
    assert command == (
        f"python -m experiments.predict --workdir '{workdir}/learning_rate=2e-05,seed=0' --input FILE --output FILE"
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "[1/4] learning_rate=5e-05,seed=0",
        "[1/4] learning_rate=5e-05,seed=0: score 0.6000 (best so far 0.6000); about 00:00 left",
    ]
    assert lines[-1] == "[4/4] learning_rate=2e-05,seed=1: score 0.6000 (best so far 0.9000)"

    assert run_points(config, POINTS, workdir) == said and len(trained) == 4  # all are finished
    assert capsys.readouterr().out.splitlines()[0].endswith("score 0.6000 (best so far 0.9000), finished before")
    kept = json.loads((workdir / "sweep.json").read_text())
    assert kept["config"]["batch_size"] == 32 and "seed" not in kept["config"]
    assert kept["config"]["optimizer"] == {"weight_decay": 0.01, "bias_correction": False}
    for run in kept["points"].values():
        assert run["environment"]["cpu_cores"] and "jax" in run["environment"]["packages"]
        assert run["environment"]["code"] == "c0ffee" and (run["data"], run["seconds"]) == ("d", 1.5)


def test_a_sweep_at_a_url(config: Any, clean_stores: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    trained: list[str] = []

    def fake(config: Any, workdir: str) -> dict[str, float]:
        trained.append(workdir)
        return finish(workdir, config, {"score": 0.5})

    monkeypatch.setattr(bert_jax, "train", fake)
    said = run_points(config, POINTS, "memory://b/grid")
    assert trained[0] == "memory://b/grid/learning_rate=5e-05,seed=0" and len(trained) == 4
    assert "--workdir memory://b/grid/learning_rate=5e-05,seed=0 " in said
    assert len(json.loads(Store("memory://b/grid").read("sweep.json") or b"")["points"]) == 4
    assert run_points(config, POINTS, "memory://b/grid") == said and len(trained) == 4


def test_a_stopped_sweep_goes_on(
    config: Any, trained: list[tuple[float, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake: Callable[..., dict[str, float]] = bert_jax.train

    def stopped(config: Any, workdir: Path) -> dict[str, float]:
        if config.seed == 1:
            raise SystemExit(143)
        return fake(config, workdir)

    monkeypatch.setattr(bert_jax, "train", stopped)
    with pytest.raises(SystemExit):
        run_points(config, POINTS, tmp_path / "grid")
    monkeypatch.setattr(bert_jax, "train", fake)
    assert TABLE in run_points(config, POINTS, tmp_path / "grid")
    assert trained == [(5e-5, 0), (5e-5, 1), (2e-5, 0), (2e-5, 1)]


@pytest.mark.parametrize(
    ("changes", "first"),
    [
        ({"batch_size": 16}, "batch_size: 32 -> 16"),
        ({"data": {"train": "other.tsv"}}, "data.train: 'train.tsv' -> 'other.tsv'"),
        ({"init_from": "runs/large"}, "init_from: '.*/run' -> '.*/runs/large'"),
        ({"batch_size": 16, "train_epochs": 1.0}, "batch_size: 32 -> 16 and 1 more"),
    ],
)
def test_another_config_is_refused(
    config: Any, trained: list[tuple[float, int]], tmp_path: Path, changes: dict[str, Any], first: str
) -> None:
    run_points(config, POINTS[:1], tmp_path / "grid")
    config.seed = 7  # is the points' own
    run_points(config, POINTS[:2], tmp_path / "grid")
    config.update(changes)
    with pytest.raises(ValueError, match=rf"grid holds a sweep of another config \({first}\); give another --workdir"):
        run_points(config, POINTS, tmp_path / "grid")
    assert len(trained) == 2


def test_results_that_say_no_config_are_refused(config: Any, tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"config": {')
    with pytest.raises(ValueError, match=r"sweep.json is damaged \(.*another --workdir or delete it"):
        begin(tmp_path, {})
    (tmp_path / "sweep.json").write_text(json.dumps({"learning_rate=5e-05,seed=0": {}}))
    with pytest.raises(ValueError, match=r"sweep.json does not say what config it is of"):
        run_points(config, POINTS, tmp_path)


def test_without_a_dev_set_nothing_is_trained(config: Any, trained: list[tuple[float, int]], tmp_path: Path) -> None:
    config.data.dev = None
    with pytest.raises(ValueError, match="the split dev is empty: nothing to choose by; give the config a dev set"):
        run_points(config, POINTS, tmp_path / "grid")
    assert trained == []
    config.data.dev = "train.tsv"  # nothing stands in the way
    run_points(config, POINTS[:1], tmp_path / "grid")


def test_a_result_without_the_figure_is_not_kept(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bert_jax, "train", lambda config, workdir: finish(workdir, config, {}))
    with pytest.raises(
        ValueError, match=r"learning_rate=5e-05,seed=0 has no score to choose by; give a labelled dev set"
    ):
        run_points(config, POINTS, tmp_path / "grid")
    assert json.loads((tmp_path / "grid" / "sweep.json").read_text())["points"] == {}


def test_a_point_of_a_field_that_there_is_not(config: Any, tmp_path: Path) -> None:
    changed: Any = with_point(config, {"optimizer.learning_rate": 1.0, "model.remat": True})
    assert (changed.optimizer.learning_rate, changed.model.remat) == (1.0, True)
    assert config.optimizer.learning_rate == 2e-5
    for name in ("optimizer.rate", "optimiser.learning_rate", "seed.a", "speed"):
        with pytest.raises(ValueError, match=f"the sweep sets {name}, which the config does not have"):
            run_points(config, [{name: 1}], tmp_path / "grid")


def test_a_table_by_a_loss_without_degenerate_runs() -> None:
    losses = {"small": (3.0, 1.0, 2.0), "large": (2.5,)}
    runs: list[dict[str, Any]] = [
        {"point": {"model": size, "seed": seed}, "figure": "mlm_loss", "mode": "min", "result": {"mlm_loss": value}}
        for size, values in losses.items()
        for seed, value in enumerate(values)
    ]
    assert table(runs).splitlines() == [
        "mlm_loss         mean       std    median      best    n",
        "model=small    2.0000    1.0000    2.0000    1.0000    3",
        "model=large    2.5000         -    2.5000    2.5000    1",
        "best by median: model=small",
    ]
    assert statistics.stdev(losses["small"]) == 1.0
    assert hint(runs[1], Path("w"), "pretraining").splitlines()[1] == (
        "python -m experiments.evaluate --workdir w/model=small,seed=1"
    )


def test_points_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def sweep(add):\n    for seed in range(2):\n        add(**{'optimizer.b2': 0.98, 'seed': seed})\n")
    assert points_of(f"{path}:size=base") == [{"optimizer.b2": 0.98, "seed": 0}, {"optimizer.b2": 0.98, "seed": 1}]
    path.write_text("def sweep(add):\n    pass\n")
    with pytest.raises(ValueError, match="sweep adds no point; add at least one"):
        points_of(str(path))
    path.write_text("def sweep(add):\n    add(a=1)\n    add(a=1)\n")
    with pytest.raises(ValueError, match=r"mine.py: sweep adds a=1 twice"):
        points_of(str(path))
    path.write_text("")
    with pytest.raises(ValueError, match=r"mine.py has no sweep\(add\); write one"):
        points_of(str(path))


def test_paths_are_absolute_in_what_is_kept() -> None:
    config: Any = pretrain.get_config("size=tiny")
    config.corpus = "corpora/mine"
    assert common(config, [{"model.hidden_size": 64}])["corpus"] == str(Path("corpora/mine").absolute())
    assert "hidden_size" not in common(config, [{"model.hidden_size": 64}])["model"]


def test_points_trained_together(config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks: list[int] = []

    def fake(configs: list[Any], workdirs: list[Path]) -> list[dict[str, float]]:
        chunks.append(len(configs))
        scores = (SCORES[path.name.removeprefix("learning_rate=")] for path in workdirs)
        return [
            finish(path, config, {"score": score, "degenerate": float(score == 0.6 and config.seed == 1)})
            for config, path, score in zip(configs, workdirs, scores, strict=True)
        ]

    monkeypatch.setattr(bert_jax, "train_grid", fake)
    monkeypatch.setattr(bert_jax, "train", lambda config, workdir: fake([config], [workdir])[0])
    assert TABLE in run_points(config, POINTS, tmp_path / "grid", together=3)
    assert chunks == [3, 1]
    with pytest.raises(ValueError, match="together=2 and at_a_time=2: both at least 1, and one of them 1"):
        run_points(config, POINTS, tmp_path / "grid", together=2, at_a_time=2)


def test_one_diverges_and_the_others_are_run(
    config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fake(config: Any, workdir: Path) -> None:
        if config.optimizer.learning_rate == 5e-5 and config.seed == 1:
            raise FloatingPointError("step 7: loss is nan")
        finish(workdir, config, {"score": SCORES[workdir.name.removeprefix("learning_rate=")], "degenerate": 0.0})

    def fake_grid(configs: list[Any], workdirs: list[Path]) -> None:
        raise FloatingPointError("member 1: step 7: loss is nan")

    monkeypatch.setattr(bert_jax, "train", fake)
    monkeypatch.setattr(bert_jax, "train_grid", fake_grid)
    for together in (1, 4):
        failed = "1 of 4 points failed, learning_rate=5e-05,seed=1 first: step 7: loss is nan"
        with pytest.raises(ValueError, match=failed):
            run_points(config, POINTS, tmp_path / str(together), together=together)
        said = capsys.readouterr().out
        assert "learning_rate=5e-05    0.6000         -" in said and "best by median: learning_rate=" in said


def test_runs_that_other_machines_finished_are_taken_over(
    config: Any, trained: list[tuple[float, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after ``--list``."""
    for point in POINTS[:2]:
        name = f"learning_rate={point['optimizer.learning_rate']},seed={point['seed']}"
        result = {"score": SCORES[name.removeprefix("learning_rate=")], "degenerate": 0.0}
        finish(tmp_path / "grid" / name, with_point(config, point), result)
    assert TABLE in run_points(config, POINTS, tmp_path / "grid")
    assert trained == [(2e-5, 0), (2e-5, 1)]
    assert capsys.readouterr().out.splitlines()[1].endswith("0.7000 (best so far 0.7000), finished by itself")
    other = with_point(config, POINTS[0] | {"batch_size": 8})
    finish(tmp_path / "other" / "learning_rate=5e-05,seed=0", other, {"score": 1.0})
    with pytest.raises(ValueError, match=r"seed=0 holds a run of another config \(batch_size: 8 -> 32\); give another"):
        run_points(config, POINTS, tmp_path / "other")


def test_commands() -> None:
    given = (
        "--config configs/glue.py:task=rte --config.init_from=my run --workdir w --config.seed 3 --noconfig.x --list"
    )
    words = given.replace("my run", "my_run").split()
    arguments = config_arguments(words)
    assert arguments == ["--config", words[1], words[2], "--config.seed", "3", "--noconfig.x"]
    assert config_arguments(["--config.skip_nonfinite", "--workdir", "w"]) == ["--config.skip_nonfinite"]
    assert command_of(arguments[:3], POINTS[1], "runs/my grid") == [
        *("-m", "experiments.train", "--config", "configs/glue.py:task=rte", "--config.init_from=my_run"),
        *("--config.optimizer.learning_rate=5e-05", "--config.seed=1"),
        *("--workdir", "runs/my grid/learning_rate=5e-05,seed=1"),
    ]
    with pytest.raises(ValueError, match=r"the sweep sets data\.train to a tuple, which no command line can; run it"):
        command_of([], {"data.train": ("a", "b")}, "w")
