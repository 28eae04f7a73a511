"""One part of ``gpu_check`` in a process of its own: writes its figures as they come, and is ended where it is slow.

python -m experiments.gpu.parts large-128 --output figures.json [--dry_run]

Each part imports its own modules: what one of them lacks does not stop the others.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.data.writing import write_json
from bert_jax.model.config import BertConfig
from experiments.benchmark_step import PEER_PACKAGES, PEERS, OurStep, Setting, missing_packages, predictions_of
from experiments.benchmark_step import matmul_shapes as shapes_of_model
from experiments.gpu import cases
from experiments.gpu.plan import Plan, plan_of
from experiments.peers.line_protocol import Worker

Save = Callable[[dict[str, Any]], None]

SMALL = Setting("L2_H128", 128, 1, "bfloat16", 200)  # for workers that only multiply matrices


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="gpu.parts", description=__doc__)
    parser.add_argument("name", help="of gpu.plan.PARTS")
    parser.add_argument("--output", required=True, type=Path, help="JSON file for the figures")
    parser.add_argument("--dry_run", action="store_true", help="the small plan, on the CPU")
    args = parser.parse_args(arguments)
    plan = plan_of(args.dry_run)

    save = partial(write_json, args.output)

    if args.name in plan.cases:
        cases.measure(plan, plan.cases[args.name], save)
    else:
        MEASURES[args.name](plan, save)


def machine(plan: Plan, save: Save) -> None:
    """What JAX sees, and the matrix products that the card's peak is the best of: JAX's and PyTorch's, bfloat16."""
    shapes = matmul_shapes(plan)
    with Worker("experiments.gpu.step", {"setting": SMALL._asdict(), "changes": {}}) as ours:
        figures: dict[str, Any] = {"machine": ours.ask("machine")}
        figures["matmul_gflops"] = ours.ask("matmul", shapes=shapes, queued=plan.queued)
        save(figures)
    if not missing_packages(*PEER_PACKAGES):
        with Worker(PEERS["transformers"], SMALL._asdict() | {"device": plan.device}) as peer:
            figures["matmul_gflops"] |= peer.ask("matmul", shapes=shapes, queued=plan.queued)
            save(figures)


def matmul_shapes(plan: Plan) -> list[tuple[int, int, int]]:
    """Square ones and the products of the model."""
    case = plan.cases[plan.matmul_of]
    config = BertConfig.of_size(case.size, vocab_size=plan.vocab_size)
    _, *own = shapes_of_model(config, case.batches[0], case.seq, predictions_of(case.seq))  # the first is square
    return [*((size, size, size) for size in plan.matmul_sizes), *own]


def correctness(plan: Plan, save: Save) -> None:
    from experiments.gpu import numerics

    save(numerics.compare(plan))


def attention(plan: Plan, save: Save) -> None:
    from experiments.gpu import attention

    attention.measure(plan, save)


def finetuning(plan: Plan, save: Save) -> None:
    from experiments.gpu import finetuning

    finetuning.measure(plan, save)


def settings(plan: Plan, save: Save) -> None:
    """Our step of one case with each variant; {"failed": why} where one cannot run."""
    found: list[dict[str, Any]] = []
    for variant in plan.variants:
        try:
            figures = cases.measure_ours(plan, plan.cases[plan.varied], variant.changes, variant.flags)
        except RuntimeError as error:  # a flag that this jaxlib does not know ends the worker
            figures = {"failed": str(error)}
        found.append({"variant": variant._asdict(), "found": figures})
        save({"case": plan.varied, "variants": found})


def layers(plan: Plan, save: Save) -> None:
    """Milliseconds of each part of our step (``benchmark_parts``)."""
    from experiments.benchmark_parts import part_times

    case = plan.cases[plan.varied]
    setting = cases.setting_of(plan, case, case.batches[0])
    save({"case": plan.varied, "batch": setting.batch, "parts": part_times(OurStep(setting))})


MEASURES: dict[str, Callable[[Plan, Save], None]] = {
    "machine": machine,
    "correctness": correctness,
    "attention": attention,
    "finetuning": finetuning,
    "settings": settings,
    "layers": layers,
}


if __name__ == "__main__":
    main()
