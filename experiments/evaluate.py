"""Evaluates a run's newest (or best) checkpoint: python -m experiments.evaluate --workdir runs/tiny"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL of a training run", required=True)
_SPLIT = flags.DEFINE_string("split", None, "which examples; the default: what its training evaluates")
_BEST = flags.DEFINE_bool("best", False, "the checkpoint with the best evaluation instead of the newest")


def main() -> None:
    """Prints one figure a line."""
    from bert_jax.training.evaluate import evaluate_workdir

    for name, value in evaluate_workdir(_WORKDIR.value, _SPLIT.value, best=_BEST.value).items():
        print(f"{name:24} {value:.6f}")


if __name__ == "__main__":
    run_program(main)
