"""Predictions of a fine-tuned run: python -m experiments.predict --workdir runs/mrpc --input pairs.tsv --output out.tsv

--input is a file in the task's own layout (labels may be missing) or the name of a split, such as test. What is written
depends on the task: a TSV with the classes' probabilities, a column file with tags, a folder with predictions.json,
nbest_predictions.json and null_odds.json.
"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_string("workdir", None, "directory or URL of a fine-tuning run", required=True)
_INPUT = flags.DEFINE_string("input", None, "file to predict, or a split of the task", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "file (question answering: folder) to write", required=True)
_BEST = flags.DEFINE_bool("best", False, "the checkpoint with the best evaluation instead of the newest")


def main() -> None:
    """Says how many examples were predicted, and where they are."""
    from bert_jax.training.evaluate import predict_workdir

    count = predict_workdir(_WORKDIR.value, _INPUT.value, _OUTPUT.value, best=_BEST.value)
    print(f"{count:,} predictions in {_OUTPUT.value}")


if __name__ == "__main__":
    run_program(main)
