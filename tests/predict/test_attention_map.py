"""Attention weights: those of transformers, rows that sum to 1, and their picture."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load
from bert_jax.model.attention_weights import attention_weights
from bert_jax.predict import AttentionMap, Predictor
from tests.predict.small_models import TEXTS, for_pretraining, of_peer, row_of, save_peer


@pytest.fixture(scope="module")
def model() -> Predictor:
    return for_pretraining()


def test_weights_are_those_of_transformers(tmp_path: Path) -> None:
    peer = save_peer(tmp_path, "BertModel")
    model = load(tmp_path)
    for text in (TEXTS[5], ("the cat", "sat on mats"), ""):
        theirs = np.stack([layer[0].numpy() for layer in of_peer(peer, text, output_attentions=True).attentions])
        found = model.attention(text)
        assert isinstance(found, AttentionMap)
        np.testing.assert_allclose(found.weights, theirs, rtol=0, atol=1e-5)
    assert found.tokens == ["[CLS]", "[SEP]"]


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
def test_rows_sum_to_one_and_see_what_they_may(direction: str) -> None:
    model = for_pretraining(attention_direction=direction, num_hidden_layers=3)
    found = model.attention("the cats [MASK] on")
    assert found.tokens == ["[CLS]", "the", "cat", "##s", "[MASK]", "on", "[SEP]"]
    assert found.weights.shape == (3, 2, 7, 7)
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=0, atol=1e-5)
    hidden = {"left_to_right": np.triu, "right_to_left": np.tril}.get(direction)
    if hidden is not None:
        assert (hidden(found.weights, 1 if direction == "left_to_right" else -1) == 0).all()


def test_packed_sequences_do_not_see_each_other(model: Predictor) -> None:
    row = row_of("the cat sat", model.tokenizer)
    both = {name: jnp.concatenate([value, value + int(name == "sequence_ids")], 1) for name, value in row.items()}
    positions = jnp.concatenate([jnp.arange(5), jnp.arange(5)])[None].astype(jnp.int32)
    weights = np.asarray(attention_weights(model.params, model.config, *both.values(), positions))[:, 0]
    alone = model.attention("the cat sat").weights
    np.testing.assert_allclose(weights[..., :5, :5], alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(weights[..., 5:, 5:], alone, rtol=0, atol=1e-5)
    assert (weights[..., :5, 5:] == 0).all()


def test_one_or_many_in_few_shapes(model: Predictor) -> None:
    found = model.attention(TEXTS[:3])
    assert [len(one.tokens) for one in found] == [one.weights.shape[-1] for one in found]
    np.testing.assert_allclose(model.attention(TEXTS[0]).weights, found[0].weights)
    model.attention("the " * 40)
    warm = model.num_compiled
    for n in range(78):
        model.attention("the " * n)
    assert model.num_compiled <= warm + 1
    assert model.attention([]) == []
    with pytest.raises(ValueError, match="text 0 has 92 tokens"):
        model.attention("the " * 90)
    assert len(model.attention("the " * 90, truncate=True).tokens) == 80


def test_plots_say_what_they_show(model: Predictor) -> None:
    found = model.attention("the cat sat on mats . the")
    found = AttentionMap([*found.tokens[:-2], "$", "$x$"], found.weights)
    layers, heads, one, head = (found.plot(), found.plot(layer=1), found.plot(layer=0, head=-1), found.plot(head=0))
    assert [text.get_text() for text in layers.axes[0].get_yticklabels()][:2] == ["[CLS]", "the"]
    titles = [axis.get_title() for axis in layers.axes]
    assert titles[:2] == ["layer 0", "layer 1"] and len(layers.axes) == 3  # with the bar of colours
    assert [axis.get_title() for axis in heads.axes][:2] == ["head 0", "head 1"]
    assert [figure.get_suptitle() for figure in (heads, one, head)] == [
        "Layer 1: attention of each head",
        "Layer 0, head 1",
        "Head 0: attention in each layer",
    ]
    shown = one.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown, found.weights[0, 1])
    assert [label.get_text() for label in one.axes[0].get_xticklabels()] == [
        token.replace("$", r"\$") for token in found.tokens
    ]
    for figure in (layers, heads, one, head):
        figure.canvas.draw()
    with pytest.raises(ValueError, match="layer=2 is not one of 0 to 1, or -2 to -1"):
        found.plot(layer=2)
    assert repr(found) == f"AttentionMap({len(found.tokens)} tokens, 2 layers x 2 heads; plot() draws it)"


def test_long_texts_are_named_in_part(model: Predictor) -> None:
    figure = model.attention("the cat " * 35).plot()
    assert len(figure.axes[0].get_yticklabels()) <= 24
    figure.canvas.draw()
