"""Feature-based tagging on a tiny encoder: what is stored, that it is reused, the rows of Table 7, end to end."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.tasks.feature_tagging import FEATURES, feature_tagging
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.settings import read_config
from bert_jax.training.sharding import MeshShape, make_mesh
from bert_jax.training.train import train

WORDS = ["anna", "bob", "sees", "hears"]
TOKENIZER = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)
CONFIG = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=8,
    num_hidden_layers=4,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=16,
    initializer_range=0.5,
)
TEXTS = [["anna", "sees", "bob"], ["bob", "hears"], ["sees"], ["hears", "anna", "anna"]]


@pytest.fixture(scope="module")
def params() -> Any:
    return jax.jit(Bert(CONFIG).init)(jax.random.key(0), jnp.ones((1, 1), jnp.int32))["params"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("features")
    tagged = [[f"{word}\t{'B-PER' if word in ('anna', 'bob') else 'O'}" for word in text] for text in TEXTS]
    (directory / "train.txt").write_text("\n\n".join("\n".join(text) for text in tagged) + "\n")
    TOKENIZER.save(directory / "tokenizer")
    return directory


def of(data: Path, params: Any, features_dir: Path, **changes: Any) -> Any:
    options = {"model": CONFIG.__dict__}
    options |= {"data_dir": str(data), "train": "train.txt", "tokenizer": str(data / "tokenizer"), "bilstm_size": 4}
    return feature_tagging(seed=0, features_dir=str(features_dir), encoder=lambda: params, **(options | changes))


def test_features_are_the_layers_of_the_encoder(data: Path, params: Any, tmp_path: Path) -> None:
    with jax.set_mesh(make_mesh(MeshShape())):  # as inside a run on all devices
        stream = of(data, params, tmp_path / "f").stream(4, 16, 1)
    stored = np.load(tmp_path / "f" / "train" / "features.npy", mmap_mode="r")
    assert stored.shape == (9 + 2 * 4, 4, 8) and stored.dtype == np.float32
    start = 0
    for text in TEXTS:
        ids = jnp.array([[2, *(TOKENIZER.encode_ids(word)[0] for word in text), 3]])
        states: Any = Bert(CONFIG).apply({"params": params}, ids, all_hidden_states=True)
        alone = np.stack([state[0] for state in states.hidden_states[1:]], axis=1)
        np.testing.assert_allclose(stored[start : start + ids.shape[1]], alone, atol=1e-5)
        start += ids.shape[1]
    batch = stream.batch(0)
    real = batch["sequence_ids"] > 0
    assert batch["features"].shape == (*real.shape, 4, 8) and not batch["features"][~real].any()
    info = json.loads((tmp_path / "f" / "train" / "features.json").read_text())
    assert info["layers"] == [1, 2, 3, 4] and info["max_seq_length"] == 16 and info["context"] == "sentence"


def test_features_are_written_once_and_refused_for_another_encoder(data: Path, params: Any, tmp_path: Path) -> None:
    of(data, params, tmp_path, stored_layers=(0, 1, 2, 3, 4), features_dtype="float16").stream(4, 16, 1)
    path = tmp_path / "train" / "features.npy"
    first = path.stat().st_mtime_ns
    values = np.load(path)
    for row, layers in (("embeddings", slice(0, 1)), ("last", slice(4, 5)), ("weighted_sum_all", slice(1, 5))):
        task = of(data, params, tmp_path, features=row, features_dtype="float16")
        given = task.evaluation("train", 4, 16, 1).dataset.examples.token_targets["features"][0]
        np.testing.assert_array_equal(given, values[:, layers])
    assert path.stat().st_mtime_ns == first
    other = jax.tree.map(lambda x: x + 1, params)
    for encoder, changes, length, reason in [
        (other, {"features_dtype": "float16"}, 16, r"\(model: "),
        (params, {}, 16, r"\(dtype: 'float16', not 'float32'\)"),
        (params, {"features_dtype": "float16", "context": "document"}, 16, r"\(context: "),
        (params, {"features_dtype": "float16"}, 8, r"\(max_seq_length: 16, not 8\)"),
    ]:
        with pytest.raises(ValueError, match=f"holds other features {reason}.*features_dir, or delete it"):
            of(data, encoder, tmp_path, **changes).stream(4, length, 1)


def test_layers_that_are_not_stored_are_refused(data: Path, params: Any, tmp_path: Path) -> None:
    of(data, params, tmp_path, features="last").stream(4, 16, 1)
    with pytest.raises(ValueError, match=r"holds layers \[4\], not 3"):
        of(data, params, tmp_path, features="second_to_last").stream(4, 16, 1)
    with pytest.raises(ValueError, match="lacks layer 4"):
        of(data, params, tmp_path / "new", features="last", stored_layers=(0, 1)).stream(4, 16, 1)
    with pytest.raises(ValueError, match="layer 5 is not one of 0"):
        of(data, params, tmp_path / "new", stored_layers=(5,)).stream(4, 16, 1)
    with pytest.raises(ValueError, match="features='first' is unknown"):
        of(data, params, tmp_path, features="first")


def test_damaged_files_are_named(data: Path, params: Any, tmp_path: Path) -> None:
    of(data, params, tmp_path, features="last").stream(4, 16, 1)
    values, info = tmp_path / "train" / "features.npy", tmp_path / "train" / "features.json"
    whole = values.read_bytes()
    few = tmp_path / "few.npy"
    np.save(few, np.zeros((3, 1, 8), np.float32))
    for content, reason in (
        (whole[:-40], r"is damaged \("),
        (b"", r"is damaged \("),
        (few.read_bytes(), r"has the shape \(3, 1, 8\), not \(17, 1, 8\)"),
        (None, "is missing though features.json is there"),
    ):
        values.unlink() if content is None else values.write_bytes(content)
        with pytest.raises(ValueError, match=f"features.npy {reason}.*delete it") as error:
            of(data, params, tmp_path, features="last").stream(4, 16, 1)
        assert "\n" not in str(error.value)
    for content, reason in ((info.read_text()[:20], "is damaged"), ("[]", "does not say whose")):
        info.write_text(content)
        with pytest.raises(ValueError, match=f"features.json {reason}.*delete it"):
            of(data, params, tmp_path, features="last").stream(4, 16, 1)


@pytest.mark.parametrize("row", FEATURES)
def test_rows_of_table_7(row: str, data: Path, params: Any, tmp_path: Path) -> None:
    task = of(data, params, tmp_path, features=row)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    summed, layers = row.startswith("weighted"), {"weighted_sum_all": 4, "concat_last_four": 4}.get(row, 1)
    assert ("layer_weights" in shapes) == summed
    width = 8 if summed else 8 * layers
    assert shapes["bilstm"]["forward_0"]["input_kernel"].shape == (width, 16)


def test_a_weighted_sum_begins_as_the_mean(params: Any, data: Path, tmp_path: Path) -> None:
    task = of(data, params, tmp_path, features="weighted_sum_last_four")
    batch = {name: jnp.asarray(value) for name, value in task.stream(4, 16, 1).batch(0).items()}
    fresh = jax.jit(task.init)(jax.random.key(0))
    mean = jnp.broadcast_to(batch["features"].mean(2, keepdims=True), batch["features"].shape)
    given, same = (task.forward(fresh, batch | {"features": x}, None) for x in (batch["features"], mean))
    np.testing.assert_allclose(given, same, atol=1e-5)
    other = fresh | {"layer_weights": jnp.array([0.0, 0, 0, 50])}
    last = jnp.broadcast_to(batch["features"][:, :, 3:], batch["features"].shape)
    given, same = (task.forward(p, b, None) for p, b in ((other, batch), (fresh, batch | {"features": last})))
    np.testing.assert_allclose(given, same, atol=1e-5)


def test_trains_and_predicts_end_to_end(data: Path, params: Any, tmp_path: Path) -> None:
    """From the workdir of a run as ``init_from``; the encoder is none of what is trained and saved."""
    model = {k: v for k, v in CONFIG.__dict__.items() if k != "vocab_size"}
    shared = {"data_dir": str(data), "train": "train.txt", "dev": "train.txt", "batch_size": 4, "max_seq_length": 16}
    shared |= {"mesh": {"data": 1}, "eval_every_steps": 1000}
    fine_tuned = shared | {"task": "tagging", "model": model, "tokenizer": str(data / "tokenizer"), "train_steps": 1}
    train(fine_tuned, tmp_path / "encoder")
    config = shared | {"task": "features", "init_from": str(tmp_path / "encoder"), "train_steps": 60, "bilstm_size": 8}
    config |= {"features_dir": str(tmp_path / "f"), "optimizer": {"learning_rate": 2e-2, "bias_correction": True}}
    result = train(config, tmp_path / "run")
    assert result["f1"] == 100
    _, task = read_config(config)
    assert set(jax.eval_shape(task.init, jax.random.key(0))) == {"bilstm", "tagging_head"}
    (tmp_path / "words.txt").write_text("bob\nsees\n\nanna\n")
    predict_workdir(tmp_path / "run", tmp_path / "words.txt", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "bob\tB-PER\nsees\tO\n\nanna\tB-PER\n"
