"""Data sets of sentence and pair classification by name or by files: GLUE, Korean benchmarks, one's own tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bert_jax.data.glue import glue_task, read_glue, read_glue_file, read_glue_tfds
from bert_jax.data.korean import UNLABELLED, korean_task, read_korean
from bert_jax.data.sources import check_options, split_paths
from bert_jax.data.tables import Columns, TableFormat, read_table
from bert_jax.data.text_examples import TextExample, find_labels
from bert_jax.data.text_files import Problems

Read = Callable[[str, Problems], list[TextExample]]


@dataclass(frozen=True)
class TextData:
    """Where examples come from and how they are scored.

    labels: the classes in the order of their ids; None for scores. metrics: names of ``tasks/scores.py``.
    read: (split, problems) -> examples. read_file: the same for a file to predict, whose labels may be missing.
    eval_split: the development set. names: of the labels, for showing; None: the labels themselves.
    """

    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    read: Read
    read_file: Callable[[Path, Problems], list[TextExample]]
    eval_split: str = "dev"
    names: tuple[str, ...] | None = None


def open_glue(name: str, data_dir: str, *, allow_download: bool = False) -> TextData:
    """A task of GLUE from its official files, or from TFDS where ``data_dir`` is empty.

    MNLI has one more split, "ax": GLUE's diagnostic set, which is predicted by a model of MNLI.
    """
    task = glue_task(name)

    def read(split: str, problems: Problems) -> list[TextExample]:
        source = task
        if split == "ax" and task.name == "MNLI":
            source, split = glue_task("AX"), "test"
        if data_dir:
            return read_glue(source, data_dir, split, problems)
        return read_glue_tfds(source, split, problems, allow_download=allow_download)

    def read_file(path: Path, problems: Problems) -> list[TextExample]:
        return read_glue_file(task, path, problems)

    split = next((split for split in task.splits if split.startswith("dev")), "test")
    return TextData(task.labels, task.metrics, read, read_file, split)


def open_korean(name: str, data_dir: str) -> TextData:
    """A Korean benchmark from its official files. ValueError for one that is multiple choice."""
    task = korean_task(name)
    if task.choices:
        raise ValueError(f"{name} is multiple choice; take configs/korean.py:task={name}, which knows")

    def read(split: str, problems: Problems) -> list[TextExample]:
        return [example for example in read_korean(task, data_dir, split, problems) if isinstance(example, TextExample)]

    def read_file(path: Path, problems: Problems) -> list[TextExample]:
        return [example for example in task.read(path, UNLABELLED, problems) if isinstance(example, TextExample)]

    split = "dev" if "dev" in task.files else "test"
    return TextData(task.labels, task.metrics, read, read_file, split, task.label_names or None)


def open_table(
    *,
    data_dir: str = "",
    train: str = "train.tsv",
    dev: str = "",
    test: str = "",
    text_a: str | int,
    text_b: str | int | None = None,
    label: str | int = "label",
    row_id: str | int | None = None,
    kind: Literal["classes", "regression"] = "classes",
    table_format: TableFormat = "auto",
    header: bool = True,
    labels: tuple[str, ...] | None = None,
) -> TextData:
    """One's own tables (``tables.py`` tells the formats), files relative to ``data_dir``.

    header: without one, columns are positions from 0. labels: the classes; None finds them in the training file.
    ValueError: a split without a file, a column that a file lacks.
    """
    columns = Columns(*(_position(name, header) for name in (text_a, text_b, label, row_id)))
    files = {"train": train, "dev": dev, "test": test}

    def read(split: str, problems: Problems) -> list[TextExample]:
        return [
            row
            for path in split_paths(files, split, data_dir)
            for row in read_table(path, columns, problems, kind=kind, table_format=table_format, header=header)
        ]

    def read_file(path: Path, problems: Problems) -> list[TextExample]:
        unlabelled = replace(columns, label=None)
        return read_table(path, unlabelled, problems, table_format=table_format, header=header)

    if kind == "classes" and labels is None:
        labels = find_labels(read("train", Problems()))
    metrics = ("pearson", "spearman") if kind == "regression" else ("accuracy", "macro_f1")
    return TextData(labels, metrics, read, read_file)


def open_text_data(source: str = "", *, data_dir: str, labels: tuple[str, ...] | None, **options: Any) -> TextData:
    """``source``: "glue", "korean" or "table"; ``options`` are the arguments of the function that opens it.

    Raises:
        ValueError: an unknown source, a missing or an unknown option.
    """
    if source not in SOURCES:
        raise ValueError(f"data.source={source!r} is unknown; take {', '.join(SOURCES)}")
    options = {name: value for name, value in options.items() if value is not None}
    if source == "table":
        options["labels"] = labels  # the others have theirs
    check_options(SOURCES[source], "data", data_dir=data_dir, **options)
    return SOURCES[source](data_dir=data_dir, **options)


SOURCES: dict[str, Callable[..., TextData]] = {"glue": open_glue, "korean": open_korean, "table": open_table}


def _position(column: str | int | None, header: bool) -> Any:
    """The column; a position where there is no header: flags give text."""
    if header or column is None or isinstance(column, int):
        return column
    if not column.isdecimal():
        raise ValueError(f"column {column!r}: without a header a column is its number, from 0")
    return int(column)
