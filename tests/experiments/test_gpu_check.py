"""The check on a GPU, without one: all of it in small, what it does with parts that hang or fail, its arithmetic."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from experiments import gpu_check
from experiments.gpu import cases
from experiments.gpu.numerics import LIMITS, checks_of
from experiments.gpu.page import best_of_same_model, data_sheet_peak, markdown, measured_peak, tables, write_page
from experiments.gpu.plan import DRY_RUN, GPU, PARTS, VARIANTS, Case, Part, parts_of
from experiments.gpu_check import LEAST_SECONDS, earlier_parts, json_of, main, run_part, run_parts
from experiments.machine import card
from experiments.peers.line_protocol import failures_told

ROOT = Path(__file__).parents[2]
# A stand-in for `experiments.gpu.parts`: how a part can end.
FAKE_PARTS = """
import json, pathlib, subprocess, sys, time
name, output = sys.argv[1], pathlib.Path(sys.argv[3])
if name == "fails":
    print("RuntimeError: no kernel image", file=sys.stderr)
    sys.exit(3)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) if name == "hangs" else None
output.write_text(json.dumps({"child": child and child.pid, "arguments": sys.argv[4:]}))
if child:
    time.sleep(600)
"""


@pytest.mark.parametrize("only", ["large-128", pytest.param(None, marks=pytest.mark.slow)])
def test_dry_run(only: str | None, tmp_path: Path) -> None:
    """Every part in a process of its own, by the script that a person types."""
    pytest.importorskip("torch", reason="the peer needs the extra `peers`", exc_type=ImportError)
    pytest.importorskip("transformers", reason="the peer needs the extra `peers`", exc_type=ImportError)
    command = ["bash", str(ROOT / "experiments/gpu_check.sh"), "--dry_run", "--results", str(tmp_path)]
    command += ["--only", only] if only else []
    environment = os.environ | {"PYTHON": sys.executable}
    told = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment, check=False)
    assert told.returncode == 0, told.stdout + told.stderr
    whole = json.loads((tmp_path / "gpu.json").read_text())
    names = [part.name for part in parts_of(DRY_RUN, only)]
    assert {name: entry["state"] for name, entry in whole["parts"].items()} == dict.fromkeys(names, "done")
    parts = {name: entry["figures"] for name, entry in whole["parts"].items()}
    assert parts["large-128"]["ours"]["batch"] == parts["large-128"]["peer"]["batch"] == 4
    page = (tmp_path / "gpu.md").read_text()
    assert page.startswith("# DRY RUN")
    assert "Pre-training, sequences a second" in told.stdout
    assert parts["large-128"]["compiled"]["sequences_a_second"] > 0
    if only:
        return
    assert all(check["passed"] for check in parts["correctness"]["checks"]) and "PASS" in page
    assert parts["finetuning"]["cases"][0]["found"]["train"]["ratio"]["peer"] > 0
    assert [one["found"].get("failed") for one in parts["settings"]["variants"]] == [None]
    for case in parts["attention"]["cases"]:
        assert case["found"]["xla"]["difference"] < 0.2 and "failed" in case["found"]["cuDNN"]


def test_a_part_that_hangs_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake_parts.py").write_text(FAKE_PARTS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def run(name: str, seconds: float) -> Any:
        return run_part(Part(name, "", 0), seconds, tmp_path, dry_run=True, module="fake_parts")

    done = run("works", 30)
    assert done["state"] == "done" and done["figures"] == {"child": None, "arguments": ["--dry_run"]}
    assert run("fails", 30)["state"] == "failed with status 3: RuntimeError: no kernel image"
    hung = run("hangs", 3)
    assert hung["state"] == "cut after 3 s" and 3 <= hung["seconds"] < 10
    status = Path(f"/proc/{hung['figures']['child']}/stat")  # what it had started is gone as well, or not yet buried
    assert not status.exists() or status.read_text().split()[2] in "ZX"


def test_parts_go_on_within_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(gpu_check.time, "monotonic", lambda: now[0])
    parts = [Part("machine", "a", 30), Part("correctness", "b", 30), Part("attention", "c", 80), Part("layers", "d", 9)]
    given, saved = {}, []

    def run(part: Part, seconds: float) -> dict[str, Any]:
        given[part.name] = seconds
        now[0] += seconds
        figures = {} if part.name == "correctness" else {"x": 1}
        return {"state": "done", "seconds": seconds, "figures": figures}

    whole: dict[str, Any] = {
        "settings": {"dry_run": False},
        "parts": {"layers": {"state": "done", "figures": {"y": 2}}},
    }
    run_parts(parts, 100.0, whole, lambda: saved.append(len(whole["parts"])), run)
    assert given == {"machine": 30, "correctness": 30, "attention": 40}
    assert whole["parts"]["layers"]["figures"] == {"y": 2}, "an earlier figure must stay"
    assert len(saved) == 4
    del whole["parts"]["layers"]
    run_parts(parts[3:], LEAST_SECONDS - 1, whole, lambda: None, run)
    assert whole["parts"]["layers"]["state"] == "not run: 9 s of 9 s were left"


def test_a_cpu_is_no_gpu() -> None:
    whole: dict[str, Any] = {"settings": {"dry_run": False}, "parts": {}}
    answer = {"state": "done", "seconds": 1.0, "figures": {"machine": {"platform": "cpu"}}}
    with pytest.raises(ValueError, match=r"JAX runs on the cpu: install jax\[cuda12\]"):
        run_parts([Part("machine", "a", 30)], 100.0, whole, lambda: None, lambda part, seconds: dict(answer))


@pytest.mark.skipif(card() is not None, reason="there is a GPU here")
def test_what_it_refuses() -> None:
    with pytest.raises(SystemExit, match="nvidia-smi finds no GPU here; --dry_run"):
        main(["--results", "x"])
    with pytest.raises(SystemExit, match="--only has quick; take some of machine,correctness,large-128"):
        main(["--dry_run", "--only", "machine,quick"])
    told = subprocess.run(["bash", "experiments/gpu_check.sh"], capture_output=True, text=True, cwd=ROOT, check=False)
    assert told.returncode == 1 and "nvidia-smi finds no GPU here" in told.stderr


def test_parts_are_in_order_and_fit() -> None:
    assert [part.name for part in parts_of(GPU)] == [part.name for part in PARTS]
    assert {part.name for part in PARTS} >= set(GPU.cases)
    assert [part.name for part in parts_of(GPU, "layers,machine")] == ["machine", "layers"]


def test_earlier_parts_of_the_same_kind_alone(tmp_path: Path) -> None:
    settings = {"card": None, "plan": json_of(DRY_RUN)}
    assert earlier_parts(tmp_path, settings) == {}
    (tmp_path / "gpu.json").write_text(json.dumps({"settings": settings, "parts": {"machine": 1}}))
    assert earlier_parts(tmp_path, settings) == {"machine": 1}
    assert earlier_parts(tmp_path, settings | {"plan": json_of(GPU)}) == {}


def test_flags_are_known_to_this_jaxlib() -> None:
    """An unknown one ends the process; the settings then say so and go on."""

    def status(flags: str) -> int:
        command = [sys.executable, "-c", "import jax; jax.devices()"]
        return subprocess.run(
            command, env=os.environ | {"XLA_FLAGS": flags}, capture_output=True, check=False
        ).returncode

    assert status(" ".join(variant.flags for variant in VARIANTS)) == 0
    assert status("--xla_gpu_no_such_flag=true") != 0


class FakeWorker:
    """Ours and the peer's, with memory for so many rows and no compiler."""

    room: ClassVar = {"experiments.gpu.step": 4, "experiments.peers.torch_step": 2}
    started: ClassVar[list[tuple[str, int]]] = []

    def __init__(self, module: str, settings: dict[str, Any], environment: Any = None) -> None:
        self.module, self.batch = module, settings.get("setting", settings)["batch"]
        self.started.append((module, self.batch))

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        if arguments.get("compiled"):
            return {"failed": "no compiler"}
        if command != "compile" and self.batch > self.room[self.module]:
            return {"failed": "out of memory"}
        return {"seconds": 7.0 if command != "measure" else [0.5, 0.25, 1.0], "memory_gb": None}

    def close(self) -> None: ...

    def __enter__(self) -> "FakeWorker":
        return self

    def __exit__(self, *_: Any) -> None: ...


