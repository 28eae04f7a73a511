"""Writes a run's report.html: python -m experiments.report --workdir runs/tiny [--sentence 'A [MASK] day.' ...]"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL of a training run, finished or not", required=True)
_SENTENCES = flags.DEFINE_multi_string("sentence", [], "a sentence with [MASK] to show; may be given several times")


def main() -> None:
    """Prints where the page is."""
    from bert_jax.report import write_report

    print(f"report: {write_report(_WORKDIR.value, _SENTENCES.value).resolve()}")


if __name__ == "__main__":
    run_program(main)
