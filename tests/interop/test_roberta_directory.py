"""A RoBERTa directory with its byte-level BPE: the same masks filled and the same classes as transformers'."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bert_jax import load
from bert_jax.data.byte_bpe import ByteBPE
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.data.vocabulary import learn_byte_bpe
from bert_jax.interop import google, hugging_face
from bert_jax.training.source import open_source
from tests.interop.models import CONFIG, HEADS, random_params
from tests.interop.peer_models import SIZES, randomized, torch, transformers

ROOT = Path(__file__).parents[2]
TEXTS = ["The cat sat on the mat; the dog's hat is there.", "한국어 문장도 있다."] * 20
PAIRS = [("The cat sat.", "It's 한국어 🥱"), ("the mat", "The dog sat on the cat, there.")]


@pytest.fixture(scope="module")
def tokenizer() -> ByteBPE:
    """As RoBERTa's own, without a space before the first word."""
    learned = learn_byte_bpe(TEXTS, 380)
    return ByteBPE(learned.pieces, learned.merges, add_prefix_space=False)


def saved(directory: Path, architecture: str, tokenizer: ByteBPE) -> tuple[Any, Any]:
    """The model and the tokenizer of transformers, as it writes them."""
    tokenizer.save(directory)
    mask = transformers.AddedToken("<mask>", lstrip=True, special=True)
    peer = transformers.RobertaTokenizerFast.from_pretrained(directory, mask_token=mask)
    for file in directory.iterdir():
        file.unlink()
    peer.save_pretrained(directory)
    torch.manual_seed(0)
    ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    sizes = SIZES | ids | {"vocab_size": tokenizer.vocab_size, "max_position_embeddings": 66, "hidden_act": "gelu"}
    config = transformers.RobertaConfig(**sizes | {"type_vocab_size": 1, "num_labels": 3})
    model = randomized(getattr(transformers, architecture)(config).eval())
    model.save_pretrained(directory)
    return model, peer


def test_masks_are_filled_as_by_transformers(tmp_path: Path, tokenizer: ByteBPE) -> None:
    model, peer = saved(tmp_path, "RobertaForMaskedLM", tokenizer)
    ours = load(tmp_path)
    assert ours.tokenizer.fingerprint() == tokenizer.fingerprint()
    assert f"{tokenizer.vocab_size} byte-level BPE pieces (cased)" in repr(ours)
    for text in ("The cat <mask> on the mat.", "한국어 <mask>도 있다"):
        inputs = peer(text, return_tensors="pt")
        column = int((inputs["input_ids"][0] == tokenizer.mask_id).nonzero()[0, 0])
        with torch.no_grad():
            shares = torch.softmax(model(**inputs).logits[0, column], -1).numpy()
        for written in (text, text.replace("<mask>", "[MASK]")):
            (found,) = ours.fill_mask(written, top_k=4)
            expected = [i for i in np.argsort(-shares).tolist() if i not in tokenizer.special_ids][:4]
            assert [piece for piece, _ in found] == [tokenizer.readable(i) for i in expected]
            np.testing.assert_allclose([share for _, share in found], shares[expected], atol=1e-5)


def test_pairs_are_classified_as_by_transformers(tmp_path: Path, tokenizer: ByteBPE) -> None:
    model, peer = saved(tmp_path, "RobertaForSequenceClassification", tokenizer)
    for given, found in zip(PAIRS, load(tmp_path).classify(PAIRS), strict=True):
        with torch.no_grad():
            shares = torch.softmax(model(**peer(*given, return_tensors="pt")).logits[0], -1).numpy()
        assert found.label == f"LABEL_{shares.argmax()}"
        np.testing.assert_allclose(found.probability, shares.max(), atol=1e-5)


def test_the_program_takes_its_tokenizer(tmp_path: Path, tokenizer: ByteBPE) -> None:
    saved(tmp_path / "hf", "RobertaModel", tokenizer)
    command = [sys.executable, "-m", "experiments.import_checkpoint", "--source", str(tmp_path / "hf")]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "ours")], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "tokenizer  byte_bpe" in done.stdout
    assert load_tokenizer(open_source(tmp_path / "ours").tokenizer).fingerprint() == tokenizer.fingerprint()


def test_export_with_a_byte_level_bpe(tmp_path: Path, tokenizer: ByteBPE) -> None:
    config = CONFIG.replace(vocab_size=tokenizer.vocab_size)
    params = random_params(config, HEADS["classifier"])
    hugging_face.write(tmp_path / "hf", config, params, tokenizer)
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hf")
    assert peer.mask_token_id == tokenizer.mask_id and peer.pad_token_id == tokenizer.pad_id
    for a, b in PAIRS:
        ids = [*tokenizer.encode_ids(a), tokenizer.sep_id, tokenizer.sep_id, *tokenizer.encode_ids(b)]
        assert peer(a, b)["input_ids"] == [tokenizer.cls_id, *ids, tokenizer.sep_id]
    assert load_tokenizer(tmp_path / "hf").fingerprint() == tokenizer.fingerprint()
    with pytest.raises(ValueError, match="a byte-level BPE has no counterpart in Google's BERT"):
        google.write(tmp_path / "google", config, params, tokenizer)
