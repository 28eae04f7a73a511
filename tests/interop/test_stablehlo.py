"""The exported program, in a process without our code, gives what the model gives, at any batch and length."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop import stablehlo
from bert_jax.interop.translate import flat
from tests.interop.models import CONFIG, HEADS, TOKENIZER, random_params

ALONE = """
import json, sys
from pathlib import Path
import jax.export, numpy as np
from safetensors.numpy import load_file
directory = Path(sys.argv[1])
assert not any(name.startswith("bert_jax") for name in sys.modules)
exported = jax.export.deserialize((directory / "model.stablehlo").read_bytes())
weights = load_file(directory / "model.safetensors")
for number, batch in enumerate(json.loads(sys.argv[2])):
    outputs = exported.call(weights, *(np.asarray(values, np.int32) for values in batch))
    np.savez(directory / f"{number}.npz", **outputs)
assert not any(name.startswith("bert_jax") for name in sys.modules)
"""


# In a process of its own, since the checks of shapes in tests take no symbols.
WRITE = """
import sys
from bert_jax.model import attention
del attention.fused_kernel  # an export for every platform must not choose by this one's
from bert_jax.interop import stablehlo
from tests.interop import models
config = {"bert": models.CONFIG, "albert": models.ALBERT}.get(sys.argv[2]) or models.CONFIG.replace(
    attention_direction="left_to_right", scan_layers=True, attention_implementation="auto")
params = models.random_params(config, models.HEADS[sys.argv[3]])
print(stablehlo.write(sys.argv[1], config, params, models.TOKENIZER, ("a", "b", "c")))
"""
ROOT = Path(__file__).parents[2]


def write(directory: Path, config: str, kind: str) -> str:
    arguments = [sys.executable, "-c", WRITE, str(directory), config, kind]
    return subprocess.run(arguments, check=True, cwd=ROOT, timeout=300, capture_output=True, text=True).stdout.strip()


def batches() -> list[list[list[list[int]]]]:
    rng = np.random.default_rng(0)
    found = []
    for rows, length in ((2, 7), (1, 64), (3, 12)):
        mask = (np.arange(length) < rng.integers(3, length + 1, (rows, 1))).astype(int)
        ids = rng.integers(5, CONFIG.vocab_size, (rows, length)) * mask
        found.append([ids.tolist(), (mask * (np.arange(length) > 4)).tolist(), mask.tolist()])
    return found


@pytest.mark.parametrize("kind", ["pre-training", "classifier", "answers"])
def test_without_our_code(tmp_path: Path, kind: str) -> None:
    params = random_params(CONFIG, HEADS[kind])
    written = write(tmp_path, "bert", kind)
    arguments = [sys.executable, "-c", ALONE, str(tmp_path), json.dumps(batches())]
    subprocess.run(arguments, check=True, cwd=tmp_path, timeout=300)
    serve = jax.jit(stablehlo.serving_function(CONFIG, params))
    for number, batch in enumerate(batches()):
        expected = serve(flat(params), *(jnp.asarray(values, jnp.int32) for values in batch))
        found = np.load(tmp_path / f"{number}.npz")
        assert set(found) == set(expected) and all(name in written for name in expected)
        for name, values in expected.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-5)
    signature = json.loads((tmp_path / "signature.json").read_text())
    assert signature["labels"] == ["a", "b", "c"] and signature["max_length"] == 64
    assert load_tokenizer(tmp_path / "tokenizer").fingerprint() == TOKENIZER.fingerprint()


@pytest.mark.parametrize("config", ["albert", "left-to-right"])
def test_other_encoders(tmp_path: Path, config: str) -> None:
    assert write(tmp_path, config, "classifier") == "logits float32[b,3]"


def test_a_model_without_an_encoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no encoder to export, only bilstm; give a model that reads tokens"):
        stablehlo.write(tmp_path, CONFIG, {"bilstm": {}}, TOKENIZER)
