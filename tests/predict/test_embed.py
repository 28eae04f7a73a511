"""Vectors: every layer and pooling of the plain module, alone and in company; cosines."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model.bert import Bert
from bert_jax.model.heads import Pooler
from bert_jax.predict import Predictor
from tests.predict.small_models import TEXTS, for_pretraining, row_of


@pytest.fixture(scope="module")
def model() -> Predictor:
    return for_pretraining()


def states(model: Predictor, text: Any) -> list[np.ndarray]:
    """The embedding output and every layer's, [t, d]: one row without padding."""
    encoder = {name: model.params[name] for name in ("embeddings", "encoder")}
    apply = jax.jit(Bert(model.config).apply, static_argnames="all_hidden_states")
    found: Any = apply({"params": encoder}, **row_of(text, model.tokenizer), all_hidden_states=True)
    return [np.asarray(state[0]) for state in found.hidden_states]


SOME = [TEXTS[0], TEXTS[3], ("the cat", "sat on"), ""]
POOLED = {"cls": lambda x: x[0], "mean": lambda x: x.mean(0), "max": lambda x: x.max(0)}


@pytest.mark.parametrize("layers", [[-1], [-2], [-3, -1, 1], [0]])
@pytest.mark.parametrize("pooling", POOLED)
def test_vectors_are_the_plain_models(model: Predictor, layers: list[int], pooling: str) -> None:
    found = model.embed(SOME, layers=layers, pooling=pooling)
    assert found.shape == (len(SOME), 16 * len(layers)) and found.dtype == np.float32
    for text, vector in list(zip(SOME, found, strict=True))[1:3]:
        every = states(model, text)
        expected = np.concatenate([POOLED[pooling](every[layer]) for layer in layers])
        np.testing.assert_allclose(vector, expected, rtol=0, atol=1e-5)


def test_every_token_without_pooling(model: Predictor) -> None:
    found = model.embed(SOME, layers=[-1, 0], pooling=None)
    assert [len(array) for array in found] == [len(states(model, text)[0]) for text in SOME]
    for text, array in zip(SOME, found, strict=True):
        every = states(model, text)
        np.testing.assert_allclose(array, np.concatenate([every[-1], every[0]], -1), rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.embed(SOME[1], layers=[-1, 0], pooling=None), found[1], rtol=0, atol=1e-5)
    assert model.embed([], pooling=None) == []


def test_the_pooler(model: Predictor) -> None:
    (last,) = (states(model, SOME[1])[-1],)
    expected = Pooler(model.config).apply({"params": model.params["pooler"]}, jnp.asarray(last[None, :1]))
    np.testing.assert_allclose(model.embed(SOME[1], pooling="pooler"), np.asarray(expected)[0, 0], rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="is of the last layer alone"):
        model.embed("the", layers=[-2], pooling="pooler")
    without = for_pretraining()
    del without.params["pooler"]
    with pytest.raises(ValueError, match=r"tiny has no pooler .* or choose pooling='cls'"):
        without.embed("the", pooling="pooler")


def test_a_one_sided_encoder_is_read_where_it_has_seen_all() -> None:
    model = for_pretraining(attention_direction="left_to_right")
    np.testing.assert_allclose(model.embed(SOME[1]), states(model, SOME[1])[-1][-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", [*POOLED, "pooler"])
def test_the_same_alone_in_company_and_in_another_order(model: Predictor, pooling: str) -> None:
    together = model.embed(TEXTS * 8, pooling=pooling)
    alone = np.stack([model.embed(text, pooling=pooling) for text in TEXTS] * 8)
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    np.testing.assert_allclose(model.embed(TEXTS[::-1], pooling=pooling), together[:10][::-1], rtol=0, atol=1e-5)
    assert model.embed([], pooling=pooling).shape == (0, 16)


def test_nothing_is_compiled_after_the_first_of_each_shape(model: Predictor) -> None:
    for n in (10, 40, 70):
        model.embed("the " * n, pooling="mean")
    model.embed(["the " * 70] * 12, pooling="mean")
    warm = model.num_compiled
    for n in range(79):
        model.embed(["the " * n] * (1 + n % 20), pooling="mean")
        model.similarity(["cat " * n, "the"])
    assert model.num_compiled == warm


def test_only_what_is_needed_goes_in(model: Predictor) -> None:
    # Most of a model of pre-training is not asked for a vector.
    kept = dict(model.params)
    try:
        for name in ("mlm_head", "nsp_head", "pooler"):
            del model.params[name]
        assert model.embed("the cat").shape == (16,)
    finally:
        model.params.update(kept)


def test_cosines(model: Predictor) -> None:
    vectors = np.stack([states(model, text)[-1].mean(0) for text in SOME])
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(model.similarity(SOME), vectors @ vectors.T, rtol=0, atol=1e-5)
    found = model.similarity(SOME[0], SOME[1:])
    assert found.shape == (1, 3)
    np.testing.assert_allclose(found, vectors[:1] @ vectors[1:].T, rtol=0, atol=1e-5)
    assert model.similarity("the", "the")[0, 0] == pytest.approx(1, abs=1e-5)
    lengths = np.linalg.norm(model.embed(SOME, layers=[-1, -2], normalize=True), axis=-1)
    np.testing.assert_allclose(lengths, 1, rtol=0, atol=1e-5)


def test_masks_are_read(model: Predictor) -> None:
    with_mask = "the [MASK] sat"
    np.testing.assert_allclose(model.embed(with_mask), states(model, with_mask)[-1][0], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pooling": "sum"}, "pooling='sum' is not one of cls, mean, max, pooler, or None"),
        ({"layers": [3]}, r"layer 3 is not one of 0 \(embeddings\) to 2"),
        ({"layers": []}, "layers is empty"),
    ],
)
def test_what_does_not_fit_is_said(model: Predictor, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model.embed("the cat", **options)


def test_long_texts(model: Predictor) -> None:
    with pytest.raises(ValueError, match=r"text 0 has 102 tokens .* give truncate=True to cut it"):
        model.embed("the " * 100)
    np.testing.assert_allclose(model.embed("the " * 100, truncate=True), model.embed("the " * 78), atol=1e-5)
