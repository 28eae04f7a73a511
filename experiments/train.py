"""Trains by a config: python -m experiments.train --config configs/pretrain.py:size=tiny --workdir runs/tiny"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from experiments.program import run_program

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL; a stopped run in it goes on", required=True)
flags.mark_flag_as_required("config")
_COORDINATOR = flags.DEFINE_string(
    "coordinator", None, "HOST:PORT of process 0, where this is one of several; auto: SLURM, Open MPI, GKE or a TPU pod"
)
_NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "how many there are, unless the coordinator is auto")
_MEETING_SECONDS = flags.DEFINE_integer(
    "meeting_seconds", 60, "how long to wait for the other processes", lower_bound=1
)
_PROCESS_ID = flags.DEFINE_integer("process_id", None, "which of them this is, from 0")
_PROFILE_STEPS = flags.DEFINE_list("profile_steps", None, "FIRST,LAST: trace of these steps in WORKDIR/profile")
_DEBUG_STEP = flags.DEFINE_integer(
    "debug_step", None, "instead of training: repeat the run up to this step and say where numbers are not finite"
)


def main() -> None:
    """Trains, then writes ``report.html`` into the workdir."""
    import jax

    from bert_jax import train
    from bert_jax.report import write_report
    from bert_jax.training.debug_step import debug_step
    from bert_jax.training.hosts import join, leave

    if _COORDINATOR.value:
        join(_COORDINATOR.value, _NUM_PROCESSES.value, _PROCESS_ID.value, _MEETING_SECONDS.value)
    elif _NUM_PROCESSES.value is not None or _PROCESS_ID.value is not None:
        raise ValueError("--num_processes and --process_id need --coordinator=HOST:PORT")
    if _DEBUG_STEP.value is not None:
        return print(debug_step(_CONFIG.value, _WORKDIR.value, _DEBUG_STEP.value))
    train(_CONFIG.value, _WORKDIR.value, profile_steps=_steps(_PROFILE_STEPS.value))
    leave()
    if jax.process_index() == 0:
        print(f"report: {write_report(_WORKDIR.value)}")


def _steps(given: list[str] | None) -> tuple[int, int] | None:
    if given is None:
        return None
    if len(given) != 2 or not all(part.isdecimal() for part in given) or not 0 < int(given[0]) <= int(given[1]):
        raise ValueError(f"--profile_steps={','.join(given)} must be FIRST,LAST, for example 20,25")
    return int(given[0]), int(given[1])


if __name__ == "__main__":
    run_program(main)
