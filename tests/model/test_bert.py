"""The whole model: parameter tree, initial values, invariances, scan and remat, padded vocabulary, host checks."""

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import Bert, BertConfig, BertForPreTraining, check_batch

CONFIG = BertConfig(
    vocab_size=300,
    hidden_size=32,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=64,
    max_position_embeddings=512,
    # Larger than the default: with 0.02 and 32 units attention would be nearly uniform and hide mistakes.
    initializer_range=0.2,
)


@partial(jax.jit, static_argnums=0)
def encode(config: BertConfig, params: object, *batch: jax.Array | None) -> jax.Array:
    """The last hidden state of ids, segment ids, sequence ids, position ids."""
    return Bert(config).apply({"params": params}, *batch).last_hidden_state


def ids(rows: int, length: int, seed: int = 0) -> jax.Array:
    return jnp.asarray(np.random.default_rng(seed).integers(0, 300, (rows, length)), jnp.int32)


@pytest.fixture(scope="module")
def params() -> dict[str, Any]:
    tree = pretraining_params()
    return {name: tree[name] for name in ("embeddings", "encoder")}


def paths(tree: object) -> dict[str, tuple[int, ...]]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(key.key for key in path): leaf.shape for path, leaf in leaves}


def test_parameter_tree_is_as_documented() -> None:
    params = pretraining_params()
    found = paths(params)
    d, f = 32, 64
    expected = {
        "embeddings/word/embedding": (384, d),
        "embeddings/position/embedding": (512, d),
        "embeddings/segment/embedding": (2, d),
        "embeddings/layer_norm/scale": (d,),
        "embeddings/layer_norm/bias": (d,),
        "pooler/kernel": (d, d),
        "pooler/bias": (d,),
        "mlm_head/dense/kernel": (d, d),
        "mlm_head/dense/bias": (d,),
        "mlm_head/layer_norm/scale": (d,),
        "mlm_head/layer_norm/bias": (d,),
        "mlm_head/bias": (384,),
        "nsp_head/kernel": (d, 2),
        "nsp_head/bias": (2,),
    }
    for i in range(CONFIG.num_hidden_layers):
        layer = f"encoder/layer_{i}"
        for name in ("query", "key", "value", "output"):
            expected[f"{layer}/attention/{name}/kernel"] = (d, d)
            expected[f"{layer}/attention/{name}/bias"] = (d,)
        expected[f"{layer}/feed_forward/intermediate/kernel"] = (d, f)
        expected[f"{layer}/feed_forward/intermediate/bias"] = (f,)
        expected[f"{layer}/feed_forward/output/kernel"] = (f, d)
        expected[f"{layer}/feed_forward/output/bias"] = (d,)
        for part in ("attention", "feed_forward"):
            expected[f"{layer}/{part}/layer_norm/scale"] = (d,)
            expected[f"{layer}/{part}/layer_norm/bias"] = (d,)
    assert found == expected
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {jnp.dtype("float32")}


def test_the_tree_does_not_depend_on_how_layers_are_run() -> None:
    trees = [
        init_for_pretraining(CONFIG.replace(scan_layers=scan, remat=remat, dtype=dtype))
        for scan, remat, dtype in [(False, False, "float32"), (True, False, "bfloat16"), (True, True, "float32")]
    ]
    for tree in trees[1:]:
        jax.tree.map(np.testing.assert_array_equal, trees[0], tree)


def test_no_next_sentence_leaves_out_pooler_and_head() -> None:
    params = init_for_pretraining(CONFIG, next_sentence=False)
    assert set(params) == {"embeddings", "encoder", "mlm_head"}
    token = jnp.zeros((1, 1), jnp.int32)
    model = BertForPreTraining(CONFIG, next_sentence=False)
    assert model.apply({"params": params}, token, None, None, None, token, token)[1] is None


def test_initial_values_are_truncated_at_two_sigma_and_not_rescaled() -> None:
    config = BertConfig.of_size("tiny", vocab_size=2000)
    params = init_for_pretraining(config)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        name, values = path[-1].key, np.asarray(leaf)
        if name in ("kernel", "embedding"):
            used = values[: config.vocab_size] if path[1].key == "word" else values
            assert np.abs(used).max() <= 0.04
            # Normal cut at two sigma: standard deviation 0.8796 sigma. 4.5 standard errors.
            error = 4.5 * 0.0176 / np.sqrt(2 * used.size)
            assert abs(used.std() - 0.8796 * 0.02) < error, path
            assert abs(used.mean()) < 4.5 * 0.0176 / np.sqrt(used.size)
        else:
            assert (values == (1.0 if name == "scale" else 0.0)).all()
    assert (np.asarray(params["embeddings"]["word"]["embedding"])[2000:] == 0).all()


