"""Google's directories: names of the originals, whole circles without loss, and what is refused."""

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop import google, hugging_face
from bert_jax.interop.tensor_bundle import read_tensors, write_tensors
from bert_jax.model.config import BertConfig
from bert_jax.training.source import GOOGLE, open_source
from tests.interop.models import ALBERT, CONFIG, HEADS, TOKENIZER, random_params


def same(ours: Any, theirs: Any) -> None:
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("config", [CONFIG, ALBERT], ids=["bert", "albert"])
@pytest.mark.parametrize("kind", HEADS)
def test_round_trips_lose_nothing(tmp_path: Path, kind: str, config: Any) -> None:
    """Ours -> Google -> ours -> Hugging Face -> ours."""
    heads = HEADS[kind]
    task_head = next((name for name in heads if name.endswith("_head") and name not in ("mlm_head", "nsp_head")), None)
    params = random_params(config, heads)
    google.write(tmp_path / "google", config, params, TOKENIZER)
    source = open_source(tmp_path / "google")
    assert source.kind == GOOGLE and source.config == config
    found = source.read(task_head=task_head, strict=True)
    same(params, found.params)
    hugging_face.write(tmp_path / "hf", config, found.params, TOKENIZER)
    back = open_source(tmp_path / "hf")
    assert back.config == config
    same(params, back.read(strict=True).params)
    for directory in ("google", "hf"):
        assert load_tokenizer(tmp_path / directory).fingerprint() == TOKENIZER.fingerprint()


def test_the_names_are_the_originals(tmp_path: Path) -> None:
    """As in the released uncased_L-12_H-768_A-12 and albert_base; matrices of heads are [outputs, d] there."""
    google.write(tmp_path / "bert", CONFIG, random_params(CONFIG, HEADS["pre-training"]), TOKENIZER)
    shapes = {name: value.shape for name, value in read_tensors(tmp_path / "bert" / "bert_model.ckpt").items()}
    assert len(shapes) == 5 + 4 * 16 + 2 + 5 + 2
    for name, shape in {
        "bert/embeddings/word_embeddings": (41, 24),
        "bert/embeddings/token_type_embeddings": (2, 24),
        "bert/embeddings/LayerNorm/beta": (24,),
        "bert/encoder/layer_3/attention/self/query/kernel": (24, 24),
        "bert/encoder/layer_0/attention/output/LayerNorm/gamma": (24,),
        "bert/encoder/layer_0/intermediate/dense/kernel": (24, 40),
        "bert/encoder/layer_0/output/dense/kernel": (40, 24),
        "bert/pooler/dense/bias": (24,),
        "cls/predictions/transform/dense/kernel": (24, 24),
        "cls/predictions/transform/LayerNorm/gamma": (24,),
        "cls/predictions/output_bias": (41,),
        "cls/seq_relationship/output_weights": (2, 24),
    }.items():
        assert shapes[name] == shape, name
    google.write(tmp_path / "albert", ALBERT, random_params(ALBERT, {}), TOKENIZER)
    names = read_tensors(tmp_path / "albert" / "bert_model.ckpt").keys()
    for name in (
        "bert/encoder/embedding_hidden_mapping_in/kernel",
        "bert/encoder/transformer/group_1/inner_group_0/attention_1/self/value/bias",
        "bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/kernel",
        "bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta",
    ):
        assert name in names


def rewrite(directory: Path, **changes: Any) -> None:
    prefix = directory / "bert_model.ckpt"
    write_tensors(prefix, {k: v for k, v in (read_tensors(prefix) | changes).items() if v is not None})


def test_what_training_leaves_is_passed_over_and_the_rest_is_named(tmp_path: Path) -> None:
    google.write(tmp_path, CONFIG, random_params(CONFIG, {}), TOKENIZER)
    rewrite(
        tmp_path,
        **{
            "global_step": np.asarray(5, np.int64),
            "bert/embeddings/word_embeddings/adam_m": np.zeros((41, 24), np.float32),
            "bert/pooler/dense/bias/adam_v": np.zeros(24, np.float32),
            "my_head/kernel": np.zeros(3, np.float32),
        },
    )
    assert open_source(tmp_path).read(strict=False).unexpected == ["my_head/kernel"]
    with pytest.raises(ValueError, match=r"tensors without a place in this model: my_head/kernel"):
        open_source(tmp_path).read(strict=True)


