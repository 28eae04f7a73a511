"""BertConfig: released sizes, padding of the vocabulary, JSON of other writers, errors in one line."""

import json
from pathlib import Path

import pytest

from bert_jax.model.config import BertConfig, released_sizes


def test_base_and_large_have_the_sizes_of_the_paper() -> None:
    base, large = BertConfig.of_size("base"), BertConfig.of_size("large")
    assert (base.num_hidden_layers, base.hidden_size, base.num_attention_heads, base.intermediate_size) == (
        (12, 768, 12, 3072)
    )
    assert (large.num_hidden_layers, large.hidden_size, large.num_attention_heads, large.intermediate_size) == (
        (24, 1024, 16, 4096)
    )


def test_all_small_sizes_and_table_6_rows_are_there() -> None:
    sizes = released_sizes()
    for layers in (2, 4, 6, 8, 10, 12):
        for hidden in (128, 256, 512, 768):
            config = sizes[f"L{layers}_H{hidden}"]
            assert config.num_attention_heads == hidden // 64
            assert config.intermediate_size == 4 * hidden
    assert sizes["tiny"] == sizes["L2_H128"]
    assert sizes["medium"] == sizes["L8_H512"]
    assert {"L3_H768_A12", "L6_H768_A3", "L6_H768_A12", "L12_H1024_A16"} <= sizes.keys()
    assert sizes["L6_H768_A3"].head_size == 256


@pytest.mark.parametrize(("size", "padded"), [(30522, 30592), (128, 128), (129, 256), (1, 128)])
def test_vocabulary_is_padded_to_a_multiple_of_128(size: int, padded: int) -> None:
    assert BertConfig(vocab_size=size).padded_vocab_size == padded


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"hidden_size": 100, "num_attention_heads": 12}, ("hidden_size=100", "num_attention_heads=12")),
        ({"vocab_size": 0}, ("vocab_size=0", "positive")),
        ({"num_hidden_layers": True}, ("num_hidden_layers", "positive")),
        ({"hidden_dropout_prob": 1.0}, ("hidden_dropout_prob=1.0", "below 1")),
        ({"attention_probs_dropout_prob": -0.1}, ("attention_probs_dropout_prob=-0.1",)),
        ({"initializer_range": 0.0}, ("initializer_range",)),
        ({"hidden_act": "swish"}, ("hidden_act='swish'", "gelu")),
        ({"dtype": "float16"}, ("dtype='float16'", "bfloat16")),
        ({"attention_direction": "up"}, ("attention_direction", "left_to_right")),
    ],
)
def test_bad_values_are_refused_in_one_line(values: dict[str, object], words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as error:
        BertConfig.from_dict(values)
    assert "\n" not in str(error.value)
    assert all(word in str(error.value) for word in words)


def test_unknown_size_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"size 'huge' is not one of .*base"):
        BertConfig.of_size("huge")


def test_json_round_trip_keeps_every_field(tmp_path: Path) -> None:
    config = BertConfig.of_size("mini", vocab_size=119547, dtype="bfloat16", scan_layers=True, remat=True)
    config.to_json(tmp_path / "config.json")
    assert BertConfig.from_json(tmp_path / "config.json") == config


def test_google_and_hugging_face_files_load_unchanged(tmp_path: Path) -> None:
    google = {
        "attention_probs_dropout_prob": 0.1,
        "directionality": "bidi",
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 1024,
        "initializer_range": 0.02,
        "intermediate_size": 4096,
        "max_position_embeddings": 512,
        "num_attention_heads": 16,
        "num_hidden_layers": 24,
        "pooler_type": "first_token_transform",
        "type_vocab_size": 2,
        "vocab_size": 28996,
    }
    hugging_face = google | {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "transformers_version": "4.0.0",
    }
    for values in (google, hugging_face):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        assert BertConfig.from_json(path) == BertConfig.of_size("large", vocab_size=28996)


@pytest.mark.parametrize(
    ("key", "value"),
    [("position_embedding_type", "relative_key"), ("is_decoder", True), ("model_type", "roberta")],
)
def test_a_config_of_another_model_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"{key}=.*not supported"):
        BertConfig.from_dict({key: value})


def test_a_key_without_effect_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    BertConfig.from_dict({"rotary_base": 10000})
    assert "rotary_base" in caplog.text


def test_a_missing_or_odd_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no model config at"):
        BertConfig.from_json(tmp_path / "absent.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="holds a list"):
        BertConfig.from_json(tmp_path / "list.json")
