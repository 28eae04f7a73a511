"""Multiple choice: the loss by hand, packed as alone, refusals, and a rule that the real loop learns."""

import csv
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bert_jax
from bert_jax.data.choices import ChoiceExample
from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks import TASKS
from bert_jax.tasks.choice import by_choice, choice_figures, same_number_of_endings
from bert_jax.training.evaluate import predict_workdir
from tests.tiny_model import QUIET, TINY

WORDS = [chr(97 + i) for i in range(12)]
MODEL = TINY | QUIET
HEADER = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source", *(f"ending{i}" for i in range(4))]


def write_swag(path: Path, count: int, seed: int, *, labelled: bool = True) -> Path:
    """SWAG's columns; the right ending is the one that has the word of the context."""
    rng = np.random.default_rng(seed)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*HEADER, "label"] if labelled else HEADER)
        for number in range(count):
            right, words = int(rng.integers(4)), rng.permutation(6)[:4]
            endings = [f"{WORDS[word]} {WORDS[word]}" for word in words]
            context = f"{WORDS[words[right]]} {WORDS[words[right]]}"
            row = [number, "v", f"{seed}-{number}", f"{context} h", context, "h", "gold", *endings]
            writer.writerow([*row, right] if labelled else row)
    return path


@pytest.fixture(scope="module")
def swag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("swag")
    write_swag(directory / "train.csv", 512, 0)
    write_swag(directory / "val.csv", 80, 1)
    write_swag(directory / "test.csv", 10, 2, labelled=False)
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True).save(directory / "tokenizer")
    return directory


def make(swag: Path, **changes: Any) -> Any:
    values = {"data": {"source": "swag"}, "data_dir": str(swag), "model": MODEL, "tokenizer": str(swag / "tokenizer")}
    return TASKS["choice"](seed=0, **(values | changes))


def test_loss_by_hand() -> None:
    # Two examples of three endings in a row of two slots, and an empty slot in the second row.
    logits = np.array([[1.0, 2.0, 4.0, 0.0, 0.0, 0.0], [3.0, 1.0, 1.0, 9.0, 9.0, 9.0]], np.float32)[..., None]
    batch = {
        "labels": jnp.array([[2, 1], [1, 0]], jnp.int32),
        "example_weights": jnp.array([[1.0, 1.0], [1.0, 0.0]], jnp.float32),
    }
    found = {name: (float(a), float(b)) for name, (a, b) in choice_figures(jnp.asarray(logits), batch).items()}
    first = np.log(np.exp(1.0) + np.exp(2.0) + np.exp(4.0)) - 4.0
    third = np.log(np.exp(3.0) + 2 * np.exp(1.0)) - 1.0
    assert found["loss"] == pytest.approx((first + np.log(3.0) + third, 3.0), rel=1e-6)
    assert found["accuracy"] == (1.0, 3.0)  # equal scores give the first ending