@pytest.mark.parametrize("length", [16, 128, 512])
def test_a_sentence_does_not_notice_padding_or_company(params: dict[str, Any], length: int) -> None:
    sentence, other = ids(1, 11, 1), ids(1, 5, 2)
    alone = encode(CONFIG, params, sentence)[0]
    batch = np.zeros((2, length), np.int32)
    sequence_ids = np.zeros((2, length), np.int32)
    batch[0, :11], sequence_ids[0, :11] = sentence[0], 1
    batch[1, :5], sequence_ids[1, :5] = other[0], 1
    padded = encode(CONFIG, params, jnp.asarray(batch), None, jnp.asarray(sequence_ids))
    np.testing.assert_allclose(padded[0, :11], alone, atol=1e-5)


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
def test_packed_sequences_equal_the_same_alone(params: dict[str, Any], direction: str) -> None:
    config = CONFIG.replace(attention_direction=direction)
    lengths = (7, 9, 4)
    sentences = [ids(1, n, n) for n in lengths]
    packed = jnp.concatenate([*sentences, jnp.zeros((1, 4), jnp.int32)], axis=1)
    number = jnp.asarray([np.repeat([1, 2, 3, 0], [*lengths, 4])], jnp.int32)
    position = jnp.asarray([np.concatenate([np.arange(n) for n in (*lengths, 4)])], jnp.int32)
    together = encode(config, params, packed, None, number, position)[0]
    start = 0
    for sentence in sentences:
        alone = encode(config, params, sentence)[0]
        np.testing.assert_allclose(together[start : start + alone.shape[0]], alone, atol=1e-5)
        start += alone.shape[0]


@pytest.mark.parametrize(("direction", "changed"), [("left_to_right", range(4, 10)), ("right_to_left", range(0, 5))])
def test_one_sided_models_see_one_side(params: dict[str, Any], direction: str, changed: range) -> None:
    config = CONFIG.replace(attention_direction=direction)
    sentence = ids(1, 10, 3)
    before = encode(config, params, sentence)[0]
    after = encode(config, params, sentence.at[0, 4].set((sentence[0, 4] + 1) % 300))[0]
    differs = np.abs(np.asarray(before - after)).max(-1) > 1e-6
    np.testing.assert_array_equal(differs, np.isin(np.arange(10), changed))


@partial(jax.jit, static_argnums=0)
def pretraining_loss(config: BertConfig, params: object, dropout_key: jax.Array | None) -> jax.Array:
    """A smooth function of both heads' logits, on a fixed batch with one row of padding only."""
    sequence_ids = jnp.ones((4, 16), jnp.int32).at[3].set(0).at[1, 9:].set(2)
    positions = jnp.asarray(np.random.default_rng(5).integers(0, 16, (4, 3)), jnp.int32)
    mlm, nsp = BertForPreTraining(config).apply(
        {"params": params},
        ids(4, 16, 6),
        None,
        sequence_ids,
        None,
        positions,
        jnp.zeros((4, 1), jnp.int32),
        dropout_key=dropout_key,
    )
    return jax.nn.logsumexp(mlm, -1).mean() + (mlm[..., 7] ** 2).mean() + (nsp[..., 0] ** 2).mean()


loss_and_gradient = jax.jit(jax.value_and_grad(pretraining_loss, argnums=1), static_argnums=0)


def init_for_pretraining(config: BertConfig, next_sentence: bool = True) -> dict[str, Any]:
    """Parameters from one token: enough to know every shape."""
    model = BertForPreTraining(config, next_sentence)
    token = jnp.zeros((1, 1), jnp.int32)
    return jax.jit(lambda key: model.init(key, token, None, None, None, token, token)["params"])(jax.random.key(0))


@cache
def pretraining_params() -> dict[str, Any]:
    return init_for_pretraining(CONFIG)


@pytest.mark.parametrize("dropout", [False, True])
def test_scan_and_remat_change_neither_loss_nor_gradient(dropout: bool) -> None:
    params = pretraining_params()
    key = jax.random.key(1) if dropout else None
    loss, expected = loss_and_gradient(CONFIG, params, key)
    for scan, remat in [(True, False), (False, True), (True, True)] if dropout else [(True, True)]:
        other_loss, other = loss_and_gradient(CONFIG.replace(scan_layers=scan, remat=remat), params, key)
        np.testing.assert_allclose(other_loss, loss, rtol=1e-6)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), other, expected)


