"""Tagging end to end: the loss by hand, a rule that is learned and written out, long sentences, documents, BiLSTM."""

import math
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.columns import ColumnFormat, read_columns
from bert_jax.data.wordpiece import WordPiece
from bert_jax.tasks.entities import score
from bert_jax.tasks.tagging import build_dataset, open_tagged_text, tag_figures, tagging
from bert_jax.tasks.task import Task
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.train import train
from tests.tiny_model import QUIET, TINY

MODEL = TINY | QUIET
NAMES, FILLERS = ["anna", "bob", "carl"], ["sees", "and", "the", "in"]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, *FILLERS, "smith", "x", "##y"]


def rule(words: list[str]) -> list[str]:
    """A name is a place where "in" is anywhere in the sentence, else a person; "smith" continues it."""
    kind = "LOC" if "in" in words else "PER"
    return [f"B-{kind}" if word in NAMES else f"I-{kind}" if word == "smith" else "O" for word in words]


def sentences(count: int, seed: int) -> list[list[str]]:
    rng = np.random.default_rng(seed)
    parts = [*NAMES, *(f"{name} smith" for name in NAMES), *FILLERS]
    return [" ".join(str(part) for part in rng.choice(parts, rng.integers(2, 7))).split() for _ in range(count)]


def write(path: Path, texts: list[list[str]], tagged: bool = True) -> Path:
    lines = [[f"{w}\t{t}" if tagged else w for w, t in zip(text, rule(text), strict=True)] for text in texts]
    path.write_text("\n\n".join("\n".join(sentence) for sentence in lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("tagging")
    write(directory / "train.txt", sentences(200, 0))
    write(directory / "dev.txt", sentences(40, 1))
    WordPiece(PIECES, lowercase=True).save(directory / "tokenizer")
    return directory


def config(data: Path, **changes: Any) -> dict[str, Any]:
    base = {
        "task": "tagging",
        "data_dir": str(data),
        "train": "train.txt",
        "dev": "dev.txt",
        "tokenizer": str(data / "tokenizer"),
        "model": MODEL,
        "batch_size": 32,
        "max_seq_length": 32,
        "train_steps": 2,
        "warmup_steps": 10,
        "optimizer": {"learning_rate": 5e-3, "bias_correction": True, "b2": 0.98},
        "eval_every_steps": 1000,
        "mesh": {"data": 1},
    }
    return base | changes


def of(data: Path, **changes: Any) -> Task:
    base = {"data_dir": str(data), "train": "train.txt", "model": MODEL, "tokenizer": str(data / "tokenizer")}
    return tagging(seed=0, **(base | changes))


def finite(task: Task) -> bool:
    """Whether a batch has a loss and a gradient that are numbers, for every parameter some other than 0."""
    batch: Any = jax.tree.map(jnp.asarray, task.stream(4, 32, 1).batch(0))

    def loss(params: Any) -> Any:
        total, weight = task.figures(task.forward(params, batch, None), batch)["loss"]
        return total / weight

    value, gradient = jax.jit(jax.value_and_grad(loss))(jax.jit(task.init)(jax.random.key(0)))
    # What adds the same to all scores of a softmax, the key's bias, has none.
    moved = [bool(leaf.any()) for path, leaf in jax.tree_util.tree_leaves_with_path(gradient) if "key" not in str(path)]
    return (
        bool(np.isfinite(value)) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient)) and all(moved)
    )


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    workdir = tmp_path_factory.mktemp("run")
    return workdir, train(config(data, train_steps=200), workdir)


def test_loss_is_the_mean_over_labelled_words() -> None:
    logits = np.zeros((1, 4, 2), np.float32)
    logits[0, 1] = [math.log(3), 0]  # probabilities 3/4 and 1/4
    logits[0, 3] = [9, -9]  # no label: counts nothing
    figures = tag_figures(jnp.asarray(logits), {"labels": jnp.array([[-1, 0, 1, -1]])})
    loss, words = figures["loss"]
    assert words == 2 and loss == pytest.approx(-math.log(3 / 4) - math.log(1 / 2))
    assert figures["accuracy"][0] == 1  # equal logits give the first label, which is wrong


