"""The tasks of GLUE from their official files or from TFDS.

The files' quirks: quotes are literal everywhere; CoLA's train and dev files have no header, its test file has; MRPC is
either the three files of GLUE's download script or the two of Microsoft with the list of dev pairs; some rows of QQP
lack cells. `GLUE` holds what differs between the tasks; labels are the strings of the files, in the order of the
original (`run_classifier.py`), and the same strings are what the GLUE server takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bert_jax.data.tables import Columns, read_rows, read_table, read_text
from bert_jax.data.text_examples import TextExample
from bert_jax.data.text_files import Problems
from bert_jax.data.tfds_texts import decoded, open_set


@dataclass(frozen=True)
class GlueTask:
    """A task of GLUE. `labels` None: scores from 0 to 5.

    folders: where its files may lie under the data folder. files: split -> names of its file, the first found is read.
    train, test: columns of files with and without labels. headerless: split -> positions, where a file has no header.
    metrics: names of `tasks/scores.py`; the task's score is their mean (mean of accuracy and F1 for MRPC and QQP, of
      the correlations for STS-B). submission: split -> (name of the server's file, rows it takes).
    tfds: (configuration, field of A, field of B); tfds_splits: ours -> TFDS's.
    """

    name: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    train: Columns
    test: Columns
    submission: dict[str, tuple[str, tuple[int, ...]]]
    tfds: tuple[str, str, str | None]
    folders: tuple[str, ...] = ()
    files: dict[str, tuple[str, ...]] = field(
        default_factory=lambda: {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}
    )
    headerless: dict[str, Columns] = field(default_factory=dict)
    tfds_splits: dict[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"})

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.files)

    @property
    def is_regression(self) -> bool:
        return self.labels is None


def read_glue(task: str | GlueTask, data_dir: str | Path, split: str, problems: Problems) -> list[TextExample]:
    """A split from the official files. `data_dir` is GLUE's folder or the task's own; the label of "test" is None.

    Rows without a cell are skipped in labelled splits; in "test" they are kept, since the server wants every row;
    both are counted in `problems`. FileNotFoundError, ValueError as `read_table`.
    """
    task = glue_task(task)
    _check_split(task, split, task.files)
    path = _find_file(task, Path(data_dir), split)
    if path.name.startswith("msr_paraphrase"):
        return _read_msr(path, split, problems)
    labelled = not split.startswith("test")
    examples = read_table(
        path,
        task.headerless.get(split, task.train if labelled else task.test),
        problems,
        kind="regression" if task.is_regression else "classes",
        table_format="tsv",
        header=split not in task.headerless,
        missing="skip" if labelled else "keep",
    )
    if labelled and task.labels:
        _check_labels(examples, task.labels)
    return examples


def read_glue_file(task: str | GlueTask, path: str | Path, problems: Problems) -> list[TextExample]:
    """The texts of a file to predict, in any layout of the task: with or without labels, ids and, as CoLA's, a header.

    Labels are not read. Without ids rows are numbered from 0. FileNotFoundError, ValueError as `read_table`.
    """
    task = glue_task(task)
    first = next((line for line in read_text(path).split("\n") if line.strip()), "").split("\t")
    names = [cell.strip() for cell in first]
    columns, header = replace(task.test, row_id=None), True
    if task.test.text_a in names:
        ids = (task.test.row_id, task.train.row_id)
        columns = replace(columns, row_id=next((name for name in ids if name in names), None))
    else:
        for layout in task.headerless.values():
            if len(names) == _width(layout) and names[_number(layout.label)] in (task.labels or ()):
                columns, header = replace(layout, label=None), False
    return read_table(path, columns, problems, table_format="tsv", header=header, missing="keep")


def read_glue_tfds(
    task: str | GlueTask, split: str, problems: Problems, *, allow_download: bool = False
) -> list[TextExample]:
    """A split from TFDS ("glue/NAME" where TFDS keeps its sets), with the same labels as from the files.

    Where it is not prepared: FileNotFoundError, or with `allow_download` it is downloaded and prepared.
    """
    task = glue_task(task)
    _check_split(task, split, task.tfds_splits)
    config, field_a, field_b = task.tfds
    builder, tfds_split = open_set(f"tfds:glue/{config}:{task.tfds_splits[split]}", allow_download)
    names = getattr(builder.info.features["label"], "names", None)
    source = builder.as_data_source(split=tfds_split)
    examples = []
    for number in range(len(source)):
        record = source[number]
        place = f"tfds:glue/{config}:{tfds_split}:{number}"
        label = _tfds_label(task, names, record["label"], split)
        text_a = decoded(record[field_a], place, problems)
        text_b = None if field_b is None else decoded(record[field_b], place, problems)
        row_id = str(int(record["idx"]))
        examples.append(TextExample(text_a, text_b, label, row_id, f"tfds:glue/{config}:{tfds_split}", number))
    # A prepared set is shuffled; the files' order makes both sources the same.
    return sorted(examples, key=lambda example: int(example.row_id))


def glue_task(name: str | GlueTask) -> GlueTask:
    """By name, whatever the case and with or without hyphens: "sst2", "MRPC", "sts-b" ..."""
    if isinstance(name, GlueTask):
        return name
    wanted = _plain(name)
    for known, task in GLUE.items():
        if wanted == _plain(known):
            return task
    raise ValueError(f"{name!r} is no task of GLUE: choose from {', '.join(GLUE)}")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _check_split(task: GlueTask, split: str, splits: dict[str, Any]) -> None:
    if split not in splits:
        raise ValueError(f"{task.name} has no split {split!r}: choose from {', '.join(splits)}")


def _find_file(task: GlueTask, data_dir: Path, split: str) -> Path:
    folders = [data_dir / folder for folder in (task.name, *task.folders)] + [data_dir]
    for folder in folders:
        for name in task.files[split]:
            if (folder / name).is_file():
                return folder / name
    raise FileNotFoundError(
        f"no {' or '.join(task.files[split])} of {task.name} in {data_dir} or its folder {task.name}: "
        "put GLUE's files there, or leave data_dir empty to take them from TFDS"
    )


def _width(layout: Columns) -> int:
    return 1 + max(map(_number, layout.named().values()))


def _number(column: str | int | None) -> int:
    """Of a layout without header, whose columns are positions."""
    return int(column or 0)


def _check_labels(examples: list[TextExample], labels: tuple[str, ...]) -> None:
    for example in examples:
        if example.label not in labels:
            raise ValueError(
                f"{example.place}: label {example.label!r} is not one of {', '.join(labels)}: "
                "is this the task's official file?"
            )


def _read_msr(path: Path, split: str, problems: Problems) -> list[TextExample]:
    """MRPC of Microsoft: train and dev share a file, dev_ids.tsv lists the pairs of dev; the test file has labels."""
    columns = Columns("#1 String", "#2 String", "Quality")
    if split == "test":
        columns = Columns("#1 String", "#2 String")
    examples = read_table(path, columns, problems, table_format="tsv", missing="keep" if split == "test" else "skip")
    if split == "test":
        return examples
    found = [path.parent / name for name in _MSR_DEV_IDS if (path.parent / name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"{path.parent} has no {' or '.join(_MSR_DEV_IDS)}, which says which rows of {path.name} are dev: "
            "put GLUE's list there"
        )
    dev = {tuple(cells) for _, cells in read_rows(found[0], [0, 1], problems, table_format="tsv", header=False)}
    pairs = read_rows(path, ["#1 ID", "#2 ID"], Problems(), table_format="tsv", refuse_short=False)
    ids = {line: tuple(cells) for line, cells in pairs}
    examples = [example for example in examples if (ids[example.line] in dev) == (split == "dev")]
    _check_labels(examples, ("0", "1"))
    return examples


def _tfds_label(task: GlueTask, names: list[str] | None, label: Any, split: str) -> str | float | None:
    if split.startswith("test"):
        return None
    if task.labels is None or names is None:
        return float(label)
    # TFDS names the classes of the tasks with labels 0 and 1 in its own words, and orders the others its own way.
    name = names[int(label)]
    return name if name in task.labels else task.labels[int(label)]


_MSR_DEV_IDS = ("dev_ids.tsv", "mrpc_dev_ids.tsv")
_NLI = ("contradiction", "entailment", "neutral")
_ENTAILED = ("entailment", "not_entailment")
_BINARY = ("0", "1")


def _tasks() -> Iterator[GlueTask]:
    yield GlueTask(
        "CoLA",
        _BINARY,
        ("matthews",),
        train=Columns("sentence", label="label"),
        test=Columns("sentence", row_id="index"),
        headerless={"train": Columns(3, label=1), "dev": Columns(3, label=1)},
        submission={"test": ("CoLA.tsv", (1063,))},
        tfds=("cola", "sentence", None),
    )
    yield GlueTask(
        "SST-2",
        _BINARY,
        ("accuracy",),
        train=Columns("sentence", label="label"),
        test=Columns("sentence", row_id="index"),
        submission={"test": ("SST-2.tsv", (1821,))},
        tfds=("sst2", "sentence", None),
    )
    yield GlueTask(
        "MRPC",
        _BINARY,
        ("accuracy", "f1"),
        train=Columns("#1 String", "#2 String", "Quality"),
        test=Columns("#1 String", "#2 String", row_id="index"),
        files={
            "train": ("train.tsv", "msr_paraphrase_train.txt"),
            "dev": ("dev.tsv", "msr_paraphrase_train.txt"),
            "test": ("test.tsv", "msr_paraphrase_test.txt"),
        },
        submission={"test": ("MRPC.tsv", (1725,))},
        tfds=("mrpc", "sentence1", "sentence2"),
    )
    yield GlueTask(
        "STS-B",
        None,
        ("pearson", "spearman"),
        train=Columns("sentence1", "sentence2", "score", "index"),
        test=Columns("sentence1", "sentence2", row_id="index"),
        submission={"test": ("STS-B.tsv", (1379,))},
        tfds=("stsb", "sentence1", "sentence2"),
    )
    yield GlueTask(
        "QQP",
        _BINARY,
        ("accuracy", "f1"),
        train=Columns("question1", "question2", "is_duplicate", "id"),
        test=Columns("question1", "question2", row_id="id"),
        submission={"test": ("QQP.tsv", (390_965,))},
        tfds=("qqp", "question1", "question2"),
    )
    yield GlueTask(
        "MNLI",
        _NLI,
        ("accuracy",),
        train=Columns("sentence1", "sentence2", "gold_label", "index"),
        test=Columns("sentence1", "sentence2", row_id="index"),
        files={
            split: (f"{split}.tsv",)
            for split in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched")
        },
        submission={"test_matched": ("MNLI-m.tsv", (9796,)), "test_mismatched": ("MNLI-mm.tsv", (9847,))},
        tfds=("mnli", "premise", "hypothesis"),
        tfds_splits={
            "train": "train",
            "dev_matched": "validation_matched",
            "dev_mismatched": "validation_mismatched",
            "test_matched": "test_matched",
            "test_mismatched": "test_mismatched",
        },
    )
    yield GlueTask(
        "QNLI",
        _ENTAILED,
        ("accuracy",),
        train=Columns("question", "sentence", "label", "index"),
        test=Columns("question", "sentence", row_id="index"),
        # 5,740 rows in the first version of the task, which the server's sample still has; 5,463 in today's.
        submission={"test": ("QNLI.tsv", (5463, 5740))},
        tfds=("qnli", "question", "sentence"),
    )
    yield GlueTask(
        "RTE",
        _ENTAILED,
        ("accuracy",),
        train=Columns("sentence1", "sentence2", "label", "index"),
        test=Columns("sentence1", "sentence2", row_id="index"),
        submission={"test": ("RTE.tsv", (3000,))},
        tfds=("rte", "sentence1", "sentence2"),
    )
    yield GlueTask(
        "WNLI",  # some copies keep 117 of the 635 rows of train apart, in a val.tsv without header
        _BINARY,
        ("accuracy",),
        train=Columns("sentence1", "sentence2", "label", "index"),
        test=Columns("sentence1", "sentence2", row_id="index"),
        files={"train": ("train.tsv",), "val": ("val.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)},
        headerless={"val": Columns(1, 2, 3, 0)},
        submission={"test": ("WNLI.tsv", (146,))},
        tfds=("wnli", "sentence1", "sentence2"),
    )
    yield GlueTask(
        "AX",  # the diagnostic set: a test split only, predicted by a model of MNLI
        _NLI,
        ("matthews",),
        train=Columns("sentence1", "sentence2"),
        test=Columns("sentence1", "sentence2", row_id="index"),
        folders=("diagnostic", "MNLI"),
        files={"test": ("AX.tsv", "diagnostic.tsv")},
        submission={"test": ("AX.tsv", (1104,))},
        tfds=("ax", "premise", "hypothesis"),
        tfds_splits={"test": "test"},
    )


GLUE: dict[str, GlueTask] = {task.name: task for task in _tasks()}
