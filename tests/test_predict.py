"""Filling masks: the numbers of the plain model, the same in any company, in few compiled shapes."""

import dataclasses
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax import load
from bert_jax.data.wordpiece import WordPiece
from bert_jax.model.bert import BertForPreTraining
from bert_jax.model.config import BertConfig
from bert_jax.predict import MASKS_A_ROW, Predictor, offered_pieces
from bert_jax.tasks.pretraining import initial_parameters
from bert_jax.training.train import train

WORDS = ["the", "cat", "sat", "on", "mat", "##s", ".", "[unused0]", "[unused1]"]
TINY = BertConfig(
    vocab_size=5 + len(WORDS),
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=80,
    initializer_range=0.5,
)


def predictor(config: BertConfig = TINY, **changes: Any) -> Predictor:
    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)
    config = dataclasses.replace(config, **changes)
    params = initial_parameters(BertForPreTraining(config), jax.random.key(1))
    return Predictor(config, tokenizer, params, name="tiny", step=3)


@pytest.fixture(scope="module")
def model() -> Predictor:
    return predictor()


def plain_probabilities(model: Predictor, text: str, column: int) -> np.ndarray:
    """Of one row, not padded, straight from the module."""
    tokenizer = model.tokenizer
    ids = [tokenizer.cls_id, *tokenizer.encode(text, special_tokens=True).ids, tokenizer.sep_id]
    row = jnp.asarray([ids], jnp.int32)
    at = jnp.asarray([[column]], jnp.int32)
    logits: Any = BertForPreTraining(model.config).apply(
        {"params": model.params}, row, None, jnp.ones_like(row), None, at, jnp.zeros_like(at)
    )
    return np.asarray(jax.nn.softmax(logits[0][0, 0]))[: model.config.vocab_size]


def test_probabilities_are_the_plain_models(model: Predictor) -> None:
    text = "The cat [MASK] on the mat."
    (filling,) = model.fill_mask(text, top_k=7)
    expected = plain_probabilities(model, text, 3)
    offered = [i for i, piece in enumerate(model.tokenizer.pieces) if piece in WORDS[:7]]
    best = sorted(offered, key=lambda i: -expected[i])
    assert [piece for piece, _ in filling] == [model.tokenizer.pieces[i] for i in best]
    np.testing.assert_allclose([share for _, share in filling], expected[best], rtol=1e-5)
    assert all(type(piece) is str and type(share) is float for piece, share in filling)


def test_every_mask_is_filled_in_order(model: Predictor) -> None:
    text = "[MASK] cat [MASK] [MASK]"
    fillings = model.fill_mask(text, top_k=1)
    assert len(fillings) == 3
    for filling, column in zip(fillings, (1, 3, 4), strict=True):
        probabilities = plain_probabilities(model, text, column)
        assert filling[0][1] == pytest.approx(probabilities[5:12].max(), rel=1e-5)


def test_more_masks_than_a_row_answers(model: Predictor) -> None:
    text = " ".join(["[MASK]"] * (2 * MASKS_A_ROW + 1) + ["cat"])
    fillings = model.fill_mask(text, top_k=1)
    assert len(fillings) == 2 * MASKS_A_ROW + 1
    assert fillings[-1][0][1] == pytest.approx(plain_probabilities(model, text, 17)[5:12].max(), rel=1e-5)


def test_the_same_alone_and_in_any_batch(model: Predictor) -> None:
    texts = [f"[MASK] {'cat ' * n}on the mat." for n in (1, 60, 2, 30, 3, 40, 5, 70, 8)] * 6
    together = model.fill_mask(texts)
    assert together == [model.fill_mask(text) for text in texts]
    assert model.fill_mask(texts[::-1]) == together[::-1]
    assert model.fill_mask([]) == []


def test_few_shapes_are_compiled(model: Predictor) -> None:
    fill: Any = model._fill
    model.fill_mask(["[MASK]" + " cat" * n for n in (1, 40, 70)], top_k=5)
    warm = fill._cache_size()
    for n in range(1, 75):
        model.fill_mask(["[MASK]" + " cat" * n] * (1 + n % 3), top_k=1 + n % 7)
    assert fill._cache_size() == warm == 3


def test_never_offers_special_or_unused_pieces_or_padding(model: Predictor) -> None:
    assert [p for p, _ in model.fill_mask("[MASK] cat", top_k=7)[0]] != []
    assert {p for p, _ in model.fill_mask("[MASK] cat", top_k=7)[0]} == set(WORDS[:7])
    offered = offered_pieces(model.tokenizer, model.config.padded_vocab_size)
    assert offered.shape == (128,) and offered.nonzero()[0].tolist() == list(range(5, 12))


