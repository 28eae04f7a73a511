"""Classification and regression: packed as alone, learned end to end, predicted from the workdir alone."""

import csv
import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks.classification import classification, mean_by_owner
from bert_jax.tasks.fine_tuning import whole_pass
from bert_jax.tasks.task import Task
from bert_jax.training import init_from
from bert_jax.training.checkpoint import read_params
from bert_jax.training.evaluate import evaluate_workdir, make_evaluate, predict_workdir
from bert_jax.training.sharding import MeshShape, make_mesh
from bert_jax.training.source import Model
from bert_jax.training.step import gradients
from bert_jax.training.train import train
from tests.tiny_model import QUIET, TINY

WORDS = [f"w{chr(97 + i)}" for i in range(20)]
MODEL = TINY | {"initializer_range": 0.1}
FAST = {"learning_rate": 3e-3, "bias_correction": True, "b2": 0.98}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer and tables: a pair is "same" if both sentences are of the same half of the words."""
    directory = tmp_path_factory.mktemp("classification")
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True).save(directory / "tokenizer")
    rng = np.random.default_rng(0)
    for name, count in (("train", 600), ("dev", 100), ("test", 30)):
        with (directory / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["one", "two", "kind", "degree"])
            for _ in range(count):
                halves = rng.integers(0, 2, 2)
                texts = [
                    " ".join(WORDS[10 * half + i] for i in rng.integers(0, 10, rng.integers(1, 9))) for half in halves
                ]
                kind = "same" if halves[0] == halves[1] else "other"
                writer.writerow([*texts, kind, 3.0 * halves[0] + halves[1]])
    return directory


def config(folder: Path, **changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "task": "classification",
        "data_dir": str(folder),
        "data": {
            "source": "table",
            "train": "train.csv",
            "dev": "dev.csv",
            "text_a": "one",
            "text_b": "two",
            "label": "kind",
        },
        "tokenizer": str(folder / "tokenizer"),
        "model": MODEL,
        "batch_size": 32,
        "max_seq_length": 32,
        "train_steps": 20,
        "warmup_ratio": 0.1,
        "optimizer": FAST,
        "eval_every_steps": 1000,
        "log_every_steps": 10,
        "mesh": {"data": 1},
    }
    return base | changes


def make(folder: Path, **changes: Any) -> Task:
    settings = config(folder)
    arguments = {key: settings[key] for key in ("data", "data_dir", "tokenizer", "model")}
    return classification(seed=0, **(arguments | changes))


def padded(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The row with padding up to 32 columns, so that one shape serves all."""
    return {name: np.pad(v, ((0, 0), (0, 32 - v.shape[1]))) if v.shape[1] > 1 else v for name, v in batch.items()}


QUIET_MODEL = MODEL | QUIET


@pytest.mark.parametrize("variant", [{}, {"bilstm_size": 4}, {"concatenated": True}])
def test_a_packed_example_gets_the_logits_it_gets_alone(folder: Path, variant: dict[str, Any]) -> None:
    direction = "left_to_right" if "concatenated" in variant else "bidirectional"
    task = make(folder, model=QUIET_MODEL | {"attention_direction": direction}, **variant)
    params = jax.jit(task.init)(jax.random.key(0))
    batch = task.stream(16, 32, 1).batch(0)
    assert batch["input_ids"].shape[0] < 8  # several to a row
    forward = jax.jit(partial(task.forward, dropout_key=None))
    packed = forward(params, batch)
    examples = task.evaluation("train", 16, 32, 1).dataset
    assert examples is not None
    for row, slot in zip(*np.nonzero(batch["example_weights"]), strict=True):
        index = batch["example_indices"][row, slot]
        span = slice(*examples.examples.bounds[index : index + 2])
        ids = examples.examples.ids[span][None]
        alone = {
            "input_ids": ids,
            "segment_ids": examples.examples.segment_ids[span][None],
            "sequence_ids": np.ones_like(ids),
            "position_ids": np.arange(ids.shape[1], dtype=np.int32)[None],
            "example_columns": np.zeros((1, 1), np.int32),
            "last_columns": np.full((1, 1), ids.shape[1] - 1, np.int32),
        }
        found = forward(params, padded(alone))[0, 0]
        np.testing.assert_allclose(found, packed[row, slot], atol=1e-5)


