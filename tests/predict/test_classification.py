"""Classes, scores, choices, next sentences: the numbers of the plain modules, of transformers, alone and in company."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load
from bert_jax.model.bert import BertForPreTraining
from bert_jax.predict import Choice, Classification, Predictor
from tests.predict.small_models import (
    TEXTS,
    for_pretraining,
    of_peer,
    plain_logits,
    plain_shares,
    row_of,
    save_peer,
    with_head,
)

LABELS = ("bad", "fair", "good")
PAIRS = [(a, " ".join(b.split()[:30])) for a, b in zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True) if len(a) < 140]


@pytest.fixture(scope="module")
def model() -> Predictor:
    return with_head("classifier", 3, labels=LABELS)


def shares_of(found: Classification) -> list[float]:
    return [found.probabilities[label] for label in LABELS]


@pytest.mark.parametrize(
    ("changes", "run"),
    [
        ({}, {}),
        ({"attention_direction": "left_to_right"}, {}),
        ({"attention_direction": "right_to_left"}, {}),
        ({}, {"bilstm_size": 4}),
        ({"attention_direction": "left_to_right"}, {"concatenated": True}),
        ({"num_hidden_groups": 1, "embedding_size": 8}, {}),
    ],
)
def test_probabilities_are_the_plain_models(changes: dict[str, Any], run: dict[str, Any]) -> None:
    model = with_head("classifier", 3, labels=LABELS, run=run, **changes)
    texts = [*TEXTS[:3], PAIRS[1]]
    for text, found in zip(texts, model.classify(texts), strict=True):
        assert isinstance(found, Classification)
        expected = plain_shares(plain_logits(model, "classifier", text))
        np.testing.assert_allclose(shares_of(found), expected, rtol=0, atol=1e-5)
        assert found.label == LABELS[int(expected.argmax())] == next(iter(found.probabilities))
        assert found.probability == found.probabilities[found.label]


def test_the_same_alone_in_company_and_in_another_order(model: Predictor) -> None:
    texts = [*TEXTS, *PAIRS] * 5
    together: Any = model.classify(texts)
    alone: Any = [model.classify(text) for text in texts[: len(texts) // 5]] * 5
    np.testing.assert_allclose(*([shares_of(found) for found in many] for many in (together, alone)), atol=1e-5)
    other: Any = model.classify(texts[::-1])
    np.testing.assert_allclose(*([shares_of(f) for f in many] for many in (together, other[::-1])), atol=1e-5)
    assert model.classify([]) == []
    assert isinstance(model.classify(""), Classification) and len(model.classify(["", ""])) == 2
    assert model.classify([["the cat", "sat"]]) == [model.classify(("the cat", "sat"))]


def test_nothing_is_compiled_after_the_first_of_each_shape(model: Predictor) -> None:
    for text in ("the " * 10, "the " * 40, "the " * 70):
        model.classify(text)
    model.classify(["the " * 70] * 12)
    warm = model.num_compiled
    for n in range(79):
        model.classify(["the " * n] * (1 + n % 20))
        model.classify(("cat " * (n // 2), "the " * (n // 3)))
    assert model.num_compiled == warm


def test_special_tokens_in_texts_are_letters_as_in_training(model: Predictor) -> None:
    assert model.classify("the [MASK] sat [SEP]") == model.classify("the [ MASK ] sat [ SEP ]")
    assert model.classify(("the", "[SEP] cat")) == model.classify(("the", "[ SEP ] cat"))


def test_long_texts_are_refused_cut_or_read_in_windows(model: Predictor) -> None:
    long = "the cat sat on mats . " * 15 + "mat"
    with pytest.raises(
        ValueError, match=r"text 1 has 108 tokens .* max_position_embeddings is 80: 'the cat.*…'"
    ) as error:
        model.classify(["the", long])
    assert "give truncate=True to cut it, or stride=64" in str(error.value) and "\n" not in str(error.value)
    tokens = long.replace("mats", "mat ##s").split()
    words = long.split()
    cut: Any = model.classify(long, truncate=True)
    np.testing.assert_allclose(
        shares_of(cut), plain_shares(plain_logits(model, "classifier", " ".join(words[:67]))), atol=1e-5
    )
    assert len(tokens) == 106
    # 78 tokens fit: windows of them start at 0 and 42 (both at the beginning of a sentence of 7 tokens).
    windows = [" ".join(words[:67]), " ".join(words[36:])]
    expected = np.mean([plain_logits(model, "classifier", window) for window in windows], axis=0)
    found: Any = model.classify([long, "the"], stride=42)
    np.testing.assert_allclose(shares_of(found[0]), plain_shares(expected), rtol=0, atol=1e-5)
    trained = with_head("classifier", 3, labels=LABELS, run={"doc_stride": 42, "max_seq_length": 80})
    np.testing.assert_allclose(shares_of(trained.classify(long)), shares_of(found[0]), rtol=0, atol=1e-6)


def test_a_run_is_asked_with_the_length_of_its_training() -> None:
    model = with_head("classifier", 3, run={"max_seq_length": 32, "doc_stride": None})
    with pytest.raises(ValueError, match=r"text 0 has 42 tokens .* max_seq_length of the run is 32"):
        model.classify("the " * 40)
    assert model.classify("the " * 40, truncate=True) == model.classify("the " * 30)
    assert model.labels == ("0", "1", "2")


def test_a_regressor_gives_scores() -> None:
    model = with_head("regressor", 1)
    expected = [float(plain_logits(model, "regressor", text)[0]) for text in TEXTS[:4]]
    np.testing.assert_allclose(model.classify(TEXTS[:4]), expected, rtol=0, atol=1e-5)
    assert isinstance(model.classify("the cat"), float)


@pytest.mark.parametrize("labels", [3, 1])
def test_is_what_transformers_says(tmp_path: Path, labels: int) -> None:
    names = {i: f"label {i}" for i in range(labels)}
    peer = save_peer(tmp_path, "BertForSequenceClassification", id2label=names)
    model = load(tmp_path)
    for text, found in zip([TEXTS[3], PAIRS[1]], model.classify([TEXTS[3], PAIRS[1]]), strict=True):
        logits = of_peer(peer, text).logits[0].numpy()
        if labels == 1:
            np.testing.assert_allclose(found, logits[0], rtol=0, atol=1e-5)
        else:
            shares = [found.probabilities[name] for name in names.values()]
            np.testing.assert_allclose(shares, plain_shares(logits), rtol=0, atol=1e-5)


def test_records_read_well(model: Predictor) -> None:
    found = Classification("good", 0.98765, {"good": 0.98765, "bad": 0.01235})
    assert (
        repr(found)
        == "Classification(label='good', probability=0.9877, probabilities={'good': 0.9877, 'bad': 0.01235})"
    )
    many = Classification("0", 0.5, {str(i): 0.5 for i in range(20)})
    assert repr(many).endswith("'11': 0.5, …})")


def test_choices_are_a_softmax_over_the_endings() -> None:
    model = with_head("choice_head", 1)
    endings = [["the mat", "on the cat", ""], ["sat"], ["cat cat", "mats"]]
    found = model.choose(TEXTS[2:5], endings)
    for context, own, choice in zip(TEXTS[2:5], endings, found, strict=True):
        scores = [plain_logits(model, "choice_head", (context, ending))[0] for ending in own]
        np.testing.assert_allclose(choice.probabilities, plain_shares(np.asarray(scores)), rtol=0, atol=1e-5)
        assert choice.ending == own[choice.index] == own[int(np.argmax(scores))]
        assert choice.probability == max(choice.probabilities)
    alone = model.choose(TEXTS[2], endings[0])
    assert isinstance(alone, Choice)
    np.testing.assert_allclose(alone.probabilities, found[0].probabilities, rtol=0, atol=1e-5)
    assert model.choose([], []) == []


def test_chooses_as_transformers_does(tmp_path: Path) -> None:
    peer = save_peer(tmp_path, "BertForMultipleChoice")
    model = load(tmp_path)
    rows = [row_of(("the cat sat", ending), model.tokenizer) for ending in ("on mat", "the the")]
    ids, segments = (
        np.stack([np.asarray(row[name][0]) for row in rows])[None] for name in ("input_ids", "segment_ids")
    )
    import torch

    with torch.no_grad():
        logits = peer(input_ids=torch.tensor(ids), token_type_ids=torch.tensor(segments)).logits[0].numpy()
    found = model.choose("the cat sat", ["on mat", "the the"])
    np.testing.assert_allclose(found.probabilities, plain_shares(logits), rtol=0, atol=1e-5)


def test_next_sentence_is_the_first_of_the_two_outputs(tmp_path: Path) -> None:
    model = for_pretraining()
    firsts, seconds = [list(side) for side in zip(*PAIRS, strict=True)]
    found = model.next_sentence(firsts, seconds)
    for pair, share in list(zip(PAIRS, found, strict=True))[:3]:
        zero = jnp.zeros((1, 1), jnp.int32)
        row = row_of(pair, model.tokenizer)
        logits: Any = jax.jit(BertForPreTraining(model.config).apply)(
            {"params": model.params}, *row.values(), None, zero, zero
        )
        np.testing.assert_allclose(share, jax.nn.softmax(logits[1][0, 0])[0], rtol=0, atol=1e-5)
    assert model.next_sentence(*PAIRS[0]) == pytest.approx(found[0], abs=1e-5)
    assert model.next_sentence([], []) == []
    peer = save_peer(tmp_path, "BertForNextSentencePrediction")
    theirs = of_peer(peer, PAIRS[1]).logits[0].softmax(-1)[0]
    assert load(tmp_path).next_sentence(*PAIRS[1]) == pytest.approx(float(theirs), abs=1e-5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.classify(["the", 3]), "text 1 is int 3; give a string, or a pair of strings"),
        (lambda m: m.classify([("a", "b", "c")]), r"text 0 is \('a', 'b', 'c'\); give a string, or a pair"),
        (lambda m: m.classify([None]), "text 0 is NoneType None; give a string"),
        (lambda m: m.classify(b"the"), "bytes b'the' is no text; give a string, a pair"),
        (lambda m: m.classify(np.array("the")), "ndarray array.* is no text; give a string, a pair"),
        (lambda m: m.classify("the " * 79), "text 0 has 81 tokens"),
        (lambda m: m.classify(["the " * 79] * 3), r"text 0 has 81 tokens .*\(2 more are too long\)"),
        (
            lambda m: m.fill_mask("[MASK]"),
            r"tiny has no masked-LM head \(it has classifier, pooler\); to fill masks load",
        ),
        (lambda m: m.tag("the"), "tiny has no tagging head .* load a tagging run or a BertForTokenClassification"),
        (
            lambda m: m.answer(question="a", context="b"),
            "tiny has no question-answering head .* to answer load a SQuAD",
        ),
        (lambda m: m.choose("a", ["b"]), "tiny has no multiple-choice head .* to choose load a SWAG run"),
        (lambda m: m.next_sentence("a", "b"), "tiny has no next-sentence head .* load an mlm_nsp"),
    ],
)
def test_errors_are_one_line(model: Predictor, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


def test_endings_and_contexts_must_match() -> None:
    model = with_head("choice_head", 1)
    with pytest.raises(ValueError, match="2 contexts but endings for 1"):
        model.choose(["the", "cat"], [["mat"]])
    with pytest.raises(ValueError, match="context 0 has no ending to choose"):
        model.choose("the", [])
    with pytest.raises(ValueError, match="context 0 has 'mat' for endings; give a list of strings for each"):
        model.choose("the", "mat")
    with pytest.raises(ValueError, match="context 1 has 'cat' for endings"):
        model.choose(["the", "the"], [["mat"], "cat"])
    with pytest.raises(ValueError, match=r"text 0 has 83 tokens .* give truncate=True to cut it"):
        model.choose("the " * 79, ["mat"])
    assert model.choose("the " * 79, ["mat", "cat"], truncate=True).index in (0, 1)
    with pytest.raises(ValueError, match="a has 1 texts and b 2; give as many"):
        for_pretraining().next_sentence(["the"], ["a", "b"])
