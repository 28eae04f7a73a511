"""Trains by a config: python -m experiments.train --config configs/pretrain.py:size=tiny --workdir runs/tiny"""

from __future__ import annotations

from absl import flags
from ml_collections import config_flags

from experiments.program import run_program

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/NAME.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "directory of the run; a stopped run in it goes on", required=True)
flags.mark_flag_as_required("config")


def main() -> None:
    """Trains, then writes ``report.html`` into the workdir."""
    import jax

    from bert_jax import train
    from bert_jax.report import write_report

    train(_CONFIG.value, _WORKDIR.value)
    if jax.process_index() == 0:
        print(f"report: {write_report(_WORKDIR.value)}")


if __name__ == "__main__":
    run_program(main)
