"""The files that the GLUE server takes: one TSV a test set, all in one zip.

A file has the header "index<TAB>prediction" and a row for each test row, numbered from 0. Predictions are the label
strings of the task's own files, or scores from 0 to 5 with three decimals.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from bert_jax.data.glue import GLUE, GlueTask, glue_task

HEADER = "index\tprediction"
Prediction = tuple[str | int, str | float]

# (task, split) -> the server's file name, for all of the server's files
FILES = {(task.name, split): name for task in GLUE.values() for split, (name, _) in task.submission.items()}


def submission_file(task: str | GlueTask, split: str, predictions: Iterable[Prediction]) -> tuple[str, str]:
    """(name, content) for one test set, from (row's index, label or score) in any order.

    ValueError: an index that is no number from 0, occurs twice or is missing; a number of rows the server does not
    expect; a label of another task; a score that is no finite number. Scores are limited to 0 ... 5.
    """
    task = glue_task(task)
    if split not in task.submission:
        raise ValueError(f"{task.name} has no submission for {split!r}: choose from {', '.join(task.submission)}")
    name, expected = task.submission[split]
    rows: dict[int, str] = {}
    for row_id, value in predictions:
        index = _index(name, row_id)
        if index in rows:
            raise ValueError(f"{name}: index {index} is predicted twice: give each test row once")
        rows[index] = _shown(task, name, index, value)
    wrong = sorted(set(range(len(rows))) - rows.keys())
    if wrong:
        raise ValueError(f"{name}: index {wrong[0]} is missing among {len(rows)} predictions: give every test row")
    if len(rows) not in expected:
        numbers = " or ".join(f"{number:,}" for number in expected)
        raise ValueError(
            f"{name} has {len(rows):,} predictions, the server takes {numbers}: predict the whole test set"
        )
    return name, _content(rows[index] for index in range(len(rows)))


def write_submission(
    path: str | Path, predictions: Mapping[tuple[str, str], Iterable[Prediction]], *, fill: bool = False
) -> list[str]:
    """Writes the zip from {(task, split): predictions}. Returns the files that were filled.

    The server takes only whole submissions: without `fill` a missing file is an error, with it the file gets the
    same prediction in each row (the paper does so for WNLI: the majority class). Nothing is written on an error.
    """
    contents: dict[str, str] = {}
    for (task, split), rows in predictions.items():
        name, content = submission_file(task, split, rows)
        contents[name] = content
    missing = [key for key, name in FILES.items() if name not in contents]
    if missing and not fill:
        names = ", ".join(FILES[key] for key in missing)
        raise ValueError(f"the submission lacks {names}: predict them, or fill=True to give one class throughout")
    for task, split in missing:
        contents[FILES[task, split]] = constant_content(task, split)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            # A fixed date: the same predictions give the same bytes.
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, contents[name])
    temporary.replace(path)
    return [FILES[key] for key in missing]


def constant_content(task: str | GlueTask, split: str) -> str:
    """A file with the first label (for WNLI "0", its majority class) or score 0 for every row."""
    task = glue_task(task)
    rows = task.submission[split][1][0]
    return _content(["0.000" if task.labels is None else task.labels[0]] * rows)


def _content(predictions: Iterable[str]) -> str:
    rows = [f"{index}\t{prediction}\n" for index, prediction in enumerate(predictions)]
    return f"{HEADER}\n{''.join(rows)}"


def _index(name: str, row_id: str | int) -> int:
    text = str(row_id).strip()
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"{name}: index {row_id!r} is no number from 0: give the index column of the test file")
    return int(text)


def _shown(task: GlueTask, name: str, index: int, value: str | float) -> str:
    if task.labels is None:
        try:
            score = float(value)
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise ValueError(f"{name}: prediction {value!r} at index {index} is no score: give a number from 0 to 5")
        return f"{min(max(score, 0.0), 5.0):.3f}"
    if value not in task.labels:
        labels = ", ".join(task.labels)
        raise ValueError(f"{name}: prediction {value!r} at index {index} is no label of {task.name}: give {labels}")
    return str(value)
