"""Runs of ours: the predictor says what ``predict_workdir`` writes, from the directory alone."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import load
from bert_jax.data.columns import read_columns
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.train import train
from tests.predict.small_models import SENTENCE, WORDS, tokenizer
from tests.tiny_model import QUIET, TINY

TEXTS = ["the cat", "mats sat .", SENTENCE * 6, "on", "cat " * 50]


@pytest.fixture
def base(tmp_path: Path) -> dict[str, Any]:
    """What all runs share; the tokenizer lies in the folder of the data."""
    tokenizer().save(tmp_path / "tokenizer")
    return {
        "data_dir": str(tmp_path),
        "tokenizer": str(tmp_path / "tokenizer"),
        "model": TINY | QUIET | {"initializer_range": 0.5},
        "batch_size": 2,
        "max_seq_length": 32,
        "train_steps": 1,
        "optimizer": {"learning_rate": 1e-3},
        "mesh": {"data": 1},
    }


@pytest.mark.end_to_end
def test_classification_in_windows(tmp_path: Path, base: dict[str, Any]) -> None:
    rows = [{"text": text, "label": "even" if i % 2 == 0 else "odd"} for i, text in enumerate(TEXTS)]
    (tmp_path / "train.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    data = {"source": "table", "text_a": "text", "train": "train.jsonl"}
    run = tmp_path / "run"
    train(base | {"task": "classification", "data": data, "doc_stride": 16}, run)
    predict_workdir(run, tmp_path / "train.jsonl", tmp_path / "out.tsv")
    written = list(csv.DictReader((tmp_path / "out.tsv").read_text().splitlines(), delimiter="\t"))
    model = load(run)
    assert repr(model).endswith("classifier (even, odd)>")
    found: Any = model.classify(TEXTS)
    assert [row["prediction"] for row in written] == [one.label for one in found]
    for row, one in zip(written, found, strict=True):
        np.testing.assert_allclose(
            [float(row[label]) for label in one.probabilities], [*one.probabilities.values()], atol=2e-6
        )


@pytest.mark.end_to_end
def test_tagging(tmp_path: Path, base: dict[str, Any]) -> None:
    sentences = [text.split() for text in TEXTS]
    tags = ["O", "B-X", "I-X"]
    lines = [
        "".join(f"{word}\t{tags[WORDS.index(word) % 3 if word in WORDS else 0]}\n" for word in one) for one in sentences
    ]
    (tmp_path / "train.txt").write_text("\n".join(lines))
    train(base | {"task": "tagging", "train": "train.txt", "stride": 7}, tmp_path / "run")
    (tmp_path / "words.txt").write_text("\n".join("\n".join(one) + "\n" for one in sentences))
    predict_workdir(tmp_path / "run", tmp_path / "words.txt", tmp_path / "out.txt")
    written = read_columns(tmp_path / "out.txt")
    found = load(tmp_path / "run").tag(sentences)
    assert [list(one.words) for one in written] == [one.words for one in found] == sentences
    assert [list(one.tags or ()) for one in written] == [one.tags for one in found]


@pytest.mark.end_to_end
def test_answers(tmp_path: Path, base: dict[str, Any]) -> None:
    contexts = [TEXTS[1], TEXTS[2], TEXTS[0]]
    qas = [{"id": str(i), "question": "the cat", "answers": []} for i in range(3)]
    qas[0] |= {"answers": [{"text": "sat", "answer_start": 5}]}
    paragraphs = [{"context": context, "qas": [qa]} for context, qa in zip(contexts, qas, strict=True)]
    for name in ("train", "dev"):
        content = {"version": "v2.0", "data": [{"title": "T", "paragraphs": paragraphs}]}
        (tmp_path / f"{name}-v2.0.json").write_text(json.dumps(content))
    run = tmp_path / "run"
    train(base | {"task": "squad", "doc_stride": 8, "max_query_length": 8, "eval_every_steps": 1}, run)
    predict_workdir(run, tmp_path / "dev-v2.0.json", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "predictions.json").read_text())
    best = json.loads((tmp_path / "out" / "nbest_predictions.json").read_text())
    model = load(run)
    found = model.answer(question="the cat", context=contexts, top_k=20)
    for number, (answers, context) in enumerate(zip(found, contexts, strict=True)):
        assert answers[0].text == written[str(number)]
        expected = {entry["text"]: entry["probability"] for entry in best[str(number)]}
        assert {answer.text for answer in answers} == expected.keys()
        np.testing.assert_allclose([a.probability for a in answers], [expected[a.text] for a in answers], atol=1e-5)
        assert all(context[answer.start : answer.end] == answer.text for answer in answers)
