"""Writes report.html, of one run or of a folder of runs, which it compares.

    python -m experiments.report --workdir runs/tiny [--sentence 'A [MASK] day.' ...]
    python -m experiments.report --workdir runs

A folder may hold sweeps, loose runs, unfinished ones and broken ones, at any depth. Runs of one task and data set are
compared: mean, deviation, median and best over the seeds of each setting, learning curves, what the learning rate does.
"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "directory or URL of a training run, finished or not, or a folder of runs", required=True
)
_SENTENCES = flags.DEFINE_multi_string(
    "sentence", [], "a sentence with [MASK] to show on a run's page; may be given several times"
)


def main() -> None:
    """Prints where the page is."""
    from bert_jax.report import write_report

    print(f"report: {write_report(_WORKDIR.value, _SENTENCES.value).resolve()}")


if __name__ == "__main__":
    run_program(main)
