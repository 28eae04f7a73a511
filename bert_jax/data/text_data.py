"""Data sets of sentence and pair classification by name or by files: GLUE, Korean benchmarks, one's own tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from bert_jax.data.glue import GlueTask, glue_task, read_glue, read_glue_tfds
from bert_jax.data.korean import UNLABELLED, korean_task, read_korean
from bert_jax.data.tables import Columns, TableFormat, read_table
from bert_jax.data.text_examples import TextExample, find_labels
from bert_jax.data.text_files import Problems

Read = Callable[[str, Problems], list[TextExample]]


@dataclass(frozen=True)
class TextData:
    """Where examples come from and how they are scored.

    labels: the classes in the order of their ids; None for scores. metrics: names of ``tasks/scores.py``.
    read: (split, problems) -> examples. read_file: the same for a file to predict, whose labels may be missing.
    eval_split: the development set.
    """

    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    read: Read
    read_file: Callable[[Path, Problems], list[TextExample]]
    eval_split: str = "dev"
    glue: GlueTask | None = None


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
        return read_table(path, task.test, problems, table_format="tsv", missing="keep")

    split = next((split for split in task.splits if split.startswith("dev")), "test")
    return TextData(task.labels, task.metrics, read, read_file, split, task)


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
    return TextData(task.labels, task.metrics, read, read_file, split)


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
        if split not in files:
            raise ValueError(f"there is no split {split!r}; choose from {', '.join(files)}")
        if not files[split]:
            if split == "dev":
                return []  # a run without a development set
            raise ValueError(f"data.{split} is not set; give its file")
        return read_table(
            Path(data_dir) / files[split], columns, problems, kind=kind, table_format=table_format, header=header
        )

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
    options = {name: value for name, value in options.items() if value is not None}
    try:
        if source == "glue":
            return open_glue(data_dir=data_dir, **options)
        if source == "korean":
            return open_korean(data_dir=data_dir, **options)
        if source == "table":
            return open_table(data_dir=data_dir, labels=labels, **options)
    except TypeError as error:  # an argument that is missing or unknown
        raise ValueError(f"config.data: {str(error).split(') ', 1)[-1]}") from None
    raise ValueError(f"data.source={source!r} is unknown; take glue, korean or table")


def _position(column: str | int | None, header: bool) -> Any:
    """The column; a position where there is no header: flags give text."""
    if header or column is None or isinstance(column, int):
        return column
    if not column.isdecimal():
        raise ValueError(f"column {column!r}: without a header a column is its number, from 0")
    return int(column)
