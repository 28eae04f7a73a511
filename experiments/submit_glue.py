"""GLUE's submission: python -m experiments.submit_glue --workdir runs/cola --workdir runs/mnli --output submission.zip

The test splits of each run are predicted from the files (or TFDS) that it was trained with; a run of MNLI predicts both
of its test sets and the diagnostic set AX. The server takes only whole submissions: --fill gives one class throughout
where there is no run, as the paper does for WNLI.
"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_multi_string(
    "workdir", None, "directory of a run of configs/glue.py; one a task", required=True
)
_OUTPUT = flags.DEFINE_string("output", None, "zip file to write", required=True)
_FILL = flags.DEFINE_bool("fill", False, "one class throughout for what is missing")
_BEST = flags.DEFINE_bool("best", False, "the checkpoints with the best evaluation instead of the newest")


def main() -> None:
    """Says what was written, and what was filled."""
    from experiments.submission import submit_workdirs

    filled = submit_workdirs(_WORKDIR.value, _OUTPUT.value, fill=_FILL.value, best=_BEST.value)
    print(f"{_OUTPUT.value} is ready for gluebenchmark.com/submit")
    if filled:
        print(f"one class throughout in {', '.join(filled)}")


if __name__ == "__main__":
    run_program(main)
