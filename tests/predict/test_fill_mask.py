"""Filling masks: the numbers of the plain model, the same in any company, in few compiled shapes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load
from bert_jax.model.bert import BertForPreTraining
from bert_jax.predict import MASKS_A_ROW, Predictor, offered_pieces
from tests.predict.small_models import WORDS, for_pretraining, of_peer, row_of, save_peer
from tests.tiny_model import SPECIAL_TOKENS


@pytest.fixture(scope="module")
def model() -> Predictor:
    return for_pretraining()


def plain_probabilities(model: Predictor, text: str, column: int) -> np.ndarray:
    """Of one row, not padded, straight from the module."""
    row = row_of(text, model.tokenizer)
    at = jnp.asarray([[column]], jnp.int32)
    logits: Any = BertForPreTraining(model.config).apply(
        {"params": model.params}, *row.values(), None, at, jnp.zeros_like(at)
    )
    return np.asarray(jax.nn.softmax(logits[0][0, 0]))[: model.config.vocab_size]


def test_probabilities_are_the_plain_models(model: Predictor) -> None:
    text = "The cat [MASK] on the mat."
    (filling,) = model.fill_mask(text, top_k=7)
    expected = plain_probabilities(model, text, 3)
    offered = [i for i, piece in enumerate(model.tokenizer.pieces) if piece in WORDS[:7]]
    best = sorted(offered, key=lambda i: -expected[i])
    assert [piece for piece, _ in filling] == [model.tokenizer.pieces[i] for i in best]
    np.testing.assert_allclose([share for _, share in filling], expected[best], rtol=1e-5)
    assert all(type(piece) is str and type(share) is float for piece, share in filling)


def test_every_mask_is_filled_in_order(model: Predictor) -> None:
    text = "[MASK] cat [MASK] [MASK]"
    fillings = model.fill_mask(text, top_k=1)
    assert len(fillings) == 3
    for filling, column in zip(fillings, (1, 3, 4), strict=True):
        probabilities = plain_probabilities(model, text, column)
        assert filling[0][1] == pytest.approx(probabilities[5:12].max(), rel=1e-5)


def test_more_masks_than_a_row_answers(model: Predictor) -> None:
    text = " ".join(["[MASK]"] * (2 * MASKS_A_ROW + 1) + ["cat"])
    fillings = model.fill_mask(text, top_k=1)
    assert len(fillings) == 2 * MASKS_A_ROW + 1
    assert fillings[-1][0][1] == pytest.approx(plain_probabilities(model, text, 17)[5:12].max(), rel=1e-5)


def assert_alike(found: list[Any], expected: list[Any]) -> None:
    """The same pieces with, to rounding, the same probabilities."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [[piece for piece, _ in filling] for filling in ours] == [[p for p, _ in filling] for filling in theirs]
        shares = [[share for filling in fillings for _, share in filling] for fillings in (ours, theirs)]
        np.testing.assert_allclose(*shares, rtol=1e-5)


def test_the_same_alone_and_in_any_batch(model: Predictor) -> None:
    texts = [f"[MASK] {'cat ' * n}on the mat." for n in (1, 60, 2, 30, 3, 40, 5, 70, 8)] * 6
    texts[5] = "[MASK] cat [MASK] [MASK] ."
    together = model.fill_mask(texts)
    assert_alike(together, [model.fill_mask(text) for text in texts])
    assert_alike(model.fill_mask(texts[::-1]), together[::-1])
    assert model.fill_mask([]) == []


def test_few_shapes_are_compiled(model: Predictor) -> None:
    for n in (1, 40, 70):
        model.fill_mask("[MASK]" + " cat" * n, top_k=5)
    model.fill_mask(["[MASK]" + " cat" * 70] * 12)
    warm = model.num_compiled
    for n in range(1, 75):
        model.fill_mask(["[MASK]" + " cat" * n] * (1 + n % 30), top_k=1 + n % 7)
        model.fill_mask("[MASK] [MASK] [MASK]" + " cat" * n)
    assert model.num_compiled == warm


def test_is_what_transformers_says(tmp_path: Path) -> None:
    peer = save_peer(tmp_path, "BertForMaskedLM")
    text = "the cat [MASK] on the mats"
    (filling,) = load(tmp_path).fill_mask(text, top_k=7)
    shares = of_peer(peer, text).logits[0, 3].softmax(-1).numpy()
    assert filling[0][0] == [*SPECIAL_TOKENS, *WORDS][5 + int(shares[5:12].argmax())]
    np.testing.assert_allclose([share for _, share in filling], np.sort(shares[5:12])[::-1], rtol=0, atol=1e-5)


def test_never_offers_special_or_unused_pieces_or_padding(model: Predictor) -> None:
    assert [p for p, _ in model.fill_mask("[MASK] cat", top_k=7)[0]] != []
    assert {p for p, _ in model.fill_mask("[MASK] cat", top_k=7)[0]} == set(WORDS[:7])
    offered = offered_pieces(model.tokenizer, model.config.padded_vocab_size)
    assert offered.shape == (128,) and offered.nonzero()[0].tolist() == list(range(5, 12))


@pytest.mark.parametrize(("direction", "column"), [("left_to_right", 2), ("right_to_left", 4)])
def test_a_one_sided_model_is_asked_beside_the_mask(direction: Any, column: int) -> None:
    model = for_pretraining(attention_direction=direction)
    text = "the cat [MASK] on the mat"
    expected = plain_probabilities(model, text, column)[5:12].max()
    assert model.fill_mask(text, top_k=1)[0][0][1] == pytest.approx(expected, rel=1e-5)
    changed = "the cat [MASK] the mat on" if direction == "left_to_right" else "mat sat [MASK] on the mat"
    assert model.fill_mask(changed) == model.fill_mask(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fill_mask("no mask"), r"text 0 has no \[MASK\]: 'no mask'; write"),
        (lambda m: m.fill_mask(["[MASK] cat", "cat " * 50]), r"text 1 has no \[MASK\].*…'"),
        (lambda m: m.fill_mask("[MASK]" + " cat" * 78), "has 81 tokens .* max_position_embeddings is 80"),
        (lambda m: m.fill_mask("[MASK]", top_k=0), "top_k=0 must be between 1 and the 7 pieces"),
        (lambda m: m.fill_mask("[MASK]", top_k=8), "top_k=8 must be between"),
    ],
)
def test_errors_are_one_line(model: Predictor, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


def test_a_model_without_the_head_says_so() -> None:
    model = for_pretraining()
    del model.params["mlm_head"]
    with pytest.raises(ValueError, match="tiny has no masked-LM head"):
        model.fill_mask("[MASK]")