@pytest.mark.parametrize(
    "variant", [{}, {"bilstm_size": 8}, {"model": MODEL | {"attention_direction": "left_to_right"}}]
)
def test_packed_as_alone(swag: Path, variant: dict[str, Any]) -> None:
    task = make(swag, **variant)
    params = jax.jit(task.init)(jax.random.key(0))
    evaluation = task.evaluation("dev", 8, 64, 1)
    assert evaluation.dataset.examples.group == 4
    forward = jax.jit(lambda params, batch: task.outputs(task.forward(params, batch, None), batch)["logits"])
    batch = next(iter(evaluation.batches))
    packed = forward(params, batch)
    slots = np.argwhere(batch["example_indices"] >= 0)
    assert len(slots) > 2 * len(batch["input_ids"])  # several to a row
    for row, slot in slots[:: len(slots) // 5]:
        for ending in range(4):
            tokens = batch["sequence_ids"][row] == slot * 4 + ending + 1
            length = int(tokens.sum())
            alone = {name: batch[name][row, tokens][None] for name in ("input_ids", "segment_ids", "position_ids")}
            alone |= {"sequence_ids": np.ones((1, length), np.int32), "labels": np.zeros((1, 1), np.int32)}
            alone["example_columns"] = np.zeros((1, 1), np.int32)
            alone["last_columns"] = np.full((1, 1), length - 1, np.int32)
            np.testing.assert_allclose(forward(params, alone)[0, 0, 0], packed[row, slot, ending], atol=1e-5)


def test_an_example_stays_together() -> None:
    logits = np.arange(24, dtype=np.float32).reshape(2, 12, 1)
    shaped = by_choice(jnp.asarray(logits), {"labels": np.zeros((2, 3), np.int32)})
    assert shaped.shape == (2, 3, 4) and shaped[1, 2].tolist() == [20, 21, 22, 23]


def test_learns_which_ending_repeats_the_context(swag: Path, tmp_path: Path) -> None:
    config = {
        "task": "choice",
        "data": {"source": "swag"},
        "data_dir": str(swag),
        "tokenizer": str(swag / "tokenizer"),
        "model": MODEL,
        "batch_size": 32,
        "max_seq_length": 16,
        "train_steps": 150,
        "warmup_steps": 15,
        "optimizer": {"learning_rate": 2e-3, "bias_correction": True},
        "log_every_steps": 50,
        "eval_every_steps": 75,
        "checkpoint_every_steps": 150,
        "mesh": {"data": 1},
    }
    result = bert_jax.train(config, tmp_path / "run")
    assert result["accuracy"] == result["score"] > 0.55  # by chance 0.25
    assert predict_workdir(tmp_path / "run", swag / "test.csv", tmp_path / "predictions.tsv") == 10
    header, *lines = (tmp_path / "predictions.tsv").read_text().splitlines()
    assert header == "index\tprediction\t0\t1\t2\t3" and lines[3].startswith("2-3\t")
    for line in lines:
        _, prediction, *shares = line.split("\t")
        assert np.argmax([float(share) for share in shares]) == int(prediction)
        assert sum(map(float, shares)) == pytest.approx(1, abs=1e-5)


def test_too_long_pairs_are_cut_and_counted(swag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examples = make(swag).evaluation("dev", 8, 7, 1).dataset.examples
    assert len(examples) == 80 and np.diff(examples.bounds).max() == 7
    assert "text longer than max_seq_length, cut" in capsys.readouterr().err


def test_without_labels_there_are_no_scores(swag: Path, tmp_path: Path) -> None:
    task = make(swag)
    dataset = task.evaluation("test", 8, 32, 1).dataset
    mine = tmp_path / "train"  # a file's name is no role
    mine.write_bytes((swag / "test.csv").read_bytes())
    np.testing.assert_array_equal(task.read_file(mine, 32).examples.ids, dataset.examples.ids)
    assert len(dataset.examples) == 10 and dataset.scores({"logits": np.zeros((10, 4))}) == {}


def test_hellaswag_and_names_of_files(swag: Path, tmp_path: Path) -> None:
    item = {"ind": 7, "activity_label": "a", "ctx_a": "b", "ctx_b": "c", "ctx": "b c", "endings": ["d", "e f", "g"]}
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(item | {"label": i}) + "\n" for i in range(3)))
    data = {"source": "hellaswag", "train": "mine.jsonl", "dev": ""}
    task = make(swag, data=data, data_dir=str(tmp_path), start="ending")
    assert task.stream(2, 32, 1).num_examples == 3
    assert len(task.evaluation("dev", 2, 32, 1).dataset.examples) == 0
    batch = task.stream(3, 32, 1).batch(0)
    assert sorted(batch["labels"][batch["example_weights"] > 0]) == [0, 1, 2]
    with pytest.raises(FileNotFoundError, match=r"no .*hellaswag_test\.jsonl: give the folder"):
        task.evaluation("test", 2, 32, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"source": "swagg"}}, "data.source='swagg' is unknown; take swag, hellaswag, korean"),
        ({"data": {"source": "swag", "trian": "x"}}, "config.data has no field 'trian' here; it has train, dev, test"),
        ({"data": {"source": "korean"}}, "config.data: missing a required argument: 'name'"),
        ({"data": {"source": "korean", "name": "nsmc"}}, "nsmc is no multiple choice"),
        ({"data": {"source": "korean", "name": "kobest_copa"}, "start": "ending"}, "start='ending' is not for"),
    ],
)
def test_refusals(swag: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(swag, **changes)


def test_refusals_of_rows(swag: Path, tmp_path: Path) -> None:
    rows = [ChoiceExample("a", ("b", "c"), 0, source="x", line=1), ChoiceExample("a", ("b",), 0, source="x", line=9)]
    with pytest.raises(ValueError, match="x:9: 1 endings, but 2 in the rows before: give every example as many"):
        same_number_of_endings(rows)
    item = {"ctx": "b c", "endings": ["d", "e"]}
    lines = [item | {"label": 0}, item]
    (tmp_path / "hellaswag_train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    task = make(swag, data={"source": "hellaswag"}, data_dir=str(tmp_path))
    with pytest.raises(ValueError, match=r"hellaswag_train.jsonl:2: no label: fill it in"):
        task.stream(2, 32, 1)


@pytest.mark.parametrize(("name", "endings", "count"), [("kobest_copa", 2, 1000), ("kobest_hellaswag", 4, 500)])
def test_real_korean(swag: Path, shared_data: Path, name: str, endings: int, count: int) -> None:
    task = make(swag, data={"source": "korean", "name": name}, data_dir=str(shared_data / "korean"))
    dataset = task.evaluation("test", 8, 64, 1).dataset
    assert (dataset.examples.group, len(dataset.examples)) == (endings, count)
    assert set(dataset.scores({"logits": np.eye(endings)[np.zeros(count, int)]})) > {"macro_f1", "score"}
