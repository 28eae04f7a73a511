"""Checkpoints in and out by the programs: every kind and head verified, circles without loss, one-line errors."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax import load
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.interop import google, hugging_face
from bert_jax.model.config import BertConfig
from bert_jax.training.checkpoint import FORMAT_VERSION, write_params
from bert_jax.training.source import RUN, Model, open_source, save_model
from bert_jax.training.workdir import read_workdir
from experiments.checkpoint_report import check_new, load_report
from tests.interop.models import ALBERT, CONFIG, HEADS, TOKENIZER, random_params

ROOT = Path(__file__).parents[2]
# torch_checkpoint.py knows Google's taggers and choosers by the names of its classifier.
GOOGLES = ("encoder", "pre-training", "masked LM", "classifier", "regressor", "answers")


def run(program: str, *arguments: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", f"experiments.{program}", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("config", [CONFIG, ALBERT], ids=["bert", "albert"])
@pytest.mark.parametrize("kind", HEADS)
def test_every_head_is_verified(tmp_path: Path, kind: str, config: BertConfig) -> None:
    """Against transformers, and Google's kinds against the forward pass by their own names."""
    pytest.importorskip("torch", reason="verification needs PyTorch")
    from experiments.verify_checkpoint import verify

    params = random_params(config, HEADS[kind])
    labels = (
        tuple("abcde"[: len(params[next(reversed(params))].get("bias", ()))])
        if kind in ("classifier", "tagger")
        else None
    )
    hugging_face.write(tmp_path / "hf", config, params, TOKENIZER, labels)
    directories = [tmp_path / "hf"]
    if kind == "pre-training":
        save_model(tmp_path / "ours", config, TOKENIZER, Model(params, {"step": 3}, labels, []), {})
        directories.append(tmp_path / "ours")
    if kind in GOOGLES:
        google.write(tmp_path / "google", config, params, TOKENIZER)
        directories.append(tmp_path / "google")
    for directory in directories:
        source = open_source(directory)
        model = source.read(strict=True)
        assert model.labels == (labels if directory.name != "google" else None)
        table = verify(source, model, load_tokenizer(source.tokenizer))
        wanted = ["embeddings", "layer 4"] + (
            ["logits"] if kind not in ("encoder", "pre-training", "masked LM") else []
        )
        wanted += ["mlm_logits"] if kind in ("pre-training", "masked LM") else []
        wanted += ["nsp_logits"] if kind == "pre-training" else []
        assert all(name in table for name in wanted), table
        assert "unexpected: none" in load_report(source, model, TOKENIZER)


def test_an_import_that_is_wrong_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch", reason="verification needs PyTorch")
    from experiments.verify_checkpoint import verify

    params = random_params(CONFIG, HEADS["classifier"])
    hugging_face.write(tmp_path / "hf", CONFIG, params, TOKENIZER)
    source = open_source(tmp_path / "hf")
    model = source.read()
    model.params["encoder"]["layer_2"]["feed_forward"]["output"]["kernel"][3, 5] += 5.0
    with pytest.raises(ValueError, match="layer 3, layer 4, logits differ from the independent implementation"):
        verify(source, model, TOKENIZER)
    assert "layer 2" in capsys.readouterr().out


def test_a_head_that_is_not_compared_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="verification needs PyTorch")
    from experiments.peers import torch_checkpoint
    from experiments.verify_checkpoint import verify

    hugging_face.write(tmp_path, CONFIG, random_params(CONFIG, HEADS["classifier"]), TOKENIZER)
    monkeypatch.setattr(torch_checkpoint, "hugging_face_outputs", lambda *_: {"layer 4": np.zeros(1)})
    source = open_source(tmp_path)
    with pytest.raises(ValueError, match=r"the independent implementation gives no .*logits to compare with"):
        verify(source, source.read(), TOKENIZER)


