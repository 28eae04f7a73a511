"""GLUE's submission from runs: every test set has its rows, MNLI's run predicts AX, the rest is filled."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

import bert_jax
from bert_jax.data.glue import GLUE
from bert_jax.data.text_data import open_text_data
from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece
from experiments import submission
from experiments.submission import submit_workdirs

pytestmark = pytest.mark.end_to_end
MODEL = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def contents(path: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode().splitlines() for name in archive.namelist()}


def run_of(name: str, directory: Path) -> Path:
    """What a run leaves to say what it is."""
    directory.mkdir()
    (directory / "config.json").write_text(
        json.dumps({"task": "classification", "data": {"source": "glue", "name": name}})
    )
    return directory


def test_a_trained_run(shared_data: Path, tmp_path: Path) -> None:
    letters = [chr(97 + i) for i in range(26)]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    WordPiece(pieces, lowercase=True).save(tmp_path / "tokenizer")
    config: dict[str, Any] = {
        "task": "classification",
        "data": {"source": "glue", "name": "wnli"},
        "data_dir": str(shared_data / "glue"),
        "tokenizer": str(tmp_path / "tokenizer"),
        "model": MODEL | {"max_position_embeddings": 64},
        "batch_size": 8,
        "max_seq_length": 64,
        "train_steps": 2,
        "mesh": {"data": 1},
    }
    bert_jax.train(config, tmp_path / "run")
    filled = submit_workdirs([tmp_path / "run"], tmp_path / "out.zip", fill=True)
    assert len(filled) == 10 and "WNLI.tsv" not in filled
    found = contents(tmp_path / "out.zip")
    assert len(found) == 11 and {line.split("\t")[1] for line in found["WNLI.tsv"][1:]} <= {"0", "1"}
    samples = list((shared_data / "glue" / "submission_format_samples").glob("*.tsv"))
    assert len(samples) == 10
    for path in samples:
        rows = len(path.read_text().splitlines())
        assert rows == len(found[path.name]) or path.name == "QNLI.tsv", (
            path.name
        )  # that sample is of QNLI's first version


@pytest.fixture
def constant(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Every prediction is a task's first label; what was asked for, as (directory, split)."""
    asked: list[tuple[str, str]] = []

    def predict(workdir: Path, split: str, best: bool) -> list[tuple[str, str]]:
        asked.append((workdir.name, split))
        if split == "ax" and workdir.name == "without-ax":
            raise FileNotFoundError("no AX.tsv")
        task = GLUE["AX"] if split == "ax" else submission.task_of_run(workdir)
        rows = task.submission["test" if split == "ax" else split][1][0]
        return [(str(row), task.labels[0] if task.labels else "1.5") for row in range(rows)]

    monkeypatch.setattr(submission, "predict_split", predict)
    return asked


def test_all_runs(constant: list[tuple[str, str]], tmp_path: Path) -> None:
    names = [name for name in GLUE if name not in ("AX", "QQP")]  # QQP has so many rows
    runs = [run_of(name, tmp_path / name) for name in names]
    assert submit_workdirs(runs, tmp_path / "out.zip", fill=True) == ["QQP.tsv"]
    found = contents(tmp_path / "out.zip")
    assert len(found) == 11 and found["AX.tsv"][1] == "0\tcontradiction" and found["STS-B.tsv"][1] == "0\t1.500"
    assert {split for name, split in constant if name == "MNLI"} == {"ax", "test_matched", "test_mismatched"}


def test_what_is_missing(constant: list[tuple[str, str]], tmp_path: Path) -> None:
    run = run_of("mnli", tmp_path / "without-ax")
    with pytest.raises(FileNotFoundError, match="no AX"):
        submit_workdirs([run], tmp_path / "out.zip")
    assert "AX.tsv" in submit_workdirs([run], tmp_path / "filled.zip", fill=True)
    rte = run_of("rte", tmp_path / "rte")
    with pytest.raises(ValueError, match=r"the submission lacks CoLA\.tsv, SST-2\.tsv"):
        submit_workdirs([rte], tmp_path / "out.zip")
    with pytest.raises(ValueError, match="are both runs of RTE; give one run for each task"):
        submit_workdirs([rte, run_of("RTE", tmp_path / "second")], tmp_path / "out.zip", fill=True)
    assert not (tmp_path / "out.zip").exists()


def test_what_is_no_run_of_glue(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"holds no config\.json; give the --workdir of a training run"):
        submit_workdirs([tmp_path], tmp_path / "out.zip")
    (tmp_path / "config.json").write_text(json.dumps({"task": "choice", "data": {"source": "swag"}}))
    with pytest.raises(ValueError, match=r"is no run of configs/glue\.py"):
        submit_workdirs([tmp_path], tmp_path / "out.zip")


def test_the_diagnostic_set_is_a_split_of_mnli(tmp_path: Path) -> None:
    (tmp_path / "AX.tsv").write_text('index\tsentence1\tsentence2\n0\tA "cat.\tIt.\n')
    source = open_text_data("glue", data_dir=str(tmp_path), labels=None, name="mnli")
    (row,) = source.read("ax", Problems())
    assert (row.text_a, row.text_b, row.label, row.row_id) == ('A "cat.', "It.", None, "0")
    with pytest.raises(ValueError, match="RTE has no split 'ax'"):
        open_text_data("glue", data_dir=str(tmp_path), labels=None, name="rte").read("ax", Problems())
