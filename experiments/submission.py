"""A submission to the GLUE server from finished runs: each run's test splits are predicted and zipped."""

from __future__ import annotations

import csv
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from bert_jax.data.glue import GlueTask, glue_task
from bert_jax.tasks.glue_submission import Prediction, submission_file, write_submission
from bert_jax.training.evaluate import predict_workdir
from bert_jax.training.workdir import CONFIG


def submit_workdirs(
    workdirs: Iterable[str | Path], output: str | Path, *, fill: bool = False, best: bool = False
) -> list[str]:
    """Writes the zip that the server takes from the runs' test splits; the names of the files that were filled.

    A run of MNLI predicts both of its test sets and the diagnostic set AX. ``fill`` gives one class throughout where
    there is no run (the paper does so for WNLI), and for AX where its file is missing. ``best`` takes each run's best
    checkpoint instead of the newest.

    Raises:
        FileNotFoundError: no run in a directory, or no test files where its config says.
        ValueError: a run that is not of GLUE, two of one task, rows that are not the server's, an incomplete
            submission without ``fill``. Nothing is written.
    """
    runs: dict[str, Path] = {}
    for workdir in map(Path, workdirs):
        name = task_of_run(workdir).name
        if name in runs:
            raise ValueError(f"{runs[name]} and {workdir} are both runs of {name}; give one run for each task")
        runs[name] = workdir
    predictions: dict[tuple[str, str], list[Prediction]] = {}
    if "MNLI" in runs:
        try:
            predictions["AX", "test"] = predict_split(runs["MNLI"], "ax", best)
        except FileNotFoundError:
            if not fill:
                raise
    for name, workdir in runs.items():
        for split in glue_task(name).submission:
            predictions[name, split] = predict_split(workdir, split, best)
            submission_file(name, split, predictions[name, split])  # what the server would refuse is said at once
    return write_submission(output, predictions, fill=fill)


def task_of_run(workdir: Path) -> GlueTask:
    """The task of GLUE that a run was trained on. FileNotFoundError: no run; ValueError: of something else."""
    if not (workdir / CONFIG).is_file():
        raise FileNotFoundError(f"{workdir} holds no {CONFIG}; give the --workdir of a training run")
    data = json.loads((workdir / CONFIG).read_text()).get("data") or {}
    if data.get("source") != "glue":
        raise ValueError(f"{workdir} is no run of configs/glue.py; only those have a place in a submission")
    return glue_task(data["name"])


def predict_split(workdir: Path, split: str, best: bool) -> list[Prediction]:
    """(index, label or score) of each row, from the predictions as the run writes them."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "predictions.tsv"
        predict_workdir(workdir, split, path, best=best)
        with path.open(encoding="utf-8", newline="") as file:
            return [(row["index"], row["prediction"]) for row in csv.DictReader(file, delimiter="\t")]
