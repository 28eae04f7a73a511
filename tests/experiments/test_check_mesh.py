"""Meshes of devices that are not here: their costs, the largest batch, the program's words."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.tasks.task import Task
from bert_jax.training.settings import Phase, TrainSettings
from bert_jax.training.sharding import MeshShape, make_mesh
from experiments.benchmark_step import Setting, make_task, predictions_of, required_flops, synthetic_batch
from experiments.mesh.costs import Costs, needed_flops, step_costs
from experiments.mesh.search import FULL, SEARCH_STEPS, check, largest_batch, mesh_shapes
from experiments.mesh.topologies import CHIPS, SIMULATED, Topology

SETTING = Setting("L4_H128", seq=64, batch=16, dtype="float32", vocab_size=1000)


def task(**changes: object) -> Task:
    from bert_jax.model.config import BertConfig

    config = BertConfig.of_size(SETTING.size, vocab_size=SETTING.vocab_size, **changes)
    return make_task(config)


@pytest.mark.parametrize("changes", [{}, {"scan_layers": True}, {"scan_layers": True, "remat": True}])
def test_needed_arithmetic_is_that_of_the_formula(changes: dict[str, bool]) -> None:
    """But for the vocabulary's padding (1,024 rows of 1,000)."""
    one = task(**changes)
    params = jax.eval_shape(lambda: one.init(jax.random.key(0)))
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), synthetic_batch(SETTING))
    predictions = predictions_of(SETTING.seq)
    formula = required_flops(one.model, SETTING.batch, SETTING.seq, predictions)
    padding = 3 * 2 * SETTING.batch * predictions * one.model.hidden_size * 24
    assert needed_flops(one, params, batch) == pytest.approx(formula + padding, rel=1e-3)


def test_costs_of_a_simulated_mesh(tiny_corpus: Path) -> None:
    """Memory and arithmetic fall with the devices; along data what is sent are gradients, twice 7 / 8 of them."""
    from bert_jax.tasks.pretraining import pretraining

    phase = Phase(train_steps=10, max_seq_length=32, batch_size=16)
    settings = TrainSettings("pretraining", 16, 32, train_steps=10)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    one = pretraining(model=sizes, seed=0, corpus=str(tiny_corpus))
    costs = {
        shape: step_costs(settings, (phase,), phase, one, make_mesh(shape))
        for shape in (MeshShape(1, 1, 1), MeshShape(8, 1, 1), MeshShape(1, 8, 1))
    }
    alone, data, fsdp = costs.values()
    assert alone.sent_bytes == 0 and alone.mesh_name == "one device" and data.mesh_name == "data 8"
    assert alone.needed_flops == data.needed_flops and data.device_flops == alone.device_flops / 8
    assert alone.memory_bytes and data.memory_bytes and fsdp.memory_bytes
    assert fsdp.memory_bytes < data.memory_bytes < alone.memory_bytes
    params = jax.eval_shape(lambda: one.init(jax.random.key(0)))
    size = 4 * sum(math.prod(x.shape) for x in jax.tree.leaves(params))
    table = 4 * math.prod(params["embeddings"]["word"]["embedding"].shape)
    assert 1.75 * size * 0.99 < data.sent_bytes < 1.75 * (size + table) * 1.01
    assert data.device_rows == 2 and data.rows == 16
    double = step_costs(settings, (phase,), phase, one, make_mesh(MeshShape(8, 1, 1)), 2.0)
    # What the backward pass keeps of two more rows a device, its widest activations at least.
    assert double.memory_bytes and double.memory_bytes - data.memory_bytes > 4 * 2 * 32 * 64 * 2
    assert double.batch_size == 32 and double.rows == 32 and double.needed_flops == 2 * data.needed_flops


def test_the_time_is_between_all_at_once_and_one_after_the_other() -> None:
    chip = CHIPS["h100"]
    work = {"needed_flops": 2 * chip.flops, "device_flops": chip.flops}
    moved = {"traffic_bytes": 2 * chip.memory_speed, "sent_bytes": chip.link_speed}
    costs = Costs({"data": 2, "fsdp": 1, "tensor": 1}, False, 8, 8, 128, True, **work, **moved)
    assert costs.seconds(chip) == pytest.approx((2.0, 4.0)) and costs.mfu(chip) == pytest.approx((0.5, 0.25))


