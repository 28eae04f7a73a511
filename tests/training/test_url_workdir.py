"""Whole runs with everything at URLs: killed on one machine, gone on with on another, to the same bits."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.data.object_store import Store, push
from bert_jax.report import write_report
from bert_jax.training import pusher
from bert_jax.training.checkpoint import read_params
from bert_jax.training.debug_step import debug_step
from bert_jax.training.evaluate import evaluate_workdir, predict_workdir
from bert_jax.training.metric_log import MetricLog, read_metrics
from bert_jax.training.settings import local_data
from bert_jax.training.stored_run import local_run
from bert_jax.training.train import train
from tests.fixtures import make_run
from tests.shaky_store import Shaky, clean_stores, failing  # noqa: F401  (a fixture)
from tests.training.test_hosts import ROOT, config, losses
from tests.training.test_kills import same_parameters

pytestmark = [pytest.mark.end_to_end, pytest.mark.usefixtures("clean_stores")]
SCRIPT = """
import json, sys
from bert_jax.training import pusher
from bert_jax.training.train import train
pusher.SECONDS = 0.05
train(json.loads(sys.argv[1]), sys.argv[2])
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher, "SECONDS", 0.05)


def run_config(corpus: Path | str, **changes: Any) -> dict[str, Any]:
    return config(Path("corpus"), mesh={"data": 1}, keep_last=2, **changes) | {"corpus": str(corpus)}


def test_killed_on_one_machine_it_ends_on_another_with_the_same_bits(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = tmp_path / "bucket"
    shutil.copytree(tiny_corpus, bucket / "corpus")
    changes = {"train_steps": 30, "checkpoint_every_steps": 2, "eval_every_steps": 15}
    train(run_config(tiny_corpus, **changes), tmp_path / "straight")
    stored, url = run_config(f"file://{bucket}/corpus", **changes), f"file://{bucket}/run"
    command = [sys.executable, "-c", SCRIPT, json.dumps(stored), url]
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "a"), "PYTHONPATH": str(ROOT)}
    environment["JAX_COMPILATION_CACHE_DIR"] = f"{os.environ['JAX_COMPILATION_CACHE_DIR']}_hosts"
    process = subprocess.Popen(command, env=environment, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(bucket.glob("run/checkpoints/*/SHA256SUMS")):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    text = process.communicate()[1]
    assert process.returncode == -signal.SIGKILL, text
    whole = sorted(int(path.parent.name) for path in bucket.glob("run/checkpoints/*/SHA256SUMS"))
    assert 0 < max(whole) < 30
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    result = train(stored, url)
    here = local_run(url)
    assert here.is_relative_to(tmp_path / "b")
    same_parameters(tmp_path / "straight", here)
    assert losses(here) == losses(tmp_path / "straight") and len(losses(here)) == 30
    assert json.loads((bucket / "run" / "config.json").read_text())["corpus"] == f"file://{bucket}/corpus"
    assert sorted(path.name for path in (bucket / "run" / "checkpoints").iterdir()) == ["28", "30"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    assert evaluate_workdir(url) == pytest.approx(result)
    model = bert_jax.load(url)
    for a, b in zip(jax.tree.leaves(model.params), jax.tree.leaves(read_params(here)[0]), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not list(local_run(url).glob("checkpoints/*/training"))


def test_sigterm_pushes_all_and_a_failing_store_is_raised_at_the_end(
    tiny_corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    push(tiny_corpus, Store("shaky://b/corpus"), "corpus.json")
    given = run_config("shaky://b/corpus", checkpoint_every_steps=5)
    train(given, tmp_path / "straight")
    original = MetricLog.train

    def stop_at_7(self: MetricLog, step: int, *rest: Any) -> None:
        original(self, step, *rest)
        if step == 7:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(MetricLog, "train", stop_at_7)
        with pytest.raises(SystemExit) as stop:
            train(given, "shaky://b/run")
    assert stop.value.code == 128 + signal.SIGTERM
    assert "checkpoints/7/SHA256SUMS" in Store("shaky://b/run").files()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "b"))
    Shaky.fails = failing("put", "/run/", ConnectionError("reset"))
    with pytest.raises(OSError, match=r"reset; what is not there is in \S+, and the same command here pushes it$"):
        train(given, "shaky://b/run")
    Shaky.fails = None
    assert "checkpoints/20/SHA256SUMS" not in Store("shaky://b/run").files()
    train(given, "shaky://b/run")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "c"))
    same_parameters(tmp_path / "straight", local_run("shaky://b/run"))
    with pytest.raises(ValueError, match=r"^debug_step=3 must be after the newest checkpoint, 20"):
        debug_step(given, "shaky://b/run", 3)
    capsys.readouterr()
    page = write_report("shaky://b/run")
    assert Store("shaky://b/run").read("report.html") == page.read_bytes() and "tiny" not in page.parent.name
    further = train(given | {"init_from": "shaky://b/run", "train_steps": 2}, tmp_path / "further")
    assert further and "init_from shaky://b/run" not in capsys.readouterr().err  # all fits
    assert json.loads((tmp_path / "further" / "config.json").read_text())["init_from"] == "shaky://b/run"
    with pytest.raises(FileNotFoundError, match=r"^shaky://b/none: nothing is there; check bucket and path$"):
        train(given | {"init_from": "shaky://b/none"}, tmp_path / "none")


def test_fine_tuned_and_predicted_at_urls(tmp_path: Path) -> None:
    make_run.write_data(tmp_path)
    push(tmp_path, Store("shaky://b/data"))
    given = make_run.config(tmp_path) | {"data_dir": "shaky://b/data", "tokenizer": "shaky://b/data/tokenizer"}
    train(given, "shaky://b/run")
    train(make_run.config(tmp_path), tmp_path / "run")
    predict_workdir(tmp_path / "run", "dev", tmp_path / "out.tsv")
    expected = (tmp_path / "out.tsv").read_bytes()
    assert predict_workdir("shaky://b/run", "dev", "shaky://b/out.tsv", best=True) == 4
    assert predict_workdir("shaky://b/run", "shaky://b/data/dev.csv", "shaky://b/file.tsv") == 4
    assert Store("shaky://b").read("out.tsv") == expected == Store("shaky://b").read("file.tsv")
    assert read_metrics(local_run("shaky://b/run"))[-1]["step"] == make_run.STEPS
    with pytest.raises(ValueError, match=r"^features_dir='shaky://b/f': features are written here; give a local path$"):
        local_data({"features_dir": "shaky://b/f"})