@pytest.mark.parametrize(("direction", "column"), [("left_to_right", 2), ("right_to_left", 4)])
def test_a_one_sided_model_is_asked_beside_the_mask(direction: Any, column: int) -> None:
    model = predictor(attention_direction=direction)
    text = "the cat [MASK] on the mat"
    expected = plain_probabilities(model, text, column)[5:12].max()
    assert model.fill_mask(text, top_k=1)[0][0][1] == pytest.approx(expected, rel=1e-5)
    changed = "the cat [MASK] the mat on" if direction == "left_to_right" else "mat sat [MASK] on the mat"
    assert model.fill_mask(changed) == model.fill_mask(text)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fill_mask("no mask"), r"text 0 has no \[MASK\]: 'no mask'; write"),
        (lambda m: m.fill_mask(["[MASK] cat", "cat " * 50]), r"text 1 has no \[MASK\].*…'"),
        (lambda m: m.fill_mask("[MASK]" + " cat" * 78), "has 81 tokens .* max_position_embeddings is 80"),
        (lambda m: m.fill_mask("[MASK]", top_k=0), "top_k=0 must be between 1 and the 7 pieces"),
        (lambda m: m.fill_mask("[MASK]", top_k=8), "top_k=8 must be between"),
    ],
)
def test_errors_are_one_line(model: Predictor, call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call(model)
    assert "\n" not in str(error.value)


def test_a_model_without_the_head_says_so() -> None:
    model = predictor()
    del model.params["mlm_head"]
    with pytest.raises(ValueError, match="tiny has no masked-LM head"):
        model.fill_mask("[MASK]")


def test_says_what_it_is(model: Predictor) -> None:
    assert repr(model) == (
        "<Predictor 'tiny' at step 3: 2 layers x 16, "
        f"{model.num_parameters:,} parameters, 14 WordPiece pieces (uncased), mlm_head, nsp_head>"
    )
    # Embeddings (14 + 80 + 2) 16 + norm 32; a layer 4 (256 + 16) + 32 + 2 * 16 * 32 + 32 + 16 + 32; pooler 272;
    # MLM head 272 + 32 + 14; NSP 34.
    assert model.num_parameters == 1568 + 2 * (1088 + 32 + 1024 + 48 + 32) + 272 + 318 + 34


def trained(corpus: Path, path: Path, *, steps: int, mesh: dict[str, int]) -> Path:
    model = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = {
        "task": "pretraining",
        "corpus": str(corpus),
        "model": model | {"max_position_embeddings": 32},
        "batch_size": 32,
        "max_seq_length": 32,
        "train_steps": steps,
        "optimizer": {"learning_rate": 5e-3},
        "mesh": mesh,
    }
    train(config, path)
    return path


@pytest.fixture(scope="module")
def workdir(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return trained(tiny_corpus, tmp_path_factory.mktemp("runs") / "learned", steps=200, mesh={"data": 1})


def test_loads_a_run_that_has_learned(workdir: Path) -> None:
    model = load(workdir)
    assert model.step == 200
    # A sentence of its language stays inside one topic: ten words that begin with the same two letters.
    guesses = [piece for piece, _ in model.fill_mask("waa wad wag [MASK] wac waf wai", top_k=10)[0]]
    assert all(piece.startswith("wa") for piece in guesses[:5])


def test_loads_what_a_mesh_has_written(tiny_corpus: Path, tmp_path: Path) -> None:
    model = load(trained(tiny_corpus, tmp_path, steps=1, mesh={"data": 1, "fsdp": 2}))
    assert {len(leaf.devices()) for leaf in jax.tree.leaves(model.params)} == {1}
    assert len(model.fill_mask("waa [MASK]")[0]) == 5


def test_loads_in_a_fresh_process(workdir: Path) -> None:
    code = f"import bert_jax; print(len(bert_jax.load({str(workdir)!r}).fill_mask('waa [MASK]')[0]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stdout.strip() == "5", result.stderr[-2000:]


def test_bad_directories_are_told(workdir: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no directory .*; give the --workdir"):
        load(tmp_path / "absent")
    with pytest.raises(FileNotFoundError, match=r"holds no bert_config\.json"):
        load(tmp_path)
    shutil.copy(workdir / "bert_config.json", tmp_path)
    shutil.copytree(workdir / "tokenizer", tmp_path / "tokenizer")
    with pytest.raises(FileNotFoundError, match="holds no checkpoints"):
        load(tmp_path)
    shutil.copytree(workdir / "checkpoints", tmp_path / "checkpoints")
    values = json.loads((tmp_path / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(values | {"vocab_size": 60}))
    with pytest.raises(ValueError, match="the model has 60 pieces and its tokenizer 65"):
        load(tmp_path)