def test_loss_by_hand_and_in_pieces(folder: Path) -> None:
    task = make(folder, model=QUIET_MODEL)
    params = jax.jit(task.init)(jax.random.key(0))
    batch = jax.tree.map(jnp.asarray, task.stream(16, 32, 4).batch(0))
    found = jax.jit(partial(task.forward, dropout_key=None))(params, batch)
    logits = np.asarray(found, np.float64)
    weights, labels = np.asarray(batch["example_weights"]), np.asarray(batch["labels"])
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    expected = -np.take_along_axis(log_p, labels[..., None], -1)[..., 0][weights > 0]
    assert len(expected) == 16
    total, weight = task.figures(found, batch)["loss"]
    assert float(weight) == 16
    assert float(total) == pytest.approx(expected.sum(), rel=1e-5)
    whole, _ = jax.jit(partial(gradients, task=task, accumulation_steps=1))(params, batch, jax.random.key(0))
    parts, _ = jax.jit(partial(gradients, task=task, accumulation_steps=4))(params, batch, jax.random.key(0))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-6), whole, parts)


@pytest.fixture(scope="module")
def learned(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float], Path]:
    """A run of classes, its figures, and the folder of its own data."""
    source, workdir = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("runs") / "classes"
    for name in ("train.csv", "dev.csv", "test.csv"):
        (source / name).write_text((folder / name).read_text())
    model = MODEL | {"num_hidden_layers": 2}
    return workdir, train(config(folder, data_dir=str(source), model=model, train_steps=300), workdir), source