def test_labels_stand_at_first_pieces(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("Anna\tB-PER\nxy\tO\nsmith\tO\n")
    text = open_tagged_text("", {"train": ""}, "columns", ("O", "B-PER"), "sentence", None, True)
    dataset = build_dataset(text, WordPiece(PIECES, lowercase=True), "dev", read_columns(path), 16, training=False)
    labels, fill = dataset.examples.token_targets["labels"]
    assert labels.tolist() == [-1, 1, 0, -1, 0, -1] and fill == -1  # [CLS] anna x ##y smith [SEP]


def test_learns_a_rule_of_context(run: tuple[Path, dict[str, float]]) -> None:
    _, result = run
    assert result["f1"] == 100 and result["accuracy"] == 1.0
    assert {"precision", "recall", "macro_f1", "loss"} <= result.keys()


def test_predicts_words_alone_and_from_the_directory_alone(run: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    texts = sentences(30, 2)
    source = write(tmp_path / "words.txt", texts, tagged=False)
    assert predict_workdir(run[0], source, tmp_path / "out.txt") == 30
    written = read_columns(tmp_path / "out.txt")
    assert [list(s.words) for s in written] == texts
    assert score([rule(text) for text in texts], [s.tags or () for s in written]).f1 == 100


def test_a_tagged_file_comes_back_with_both_columns(run: tuple[Path, dict[str, float]], tmp_path: Path) -> None:
    source = write(tmp_path / "gold.txt", sentences(10, 3))
    predict_workdir(run[0], source, tmp_path / "out.txt", best=True)
    gold = read_columns(tmp_path / "out.txt", ColumnFormat(0, 1))
    assert [s.tags for s in gold] == [s.tags for s in read_columns(source)]
    assert [s.tags for s in read_columns(tmp_path / "out.txt", ColumnFormat(0, 2))] == [s.tags for s in gold]


def test_every_word_of_a_long_sentence_gets_one_tag(
    run: tuple[Path, dict[str, float]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [["anna", "smith", "sees"] * 50, ["bob"], ["xyyyy"] * 70]
    predict_workdir(run[0], write(tmp_path / "words.txt", texts, tagged=False), tmp_path / "out.txt")
    assert [list(s.words) for s in read_columns(tmp_path / "out.txt")] == texts
    assert "words.txt: 2 x sentence longer than max_seq_length" in capsys.readouterr().err


def test_tags_that_training_lacks_count_as_wrong(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "new.txt").write_text("anna\tB-PER\nsees\tB-ACT\n")
    task = of(data, dev=str(tmp_path / "new.txt"))
    dataset = task.evaluation("dev", 8, 16, 1).dataset
    assert dataset is not None and task.labels == ("O", "B-LOC", "B-PER", "I-LOC", "I-PER")
    assert f"B-ACT in the sentence at {tmp_path}/new.txt:1" in capsys.readouterr().err
    result = dataset.scores({"tags": np.array([0, 2, 0, 0], np.int32)})  # [CLS] anna sees [SEP]
    assert result == {"precision": 100, "recall": 50, "f1": 200 / 3, "macro_f1": 50, "accuracy": 0.5}
    with pytest.raises(ValueError, match="'B-ACT' of word 2"):
        of(data, train=str(tmp_path / "new.txt"), labels=("O", "B-PER")).stream(8, 16, 1)


def test_other_tags_are_scored_by_accuracy_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "pos.txt").write_text("1 anna NE\n2 sees VV\n\n1 bob NE\n")
    task = of(data, train=str(tmp_path / "pos.txt"), format={"token": 1, "tag": 2, "entities": False})
    dataset = task.evaluation("train", 8, 16, 1).dataset
    assert dataset is not None and task.labels == ("NE", "VV") and task.selection == ("accuracy", "max")
    assert dataset.scores({"tags": np.array([0, 0, 0, 0, 0, 0, 0], np.int32)}) == {"accuracy": pytest.approx(2 / 3)}


def test_document_context_packs_neighbouring_sentences(data: Path, tmp_path: Path) -> None:
    lines = (data / "train.txt").read_text()
    (tmp_path / "docs.txt").write_text("-DOCSTART-\tO\n\n" + lines + "\n-DOCSTART-\tO\n\n" + lines)
    task = of(data, train=str(tmp_path / "docs.txt"), context="document")
    assert task.stream(8, 32, 1).num_examples < of(data).stream(8, 32, 1).num_examples
    dataset = task.evaluation("train", 8, 32, 1).dataset
    assert dataset is not None
    gold = dataset.examples.token_targets["labels"][0]
    assert dataset.scores({"tags": np.maximum(gold, 0)})["f1"] == 100
    assert finite(task)


@pytest.mark.parametrize("changes", [{"bilstm_size": 4}, {"concatenated": True}])
def test_ablations_have_a_gradient(changes: dict[str, Any], data: Path) -> None:
    assert finite(of(data, model=MODEL | {"attention_direction": "left_to_right"}, **changes))


def test_characters_come_back_with_their_white_space(data: Path, tmp_path: Path) -> None:
    columns = ColumnFormat(0, 1, "\t", "##", "sentence", characters=True)
    (tmp_path / "klue.tsv").write_text("a\tB-PS\n \tI-PS\nb\tI-PS\n \tO\nc\tO\n")
    (tmp_path / "words.tsv").write_text("a\n \nb\n \nc\n")
    text = open_tagged_text("", {}, "klue_ner", ("O", "B-PS", "I-PS"), "sentence", None, True)
    for name in ("klue.tsv", "words.tsv"):
        task = of(data, train="", format="klue_ner", labels=text.labels)
        assert task.read_file is not None
        dataset = task.read_file(tmp_path / name, 16)
        tags = np.array([0, 1, 2, 0, 0], np.int32)  # [CLS] and three [UNK] and [SEP]
        dataset.write({"tags": tags}, tmp_path / "out.tsv", {})
        found = read_columns(tmp_path / "out.tsv", ColumnFormat(0, -1, "\t", "##", "sentence", characters=True))
        assert found[0].tags == ("B-PS", "I-PS", "O") and found[0].spaces == (True, True, True)
    assert read_columns(tmp_path / "klue.tsv", columns)[0].tags == ("B-PS", "I-PS", "O")


def test_bad_input_is_said_in_one_line(data: Path) -> None:
    for changes, message in [
        ({"data_dir": ""}, "data_dir is not set"),
        ({"train": "no.txt"}, "no column file .*no.txt"),
        ({"format": "conll"}, "format='conll' is unknown"),
        ({"format": {"word": 1}}, "unexpected keyword argument 'word'"),
        ({"labels": ("O", "O")}, "holds a tag twice"),
    ]:
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            of(data, **changes)
    with pytest.raises(ValueError, match="test is not set"):
        of(data).evaluation("test", 8, 32, 1)


@pytest.mark.parametrize("content", ["", "\n\n", "-DOCSTART- O\n"])
def test_a_file_that_is_named_but_has_no_sentence_is_refused(data: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "none.txt").write_text(content)
    text = open_tagged_text(
        str(data), {"train": "train.txt", "dev": str(tmp_path / "none.txt")}, "columns", None, "sentence", None, True
    )
    with pytest.raises(ValueError, match=r"none.txt has no sentence: .*, or dev='' for none"):
        text.read("dev")


def test_problems_name_the_first_sentence(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "odd.txt").write_text("bob O\n\nbob O\n\u200e O\n\n" + "bob O\n" * 9)
    task = of(data, dev=str(tmp_path / "odd.txt"))
    task.evaluation("dev", 4, 8, 1)
    said = capsys.readouterr().err
    assert f"read as [UNK] (first: in the sentence at {tmp_path / 'odd.txt'}:3)" in said
    assert f"read in overlapping windows (first: in the sentence at {tmp_path / 'odd.txt'}:6)" in said
