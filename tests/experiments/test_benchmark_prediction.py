"""The benchmark of prediction: the texts, the model that all sides load, and that they must agree."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import load
from bert_jax.interop import hugging_face
from experiments import benchmark_prediction
from experiments.benchmark_prediction import COUNTS, LABELS, _measure_task, mixed_texts, report, write_model
from tests.interop.models import CONFIG, HEADS, TOKENIZER, random_params

SIDES = ("pipeline, text by text", "pipeline, batches of 32")


class FakeWorker:
    def __init__(self, values: list[float], seconds: float) -> None:
        self.values, self.seconds, self.asked = values, seconds, 0

    def ask(self, command: str, **options: Any) -> dict[str, Any]:
        self.asked += 1
        return {"seconds": self.seconds, "result": [self.values]}


def test_texts_are_mixed_and_the_same_every_time(shared_data: Path) -> None:
    texts = mixed_texts(shared_data)
    assert len(texts) == sum(COUNTS.values()) and texts == mixed_texts(shared_data)
    lengths = np.asarray([len(text) for text in texts])
    assert lengths[:300].mean() == pytest.approx(lengths[300:].mean(), rel=0.3)  # not one source after another


@pytest.mark.parametrize("heads", ["encoder", "pre-training"])
def test_the_model_has_a_classifier_and_is_the_encoders(heads: str, tmp_path: Path) -> None:
    params = random_params(CONFIG, HEADS[heads])
    hugging_face.write(tmp_path / "encoder", CONFIG, params, TOKENIZER)
    write_model(tmp_path / "encoder", tmp_path / "model")
    model = load(tmp_path / "model")
    assert model.labels == LABELS and set(model.params) == {"embeddings", "encoder", "pooler", "classifier"}
    np.testing.assert_array_equal(
        model.params["embeddings"]["word"]["embedding"], params["embeddings"]["word"]["embedding"]
    )


def test_sides_must_agree_and_ratios_are_theirs_over_ours() -> None:
    workers: dict[str, Any] = {"ours": FakeWorker([0.2, 0.8], 2.0), "pipeline": FakeWorker([0.2, 0.8], 6.0)}
    figures = {task: _measure_task(task, workers, 3, 10) for task in benchmark_prediction.TASKS}
    assert figures["classify"]["ratio"] == pytest.approx(dict.fromkeys(SIDES, 3.0))
    assert workers["ours"].asked == 8 and workers["pipeline"].asked == 16
    lengths = {"median": 20.0, "mean": 30.0, "largest": 300.0}
    text = report(figures | {"lengths": lengths})
    assert "20 tokens in the median" in text and "side / ours  3.00" in text
    json.dumps(figures)
    workers["pipeline"].values = [0.21, 0.79]
    with pytest.raises(ValueError, match=r"pipeline, text by text and ours differ in embed by 1.00e-02"):
        _measure_task("embed", workers, 1, 10)