@pytest.mark.end_to_end
def test_learns_and_predicts_from_the_workdir_alone(
    learned: tuple[Path, dict[str, float], Path], tmp_path: Path
) -> None:
    workdir, result, source = learned
    assert result["accuracy"] > 0.95
    assert result["score"] == pytest.approx((result["accuracy"] + result["macro_f1"]) / 2)
    assert evaluate_workdir(workdir) == pytest.approx(result, rel=1e-5)
    test = source / "test.csv"
    for name in ("train.csv", "dev.csv"):
        (source / name).unlink()
    assert predict_workdir(workdir, test, tmp_path / "out.tsv") == 30
    with (tmp_path / "out.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    with test.open() as file:
        gold = [row["kind"] for row in csv.DictReader(file)]
    assert rows[0].keys() == {"index", "prediction", "other", "same"}
    assert np.mean([row["prediction"] == kind for row, kind in zip(rows, gold, strict=True)]) > 0.9
    assert all(float(row[row["prediction"]]) >= 0.5 for row in rows)
    assert json.loads((workdir / "config.json").read_text())["labels"] == ["other", "same"]
    with pytest.raises(FileNotFoundError, match=r"train\.csv"):
        evaluate_workdir(workdir, "train")
    with pytest.raises(FileNotFoundError, match=r"no file nowhere\.csv; give a file or the name of a split"):
        predict_workdir(workdir, "nowhere.csv", tmp_path / "out.tsv")


@pytest.mark.end_to_end
def test_scores_and_a_head_of_another_shape(
    folder: Path,
    learned: tuple[Path, dict[str, float], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = config(folder)["data"] | {"label": "degree", "kind": "regression"}
    given = config(folder, data=data, init_from=str(learned[0]), model={}, train_steps=200)
    del given["tokenizer"]
    result = train(given, tmp_path / "scores")
    assert result["pearson"] > 0.9
    assert "new: regressor; unused: classifier" in capsys.readouterr().err
    # Four classes after two: the same head by name, of another shape.
    data = config(folder)["data"] | {"label": "degree", "dev": ""}
    train(given | {"data": data, "train_steps": 1}, tmp_path / "four")
    assert "new: classifier; unused: classifier" in capsys.readouterr().err
    params, _ = read_params(tmp_path / "four")
    assert params["classifier"]["kernel"].shape == (32, 4)


@pytest.mark.end_to_end
def test_two_encoders_side_by_side_begin_with_those_given(folder: Path, tmp_path: Path) -> None:
    data = config(folder)["data"] | {"dev": ""}
    for name, direction in (("ltr", "left_to_right"), ("rtl", "right_to_left")):
        train(
            config(folder, data=data, train_steps=1, model=MODEL | {"attention_direction": direction}), tmp_path / name
        )
    given = config(folder, data=data, concatenated=True, model={}, init_from=str(tmp_path / "ltr"), train_steps=1)
    del given["tokenizer"]
    with pytest.raises(ValueError, match="concatenated=True and right_to_left_from belong together"):
        train(given, tmp_path / "both")
    with pytest.raises(ValueError, match="init_from is left_to_right and right_to_left_from left_to_right"):
        train(given | {"right_to_left_from": str(tmp_path / "ltr")}, tmp_path / "both")
    frozen = {"learning_rate": 0.0}
    train(given | {"right_to_left_from": str(tmp_path / "rtl"), "optimizer": frozen}, tmp_path / "both")
    params, ltr, rtl = (read_params(tmp_path / name)[0] for name in ("both", "ltr", "rtl"))
    same = partial(jax.tree.map, np.testing.assert_array_equal)
    same(params["encoder"], ltr["encoder"])
    same(params["right_to_left"]["encoder"], rtl["encoder"])
    assert params["classifier"]["kernel"].shape == (64, 2)


def test_long_texts_are_cut_and_counted_or_read_in_windows(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(WORDS * 3)
    (tmp_path / "long.csv").write_text(f"one,two,kind\n{long},wa,same\nwb,wc,other\n")
    data = config(folder)["data"] | {"train": "long.csv"}
    cut = make(folder, data_dir=str(tmp_path), data=data)
    assert cut.stream(2, 32, 1).num_examples == 2
    assert "1 x text longer than max_seq_length, cut (first:" in capsys.readouterr().err
    windows = make(folder, data_dir=str(tmp_path), data=data, doc_stride=16)
    assert windows.stream(2, 32, 1).num_examples == 4
    dataset = windows.evaluation("train", 2, 32, 1).dataset
    assert dataset is not None
    logits = np.asarray([[0.0, 3.0], [2.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    np.testing.assert_allclose(mean_by_owner(logits, np.asarray([0, 0, 0, 1]), 2), [[2 / 3, 4 / 3], [5.0, 0.0]])
    assert dataset.scores({"logits": logits})["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"source": "tables"}}, "data.source='tables' is unknown; take glue, korean, table"),
        (
            {"data": {"source": "table", "text_b": "two"}},
            "config.data: missing a required argument: 'text_a'",
        ),
        ({"data": {"source": "table", "text_a": "one", "text": "one"}}, "unexpected keyword argument 'text'"),
        ({"data": {"source": "table", "text_a": "first", "train": "train.csv"}}, "no column 'first'"),
        ({"tokenizer": ""}, "init_from is not set: give a run's workdir or a Hugging Face directory"),
        ({"model": MODEL | {"vocab_size": 7}}, "model.vocab_size=7 but the tokenizer"),
        ({"max_seq_length": 128}, "set max_seq_length to 64 or less"),
    ],
)
def test_what_does_not_fit_is_said(folder: Path, tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    if "max_seq_length" in changes:
        (tmp_path / "long.csv").write_text(f"one,two,kind\n{' '.join(WORDS * 6)},wa,same\nwb,wc,other\n")
        changes = changes | {
            "data_dir": str(tmp_path),
            "data": config(folder)["data"] | {"train": "long.csv", "dev": ""},
        }
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        train(config(folder) | changes, tmp_path / "run")


def test_a_label_not_seen_in_training_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "dev.csv").write_text("one,two,kind\nwa,wb,same\nwa,wc,similar\n")
    (tmp_path / "train.csv").write_text((folder / "train.csv").read_text())
    task = make(folder, data_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"dev\.csv:3: label 'similar' was not seen in training"):
        task.evaluation("dev", 4, 32, 1)


def test_a_files_name_is_no_role(folder: Path, tmp_path: Path) -> None:
    """A file called like the training split is predicted like any other."""
    (tmp_path / "train").write_text("one,two\nwa,wb\n")
    data = config(folder)["data"] | {"table_format": "csv"}
    task = make(folder, data=data)
    assert task.read_file is not None
    dataset = task.read_file(tmp_path / "train", 32)
    assert dataset.num_items == 1 and dataset.scores({"logits": np.zeros((1, 2))}) == {}
    dataset.write({"logits": np.zeros((1, 2))}, tmp_path / "out.tsv", {})
    assert (tmp_path / "out.tsv").read_text().splitlines()[1] == "0\tother\t0.500000\t0.500000"


def test_a_run_without_development_set(folder: Path, tmp_path: Path) -> None:
    data = {key: value for key, value in config(folder)["data"].items() if key != "dev"}
    assert train(config(folder, data=data, train_steps=4), tmp_path) == {}
    assert read_params(tmp_path)[1]["step"] == 4


def test_what_is_wrong_with_the_dev_set_is_said_before_training(folder: Path, tmp_path: Path) -> None:
    data = config(folder)["data"] | {"dev": "nowhere.csv"}
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        train(config(folder, data=data), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_split_without_labels_has_no_figures(folder: Path, tmp_path: Path) -> None:
    lines = (folder / "test.csv").read_text().splitlines()
    (tmp_path / "test.csv").write_text("\n".join(line.rsplit(",", 2)[0] for line in lines) + "\n")
    task = make(folder)
    assert task.read_file is not None
    dataset = task.read_file(tmp_path / "test.csv", 32)
    logits = np.zeros((30, 2), np.float32)
    assert dataset.scores({"logits": logits}) == dataset.details({"logits": logits}) == {}
    mesh = make_mesh(MeshShape(data=1))
    params = task.init(jax.random.key(0))
    with jax.set_mesh(mesh):
        shardings = jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), params)
        evaluation = whole_pass(dataset, task.tokenizer, 32, 1)
        assert make_evaluate(task, mesh, shardings)(params, evaluation, 0) == ({}, {})


@pytest.mark.end_to_end
def test_a_head_is_kept_only_for_the_same_classes_in_the_same_order(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(config(folder, train_steps=1), tmp_path / "first")
    given = config(folder, init_from=str(tmp_path / "first"), model={}, optimizer={"learning_rate": 0.0}, train_steps=1)
    del given["tokenizer"]
    head = read_params(tmp_path / "first")[0]["classifier"]["kernel"]
    for labels, kept in ((["other", "same"], True), (["same", "other"], False)):
        train(given | {"labels": labels}, tmp_path / labels[0])
        assert (read_params(tmp_path / labels[0])[0]["classifier"]["kernel"] == head).all() == kept
        assert ("new: classifier" in capsys.readouterr().err) != kept
    with pytest.raises(ValueError, match=r"holds another run \(bilstm_size: None -> 4\)"):
        train(given | {"labels": ["other", "same"], "bilstm_size": 4}, tmp_path / "other")


def test_parameters_that_are_no_numbers_are_not_begun_with(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = make(folder).init(jax.random.key(0))
    params = jax.tree.map(np.array, fresh)
    params["encoder"]["layer_0"]["attention"]["query"]["bias"][3] = np.nan
    model = Model(params, {}, None, [])
    monkeypatch.setattr(init_from, "open_source", lambda _: SimpleNamespace(read=lambda **_: model))
    with pytest.raises(ValueError, match="encoder/layer_0/attention/query/bias in runs/x is not finite"):
        init_from.load_initial("runs/x", fresh)
