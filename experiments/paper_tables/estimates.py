"""How long a run would take: arithmetic over a machine's speed. An estimate, and called so wherever it is shown.

Counted are the matrix products: 6 FLOP a parameter and token (forward and twice as much backward), attention, and the
output layer where tokens are predicted; evaluation and compilation are in the machine's seconds of a start. Where
``machine`` is not this one, nothing of it has been timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from experiments.paper_tables.run import Run

MASKED = 0.15


class DataSet(NamedTuple):
    """Training examples of a set, and tokens of one."""

    examples: int
    tokens: int


@dataclass(frozen=True)
class Machine:
    """What runs are timed for.

    Attributes:
        name: of what pre-trains. one: of what fine-tunes.
        flops: that ``one`` does in a second. count: as many times that does what pre-trains.
        least_step: seconds of a step, however small. start: seconds of a run besides its steps.
        vocabulary: pieces, for the output layer.
        about: where these figures come from.
    """

    name: str
    one: str
    flops: float
    count: int
    least_step: float
    start: float
    vocabulary: int
    about: str


def seconds(run: Run, runs: Mapping[str, Run], data_sets: Mapping[str, DataSet], machine: Machine) -> float:
    """Of all points of a run; 0 for what takes no training."""
    if not run.recipe:
        return 0.0
    config, points = run.config(), len(run.points())
    if config.task == "pretraining":
        one = sum(
            steps * max(machine.least_step, flop / (machine.flops * machine.count))
            for steps, flop in pretraining_work(config, machine.vocabulary)
        )
    else:
        steps, flop = fine_tuning_work(config, encoder(run, runs), data_sets[run.learns_from])
        one = steps * max(machine.least_step, flop / machine.flops)
    return points * (machine.start + one)


def where(run: Run, machine: Machine) -> str:
    """The hardware that the estimate is for."""
    return machine.name if run.recipe and run.config().task == "pretraining" else machine.one


def pretraining_work(config: Any, vocabulary: int) -> list[tuple[int, float]]:
    """(steps, FLOP of a step) of every phase."""
    model, predicted = config.model, 1.0 if config.objective in ("ltr", "rtl") else MASKED
    head = model.hidden_size * (model.hidden_size + vocabulary)
    work = []
    for phase in config.phases or ({"train_steps": config.train_steps},):
        length, batch = phase.get("max_seq_length", config.max_seq_length), phase.get("batch_size", config.batch_size)
        work.append((phase["train_steps"], batch * length * (token_flop(model, length) + 6 * predicted * head)))
    return work


def fine_tuning_work(config: Any, model: Any, data: DataSet) -> tuple[float, float]:
    """(steps, FLOP of a step). Of frozen features only the layers on top learn."""
    width = model.hidden_size
    flop = 0.0 if config.task == "features" else token_flop(model, data.tokens)
    if config.get("concatenated"):
        flop, width = 2 * flop, 2 * width
    if config.bilstm_size:
        flop += 6 * bilstm_parameters(width, config.bilstm_size)
    steps = config.train_epochs * data.examples / config.batch_size
    return steps, config.batch_size * data.tokens * flop


def token_flop(model: Any, length: int) -> float:
    """FLOP of a token in training: 12 d^2 parameters a layer, and attention over ``length``."""
    width, layers = model.hidden_size, model.num_hidden_layers
    return 6.0 * layers * 12 * width**2 + 12.0 * layers * width * length


def bilstm_parameters(width: int, size: int) -> int:
    """Of two layers in both directions."""
    return 2 * 4 * size * ((width + size) + (2 * size + size))


def encoder(run: Run, runs: Mapping[str, Run]) -> Any:
    """``config.model`` of the pre-training that a run goes back to."""
    while not run.recipe or run.config().task != "pretraining":
        run = runs[run.after[0]]
    return run.config().model
