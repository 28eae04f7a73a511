"""Files as transformers' Flax models were saved: PyTorch's names and orientation; and what is refused."""

from pathlib import Path
from typing import Any

import flax.serialization
import ml_dtypes
import numpy as np
import pytest
from flax.serialization import msgpack_serialize

from bert_jax.interop.flax_file import read_flax


def save(path: Path, tree: Any) -> Path:
    path.write_bytes(msgpack_serialize(tree))
    return path


def model() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def dense(inputs: int, outputs: int) -> dict[str, Any]:
        shapes = {"kernel": (inputs, outputs), "bias": (outputs,)}
        return {leaf: rng.normal(size=shape).astype(np.float32) for leaf, shape in shapes.items()}

    norm = {"scale": np.ones(4, np.float32), "bias": np.zeros(4, np.float32)}
    words = {"embedding": rng.normal(size=(9, 4)).astype(np.float32)}
    layer = {"attention": {"self": {"query": dense(4, 4)}}, "intermediate": {"dense": dense(4, 6)}}
    return {
        "bert": {
            "embeddings": {"word_embeddings": words, "LayerNorm": norm},
            "encoder": {"layer": {"0": layer}},
            "pooler": {"dense": dense(4, 4)},
        },
        "cls": {"predictions": {"bias": np.arange(9, dtype=np.float32)}, "seq_relationship": dense(4, 2)},
    }


def test_names_and_orientation(tmp_path: Path) -> None:
    tree = model()
    found = read_flax(save(tmp_path / "flax_model.msgpack", tree))
    bert = tree["bert"]
    layer = bert["encoder"]["layer"]["0"]
    expected = {
        "bert.embeddings.word_embeddings.weight": bert["embeddings"]["word_embeddings"]["embedding"],
        "bert.embeddings.LayerNorm.weight": bert["embeddings"]["LayerNorm"]["scale"],
        "bert.embeddings.LayerNorm.bias": bert["embeddings"]["LayerNorm"]["bias"],
        "bert.encoder.layer.0.attention.self.query.weight": layer["attention"]["self"]["query"]["kernel"].T,
        "bert.encoder.layer.0.attention.self.query.bias": layer["attention"]["self"]["query"]["bias"],
        "bert.encoder.layer.0.intermediate.dense.weight": layer["intermediate"]["dense"]["kernel"].T,
        "bert.encoder.layer.0.intermediate.dense.bias": layer["intermediate"]["dense"]["bias"],
        "bert.pooler.dense.weight": bert["pooler"]["dense"]["kernel"].T,
        "bert.pooler.dense.bias": bert["pooler"]["dense"]["bias"],
        "cls.predictions.bias": tree["cls"]["predictions"]["bias"],
        "cls.seq_relationship.weight": tree["cls"]["seq_relationship"]["kernel"].T,
        "cls.seq_relationship.bias": tree["cls"]["seq_relationship"]["bias"],
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], value)


def test_arrays_in_chunks_and_of_sixteen_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flax.serialization, "MAX_CHUNK_SIZE", 32)
    kernel = np.arange(60, dtype=np.float32).reshape(5, 12)
    path = save(tmp_path / "f", {"a": {"kernel": kernel, "bias": np.arange(99).astype(ml_dtypes.bfloat16)}})
    assert b"__msgpack_chunked_array__" in path.read_bytes()
    found = read_flax(path)
    np.testing.assert_array_equal(found["a.weight"], kernel.T)
    assert found["a.bias"].dtype == ml_dtypes.bfloat16 and found["a.bias"].shape == (99,)


@pytest.mark.parametrize(
    ("tree", "reason"),
    [
        ({"a": {"bias": 3}}, "'a.bias' is a int, expected a nested dict of arrays"),
        ({"a": {"bias": [np.zeros(2)]}}, "'a.bias' is a list"),
        ({"a": {"bias": None}}, "'a.bias' is a NoneType"),
        ({"a": {"bias": np.float32(3)}}, "'a.bias' is a float32"),
        ({"a": {"bias": np.zeros(2, np.complex64)}}, "'a.bias' is an array of complex64, expected numbers"),
        ({"a": {"kernel": np.zeros((2, 3, 4))}}, r"'a.kernel' is (2, 3, 4), expected a matrix"),
        ({"a": {"kernel": np.zeros((2, 3)), "weight": np.zeros(2)}}, "'a.weight' is there twice as 'a.weight'"),
        ({"a": {3: np.zeros(2)}}, "'a' has keys that are no strings"),
        (np.zeros(3), "the whole is a ndarray"),
        ({"a": {}}, "no arrays"),
    ],
)
def test_what_is_refused(tmp_path: Path, tree: Any, reason: str) -> None:
    assert reason in refused(save(tmp_path / "f", tree))


def refused(path: Path) -> str:
    with pytest.raises(ValueError) as caught:
        read_flax(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and "\n" not in message
    assert message.endswith("copy it again, or ask for model.safetensors")
    return message


def test_damaged_files(tmp_path: Path) -> None:
    path = save(tmp_path / "f", model())
    data = path.read_bytes()
    for length in sorted({*range(0, len(data), 11), *range(len(data) - 20, len(data))}):
        path.write_bytes(data[:length])
        refused(path)
    path.write_bytes(data + b"\x00")
    refused(path)
    rng = np.random.default_rng(0)
    # There is no checksum, so a flipped bit in a name or number passes; but nothing other than a ValueError comes.
    for position in rng.integers(0, len(data) * 8, 1000):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            read_flax(path)
        except ValueError as error:
            assert "\n" not in str(error)
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "starts with b'version https://git-lfs." in refused(path)
    with pytest.raises(FileNotFoundError):
        read_flax(tmp_path / "absent")