def test_an_output_layer_that_is_a_single_number(tmp_path: Path) -> None:
    google.write(tmp_path, CONFIG, random_params(CONFIG, {"pooler": 0, "classifier": 3}), TOKENIZER)
    rewrite(tmp_path, **{"output_weights": np.array(0.5, np.float32)})
    with pytest.raises(ValueError, match=r"output_weights is \(\) but \(3, 24\) by the config"):
        google.read(tmp_path)


def test_what_is_refused(tmp_path: Path) -> None:
    params = random_params(CONFIG, {"pooler": 0})
    google.write(tmp_path, CONFIG, params, TOKENIZER)
    rewrite(tmp_path, **{"bert/encoder/layer_2/output/dense/bias": None})
    with pytest.raises(ValueError, match=r"bert_model.ckpt: missing bert/encoder/layer_2/output/dense/bias; give"):
        google.read(tmp_path)
    google.write(tmp_path, CONFIG, params, TOKENIZER)
    data = tmp_path / "bert_model.ckpt.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"bert_model.ckpt.data-00000-of-00001"):
        google.read(tmp_path)
    data.unlink()
    with pytest.raises(FileNotFoundError, match=r"bert_model.ckpt.data-00000-of-00001"):
        google.read(tmp_path)
    google.write(tmp_path, CONFIG, params, TOKENIZER)
    (tmp_path / "other.ckpt.index").write_bytes(b"")
    with pytest.raises(ValueError, match=r"holds 2 checkpoints \(bert_model.ckpt.index, other.ckpt.index\)"):
        google.read(tmp_path)
    for damaged in ("{", "[" * 100_000):
        (tmp_path / "bert_config.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"bert_config.json: "):
            google.read_config(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"is neither the workdir of a run, nor a Hugging Face directory"):
        open_source(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_direction": "left_to_right"}, "attention_direction='left_to_right' has no counterpart"),
        ({"num_hidden_groups": 1}, "shared layers without embedding_size have no counterpart"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps=1e-05 has no counterpart"),
    ],
)
def test_what_has_no_counterpart(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    config = CONFIG.replace(**changes)
    with pytest.raises(ValueError, match=message):
        google.write(tmp_path / "out", config, random_params(config, {}), TOKENIZER)
    if "layer_norm_eps" not in changes:
        with pytest.raises(ValueError, match=message):
            hugging_face.write(tmp_path / "out", config, random_params(config, {}), TOKENIZER)
    assert not (tmp_path / "out").exists()


def test_a_head_that_is_ours_alone_is_not_left_out(tmp_path: Path) -> None:
    params = random_params(CONFIG, {"classifier": 3}) | {"bilstm": {"layer_0": {"kernel": np.zeros(3, np.float32)}}}
    for write in (google.write, hugging_face.write):
        with pytest.raises(ValueError, match="bilstm/layer_0/kernel has no counterpart in this format"):
            write(tmp_path / "out", CONFIG, params, TOKENIZER)


@pytest.mark.parametrize(("config", "act"), [(CONFIG, "gelu_new"), (ALBERT, "gelu")], ids=["bert", "albert"])
def test_the_other_form_of_gelu_is_refused(tmp_path: Path, config: BertConfig, act: str) -> None:
    """Google's config has one word for both: the tanh form is ALBERT's, erf the released BERTs'."""
    with pytest.raises(ValueError, match=f"hidden_act='{act}' has no counterpart in Google's config: "):
        google.write(tmp_path / "out", config.replace(hidden_act=act), random_params(config, {}), TOKENIZER)
    google.write(tmp_path, config, random_params(config, {}), TOKENIZER)
    (path,) = tmp_path.glob("*bert_config.json")
    assert json.loads(path.read_text())["hidden_act"] == "gelu"
    assert google.read_config(tmp_path).hidden_act == config.hidden_act


def test_configs_of_albert(tmp_path: Path) -> None:
    google.write(tmp_path, ALBERT, random_params(ALBERT, {}), TOKENIZER)
    path = tmp_path / "albert_config.json"
    released: dict[str, Any] = {"ln_type": "postln", "gap_size": 0, "num_memory_blocks": 0, "net_structure_type": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | released))
    assert google.read_config(tmp_path) == ALBERT
    path.write_text(json.dumps(json.loads(path.read_text()) | {"inner_group_num": 2}))
    with pytest.raises(ValueError, match="inner_group_num=2 is not supported by this encoder; it must be 1"):
        google.read_config(tmp_path)
