"""A run that an earlier version wrote is read, and goes on; its format's version is said where it is newer."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_jax.training.checkpoint import read_params
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.train import train
from tests.fixtures.make_run import HERE, STEPS, config, leaves, write_data


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The committed run, its data beside it."""
    write_data(tmp_path)
    shutil.copytree(HERE, tmp_path / "run")
    path = tmp_path / "run" / "config.json"
    path.write_text(path.read_text().replace("DATA", str(tmp_path)))
    return tmp_path / "run"


def test_parameters_and_predictions_are_as_they_were(run: Path, tmp_path: Path) -> None:
    params, meta = read_params(run)
    assert meta["step"] == STEPS and meta["format_version"] == 1
    sums = json.loads((HERE / "sums.json").read_text())
    found = {part: float(sum(np.abs(x).sum(dtype=np.float64) for x in leaves(params[part]))) for part in params}
    assert found == pytest.approx(sums, rel=1e-12)
    predict_workdir(run, "dev", tmp_path / "predictions.tsv")
    rows = {}
    for name, path in (("was", HERE / "predictions.tsv"), ("is", tmp_path / "predictions.tsv")):
        with path.open(newline="") as file:
            rows[name] = list(csv.DictReader(file, delimiter="\t"))
    assert [row["prediction"] for row in rows["is"]] == [row["prediction"] for row in rows["was"]]
    for was, now in zip(rows["was"], rows["is"], strict=True):
        assert float(now["yes"]) == pytest.approx(float(was["yes"]), abs=2e-5)


def test_damage_is_said_in_one_line_where_there_are_no_sums(run: Path) -> None:
    # Not of the arrays: TensorStore goes on reading after an error, and complains of it much later.
    file = run / "checkpoints" / str(STEPS) / "meta" / "metadata"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(
        ValueError, match=rf"checkpoints/{STEPS} cannot be read \(.*; copy it again, or delete"
    ) as error:
        read_params(run)
    assert "\n" not in str(error.value)


def test_it_goes_on(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the optimizer's moments."""
    train(config(tmp_path) | {"train_steps": STEPS + 3}, run)
    assert read_params(run)[1]["step"] == STEPS + 3
    assert f"step {STEPS + 3}/{STEPS + 3}" in capsys.readouterr().err.replace(",", "")
