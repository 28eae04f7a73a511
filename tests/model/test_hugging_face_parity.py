"""Same weights, same batch: hidden states, loss and every gradient against transformers' BertForPreTraining."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.model import Bert, BertConfig, BertForPreTraining

torch = pytest.importorskip("torch", reason="parity with PyTorch needs torch")
transformers = pytest.importorskip("transformers", reason="parity needs transformers")

ROWS, LENGTH, PREDICTIONS = 4, 24, 5
CONFIG = BertConfig(
    vocab_size=260,
    hidden_size=48,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=80,
    max_position_embeddings=64,
)


def peer(implementation: str = "eager", **changes: Any) -> Any:
    """transformers' model with random weights; biases and layer norms too, so that none can be forgotten."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=CONFIG.vocab_size,
        hidden_size=CONFIG.hidden_size,
        num_hidden_layers=CONFIG.num_hidden_layers,
        num_attention_heads=CONFIG.num_attention_heads,
        intermediate_size=CONFIG.intermediate_size,
        max_position_embeddings=CONFIG.max_position_embeddings,
        attn_implementation=implementation,
        **changes,
    )
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def dense(state: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {"kernel": state[f"{name}.weight"].T, "bias": state[f"{name}.bias"]}


def layer_norm(state: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {"scale": state[f"{name}.weight"], "bias": state[f"{name}.bias"]}


def our_tree(state: dict[str, np.ndarray]) -> dict[str, Any]:
    """transformers' names -> our parameter tree; for gradients as well."""
    extra = CONFIG.padded_vocab_size - CONFIG.vocab_size
    encoder = {}
    for i in range(CONFIG.num_hidden_layers):
        layer = f"bert.encoder.layer.{i}"
        encoder[f"layer_{i}"] = {
            "attention": {
                **{name: dense(state, f"{layer}.attention.self.{name}") for name in ("query", "key", "value")},
                "output": dense(state, f"{layer}.attention.output.dense"),
                "layer_norm": layer_norm(state, f"{layer}.attention.output.LayerNorm"),
            },
            "feed_forward": {
                "intermediate": dense(state, f"{layer}.intermediate.dense"),
                "output": dense(state, f"{layer}.output.dense"),
                "layer_norm": layer_norm(state, f"{layer}.output.LayerNorm"),
            },
        }
    word = state["bert.embeddings.word_embeddings.weight"]
    return {
        "embeddings": {
            "word": {"embedding": np.pad(word, ((0, extra), (0, 0)))},
            "position": {"embedding": state["bert.embeddings.position_embeddings.weight"]},
            "segment": {"embedding": state["bert.embeddings.token_type_embeddings.weight"]},
            "layer_norm": layer_norm(state, "bert.embeddings.LayerNorm"),
        },
        "encoder": encoder,
        "pooler": dense(state, "bert.pooler.dense"),
        "mlm_head": {
            "dense": dense(state, "cls.predictions.transform.dense"),
            "layer_norm": layer_norm(state, "cls.predictions.transform.LayerNorm"),
            "bias": np.pad(state["cls.predictions.bias"], (0, extra)),
        },
        "nsp_head": dense(state, "cls.seq_relationship"),
    }


def batch() -> dict[str, np.ndarray]:
    """Rows of different lengths, two segments, a few predicted positions with unequal counts."""
    rng = np.random.default_rng(1)
    lengths = np.asarray([24, 17, 9, 20])
    present = (np.arange(LENGTH) < lengths[:, None]).astype(np.int32)
    positions = np.stack([np.sort(rng.choice(np.arange(1, n - 1), PREDICTIONS, replace=False)) for n in lengths])
    weights = np.ones((ROWS, PREDICTIONS), np.float32)
    weights[2, 3:] = weights[1, 4:] = 0.0
    return {
        "input_ids": (rng.integers(1, CONFIG.vocab_size, (ROWS, LENGTH)) * present).astype(np.int32),
        "segment_ids": ((np.arange(LENGTH) >= lengths[:, None] // 2) * present).astype(np.int32),
        "sequence_ids": present,
        "positions": positions.astype(np.int32),
        "targets": rng.integers(1, CONFIG.vocab_size, (ROWS, PREDICTIONS)).astype(np.int32),
        "weights": weights,
        "labels": rng.integers(0, 2, (ROWS, 1)).astype(np.int32),
    }


def peer_loss(model: Any, data: dict[str, np.ndarray]) -> Any:
    labels = np.full((ROWS, LENGTH), -100, np.int64)
    for row in range(ROWS):
        for slot in range(PREDICTIONS):
            if data["weights"][row, slot]:
                labels[row, data["positions"][row, slot]] = data["targets"][row, slot]
    return model(
        input_ids=torch.from_numpy(data["input_ids"]).long(),
        token_type_ids=torch.from_numpy(data["segment_ids"]).long(),
        attention_mask=torch.from_numpy(data["sequence_ids"]).long(),
        labels=torch.from_numpy(labels),
        next_sentence_label=torch.from_numpy(data["labels"][:, 0]).long(),
        output_hidden_states=True,
    )


def our_loss(params: Any, data: dict[str, jax.Array], config: BertConfig) -> jax.Array:
    mlm, nsp = BertForPreTraining(config).apply(
        {"params": params},
        data["input_ids"],
        data["segment_ids"],
        data["sequence_ids"],
        None,
        data["positions"],
        jnp.zeros((ROWS, 1), jnp.int32),
    )

    def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)[..., 0]

    weights = data["weights"]
    mlm_loss = (cross_entropy(mlm, data["targets"]) * weights).sum() / weights.sum()
    return mlm_loss + cross_entropy(nsp, data["labels"]).mean()


def numpy_state(named: Any) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in named}


@pytest.mark.parametrize("scan", [False, True])
def test_hidden_states_loss_and_every_gradient(scan: bool) -> None:
    model, data = peer(), batch()
    config = CONFIG.replace(scan_layers=scan)
    output = peer_loss(model, data)
    output.loss.backward()
    params = jax.tree.map(jnp.asarray, our_tree(numpy_state(model.named_parameters())))
    expected = our_tree(numpy_state((name, p.grad) for name, p in model.named_parameters()))

    encoder_params = {name: params[name] for name in ("embeddings", "encoder")}
    ours = Bert(config).apply(
        {"params": encoder_params},
        jnp.asarray(data["input_ids"]),
        jnp.asarray(data["segment_ids"]),
        jnp.asarray(data["sequence_ids"]),
        all_hidden_states=True,
    )
    assert ours.hidden_states is not None
    present = data["sequence_ids"] > 0
    assert len(ours.hidden_states) == len(output.hidden_states)
    for a, b in zip(ours.hidden_states, output.hidden_states, strict=True):
        np.testing.assert_allclose(np.asarray(a)[present], b.detach().numpy()[present], rtol=0, atol=1e-4)

    loss, gradient = jax.jit(jax.value_and_grad(our_loss), static_argnums=2)(
        params, jax.tree.map(jnp.asarray, data), config
    )
    assert abs(float(loss) - output.loss.item()) < 1e-5
    leaves = jax.tree_util.tree_leaves_with_path(gradient)
    reference = jax.tree.leaves(expected)
    for (path, ours_leaf), leaf in zip(leaves, reference, strict=True):
        difference = np.linalg.norm(np.asarray(ours_leaf) - leaf)
        # A key's bias shifts all scores of a query alike: its true gradient is 0, and both hold rounding noise.
        assert difference <= 1e-4 * np.linalg.norm(leaf) + 1e-7, path


def test_left_to_right_equals_a_triangular_mask() -> None:
    model, data = peer(), batch()
    state = numpy_state(model.named_parameters())
    params = jax.tree.map(jnp.asarray, our_tree(state))
    present = data["sequence_ids"] > 0
    mask = np.tril(np.ones((LENGTH, LENGTH), bool))[None] & present[:, None, :]
    additive = torch.from_numpy(np.where(mask, 0.0, np.finfo(np.float32).min)[:, None].astype(np.float32))
    with torch.no_grad():
        expected = model.bert(
            input_ids=torch.from_numpy(data["input_ids"]).long(),
            token_type_ids=torch.from_numpy(data["segment_ids"]).long(),
            attention_mask=additive,
        ).last_hidden_state.numpy()
    ours = Bert(CONFIG.replace(attention_direction="left_to_right")).apply(
        {"params": {name: params[name] for name in ("embeddings", "encoder")}},
        jnp.asarray(data["input_ids"]),
        jnp.asarray(data["segment_ids"]),
        jnp.asarray(data["sequence_ids"]),
    )
    np.testing.assert_allclose(np.asarray(ours.last_hidden_state)[present], expected[present], rtol=0, atol=1e-4)
