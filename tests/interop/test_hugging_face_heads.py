"""Heads, ALBERT and RoBERTa as transformers writes them: the same logits; and heads that are none of ours."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.interop.hugging_face import read
from bert_jax.training.source import open_source
from tests.interop.peer_models import (
    SIZES,
    check_pre_training,
    for_peer,
    inputs,
    our_logits,
    randomized,
    rewrite,
    save,
    their_logits,
    torch,
    transformers,
)

HEADS = {
    "BertForSequenceClassification": "classifier",
    "BertForTokenClassification": "tagging_head",
    "BertForQuestionAnswering": "qa_head",
    "BertForMultipleChoice": "choice_head",
}


@pytest.mark.parametrize("architecture", HEADS)
def test_fine_tuned_models(tmp_path: Path, architecture: str) -> None:
    names = (
        {"id2label": {0: "no", 1: "maybe", 2: "yes"}} if HEADS[architecture] in ("classifier", "tagging_head") else {}
    )
    model = save(tmp_path, architecture, **names)
    found = read(tmp_path)
    assert found.unexpected == [] and found.labels == (("no", "maybe", "yes") if names else None)
    batch = inputs(70)
    ours, theirs = our_logits(tmp_path, HEADS[architecture], batch), their_logits(model, batch)
    present = batch["sequence_ids"] > 0 if ours.ndim == 3 else np.ones(3, bool)
    np.testing.assert_allclose(ours[present], theirs[present], rtol=0, atol=1e-5)


def test_an_output_layer_that_nobody_names_has_no_place(tmp_path: Path) -> None:
    save(tmp_path, "BertForSequenceClassification")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": None}))
    assert read(tmp_path).unexpected == ["classifier.bias", "classifier.weight"]
    with pytest.raises(
        ValueError, match=r"classifier.bias, classifier.weight; say what an output layer is \(task_head\)"
    ):
        open_source(tmp_path).read()
    assert "tagging_head" in open_source(tmp_path).read(task_head="tagging_head").params
    with pytest.raises(
        ValueError, match=r"task_head='classifer' is no choice for .*; take one of classifier, regressor"
    ):
        open_source(tmp_path).read(task_head="classifer")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"problem_type": "multi_label_classification"},
            "'multi_label_classification' with 3 outputs, but a classifier",
        ),
        ({"problem_type": "regression"}, "'regression' with 3 outputs, but a classifier here gives one class"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label has a name twice"),
        ({"id2label": {"0": "a", "1": "b"}}, "id2label has 2 names, the head 3 outputs; give 0 to 2"),
        ({"id2label": ["a", "b", "c"]}, "must map numbers to names"),
    ],
)
def test_classes_that_are_none_of_ours(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    save(tmp_path, "BertForSequenceClassification", num_labels=3)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | changes))
    with pytest.raises(ValueError, match=message):
        read(tmp_path)


def test_a_head_that_the_architecture_names_must_be_whole(tmp_path: Path) -> None:
    save(tmp_path, "BertForSequenceClassification", num_labels=3)
    whole = (tmp_path / "model.safetensors").read_bytes()
    rewrite(tmp_path, **{"classifier.weight": None, "classifier.bias": None})
    with pytest.raises(ValueError, match=r"missing classifier.weight, classifier.bias, which a classifier has"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.pooler.dense.weight": None, "bert.pooler.dense.bias": None})
    with pytest.raises(ValueError, match=r"missing pooler.dense.weight, pooler.dense.bias; give"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"pooler.dense.bias": np.zeros(24, np.float32)})
    with pytest.raises(ValueError, match=r"has pooler.dense.bias twice, once as"):
        read(tmp_path)


def test_one_output_is_a_score(tmp_path: Path) -> None:
    save(tmp_path, "BertForSequenceClassification", num_labels=1)
    found = read(tmp_path)
    assert "regressor" in found.params and found.labels is None
    assert "choice_head" in read(tmp_path, task_head="choice_head").params


ALBERT = {"embedding_size": 16, "num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 1}


@pytest.mark.parametrize(
    "architecture", ["AlbertForPreTraining", "AlbertForMaskedLM", "AlbertForSequenceClassification"]
)
def test_albert(tmp_path: Path, architecture: str) -> None:
    """Shared layers and factorised embeddings."""
    torch.manual_seed(0)
    sizes = SIZES | ALBERT | {"classifier_dropout_prob": 0.1}
    model = randomized(getattr(transformers, architecture)(transformers.AlbertConfig(**sizes)).eval())
    model.save_pretrained(tmp_path)
    found = read(tmp_path)
    assert found.unexpected == [] and set(found.params["encoder"]) == {"layer_0", "layer_1"}
    batch = inputs(70)
    if architecture.endswith("Classification"):
        np.testing.assert_allclose(our_logits(tmp_path, "classifier", batch), their_logits(model, batch), atol=1e-5)
        return
    with torch.no_grad():
        theirs = model(**for_peer(batch))
    check_pre_training(found, batch, theirs, whole=architecture.endswith("PreTraining"))


def test_a_pooler_that_a_roberta_classifier_does_not_use(tmp_path: Path) -> None:
    """Released classifiers carry one beside the head's own layer, under a name that comes later in the file."""
    torch.manual_seed(0)
    sizes = SIZES | {"type_vocab_size": 1, "hidden_act": "gelu", "pad_token_id": 1}
    model = randomized(transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**sizes)).eval())
    model.save_pretrained(tmp_path)
    expected = read(tmp_path)
    leftover = {
        f"roberta.pooler.dense.{kind}": np.ones(shape, np.float32)
        for kind, shape in (("weight", (24, 24)), ("bias", 24))
    }
    rewrite(tmp_path, **leftover)
    found = read(tmp_path)
    assert found.unexpected == []
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


@pytest.mark.parametrize("architecture", ["RobertaForMaskedLM", "RobertaForSequenceClassification"])
def test_roberta(tmp_path: Path, architecture: str) -> None:
    """Positions count from pad_token_id + 1; a classifier's tanh layer is the pooler."""
    torch.manual_seed(0)
    sizes = SIZES | {
        "type_vocab_size": 1,
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }
    model = randomized(getattr(transformers, architecture)(transformers.RobertaConfig(**sizes)).eval())
    model.save_pretrained(tmp_path)
    found = read(tmp_path)
    assert found.unexpected == [] and found.config.max_position_embeddings == 18
    batch = inputs(70)
    batch["input_ids"] = np.where(batch["sequence_ids"] > 0, np.maximum(batch["input_ids"], 3), 1).astype(np.int32)
    batch["segment_ids"][:] = 0
    if architecture.endswith("Classification"):
        np.testing.assert_allclose(our_logits(tmp_path, "classifier", batch), their_logits(model, batch), atol=1e-5)
        return
    with torch.no_grad():
        theirs = model(**for_peer(batch))
    check_pre_training(found, batch, theirs, whole=False)
