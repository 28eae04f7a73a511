"""Every mesh takes the steps of one device; what lies where, and what devices say to each other, is as meant."""

import math
import shutil
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from bert_jax.tasks.pretraining import pretraining
from bert_jax.tasks.task import Task
from bert_jax.training.checkpoint import read_params
from bert_jax.training.metric_log import read_metrics
from bert_jax.training.optimizer import OptimizerSettings
from bert_jax.training.settings import Phase, TrainSettings
from bert_jax.training.sharding import MeshShape, make_mesh
from bert_jax.training.step import TrainState
from bert_jax.training.train import begin, device_batches, train
from experiments.benchmark_step import NoCheckpoints
from experiments.mesh.compiled_program import Collective, Program
from tests.training.test_hosts import config

STEPS, BATCH, LENGTH, LAYERS, HIDDEN, INNER, HEADS = 20, 16, 32, 2, 32, 64, 8
VOCABULARY = 128  # padded
MESHES = {
    "data": MeshShape(8, 1, 1),
    "fsdp": MeshShape(1, 8, 1),
    "tensor": MeshShape(1, 1, 8),
    "data and fsdp": MeshShape(2, 4, 1),
    "all three": MeshShape(2, 2, 2),
}


@pytest.fixture(scope="module")
def task(tiny_corpus: Path) -> Task:
    """Dropout on, as masking is."""
    model = {"hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
    model |= {"intermediate_size": INNER, "max_position_embeddings": LENGTH}
    return pretraining(model=model, seed=0, corpus=str(tiny_corpus))


@pytest.fixture(scope="module")
def run(task: Task) -> Any:
    """mesh -> (state after the steps, losses, the compiled step)."""

    @cache
    def run(shape: MeshShape) -> tuple[TrainState, list[float], Any]:
        phase = Phase(train_steps=STEPS, max_seq_length=LENGTH, batch_size=BATCH)
        optimizer = OptimizerSettings(learning_rate=1e-3)
        settings = TrainSettings("pretraining", BATCH, LENGTH, train_steps=STEPS, warmup_steps=2, optimizer=optimizer)
        mesh = make_mesh(shape)
        with jax.set_mesh(mesh):
            state, step, _ = begin(settings, (phase,), task, mesh, NoCheckpoints())
            batch = device_batches(task, phase, mesh)
            compiled = step.lower(state, batch(0)[0], 1).compile()
            losses = []
            for number in range(STEPS):
                state, figures = compiled(state, batch(number)[0])
                losses.append(sum(float(figures[name][0] / figures[name][1]) for name in task.objective))
        return state, losses, compiled

    return run


@pytest.mark.parametrize("name", MESHES)
def test_the_steps_are_those_of_one_device(name: str, run: Any) -> None:
    alone, losses, _ = run(MeshShape(1, 1, 1))
    state, mesh_losses, _ = run(MESHES[name])
    np.testing.assert_allclose(mesh_losses, losses, rtol=1e-6)
    for one, other in zip(jax.tree.leaves(alone.params), jax.tree.leaves(state.params), strict=True):
        np.testing.assert_allclose(np.asarray(other), np.asarray(one), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["fsdp", "tensor", "all three"])
def test_a_device_holds_its_share(name: str, run: Any) -> None:
    """Matrices and the table are cut over fsdp and tensor, their moments with them."""
    (alone, _, _), (state, _, compiled) = run(MeshShape(1, 1, 1)), run(MESHES[name])
    parts = MESHES[name].fsdp * MESHES[name].tensor
    cut = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.params):
        names = [key.key for key in path]
        if (names[0] == "encoder" and names[-1] == "kernel") or names[:2] == ["embeddings", "word"]:
            assert leaf.addressable_shards[0].data.size * parts == leaf.size, names
            cut += leaf.nbytes
    whole = sum(leaf.nbytes for leaf in jax.tree.leaves(alone))
    # Parameters and two moments; vectors, small tables and the batch are the rest.
    most = whole - 3 * cut * (1 - 1 / parts) + 64 * 1024
    assert whole / parts < compiled.memory_analysis().argument_size_in_bytes < most


def said(run: Any, name: str) -> list[Collective]:
    return Program.read(run(MESHES[name])[2].as_text()).collectives()


def test_along_data_only_gradients_are_summed(run: Any) -> None:
    """Each once; but the table's, which come from the input and from the output, as two sums."""
    found = said(run, "data")
    assert {one.kind for one in found} == {"all-reduce"} and {one.group for one in found} == {8}
    params = run(MESHES["data"])[0].params
    table = params["embeddings"]["word"]["embedding"].size
    assert sum(math.prod(one.shape) for one in found) < sum(x.size for x in jax.tree.leaves(params)) + table + 64


def test_along_fsdp_parameters_are_fetched_once_and_nothing_else(run: Any) -> None:
    found = said(run, "fsdp")
    assert {one.kind for one in found} == {"all-gather", "all-reduce"}
    fetched = Counter(one.shape for one in found if one.kind == "all-gather" for _ in range(one.times))
    encoder = {(HIDDEN, HIDDEN): 4 * LAYERS, (HIDDEN, INNER): LAYERS, (INNER, HIDDEN): LAYERS}
    assert fetched == encoder | {(VOCABULARY, HIDDEN): 1, (VOCABULARY,): 1}
    # What is summed are gradients, vectors in all: no activations, which have rows.
    assert all(len(one.shape) < 3 for one in found)


def test_along_tensor_activations_are_summed_and_no_parameter_is_fetched(run: Any) -> None:
    found = said(run, "tensor")
    assert {one.kind for one in found} == {"all-gather", "all-reduce"}
    fetched = [one for one in found if one.kind == "all-gather"]
    # The largest logits of the devices' parts of the vocabulary.
    assert all(one.shape[0] == BATCH and one.shape[-1] == 8 and len(one.shape) == 3 for one in fetched)
    activations = [one for one in found if one.shape == (BATCH, LENGTH, HIDDEN)]
    assert 0 < sum(one.times for one in activations) <= 4 * LAYERS + 1


def test_on_all_three_the_table_is_fetched_along_fsdp_alone(run: Any) -> None:
    found = said(run, "all three")
    assert not [one for one in found if one.kind == "all-to-all"]
    assert not [one for one in found if one.kind == "all-gather" and one.shape == (VOCABULARY, HIDDEN)]
    assert [one.group for one in found if one.kind == "all-gather" and one.shape == (VOCABULARY // 2, HIDDEN)] == [2]


@pytest.mark.parametrize("later", [{"data": 1}, {"data": 2}, {"data": 1, "fsdp": 2, "tensor": 2}], ids=["1", "2", "4"])
def test_a_run_goes_on_with_fewer_devices(
    later: dict[str, int], fsdp_run: Path, tiny_corpus: Path, tmp_path: Path
) -> None:
    """Saved after ten steps by eight devices along fsdp: the next ten are those that the eight would have taken."""
    shutil.copytree(fsdp_run, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "20")
    train(config(tiny_corpus, mesh=later), tmp_path / "run")
    steps = [[line for line in read_metrics(run) if "loss" in line] for run in (fsdp_run, tmp_path / "run")]
    for name in ("step", "loss", "mlm_loss", "nsp_loss"):
        one, other = ([line[name] for line in lines] for lines in steps)
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for one, other in zip(*(jax.tree.leaves(read_params(run)[0]) for run in (fsdp_run, tmp_path / "run")), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def fsdp_run(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("eight")
    train(config(tiny_corpus, mesh={"data": 1, "fsdp": 8}), directory)
    return directory
