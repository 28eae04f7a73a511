"""Data sets of multiple choice by name: SWAG, HellaSwag, and those of KoBEST."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bert_jax.data.choices import ChoiceExample, Start, read_hellaswag, read_swag
from bert_jax.data.korean import UNLABELLED, korean_task, read_korean
from bert_jax.data.sources import check_options, split_paths
from bert_jax.data.text_files import Problems

# The official names of the files.
SWAG_FILES = {"train": "train.csv", "dev": "val.csv", "test": "test.csv"}
HELLASWAG_FILES = {
    "train": "hellaswag_train.jsonl",
    "dev": "hellaswag_val.jsonl",
    "test": "hellaswag_test.jsonl",
}


@dataclass(frozen=True)
class ChoiceData:
    """Where examples come from and how they are scored.

    metrics: names of ``tasks/scores.py``. read: (split, problems) -> examples. read_file: the same for a file to
    predict, whose labels may be missing.
    """

    metrics: tuple[str, ...]
    read: Callable[[str, Problems], list[ChoiceExample]]
    read_file: Callable[[Path, Problems], list[ChoiceExample]]


def open_swag(data_dir: str, start: Start, **files: str) -> ChoiceData:
    """SWAG from its CSV files; "test" has no labels. ``files``: other names of train, dev and test."""

    def read_file(path: Path, problems: Problems) -> list[ChoiceExample]:
        return read_swag(path, problems, labelled=False, start=start)

    def read(path: Path, split: str, problems: Problems) -> list[ChoiceExample]:
        return read_swag(path, problems, labelled=split != "test", start=start)

    return ChoiceData(("accuracy",), partial(_read_split, data_dir, _files(SWAG_FILES, files), read), read_file)


def open_hellaswag(data_dir: str, start: Start, **files: str) -> ChoiceData:
    """HellaSwag from JSON lines or its text form, plain or packed. ``files``: other names of train, dev and test."""

    def read(path: Path, _split: str, problems: Problems) -> list[ChoiceExample]:
        return read_hellaswag(path, problems, start=start)

    split = partial(_read_split, data_dir, _files(HELLASWAG_FILES, files), read)
    return ChoiceData(("accuracy",), split, partial(read_hellaswag, start=start))


def open_korean_choice(data_dir: str, start: Start, *, name: str) -> ChoiceData:
    """COPA or HellaSwag of KoBEST. ValueError for another, and for a start: they have no started phrase apart."""
    task = korean_task(name)
    if not task.choices:
        raise ValueError(f"{name} is no multiple choice; take configs/korean.py:task={name}, which knows")
    if start != "context":
        raise ValueError(f"start={start!r} is not for {name}, whose endings are whole; leave it at 'context'")

    def read(split: str, problems: Problems) -> list[ChoiceExample]:
        return [
            example for example in read_korean(task, data_dir, split, problems) if isinstance(example, ChoiceExample)
        ]

    def read_file(path: Path, problems: Problems) -> list[ChoiceExample]:
        return [example for example in task.read(path, UNLABELLED, problems) if isinstance(example, ChoiceExample)]

    return ChoiceData(task.metrics, read, read_file)


SOURCES: dict[str, Callable[..., ChoiceData]] = {
    "swag": open_swag,
    "hellaswag": open_hellaswag,
    "korean": open_korean_choice,
}


def open_choice_data(source: str = "", *, data_dir: str, start: Start, **options: Any) -> ChoiceData:
    """``source``: "swag", "hellaswag" or "korean"; ``options`` are the arguments of the function that opens it.

    Raises:
        ValueError: an unknown source, a missing or an unknown option.
    """
    if source not in SOURCES:
        raise ValueError(f"data.source={source!r} is unknown; take {', '.join(SOURCES)}")
    options = {name: value for name, value in options.items() if value is not None}
    check_options(SOURCES[source], "data", data_dir, start, **options)
    return SOURCES[source](data_dir, start, **options)


def _files(official: dict[str, str], given: dict[str, str]) -> dict[str, str]:
    if unknown := given.keys() - official.keys():
        raise ValueError(f"config.data has no field {min(unknown)!r} here; it has {', '.join(official)}")
    return official | given


def _read_split(
    data_dir: str,
    files: dict[str, str],
    read: Callable[[Path, str, Problems], list[ChoiceExample]],
    split: str,
    problems: Problems,
) -> list[ChoiceExample]:
    """Files lie relative to ``data_dir``. An empty name for dev is a run without a development set."""
    rows = []
    for path in split_paths(files, split, data_dir):
        if not path.is_file():
            raise FileNotFoundError(
                f"no {path}: give the folder of the official files as data_dir, or a name as data.{split}"
            )
        rows += read(path, split, problems)
    return rows
