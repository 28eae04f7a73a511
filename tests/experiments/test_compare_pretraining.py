"""The comparison is fair: both see the same text, masks and batches; the page says what was measured."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.training.settings import plan, read_config
from bert_jax.training.sharding import MeshShape, make_mesh, put_batch
from bert_jax.training.train import begin
from experiments.benchmark_step import NoCheckpoints
from experiments.compare_pretraining import documents, export, main
from experiments.comparison_page import write_page


def config(corpus: Path) -> dict[str, Any]:
    model = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    return {
        "task": "pretraining",
        "corpus": str(corpus),
        "seed": 5,
        "model": model | {"max_position_embeddings": 32},
        "batch_size": 4,
        "max_seq_length": 32,
        "train_steps": 3,
        "warmup_steps": 1,
        "eval_examples": 6,
        "mesh": {"data": 1},
    }


def test_exported_batches_are_those_of_the_training_step(tiny_corpus: Path, tmp_path: Path) -> None:
    settings, task = read_config(config(tiny_corpus))
    initial = export(task, config(tiny_corpus), tmp_path / "batches")
    assert initial["mlm_loss"] == pytest.approx(np.log(65), rel=0.05)
    mesh = make_mesh(MeshShape(data=1))
    stream = task.stream(4, 32, 1)
    log_unigram = partial(np.take, _log_unigram(tiny_corpus))
    targets = np.load(tmp_path / "batches/train/masked_targets.npy")
    weights = np.load(tmp_path / "batches/train/masked_weights.npy")
    with jax.set_mesh(mesh):
        phases = plan(settings, task)
        state, step, _ = begin(settings, phases, task, mesh, NoCheckpoints())
        initial_weights = np.load(tmp_path / "batches/initial.npz")
        word = jax.device_get(state.params["embeddings"]["word"]["embedding"])
        # The same draw by two programs, which the compiler may round differently.
        np.testing.assert_allclose(initial_weights["embeddings/word/embedding"], word, rtol=1e-6)
        for number in range(3):
            state, figures = step(state, put_batch(stream.batch(number), mesh), 1)
            total, weight = jax.device_get(figures["unigram_loss"])
            assert weight == weights[number].sum()
            # The unigram loss is a fingerprint of the targets.
            np.testing.assert_allclose(total, -(log_unigram(targets[number]) * weights[number]).sum(), rtol=1e-5)


def test_held_out_rows_of_padding_are_left_out(tiny_corpus: Path, tmp_path: Path) -> None:
    _, task = read_config(config(tiny_corpus))
    export(task, config(tiny_corpus), tmp_path)
    rows = [len(np.load(path)["input_ids"]) for path in sorted((tmp_path / "held_out").iterdir())]
    assert rows == [4, 2]


def test_documents(tmp_path: Path) -> None:
    wiki = " = First = \n\n One . \n = = Part = = \n Two . \n\n = Second = \n Three . \n"
    (tmp_path / "wiki.txt").write_text(wiki)
    (tmp_path / "book.txt").write_text("\n\n".join(["word " * 1000] * 7))
    found = documents([str(tmp_path / "*.txt")])
    assert [name for name, _ in found] == ["book.txt#0", "book.txt#1", "book.txt#2", "wiki.txt#0", "wiki.txt#1"]
    assert [text.split("\n\n").count("word " * 1000) for _, text in found[:3]] == [3, 3, 1]
    assert [text.split() for _, text in found[3:]] == [["One", ".", "Two", "."], ["Three", "."]]


def test_a_used_workdir_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    (tmp_path / "ours").mkdir()
    with pytest.raises(SystemExit, match="a comparison starts afresh"):
        main(["--input", "x", "--workdir", str(tmp_path)])


def test_page(tmp_path: Path) -> None:
    figures = {"mlm_loss": 5.0, "mlm_accuracy": 0.2, "nsp_accuracy": 0.6, "nsp_loss": 0.6}
    run = figures | {"seconds": 9.0, "seconds_with_first_step": 10.0, "seconds_per_step": 1.0, "initial": figures}
    run |= {"seconds_per_step_median": 1.0}
    run["curve"] = [{"step": 5, "seconds": 4.0} | figures, {"step": 10, "seconds": 9.0} | figures]
    split = {"documents": 3, "sentences": 9, "tokens": 99}
    results = {
        "command": "python -m experiments.compare_pretraining --train_steps 10",
        "config": config(tmp_path) | {"eval_every_steps": 5, "optimizer": {"learning_rate": 1e-3}},
        "corpus": {"content_sha256": "ab", "splits": {"train": split, "held_out": split}},
        "machine": {"versions": {"jax": "1"}, "processor": "P", "cores": 2, "memory_gb": 3.0, "python": "3"},
        "initial": figures | {"unigram_loss": 6.0},
        "ours": run,
        "peer": run,
        "loss_ratio": 1.0,
        "time_ratio": 1.2,
    }
    write_page(results, tmp_path)
    assert json.loads((tmp_path / "pretraining_comparison.json").read_text()) == results
    assert "1.20 times as long" in (tmp_path / "pretraining_comparison.md").read_text()
    plot = (tmp_path / "pretraining_comparison.svg").read_text()
    assert "held-out masked-LM loss (nats)" in plot and len(plot) < 200_000


@pytest.mark.slow
def test_small_comparison(tmp_path: Path) -> None:
    pytest.importorskip("torch", exc_type=ImportError)
    pytest.importorskip("transformers", exc_type=ImportError)
    text = "\n\n".join(f"The {a} {b} is here. It was {b} before. Then a {a} came." for a in WORDS for b in WORDS)
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text(text[number * 40 :])
    options = "--train_steps 6 --slice_steps 3 --batch_size 4 --max_seq_length 32 --hidden_size 64 --layers 1"
    options += f" --vocab_size 200 --eval_examples 8 --results {tmp_path / 'results'} --workdir {tmp_path / 'work'}"
    main(["--input", str(tmp_path / "*.txt"), *options.split()])
    results = json.loads((tmp_path / "results/pretraining_comparison.json").read_text())
    assert [point["step"] for point in results["ours"]["curve"]] == [3, 6]
    assert results["peer"]["initial"]["mlm_loss"] == pytest.approx(results["initial"]["mlm_loss"], abs=1e-4)
    assert results["loss_ratio"] == pytest.approx(1.0, abs=0.1)


WORDS = ["cat", "dog", "tree", "house", "river", "stone", "cloud", "road"]


def _log_unigram(corpus: Path) -> np.ndarray:
    from bert_jax.data.corpus import Corpus

    counts = Corpus.open(corpus).unigrams + 1.0
    return np.log(counts / counts.sum())
