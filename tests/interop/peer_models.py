"""Models of transformers with random weights, and what they and ours say of the same batch."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.interop.hugging_face import read, read_config
from bert_jax.model import Bert, BertForPreTraining, Pooler
from bert_jax.model.fine_tuning import BertWithHead

torch = pytest.importorskip("torch", reason="directories of PyTorch models are written by torch")
transformers = pytest.importorskip("transformers", reason="directories are written by transformers")
transformers.utils.logging.disable_progress_bar()

SIZES: dict[str, Any] = {
    "vocab_size": 70,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "type_vocab_size": 3,
    "hidden_act": "gelu_new",
    "layer_norm_eps": 1e-5,
}


def save(directory: Path, architecture: str = "BertForPreTraining", **changes: Any) -> Any:
    """A model with random weights, biases and layer norms too, so that none can be forgotten; saved."""
    torch.manual_seed(0)
    model = randomized(getattr(transformers, architecture)(transformers.BertConfig(**SIZES | changes)).eval())
    model.save_pretrained(directory)
    return model


def randomized(model: Any) -> Any:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def rewrite(directory: Path, **changes: Any) -> None:
    """Changes tensors of the file; None takes one away."""
    tensors = load_file(directory / "model.safetensors") | changes
    save_file({k: v for k, v in tensors.items() if v is not None}, directory / "model.safetensors")


def inputs(vocab_size: int, length: int = 12) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    lengths = np.asarray([[12], [7], [9]])
    present = (np.arange(length) < lengths).astype(np.int32)
    return {
        "input_ids": (rng.integers(1, vocab_size, (3, length)) * present).astype(np.int32),
        "segment_ids": ((np.arange(length) >= lengths // 2) * present).astype(np.int32),
        "sequence_ids": present,
    }


def for_peer(batch: dict[str, np.ndarray]) -> dict[str, Any]:
    names = {"input_ids": "input_ids", "segment_ids": "token_type_ids", "sequence_ids": "attention_mask"}
    return {theirs: torch.from_numpy(batch[ours]).long() for ours, theirs in names.items()}


def check_encoder(model: Any, directory: Path, tolerance: float = 1e-5) -> None:
    """Last hidden state and pooled vector are the peer's."""
    config, params = read_config(directory), read(directory).params
    batch = inputs(config.vocab_size)
    with torch.no_grad():
        theirs = model(**for_peer(batch))
    encoder = {"params": jax.tree.map(jnp.asarray, {name: params[name] for name in ("embeddings", "encoder")})}
    hidden = Bert(config).apply(encoder, **jax.tree.map(jnp.asarray, batch)).last_hidden_state
    present = batch["sequence_ids"] > 0
    difference = np.abs(np.asarray(hidden) - theirs.last_hidden_state.numpy())[present]
    assert difference.max() < tolerance
    pooled = Pooler(config).apply({"params": jax.tree.map(jnp.asarray, params["pooler"])}, hidden[:, :1])
    np.testing.assert_allclose(np.asarray(pooled)[:, 0], theirs.pooler_output.numpy(), rtol=0, atol=tolerance)


def our_logits(directory: Path, head: str, batch: dict[str, np.ndarray]) -> np.ndarray:
    """[r, c] at the first column, or [r, t, c], without padding taken in."""
    found = read(directory)
    for_tokens = head in ("tagging_head", "qa_head")
    module = BertWithHead(found.config, head, len(found.params[head]["bias"]), for_tokens)
    params = {name: found.params[name] for name in ("embeddings", "encoder", "pooler", head) if name in found.params}
    first = np.zeros((len(batch["input_ids"]), 1), np.int32)
    positions = np.broadcast_to(np.arange(batch["input_ids"].shape[1], dtype=np.int32), batch["input_ids"].shape)
    arguments = (batch["input_ids"], batch["segment_ids"], batch["sequence_ids"], positions, first, first)
    logits = module.apply({"params": jax.tree.map(jnp.asarray, params)}, *map(jnp.asarray, arguments))
    return np.asarray(logits) if for_tokens else np.asarray(logits)[:, 0]


def their_logits(model: Any, batch: dict[str, np.ndarray]) -> np.ndarray:
    given = for_peer(batch)
    with torch.no_grad():
        if "MultipleChoice" in type(model).__name__:
            return model(**{name: value[None] for name, value in given.items()}).logits[0][:, None].numpy()
        output = model(**given)
    if "QuestionAnswering" in type(model).__name__:
        return np.stack([output.start_logits.numpy(), output.end_logits.numpy()], -1)
    return output.logits.numpy()


def check_pre_training(found: Any, batch: dict[str, np.ndarray], theirs: Any, *, whole: bool) -> None:
    """Masked-LM logits of the real tokens, and next-sentence logits, are the peer's."""
    positions = np.broadcast_to(np.arange(12, dtype=np.int32), (3, 12))
    arguments = jax.tree.map(jnp.asarray, (*batch.values(), None, positions, np.zeros((3, 1), np.int32)))
    module = BertForPreTraining(found.config, next_sentence=whole)
    params = {
        name: found.params[name]
        for name in ("embeddings", "encoder", "mlm_head", "pooler", "nsp_head")[: 3 + 2 * whole]
    }
    mlm, nsp = module.apply({"params": jax.tree.map(jnp.asarray, params)}, *arguments)
    present = batch["sequence_ids"] > 0
    expected = (theirs.prediction_logits if whole else theirs.logits).numpy()
    np.testing.assert_allclose(np.asarray(mlm)[present][:, :70], expected[present], rtol=0, atol=1e-5)
    if whole:
        expected = getattr(theirs, "sop_logits", None)
        expected = theirs.seq_relationship_logits if expected is None else expected
        np.testing.assert_allclose(np.asarray(nsp)[:, 0], expected.numpy(), rtol=0, atol=1e-5)
