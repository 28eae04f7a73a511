"""One pre-training step of ``gpu_check``: ours and the peer's, each at the largest batch of a list that fits the card.

The two compile side by side, since that is work for the CPU; then the peer is measured and ends, and only then does
our step take memory for its activations: each has the whole card, and only one computes while a clock runs.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

from bert_jax.model.config import BertConfig
from experiments.benchmark_step import PEER_PACKAGES, PEERS, Setting, missing_packages, predictions_of, required_flops
from experiments.gpu.plan import Case, Plan
from experiments.peers.line_protocol import OUT_OF_MEMORY, Worker

DTYPE = "bfloat16"

Save = Callable[[dict[str, Any]], None]
Started = tuple[Worker, dict[str, Any]]


def measure(plan: Plan, case: Case, save: Save) -> None:
    """``ours``, ``peer`` (eager) and ``compiled`` (through ``torch.compile``), as each is done."""
    found: dict[str, Any] = {"case": case._asdict()}
    missing = missing_packages(*PEER_PACKAGES)
    with ThreadPoolExecutor(1) as pool:
        compiling = pool.submit(start_ours, plan, case, case.batches[0])
        if missing:
            found["peer"] = {"failed": f"{', '.join(missing)} not installed"}
        else:
            try:
                worker, batch, first = start_peer(plan, case)
                with worker:
                    wait([compiling])  # no clock runs before both have compiled
                    for side, answer in first.items():
                        found[side] = _peer_side(plan, case, worker, batch, side, answer)
                        save(found)
            except RuntimeError as error:  # its worker died; ours can do without
                found["peer"] = {"failed": str(error)}
        try:
            found["ours"] = measure_ours(plan, case, started=compiling.result())
        except RuntimeError as error:
            found["ours"] = {"failed": str(error)}
    save(found)


def measure_ours(
    plan: Plan, case: Case, changes: dict[str, Any] | None = None, flags: str = "", started: Started | None = None
) -> dict[str, Any]:
    """Our step at the first batch that fits: ``speed`` and seconds to compile; {"failed": why} where none runs.

    ``started`` is the first attempt, where it has compiled already.
    """
    for batch in case.batches:
        worker, compiled = started or start_ours(plan, case, batch, changes, flags)
        started = None
        with worker:
            measured = compiled
            if "failed" not in compiled:
                measured = worker.ask("measure", rounds=plan.rounds, seconds=plan.round_seconds)
        if measured.get("failed") != OUT_OF_MEMORY:
            break
    else:
        return {"failed": f"{OUT_OF_MEMORY} at {case.batches[-1]} rows, the fewest tried"}
    if "failed" in measured:
        return measured
    return speed(plan, case, batch, measured) | {"compile_seconds": compiled["seconds"]}


def start_ours(
    plan: Plan, case: Case, batch: int, changes: dict[str, Any] | None = None, flags: str = ""
) -> tuple[Worker, dict[str, Any]]:
    """A worker of ours and what its compilation answered."""
    settings = {"setting": setting_of(plan, case, batch)._asdict(), "changes": changes or {}}
    given = {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}"} if flags else None
    worker = Worker("experiments.gpu.step", settings, environment=given)
    return worker, worker.ask("compile")


def start_peer(plan: Plan, case: Case) -> tuple[Worker, int, dict[str, dict[str, Any]]]:
    """A worker of the peer at the first batch that fits, the batch, and the answers to its first steps by side."""
    unable = unable_to_compile(plan)
    for batch in case.batches:
        settings = setting_of(plan, case, batch)._asdict() | {"device": plan.device, "backend": plan.backend}
        worker = Worker(PEERS["transformers"], settings)
        first = {"peer": worker.ask("first")}
        if first["peer"].get("failed") != OUT_OF_MEMORY or batch == case.batches[-1]:
            first["compiled"] = {"failed": unable} if unable else worker.ask("first", compiled=True)
            return worker, batch, first
        worker.close()
    raise ValueError("a case needs at least one batch")


def unable_to_compile(plan: Plan) -> str | None:
    """Why ``torch.compile`` cannot work here: on a GPU it writes Triton, whose launcher is C."""
    compilers = ("cc", "gcc", "clang")
    if plan.backend != "inductor" or any(map(shutil.which, compilers)):
        return None
    return f"torch.compile left out: no {' or '.join(compilers)} here"


def setting_of(plan: Plan, case: Case, batch: int) -> Setting:
    return Setting(case.size, case.seq, batch, DTYPE, plan.vocab_size)


def speed(plan: Plan, case: Case, batch: int, measured: dict[str, Any]) -> dict[str, Any]:
    """By the median round: sequences a second, and TFLOP/s of the operations a step needs (``required_flops``)."""
    median = statistics.median(measured["seconds"])
    config = BertConfig.of_size(case.size, vocab_size=plan.vocab_size)
    flops = required_flops(config, batch, case.seq, predictions_of(case.seq))
    return {
        "batch": batch,
        "seconds_a_step": measured["seconds"],
        "sequences_a_second": batch / median,
        "tflops": flops / median / 1e12,
        "memory_gb": measured["memory_gb"],
    }


def _peer_side(plan: Plan, case: Case, worker: Worker, batch: int, side: str, first: dict[str, Any]) -> dict[str, Any]:
    if "failed" in first:
        return first
    asked = {"rounds": plan.rounds, "seconds": plan.round_seconds, "compiled": side == "compiled"}
    measured = worker.ask("measure", **asked)
    if "failed" in measured:
        return measured
    return speed(plan, case, batch, measured) | {"compile_seconds": first["seconds"]}