def test_dropout_differs_between_layers_and_keys_and_is_off_without_a_key() -> None:
    params = pretraining_params()
    losses = [float(pretraining_loss(CONFIG, params, key)) for key in (None, jax.random.key(1), jax.random.key(2))]
    assert len(set(losses)) == 3
    off = CONFIG.replace(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    assert float(pretraining_loss(off, params, jax.random.key(1))) == pytest.approx(losses[0], rel=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_and_gradient_are_finite_with_a_row_of_padding(dtype: str) -> None:
    params = pretraining_params()
    loss, gradient = loss_and_gradient(CONFIG.replace(dtype=dtype), params, jax.random.key(1))
    assert loss.dtype == jnp.float32
    assert np.isfinite(loss)
    for leaf in jax.tree.leaves(gradient):
        assert leaf.dtype == jnp.float32
        assert np.isfinite(leaf).all()


def test_bfloat16_is_close_to_float32() -> None:
    params = pretraining_params()
    wide = pretraining_loss(CONFIG, params, None)
    narrow = pretraining_loss(CONFIG.replace(dtype="bfloat16"), params, None)
    assert abs(float(wide) - float(narrow)) < 0.03 * abs(float(wide))


def test_padding_rows_of_the_vocabulary_have_no_probability_and_no_gradient() -> None:
    params = pretraining_params()
    _, gradient = loss_and_gradient(CONFIG, params, None)
    assert (np.asarray(gradient["embeddings"]["word"]["embedding"])[300:] == 0).all()
    assert (np.asarray(gradient["mlm_head"]["bias"])[300:] == 0).all()
    token = jnp.zeros((1, 1), jnp.int32)
    logits, _ = BertForPreTraining(CONFIG).apply({"params": params}, token, None, None, None, token, token)
    assert logits.shape == (1, 1, 384)
    assert (np.asarray(jax.nn.softmax(logits))[..., 300:] == 0).all()


def test_hidden_states_are_embeddings_and_every_layer(params: dict[str, Any]) -> None:
    for scan in (False, True):
        model = Bert(CONFIG.replace(scan_layers=scan))
        output = model.apply({"params": params}, ids(2, 6), all_hidden_states=True)
        assert output.hidden_states is not None
        assert len(output.hidden_states) == 4
        np.testing.assert_array_equal(output.hidden_states[-1], output.last_hidden_state)
        assert model.apply({"params": params}, ids(2, 6)).hidden_states is None


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right", "right_to_left"])
@pytest.mark.parametrize("scan", [False, True])
def test_some_columns_equal_those_of_the_whole_output(params: dict[str, Any], direction: str, scan: bool) -> None:
    config = CONFIG.replace(attention_direction=direction, scan_layers=scan)
    sequence_ids = jnp.asarray([[1] * 12, [1] * 5 + [2] * 4 + [0] * 3], jnp.int32)
    columns = jnp.asarray([[0, 11, 3, 3], [5, 1, 8, 0]], jnp.int32)
    weight = jnp.asarray(np.random.default_rng(7).normal(size=(2, 4, 32)), jnp.float32)

    def some(params: object) -> jax.Array:
        output = Bert(config).apply({"params": params}, ids(2, 12), None, sequence_ids, columns=columns)
        return (output.last_hidden_state * weight).sum()

    def whole(params: object) -> jax.Array:
        output = Bert(config).apply({"params": params}, ids(2, 12), None, sequence_ids)
        return (jnp.take_along_axis(output.last_hidden_state, columns[..., None], 1) * weight).sum()

    value, gradient = jax.jit(jax.value_and_grad(some))(params)
    expected_value, expected = jax.jit(jax.value_and_grad(whole))(params)
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradient, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_ids": np.full((1, 8), 300, np.int32)}, r"input_ids has 300, outside 0..299; .*tokenizer"),
        ({"input_ids": np.full((1, 8), -1, np.int32)}, r"input_ids has -1"),
        ({"segment_ids": np.full((1, 8), 2, np.int32)}, r"segment_ids has 2, outside 0..1; .*type_vocab_size"),
        ({"position_ids": np.full((1, 8), 512, np.int32)}, r"position_ids has 512, outside 0..511; shorten"),
        ({"example_columns": np.full((1, 1), 8, np.int32)}, r"example_columns has 8, outside 0..7"),
        ({"input_ids": np.zeros((1, 513), np.int32)}, r"rows of 513 tokens exceed .*512; shorten"),
    ],
)
def test_bad_ids_are_raised_on_the_host(changes: dict[str, np.ndarray], message: str) -> None:
    batch = {"input_ids": np.zeros((1, 8), np.int32)}
    check_batch(batch, CONFIG)
    with pytest.raises(ValueError, match=message) as error:
        check_batch(batch | changes, CONFIG)
    assert "\n" not in str(error.value)
