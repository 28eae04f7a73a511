"""Korean benchmarks in their official files: sentiment, inference, similarity and KoBEST.

NSMC (github.com/e9t/nsmc), KorNLI and KorSTS (github.com/kakaobrain/kor-nlu-datasets), KLUE-NLI and KLUE-STS
(klue-benchmark.com), KoBEST (SKT-LSC): BoolQ, COPA, WiC, SentiNeg, HellaSwag. Question answering and named entities are
read elsewhere. Quotes are literal in all of them but KoBEST's HellaSwag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as List
from dataclasses import dataclass, replace
from pathlib import Path

from bert_jax.data.choices import ChoiceExample, checked, choice_label
from bert_jax.data.tables import Column, Columns, TableFormat, read_rows, read_table
from bert_jax.data.text_examples import TextExample
from bert_jax.data.text_files import Problems

# The split of a file to predict: its rows need no labels and no ids.
UNLABELLED = ""
ABSENT_FILE = "file of the training set that is not there, left out"
NLI = ("entailment", "contradiction", "neutral")
# What Korean courses and papers call the classes; for showing, the labels stay those of the files.
KOREAN_NAMES = {
    "entailment": "참",
    "contradiction": "거짓",
    "neutral": "중립",
    "0": "부정",
    "1": "긍정",
    "True": "참",
    "False": "거짓",
}


@dataclass(frozen=True)
class KoreanTask:
    """`labels`: the classes; None for scores from 0 to 5 and for multiple choice (`choices` endings, else 0).

    files: split -> file names, read one after the other (KorNLI trains on two; one alone will do, and is reported).
    metrics: names of `tasks/scores.py`. read: (file, split, problems) -> examples; split UNLABELLED reads texts alone.
    """

    name: str
    folder: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    files: dict[str, tuple[str, ...]]
    read: Callable[[Path, str, Problems], list[TextExample] | list[ChoiceExample]]
    choices: int = 0

    @property
    def is_regression(self) -> bool:
        return self.labels is None and not self.choices

    @property
    def label_names(self) -> tuple[str, ...]:
        """The Korean names of the labels, in their order."""
        return tuple(KOREAN_NAMES[label] for label in self.labels or ())


def read_korean(
    task: str | KoreanTask, data_dir: str | Path, split: str, problems: Problems
) -> list[TextExample] | list[ChoiceExample]:
    """A split from the official files. `data_dir` is the task's folder, or one with a folder for each task.

    Multiple choice (COPA, HellaSwag) gives `ChoiceExample`s, everything else `TextExample`s. FileNotFoundError;
    ValueError for a split or task that is not there, and as `read_table`.
    """
    task = korean_task(task)
    if split not in task.files:
        raise ValueError(f"{task.name} has no split {split!r}: choose from {', '.join(task.files)}")
    found = []
    for path in _find_files(task, Path(data_dir), split, problems):
        found += task.read(path, split, problems)
    return found


def korean_task(name: str | KoreanTask) -> KoreanTask:
    """By name, whatever the case: "nsmc", "KLUE-NLI", "kobest_copa" ..."""
    if isinstance(name, KoreanTask):
        return name
    task = KOREAN.get(name.lower().replace("-", "_"))
    if task is None:
        raise ValueError(f"{name!r} is no Korean task: choose from {', '.join(KOREAN)}")
    return task


def _find_files(task: KoreanTask, data_dir: Path, split: str, problems: Problems) -> list[Path]:
    parents = [data_dir / task.folder, data_dir / task.folder.split("/")[-1], data_dir]
    for folder in parents:
        found = [folder / name for name in task.files[split] if (folder / name).is_file()]
        if found:
            for name in task.files[split]:
                if folder / name not in found:
                    problems.add(ABSENT_FILE, str(folder / name))
            return found
    raise FileNotFoundError(
        f"no {' or '.join(task.files[split])} of {task.name} in {data_dir} or its folder {task.folder}: "
        "download the official files and give their folder as data_dir"
    )


def _texts(columns: Columns, *, scores: bool = False, table_format: TableFormat = "tsv"):
    """A reader of a table."""

    def read(path: Path, split: str, problems: Problems) -> list[TextExample]:
        used = replace(columns, label=None, row_id=None) if split == UNLABELLED else columns
        kind = "regression" if scores else "classes"
        return read_table(path, used, problems, kind=kind, table_format=table_format)

    return read


def _answers(columns: Columns):
    """A reader of a table of yes-no answers, which KoBEST writes TRUE as well as True."""
    read_table_as_is = _texts(columns)

    def read(path: Path, split: str, problems: Problems) -> list[TextExample]:
        examples = read_table_as_is(path, split, problems)
        if split == UNLABELLED:
            return examples
        return [replace(example, label=str(example.label).capitalize()) for example in examples]

    return read


def _senti_neg(path: Path, split: str, problems: Problems) -> list[TextExample]:
    """The test file has each review in its own words and negated: split "test" takes the latter, as KoBEST does."""
    suffix = "_origin" if split == "test_origin" else ""
    return _texts(Columns(f"Text{suffix}", None, f"Label{suffix}", "ID"))(path, split, problems)


def _copa(path: Path, split: str, problems: Problems) -> list[ChoiceExample]:
    """The question is put into words that go on from the context: 결과 "그래서", 원인 "왜냐하면"."""
    examples = []
    columns = ["sentence", "question", "1", "2", "ID", "Answer"]
    for line, cells in _full_rows(path, columns[:4] if split == UNLABELLED else columns, "tsv", problems):
        sentence, question, first, second, *rest = cells
        row_id, answer = rest or (str(len(examples)), None)
        place = f"{path}:{line}"
        question = question.strip()  # some cells end with a space
        if question not in _CONNECTIVES:
            raise ValueError(f"{place}: question {question!r} is not one of {', '.join(_CONNECTIVES)}: correct it")
        context = f"{sentence} {_CONNECTIVES[question]}"
        label = None if answer is None else choice_label(answer, 1, 2, place)
        examples.append(ChoiceExample(context, (first, second), label, row_id, str(path), line))
    return checked(examples, path, problems)


def _hellaswag(path: Path, split: str, problems: Problems) -> list[ChoiceExample]:
    """Cells with quotes in them are quoted here, unlike in the rest of KoBEST."""
    examples = []
    columns = ["context", *(f"choice{i}" for i in range(1, 5)), "label"]
    for line, cells in _full_rows(path, columns[:5] if split == UNLABELLED else columns, "quoted_tsv", problems):
        label = None if split == UNLABELLED else choice_label(cells[5], 0, 4, f"{path}:{line}")
        examples.append(ChoiceExample(cells[0], tuple(cells[1:5]), label, str(len(examples)), str(path), line))
    return checked(examples, path, problems)


def _full_rows(
    path: Path, columns: List[Column], table_format: TableFormat, problems: Problems
) -> Iterator[tuple[int, list[str]]]:
    for line, cells in read_rows(path, columns, problems, table_format=table_format):
        full = [cell for cell in cells if cell is not None]
        if len(full) < len(cells):
            raise ValueError(f"{path}:{line}: the row has {len(full)} of {len(cells)} cells: complete it or remove it")
        yield line, full


_CONNECTIVES = {"결과": "그래서", "원인": "왜냐하면"}
_KOBEST = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


def _klue(name: str) -> dict[str, tuple[str, ...]]:
    return {split: (f"klue-{name}-v1.1_{split}.json",) for split in ("train", "dev")}


KOREAN: dict[str, KoreanTask] = {
    task.name: task
    for task in (
        KoreanTask(
            "nsmc",
            "nsmc",
            ("0", "1"),
            ("accuracy",),
            {"train": ("ratings_train.txt",), "test": ("ratings_test.txt",)},
            _texts(Columns("document", None, "label", "id")),
        ),
        KoreanTask(
            "kornli",
            "kornli",
            NLI,
            ("accuracy",),
            {
                "train": ("multinli.train.ko.tsv", "snli_1.0_train.ko.tsv"),
                "dev": ("xnli.dev.ko.tsv",),
                "test": ("xnli.test.ko.tsv",),
            },
            _texts(Columns("sentence1", "sentence2", "gold_label")),
        ),
        KoreanTask(
            "klue_nli",
            "klue_nli",
            NLI,
            ("accuracy",),
            _klue("nli"),
            _texts(Columns("premise", "hypothesis", "gold_label", "guid"), table_format="json"),
        ),
        KoreanTask(
            "korsts",
            "korsts",
            None,
            ("spearman",),
            {"train": ("sts-train.tsv",), "dev": ("sts-dev.tsv",), "test": ("sts-test.tsv",)},
            _texts(Columns("sentence1", "sentence2", "score"), scores=True),
        ),
        KoreanTask(
            "klue_sts",
            "klue_sts",
            None,
            ("pearson", "f1_above_3"),
            _klue("sts"),
            _texts(Columns("sentence1", "sentence2", "labels.label", "guid"), scores=True, table_format="json"),
        ),
        KoreanTask(
            "kobest_boolq",
            "kobest/BoolQ",
            ("False", "True"),
            ("macro_f1",),
            _KOBEST,
            _answers(Columns("Question", "Text", "Answer", "ID")),
        ),
        KoreanTask(
            "kobest_wic",
            "kobest/WiC",
            ("False", "True"),
            ("macro_f1",),
            _KOBEST,
            # The word in question stands in brackets in both sentences.
            _answers(Columns("SENTENCE1", "SENTENCE2", "ANSWER", "ID")),
        ),
        KoreanTask(
            "kobest_sentineg",
            "kobest/SentiNeg",
            ("0", "1"),
            ("macro_f1",),
            {**_KOBEST, "test_origin": ("test.tsv",)},
            _senti_neg,
        ),
        KoreanTask("kobest_copa", "kobest/COPA", None, ("macro_f1",), _KOBEST, _copa, choices=2),
        KoreanTask("kobest_hellaswag", "kobest/HellaSwag", None, ("macro_f1",), _KOBEST, _hellaswag, choices=4),
    )
}