def test_the_programs(tmp_path: Path) -> None:
    params = random_params(CONFIG, HEADS["classifier"])
    hugging_face.write(tmp_path / "hf", CONFIG, params, TOKENIZER, ("no", "maybe", "yes"))
    done = run("import_checkpoint", "--source", tmp_path / "hf", "--output", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    assert "heads      pooler, classifier" in done.stdout and "labels     no, maybe, yes" in done.stdout
    source = open_source(tmp_path / "ours")
    assert source.kind == RUN and source.config == CONFIG and source.read().labels == ("no", "maybe", "yes")
    jax.tree.map(np.testing.assert_array_equal, source.read().params, params)
    with pytest.raises(ValueError, match="holds a model, but no run of a task; give it as init_from"):
        read_workdir(tmp_path / "ours")
    for form in ("huggingface", "google", "stablehlo"):
        done = run("export_checkpoint", "--source", tmp_path / "ours", "--output", tmp_path / form, "--format", form)
        assert done.returncode == 0, done.stderr
    for form in ("huggingface", "google"):
        jax.tree.map(np.testing.assert_array_equal, open_source(tmp_path / form).read(strict=True).params, params)
    assert json.loads((tmp_path / "stablehlo" / "signature.json").read_text())["labels"] == ["no", "maybe", "yes"]
    done = run("import_checkpoint", "--source", tmp_path / "hf", "--output", tmp_path / "ours")
    assert done.returncode == 1 and done.stderr.endswith("exists; give another --output or delete it\n")
    assert done.stderr.count("\n") == 1


def test_an_imported_model_answers_as_the_one_it_was_made_of(tmp_path: Path) -> None:
    """Neither takes another program's model for one that was trained here, on SQuAD 2.0."""
    params = random_params(CONFIG, HEADS["answers"])
    hugging_face.write(tmp_path / "hf", CONFIG, params, TOKENIZER)
    source = open_source(tmp_path / "hf")
    save_model(tmp_path / "ours", CONFIG, TOKENIZER, source.read(), {"imported_from": "hf"})
    texts = {"question": "a b ?", "context": "c d e f g h " * 20}
    models = [load(tmp_path / name) for name in ("hf", "ours")]
    assert models[0].answer(**texts) == models[1].answer(**texts)
    assert models[0].run == models[1].run == {}


def test_an_import_of_a_run_keeps_what_it_was_trained_with(tmp_path: Path) -> None:
    params = random_params(CONFIG, HEADS["tagger"])
    config = {"task": "tagging", "batch_size": 32, "max_seq_length": 16, "format": "klue", "labels": list("abcde")}
    save_model(tmp_path / "run", CONFIG, TOKENIZER, Model(params, {"step": 3}, tuple("abcde"), []), config)
    done = run("import_checkpoint", "--source", tmp_path / "run", "--output", tmp_path / "ours")
    assert done.returncode == 0, done.stderr
    kept = open_source(tmp_path / "ours").run
    assert kept == {k: v for k, v in config.items() if k != "task"} | {"imported_from": str(tmp_path / "run")}
    assert load(tmp_path / "ours").labels == tuple("abcde")


def test_a_run_knows_its_head(tmp_path: Path) -> None:
    params = random_params(CONFIG, HEADS["classifier"])
    save_model(tmp_path, CONFIG, TOKENIZER, Model(params, {"step": 3}, None, []), {})
    with pytest.raises(ValueError, match=r"task_head='classifier' is no choice for .*; a run knows its own"):
        open_source(tmp_path).read(task_head="classifier")


def test_what_is_refused(tmp_path: Path) -> None:
    params = random_params(CONFIG, HEADS["classifier"])
    model = Model(params, {"step": 3}, None, [])
    save_model(tmp_path / "ours", CONFIG, TOKENIZER, model, {})
    with pytest.raises(ValueError, match="step=9: "):
        open_source(tmp_path / "ours").read(9)
    hugging_face.write(tmp_path / "hf", CONFIG, params, TOKENIZER)
    with pytest.raises(ValueError, match=r"step=3: .*hf is a Hugging Face directory, which has one checkpoint"):
        open_source(tmp_path / "hf").read(3)
    (tmp_path / "file").write_text("")
    for path in ("file", "hf"):
        with pytest.raises(ValueError, match="exists; give another --output"):
            check_new(tmp_path / path)
    newer = tmp_path / "newer"
    save_model(newer, CONFIG, TOKENIZER, model, {})
    write_params(newer, params, {"step": 4, "format_version": FORMAT_VERSION + 1})
    with pytest.raises(ValueError, match=rf"4 has format_version {FORMAT_VERSION + 1}, this program reads up to"):
        open_source(newer).read()
    (tmp_path / "ours" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not JSON"):
        open_source(tmp_path / "ours")
    for damaged in ("[]", '{"labels": 3}'):
        (tmp_path / "ours" / "config.json").write_text(damaged)
        with pytest.raises(ValueError, match=r"config\.json is no JSON object, or its labels are no list"):
            open_source(tmp_path / "ours")
    (tmp_path / "ours" / "config.json").write_text("{}")
    (tmp_path / "ours" / "bert_config.json").write_text("[]")
    with pytest.raises(ValueError, match=r"bert_config\.json holds a list; expected a JSON object"):
        open_source(tmp_path / "ours")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_hidden_layers": 3}, "3 layers with their own parameters by it, but there are 4"),
        ({"num_hidden_layers": 10**12}, "1,000,000,000,000 layers with their own"),
        ({"vocab_size": 10**12}, r"embeddings/word/embedding is \(128, 24\) but \(1000000000000, 24\)"),
        ({"max_position_embeddings": 65}, r"embeddings/position/embedding is \(64, 24\) but \(65, 24\)"),
        ({"layer_norm_eps": 0.0}, "bert_config.json: layer_norm_eps=0.0 must be greater than 0"),
    ],
)
def test_a_config_that_is_not_the_runs_own(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """JAX would read beyond a table's end, and Flax leave out layers, without a word."""
    save_model(tmp_path, CONFIG, TOKENIZER, Model(random_params(CONFIG, {}), {"step": 3}, None, []), {})
    values = json.loads((tmp_path / "bert_config.json").read_text())
    (tmp_path / "bert_config.json").write_text(json.dumps(values | changes))
    with pytest.raises(ValueError, match=message) as error:
        load(tmp_path)
    assert "\n" not in str(error.value) and "bert_config.json" in str(error.value)


def test_a_half_written_model_is_none(tmp_path: Path) -> None:
    """Without the options of its tokenizer, which are written last, its casing would be guessed."""
    save_model(tmp_path, CONFIG, TOKENIZER, Model(random_params(CONFIG, {}), {"step": 3}, None, []), {})
    (tmp_path / "tokenizer" / "tokenizer_config.json").unlink()
    with pytest.raises(FileNotFoundError, match="is neither the workdir of a run, nor"):
        open_source(tmp_path)


BASE_HEADS = ("encoder", "pre-training", "masked LM", "classifier", "choice", "tagger", "answers")


@pytest.mark.slow
@pytest.mark.parametrize("kind", BASE_HEADS)
def test_base(tmp_path: Path, kind: str) -> None:
    """BASE's size, random weights: the circle through both formats is exact, and transformers gives the same."""
    pytest.importorskip("torch", reason="verification needs PyTorch")
    from experiments.verify_checkpoint import verify

    config = BertConfig(vocab_size=TOKENIZER.vocab_size * 700, hidden_act="gelu")
    params = random_params(config, HEADS[kind], scale=0.02)
    task_head = next((name for name in HEADS[kind] if name.endswith("_head") and name[0] in "ctq"), None)
    google.write(tmp_path / "google", config, params, TOKENIZER)
    found = open_source(tmp_path / "google").read(task_head=task_head, strict=True)
    jax.tree.map(np.testing.assert_array_equal, found.params, params)
    hugging_face.write(tmp_path / "hf", config, found.params, TOKENIZER)
    source = open_source(tmp_path / "hf")
    model = source.read(strict=True)
    jax.tree.map(np.testing.assert_array_equal, model.params, params)
    print(f"\n{kind}\n{verify(source, model, TOKENIZER)}")


def test_in_and_out_at_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    params, urls = random_params(CONFIG, HEADS["pre-training"]), {name: f"file://{tmp_path}/{name}" for name in "abc"}
    hugging_face.write(tmp_path / "a", CONFIG, params, TOKENIZER)
    done = run("import_checkpoint", "--source", urls["a"], "--output", urls["b"])
    assert done.returncode == 0, done.stderr
    done = run("export_checkpoint", "--source", urls["b"], "--output", urls["c"], "--format", "google")
    assert done.returncode == 0, done.stderr
    for url in urls.values():
        jax.tree.map(np.testing.assert_array_equal, load(url).params["encoder"], params["encoder"])
    assert load(urls["b"]).name == urls["b"] and (tmp_path / "c" / "bert_config.json").is_file()
    again = run("import_checkpoint", "--source", urls["a"], "--output", urls["b"])
    assert again.returncode == 1 and again.stderr == f"error: {urls['b']} exists; give another --output or delete it\n"
