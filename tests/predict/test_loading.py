"""Loading: every kind of directory, what is told of those that hold no model, and what the predictor says it is."""

import copy
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import load
from bert_jax.predict.texts import whole
from bert_jax.training.train import train
from tests.predict.small_models import for_pretraining, save_peer, tokenizer, with_head


def test_says_what_it_is() -> None:
    model = for_pretraining()
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
    with pytest.raises(FileNotFoundError, match="is neither the workdir of a run, nor a Hugging Face directory"):
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


def test_loads_what_transformers_writes(tmp_path: Path) -> None:
    save_peer(tmp_path, "BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    model = load(tmp_path)
    assert (model.kind, model.step, model.labels, model.run) == ("Hugging Face", 0, ("no", "yes"), {})
    assert repr(model).endswith("14 WordPiece pieces (uncased), classifier (no, yes)>")
    assert f"<Predictor {str(tmp_path)!r} from Hugging Face: 2 layers x 16, " in repr(model)
    with pytest.raises(ValueError, match=r"step=3: .* has one checkpoint"):
        load(tmp_path, step=3)


def test_a_table_may_have_rows_to_spare_but_not_too_few(tmp_path: Path) -> None:
    save_peer(tmp_path / "spare", "BertForMaskedLM", vocab_size=20)
    model = load(tmp_path / "spare")
    assert model.num_offered == 7 and len(model.fill_mask("the [MASK]", top_k=7)[0]) == 7
    save_peer(tmp_path / "few", "BertForMaskedLM", vocab_size=13)
    with pytest.raises(ValueError, match="the model has 13 pieces and its tokenizer 14; restore the tokenizer"):
        load(tmp_path / "few")


def test_an_output_layer_whose_name_does_not_tell(tmp_path: Path) -> None:
    save_peer(tmp_path, "BertForSequenceClassification", id2label={0: "one"})
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | {"architectures": ["Mine"]}))
    found = load(tmp_path, task_head="choice_head").choose("the cat", ["sat", "on"])
    assert sum(found.probabilities) == pytest.approx(1)


def test_parameters_are_those_of_the_directory(tmp_path: Path) -> None:
    peer = save_peer(tmp_path, "BertForTokenClassification", id2label={0: "O", 1: "B-X"})
    model = load(tmp_path)
    np.testing.assert_array_equal(model.params["tagging_head"]["bias"], peer.classifier.bias.detach().numpy())
    assert model.num_parameters == sum(parameter.numel() for parameter in peer.parameters())


def test_labels_must_be_as_many_as_outputs() -> None:
    with pytest.raises(ValueError, match="tiny has 2 labels but its classifier 3 outputs; restore them"):
        with_head("classifier", 3, labels=("a", "b"))


def test_labels_must_differ() -> None:
    with pytest.raises(ValueError, match="tiny has the label 'a' twice; give each output its own"):
        with_head("classifier", 3, labels=("a", "b", "a"))


def test_a_model_can_be_pickled_and_copied() -> None:
    model = for_pretraining()
    expected = model.embed("the cat")
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.embed("the cat"), expected)


def test_numbers_must_be_whole() -> None:
    assert whole(np.int64(3), "top_k") == 3
    for value in ("3", 1.5, None):
        with pytest.raises(ValueError, match=r"top_k is .*; give a whole number"):
            whole(value, "top_k")


def test_a_head_alone_says_what_it_lacks() -> None:
    model = with_head("tagging_head", 2)
    for name in ("embeddings", "encoder"):
        del model.params[name]
    with pytest.raises(ValueError, match="tiny has no embeddings: its head was trained on stored features; load a run"):
        model.tag("the cat")


def test_the_readmes_examples_run() -> None:
    """On models as small as the quickstart's: two layers."""
    text = (Path(__file__).parents[2] / "README.md").read_text()
    block = text.split("## Use a model")[1].split("```python\n")[1].split("```")[0]
    models = {"runs/quickstart": for_pretraining(), "runs/reviews": with_head("classifier", 2, labels=("no", "yes"))}
    names: dict[str, Any] = {"bert_jax": SimpleNamespace(load=models.__getitem__, load_tokenizer=lambda _: tokenizer())}
    lines = [line for line in block.splitlines() if line != "import bert_jax"]
    exec("\n".join(lines), names)
    assert names["model"] is models["runs/quickstart"] and names["reviews"] is models["runs/reviews"]
