"""configs/classify.py on one's own files: a CSV with classes and no development set, JSON lines with scores."""

import json
from pathlib import Path
from typing import Any

import pytest

import bert_jax
from bert_jax.data.wordpiece import WordPiece
from bert_jax.training.checkpoint import best_step
from bert_jax.training.evaluate import evaluate_workdir, predict_workdir
from configs import classify

pytestmark = pytest.mark.end_to_end
WORDS = ["good", "bad", "film", "book", ",", "a", "very"]


def tiny_config(folder: Path, choices: str, **data: Any) -> Any:
    WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True).save(folder / "tokenizer")
    config: Any = classify.get_config(choices)
    config.data.update(data)
    config.update({"data_dir": str(folder), "tokenizer": str(folder / "tokenizer")})
    config.model.update({"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32})
    config.model.update({"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    config.update({"batch_size": 8, "max_seq_length": 16, "train_epochs": 30.0})
    config.optimizer.update({"learning_rate": 1e-2, "bias_correction": True})
    config.mesh.data = 1
    return config


def test_classes_without_a_development_set(tmp_path: Path) -> None:
    rows = [
        f'"a {adverb} {word}, {noun}",{word}' for adverb in ("very", "a") for word in WORDS[:2] for noun in WORDS[2:4]
    ]
    (tmp_path / "train.csv").write_text("\n".join(["review,stars", *rows]) + "\n")
    config = tiny_config(tmp_path, "kind=classes", train="train.csv", text_a="review", label="stars")
    config.update({"eval_every_steps": 10, "checkpoint_every_steps": 10})
    assert bert_jax.train(config, tmp_path / "run") == {}
    # The files may go: the run knows its classes.
    (tmp_path / "train.csv").rename(tmp_path / "elsewhere.csv")
    (tmp_path / "new.csv").write_text('review\n"bad, film"\ngood\n')
    assert predict_workdir(tmp_path / "run", tmp_path / "new.csv", tmp_path / "out.tsv") == 2
    lines = [line.split("\t") for line in (tmp_path / "out.tsv").read_text().splitlines()]
    assert lines[0] == ["index", "prediction", "bad", "good"]
    assert [line[:2] for line in lines[1:]] == [["0", "bad"], ["1", "good"]]
    (tmp_path / "elsewhere.csv").rename(tmp_path / "train.csv")
    with pytest.raises(ValueError, match="split 'dev' holds no labelled example; give one that does"):
        evaluate_workdir(tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="holds no evaluated checkpoint"):
        best_step(tmp_path / "run", ("score", "max"))


def test_scores_of_pairs(tmp_path: Path) -> None:
    rows = [{"first": a, "second": b, "like": 5.0 * (a == b)} for a in WORDS[:4] for b in WORDS[:4]]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for name in ("train.jsonl", "dev.jsonl"):
        (tmp_path / name).write_text(text)
    columns = {"text_a": "first", "text_b": "second", "label": "like"}
    config = tiny_config(tmp_path, "kind=regression", train="train.jsonl", dev="dev.jsonl", **columns)
    config.train_epochs = 1.0
    result = bert_jax.train(config, tmp_path / "run")
    assert {"loss", "pearson", "spearman", "score"} <= result.keys()
    assert predict_workdir(tmp_path / "run", tmp_path / "dev.jsonl", tmp_path / "out.tsv") == 16
    lines = (tmp_path / "out.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and float(lines[1].split("\t")[1]) == pytest.approx(1.5, abs=4)