def test_the_largest_batch_that_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "Worker", FakeWorker)
    monkeypatch.setattr(cases, "missing_packages", lambda *names: [])
    monkeypatch.setattr(cases, "unable_to_compile", lambda plan: None)
    monkeypatch.setattr(FakeWorker, "started", started := [])
    saved: list[dict[str, Any]] = []
    cases.measure(DRY_RUN, Case("L2_H128", 16, (8, 4, 2)), saved.append)
    found = saved[-1]
    assert found["ours"]["batch"] == 4 and found["ours"]["sequences_a_second"] == 8.0  # the median of 0.5 s
    assert found["ours"]["compile_seconds"] == 7.0
    assert found["peer"]["batch"] == 2 and found["compiled"] == {"failed": "no compiler"}
    assert sorted(batch for module, batch in started if module.endswith("gpu.step")) == [4, 8]
    nothing = cases.measure_ours(DRY_RUN, Case("L2_H128", 16, (16, 8)))
    assert nothing == {"failed": "out of memory at 8 rows, the fewest tried"}


def test_a_dead_peer_does_not_take_ours_along(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(plan: Any, case: Any) -> Any:
        raise RuntimeError("worker ended with status -9")

    monkeypatch.setattr(cases, "Worker", FakeWorker)
    monkeypatch.setattr(cases, "missing_packages", lambda *names: [])
    monkeypatch.setattr(cases, "start_peer", dies)
    saved: list[dict[str, Any]] = []
    cases.measure(DRY_RUN, Case("L2_H128", 16, (4,)), saved.append)
    assert saved[-1]["ours"]["batch"] == 4 and saved[-1]["peer"] == {"failed": "worker ended with status -9"}


def test_failures_are_told() -> None:
    def spent(message: str) -> Any:
        raise RuntimeError(message)

    assert failures_told(spent)(message="RESOURCE_EXHAUSTED: 9 GiB")["failed"] == "out of memory"
    assert failures_told(spent)(message="CUDA out of memory. Tried")["failed"] == "out of memory"
    assert failures_told(spent)(message="one\n  two")["failed"] == "one two"


def test_correctness_fails_where_it_should() -> None:
    rng = np.random.default_rng(0)
    leaves = [rng.normal(size=100).astype(np.float32), np.full(10, 1e-9, np.float32)]
    reference = {"losses": {"mlm_loss": 10.0, "nsp_loss": 0.7}, "logits": rng.normal(size=(4, 5)), "gradients": leaves}
    same = checks_of("bfloat16", reference, reference)
    assert [check["name"] for check in same] == list(LIMITS) and all(check["passed"] for check in same)

    def failed(**changes: Any) -> list[str]:
        return [check["name"] for check in checks_of("x", reference, reference | changes) if not check["passed"]]

    assert failed(losses={"mlm_loss": 10.1, "nsp_loss": 0.7}) == ["masked-LM loss, relative difference"]
    assert failed(losses={"mlm_loss": 10.0, "nsp_loss": float("nan")}) == ["next-sentence loss, difference in nats"]
    assert failed(logits=reference["logits"] + 0.5) == ["logits, largest difference in their standard deviations"]
    assert failed(gradients=[leaves[0], -leaves[1]]) == [], "an array with next to no gradient does not count"
    assert len(failed(gradients=[leaves[0] + rng.normal(size=100), leaves[1]])) == 2
    assert len(failed(gradients=[leaves[0] * np.nan, leaves[1]])) == 2


def test_page_by_hand(tmp_path: Path) -> None:
    whole = _whole()
    parts = {name: entry["figures"] for name, entry in whole["parts"].items()}
    assert measured_peak(parts) == ("torch 8192x8192x8192", 800.0)
    assert best_of_same_model(parts) == ("scanned layers", parts["settings"]["variants"][0]["found"])
    text = write_page(whole, tmp_path)
    assert json.loads((tmp_path / "gpu.json").read_text()) == whole
    page = (tmp_path / "gpu.md").read_text()
    assert page == markdown(whole) and page.startswith("# On a GPU\n")
    found = {table.title: table for table in tables(whole)}
    aims = found["Aims, LARGE at 128"].rows
    assert aims[0] == ("MFU at least 60%", "62.5% (scanned layers)", "met")
    assert aims[1] == ("at least 1.2 x PyTorch", "1.10 (scanned layers)", "missed")
    row = dict(
        zip(
            found["Pre-training, sequences a second"].header,
            found["Pre-training, sequences a second"].rows[0],
            strict=True,
        )
    )
    assert row["case"] == "large 128" and row["batch"] == "256, 128"
    assert row["ours/s"] == "2,000.0" and row["MFU"] == "56.2%" and row["of data sheet"] == "45.5%"
    assert row["ours / eager"] == "2.00" and row["ours / compiled"] == "1.00" and row["its compile s"] == "60.0"
    assert "compiled: no Triton" in found["Pre-training, sequences a second"].note.replace("base-512, ", "")
    assert "FAIL. Attention by auto: triton." in page
    assert "cut after 170 s" in page and "not run: 3 s of 470 s were left" in text
    assert "| H200" not in page and "NVIDIA H200, driver 580, memory 143771 MiB, cuda 13.0" in page


def test_an_empty_page_says_what_did_not_run() -> None:
    whole = {
        "settings": {"dry_run": False, "card": {"name": "NVIDIA Unheard-of"}, "versions": {}},
        "parts": {"machine": {"state": "failed with status 1: x", "seconds": 1.0, "figures": {}, "date": "2026-01-01"}},
    }
    assert [table.title for table in tables(whole)] == ["Machine", "What ran"]
    assert "not known for this card" in markdown(whole) and "failed with status 1: x" in markdown(whole)
    assert [data_sheet_peak({"name": name}) for name in ("NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")] == [989.0, 756.0]
    assert [data_sheet_peak({"name": name}) for name in ("NVIDIA L40", "NVIDIA L40S", "NVIDIA B200")] == [
        181,
        362,
        None,
    ]
    assert data_sheet_peak(None) is None


def _whole() -> dict[str, Any]:
    """A run with something of each kind in it; the figures are made up."""

    def ours(rate: float, tflops: float) -> dict[str, Any]:
        return {"batch": 256, "sequences_a_second": rate, "tflops": tflops, "memory_gb": 40.0, "compile_seconds": 50.0}

    case = {"size": "large", "seq": 128, "batches": [256, 128]}
    machine = {"processor": "CPU", "cores": 16, "python": "3.12.3", "system": "Linux", "platform": "gpu"}
    variants = [
        {"variant": VARIANTS[0]._asdict(), "found": ours(2200.0, 500.0)},
        {"variant": VARIANTS[1]._asdict(), "found": ours(9000.0, 700.0)},  # another model: never the best
        {"variant": VARIANTS[4]._asdict(), "found": {"failed": "Unknown flag"}},
    ]
    check = {"what": "bfloat16", "name": "logits", "limit": 0.1}
    figures = {
        "machine": {"machine": machine, "matmul_gflops": {"jax 8x8x8": 7e5, "torch 8192x8192x8192": 8e5}},
        "correctness": {
            "checks": [check | {"value": 0.01, "passed": True}, check | {"value": float("inf"), "passed": False}],
            "kernel": "triton",
            "losses": {},
        },
        "large-128": {
            "case": case,
            "ours": ours(2000.0, 450.0),
            "peer": ours(1000.0, 225.0),
            "compiled": ours(2000.0, 450.0) | {"batch": 128, "compile_seconds": 60.0},
        },
        "base-512": {"case": case | {"size": "base", "seq": 512}, "compiled": {"failed": "no Triton"}},
        "attention": {"cases": [{"rows": DRY_RUN.attention[0]._asdict(), "found": {"cuDNN": {"failed": "none here"}}}]},
        "settings": {"case": "large-128", "variants": variants},
        "layers": {"case": "large-128", "batch": 256, "parts": {"attention": 60.0, "optimizer": 20.0}},
    }
    state = {"state": "done", "seconds": 12.0, "date": "2026-11-30"}
    parts: dict[str, Any] = {name: state | {"figures": found} for name, found in figures.items()}
    parts["large-128"]["state"] = "cut after 170 s"
    parts["large-512"] = {"state": "not run: 3 s of 470 s were left", "figures": {}, "date": "2026-11-30"}
    card = {"name": "NVIDIA H200", "driver": "580", "memory": "143771 MiB", "cuda": "13.0"}
    return {"settings": {"dry_run": False, "card": card, "versions": {"jax": "0.11.2"}, "plan": []}, "parts": parts}
