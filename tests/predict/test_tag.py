"""Tags: one for each word however long the sentence, entities, the logits of transformers, alone and in company."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import load
from bert_jax.predict import Entity, Predictor, Tagging
from tests.predict.small_models import of_peer, plain_logits, plain_shares, save_peer, with_head

LABELS = ("O", "B-LOC", "I-LOC")
SENTENCES = [["the", "mats", "sat"], ["cat"], [], ["on", "the", "xyz", "."], ["mats", "cat"] * 40]


@pytest.fixture(scope="module")
def model() -> Predictor:
    return with_head("tagging_head", 3, labels=LABELS)


def expected_shares(model: Predictor, words: list[str]) -> np.ndarray:
    """At each word's first piece, of the plain module."""
    columns = np.cumsum([1, *(2 if word == "mats" else 1 for word in words)])[:-1]
    return plain_shares(plain_logits(model, "tagging_head", " ".join(words)))[columns]


@pytest.mark.parametrize("run", [{}, {"bilstm_size": 4}])
def test_tags_are_the_plain_models(run: dict[str, Any]) -> None:
    model = with_head("tagging_head", 3, labels=LABELS, run=run)
    for words, found in zip(SENTENCES[:2], model.tag(SENTENCES[:2]), strict=True):
        shares = expected_shares(model, words)
        assert found.words == words
        assert found.tags == [LABELS[i] for i in shares.argmax(-1)]
        np.testing.assert_allclose(found.probabilities, shares.max(-1), rtol=0, atol=1e-5)


def test_the_same_alone_and_in_company(model: Predictor) -> None:
    together = model.tag(SENTENCES * 3)
    alone = [model.tag([words])[0] for words in SENTENCES] * 3
    for ours, theirs in zip(together, alone, strict=True):
        assert (ours.words, ours.tags, ours.entities) == (theirs.words, theirs.tags, theirs.entities)
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, rtol=0, atol=1e-5)
    assert [len(found.tags) for found in together[:5]] == [3, 1, 0, 4, 80]  # 120 pieces, of which 78 fit
    assert model.tag([]) == []


def test_strings_are_split_and_tuples_are_one_sentence(model: Predictor) -> None:
    found = model.tag("the mats  sat")
    assert isinstance(found, Tagging) and found.words == ["the", "mats", "sat"]
    assert model.tag(("the", "mats", "sat")) == found
    assert [one.words for one in model.tag(["the mats", "sat"])] == [["the", "mats"], ["sat"]]
    with pytest.raises(ValueError, match=r"\['the', …\] may be one sentence or 2 of one word: give words as \[\["):
        model.tag(["the", "cat"])
    with pytest.raises(ValueError, match="NoneType None is no sentence; give a string, words as"):
        model.tag(None)
    with pytest.raises(ValueError, match=r"int 3 is no sentence \(number 1\); give words"):
        model.tag([["the"], 3])
    with pytest.raises(ValueError, match="sentence 1 has the word int 3; give words as strings"):
        model.tag([["the"], ["cat", 3]])


def test_nothing_is_compiled_after_the_first_of_each_shape(model: Predictor) -> None:
    for n in (10, 40, 70, 2000):
        model.tag([["the"] * n])
    warm = model.num_compiled
    for n in range(0, 300, 7):
        model.tag([["the"] * n, ["cat"] * 3])
    assert model.num_compiled == warm


def test_entities_are_the_words_that_tags_mark() -> None:
    # The kernel is 0 and the bias decides: every word begins a place, or goes on with one.
    for best, entities in ((1, [("the", 0, 1), ("cat", 1, 2)]), (2, [("the cat", 0, 2)]), (0, [])):
        model = with_head("tagging_head", 3, labels=LABELS)
        head = model.params["tagging_head"]
        head["kernel"] = head["kernel"] * 0
        head["bias"] = head["bias"].at[best].set(5.0)
        assert model.tag("the cat").entities == [Entity(text, "LOC", start, end) for text, start, end in entities]


def test_tags_that_mark_no_entities() -> None:
    found = with_head("tagging_head", 2, labels=("NOUN", "VERB")).tag("the cat")
    assert found.entities == [] and set(found.tags) <= {"NOUN", "VERB"}


def test_characters_where_the_model_was_trained_on_them() -> None:
    model = with_head("tagging_head", 3, labels=LABELS, run={"format": "klue_ner", "max_seq_length": 32})
    found = model.tag("the ca")
    assert found.words == ["t", "h", "e", "c", "a"] and len(found.tags) == 5
    model.params["tagging_head"]["kernel"] *= 0
    model.params["tagging_head"]["bias"] = model.params["tagging_head"]["bias"].at[2].set(5.0)
    assert model.tag("the ca").entities == [Entity("the ca", "LOC", 0, 5)]


def test_is_what_transformers_says(tmp_path: Path) -> None:
    names = {0: "O", 1: "B-LOC", 2: "I-LOC", 3: "B-PER"}
    peer = save_peer(tmp_path, "BertForTokenClassification", id2label=names)
    shares = of_peer(peer, "the mats sat").logits[0].softmax(-1).numpy()[[1, 2, 4]]
    found = load(tmp_path).tag([["the", "mats", "sat"]])[0]
    assert found.tags == [names[i] for i in shares.argmax(-1)]
    np.testing.assert_allclose(found.probabilities, shares.max(-1), rtol=0, atol=1e-5)