def growing(bend: float, limit: float, multiple: int = 1, devices: int = 8) -> tuple[Any, list[int]]:
    """A ``measure`` whose memory is 100 + 2 a row, and a little more; and the rows of a device that it is asked for."""
    tried: list[int] = []

    def measure(shape: MeshShape, scale: float, rows: int = 1) -> Costs:
        r = max(multiple, round(rows * scale) // multiple * multiple)
        tried.append(r)
        memory = 100 + 2.0 * r + bend * r * r
        fits = memory <= limit
        mesh = {"data": devices, "fsdp": 1, "tensor": 1}
        return Costs(mesh, False, devices * r, devices * r, 128, fits, memory if fits else None)

    return measure, tried


@pytest.mark.parametrize("rows", [1, 2, 32, 100])
@pytest.mark.parametrize("bend", [0.0, 2e-4])
@pytest.mark.parametrize("multiple", [1, 16])
def test_the_largest_batch_is_found(rows: int, bend: float, multiple: int) -> None:
    """Whatever the first batch, and although memory does not grow quite evenly."""
    rows, limit = -(-rows // multiple) * multiple, 1000.0
    measure, tried = growing(bend, limit, multiple)
    start = measure(MeshShape(8), 1.0, rows)
    found = largest_batch(lambda shape, scale: measure(shape, scale, rows), start, limit, multiple)
    assert found.fits and found.memory_bytes and (0.8 if multiple > 1 else FULL) * limit <= found.memory_bytes <= limit
    assert len(tried) == len(set(tried)) <= 1 + SEARCH_STEPS


def test_where_little_more_fits_it_is_found_too() -> None:
    """From 400 rows, where 450 fit, and from 448, where a few more do."""
    measure, _ = growing(0.0, 1000.0)
    for rows, least in ((300, 420), (448, 448)):
        start = measure(MeshShape(8), 1.0, rows)
        found = largest_batch(lambda shape, scale, rows=rows: measure(shape, scale, rows), start, 1000.0)
        assert found.fits and least <= found.device_rows <= 450


def test_what_does_not_fit_says_so(tmp_path: Path) -> None:
    """A chip with a tenth of a gigabyte."""
    from configs import pretrain

    config = pretrain.get_config("size=tiny,seq=64")
    config.batch_size = 64
    chip = CHIPS["h100"].__class__(1e12, 1e8, 1e11, 1e10, "cuda")
    topology = Topology("h100-8", chip, 8, SIMULATED)
    found = check(config, topology, "data=8", (tmp_path / "corpus", 30522), largest=True)
    (phase,) = found["phases"]
    assert phase["cheapest"] is None and phase["largest"] is None and not phase["tried"][0]["fits"]
    with pytest.raises(ValueError, match="batch_size=64 divides over none of the meshes; make it a multiple of 5"):
        check(config, topology, "data=5", (tmp_path / "another", 1000), largest=False)


def test_meshes() -> None:
    assert mesh_shapes("data=4,tensor=2 fsdp=8", 8) == [MeshShape(4, 1, 2), MeshShape(1, 8, 1)]
    usual = mesh_shapes(None, 8)
    assert len(usual) == len(set(usual)) and all(one.data * one.fsdp * one.tensor == 8 for one in usual)
    assert mesh_shapes(None, 1) == [MeshShape(1, 1, 1)]
    for wrong in ("data", "data=x", "rows=8", "data=0", "data=-1"):
        with pytest.raises(ValueError, match="--meshes has"):
            mesh_shapes(wrong, 8)


def test_topologies() -> None:
    assert Topology.of("v5p-16", simulate=True).count == 8 and Topology.of("v5e-256", simulate=True).count == 256
    for wrong in ("v9-8", "v5e", "v5e-0", "h100-x"):
        with pytest.raises(ValueError, match="is unknown; give a chip"):
            Topology.of(wrong)
    with pytest.raises(ValueError, match="no slice of this chip; there are v5e-1, v5e-4, v5e-8"):
        Topology.of("v5e-7")
    with pytest.raises(ValueError, match="more than 4096 devices"):
        Topology.of("h100-5000")


@pytest.mark.end_to_end
def test_the_program(tmp_path: Path) -> None:
    """128 simulated devices; a table on standard output, everything in a file."""
    command = [sys.executable, "-m", "experiments.check_mesh", "--topology", "h100-128", "--nolargest"]
    command += ["--config", "configs/pretrain.py:size=tiny,seq=64", "--config.batch_size=256", "--vocab_size=1000"]
    command += ["--meshes", "data=128 data=64,tensor=2", "--output", str(tmp_path / "found.json")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=300)
    assert done.returncode == 0, done.stderr
    assert "128 x 989 TFLOP/s" in done.stdout and "data 64 x tensor 2" in done.stdout and "* cheapest" in done.stdout
    (phase,) = json.loads((tmp_path / "found.json").read_text())["phases"]
    assert [one["mesh"]["tensor"] for one in phase["tried"]] == [1, 2]
    assert all(np.isfinite(one["seconds"]).all() and one["sent_bytes"] > 0 for one in phase["tried"])
    assert "not known" in done.stdout and not any(one["traffic_bytes"] for one in phase["tried"])  # of a GPU


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "experiments.check_mesh", "--config", "configs/pretrain.py:size=tiny,seq=64"]
    done = subprocess.run(
        [*command, "--topology", "v5e-9"], capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=100
    )
    assert done.returncode == 1 and done.stderr.startswith("error: --topology='v5e-9' is no slice")
    assert len(done.stderr.strip().splitlines()) == 1
