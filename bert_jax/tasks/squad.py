"""Question answering on a text (the paper, sections 4.2 and 4.3): SQuAD 1.1 and 2.0, KorQuAD, and sets in their layout.

Each token is scored as the answer's start and as its end by one dense layer on the last hidden states, without
dropout, as the original. The softmax of the loss runs over a window's own tokens: padding is not in it, and neither
are the windows that share the row (a deviation from `run_squad.py`, whose softmax runs over padding too).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from bert_jax.data.packing import Examples
from bert_jax.data.sources import split_paths
from bert_jax.data.squad import Question, Window, WindowSettings, make_windows, read_questions
from bert_jax.data.squad_tfds import read_squad_tfds
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.decoding import decoded_once
from bert_jax.tasks.fine_tuning import fine_tuning_task, of_head, open_model, report_problems, warn_of_taken_apart
from bert_jax.tasks.squad_answers import (
    Answers,
    AnswerSettings,
    find_answers,
    null_odds,
    predictions,
    tune_threshold,
    write_answers,
)
from bert_jax.tasks.squad_score import find_rules, score
from bert_jax.tasks.task import Batch, Dataset, Figures, Outputs, Task

__all__ = ["score", "squad"]

VERSIONS = ("1.1", "2.0")
# What a question without the needed label is counted as.
UNLABELLED = "question without answers, not trained on"
# The logit of a token that is not the window's; finite, so that an empty slot (all tokens) gives no NaN.
NOT_OWN = -1e9
# Counts, which are no figures of a run.
NOT_SHOWN = ("total", "missing")
# Mistakes that a report shows, and its word for "".
MISTAKES = 20
NO_ANSWER = "no answer"


def squad(
    *,
    seed: int,
    data_dir: str = "",
    train: str | None = None,
    dev: str | None = None,
    model: dict[str, Any] | None = None,
    tokenizer: str = "",
    version: str = "2.0",
    doc_stride: int = 128,
    max_query_length: int = 64,
    n_best_size: int = 20,
    max_answer_length: int = 30,
    original_text: bool = False,
    rules: str | None = None,
    allow_download: bool = False,
    bilstm_size: int = 0,
    concatenated: bool = False,
) -> Task:
    """Answers as spans of a text; in 2.0 also "", where the threshold on the null odds is tuned on the dev set.

    The tuned threshold is the evaluation figure "null_threshold", which a checkpoint keeps with its others, and what
    predictions are written with (0.0, the original's default, from a checkpoint that was not evaluated).

    Args:
        data_dir: folder of the files; empty takes TFDS's squad, unless a file is named.
        train, dev: files in SQuAD's layout, in ``data_dir`` or anywhere; None: the official names of the version in
            ``data_dir``. An empty ``dev``, or None without ``data_dir``: a run without a development set.
        model, tokenizer: the encoder's, taken from ``init_from`` where that is set.
        version: "1.1": every question has an answer; "2.0": "" competes with the spans.
        doc_stride, max_query_length, n_best_size, max_answer_length: in tokens, but for the number of candidates.
        original_text: restore answers as the original does, rather than cut them by the tokens' characters.
        rules: "squad" or "korquad" (F1 over characters); None takes the second where the file's version names it.
        allow_download: TFDS may download what is not prepared.
        bilstm_size, concatenated: see ``BertWithHead``.

    Raises:
        ValueError, FileNotFoundError: data or settings that do not fit, said with file, question and remedy.
    """
    if version not in VERSIONS:
        raise ValueError(f"version={version!r} is unknown; take one of {', '.join(VERSIONS)}")
    find_rules(rules)
    config, found = open_model(model or {}, tokenizer)
    source = _Source(data_dir, {"train": train, "dev": dev}, version, allow_download)
    settings = AnswerSettings(n_best_size, max_answer_length, version == "2.0", original_text)
    reader = _Reader(found, doc_stride, max_query_length, settings, rules)

    def read_split(split: str, max_seq_length: int) -> Dataset:
        problems = Problems()
        questions, gold = source.read(split, problems)
        roles = {"training": split == "train", "scored": split == "dev"}
        return reader.dataset(split, questions, gold, max_seq_length, problems, **roles)

    def read_file(path: Path, max_seq_length: int) -> Dataset:
        problems = Problems()
        questions = read_questions(path, problems)
        return reader.dataset(path.name, questions, path, max_seq_length, problems, training=False, scored=False)

    module = BertWithHead(config, "qa_head", 2, True, False, bilstm_size=bilstm_size, concatenated=concatenated)
    return fine_tuning_task(
        name="squad",
        **of_head(module),
        tokenizer=found,
        seed=seed,
        read_split=read_split,
        read_file=read_file,
        figures=span_figures,
        outputs=lambda logits, batch: {"logits": logits},
        selection=("f1", "max"),
    )


def span_figures(logits: Float[Array, "r t 2"], batch: Batch) -> Figures:
    """Mean cross-entropy (nats) of the start and of the end, and how often each is right.

    A window's softmax runs over its own tokens alone, wherever it stands in its row; windows whose answer is not
    known have no weight.
    """
    own = own_tokens(batch["sequence_ids"], batch["example_weights"].shape[1])
    weights = batch["example_weights"] * batch["has_target"]
    found: Figures = {}
    for index, name in enumerate(("start", "end")):
        alone = jnp.where(own, logits[:, None, :, index], NOT_OWN)
        found |= cross_entropy(alone, batch[f"{name}_columns"], weights, f"{name}_")
    (start, weight), (end, _) = found["start_loss"], found["end_loss"]
    return {
        "loss": ((start + end) / 2, weight),
        "start_accuracy": found["start_accuracy"],
        "end_accuracy": found["end_accuracy"],
    }


def own_tokens(sequence_ids: Int[Array, "r t"], slots: int) -> Bool[Array, "r m t"]:
    """Of every slot, which of the row's tokens are its sequence's."""
    numbers = jnp.arange(1, slots + 1, dtype=sequence_ids.dtype)
    return sequence_ids[:, None, :] == numbers[None, :, None]


@dataclass(frozen=True)
class _Source:
    """Where the splits come from."""

    data_dir: str
    files: Mapping[str, str | None]
    version: str
    allow_download: bool

    def read(self, split: str, problems: Problems) -> tuple[list[Question], Path | list[Question]]:
        """The questions, and what they are scored by: the file as it is, as the official program takes it.

        ValueError: no such split, or questions that the version does not know.
        """
        if self.files.get(split, "") is None and not self.data_dir and not any(self.files.values()):
            questions = read_squad_tfds(self.version, split, problems, allow_download=self.allow_download)
            return questions, questions
        official = {name: f"{name}-v{self.version}.json" if self.data_dir else "" for name in self.files}
        named = {name: official[name] if file is None else file for name, file in self.files.items()}
        paths = split_paths(named, split, self.data_dir)
        if not paths:
            return [], []
        (path,) = paths
        questions = read_questions(path, problems)
        impossible = next((question for question in questions if question.is_impossible), None)
        if impossible and self.version == "1.1":
            raise ValueError(f"{impossible.place} has no answer, but version=1.1 always gives one; set version=2.0")
        return questions, path


@dataclass(frozen=True)
class _Reader:
    """Questions -> a data set."""

    tokenizer: Tokenizer
    doc_stride: int
    max_query_length: int
    settings: AnswerSettings
    rules: str | None

    def dataset(
        self,
        name: str,
        questions: list[Question],
        gold: Path | list[Question],
        max_seq_length: int,
        problems: Problems,
        *,
        training: bool,
        scored: bool,
    ) -> Dataset:
        """The windows of all questions, packed; in training those with a target. ``name`` is what messages call it.

        ValueError: a question without answers where the set is to be ``scored``.
        """
        unlabelled = [question for question in questions if not question.answers and not question.is_impossible]
        if scored and unlabelled:
            raise ValueError(f"{unlabelled[0].place}: no answers: add them, or use the file for prediction only")
        settings = WindowSettings(max_seq_length, self.doc_stride, self.max_query_length)
        windows = make_windows(questions, self.tokenizer, settings, problems)
        if training:
            warn_of_taken_apart(self.tokenizer, (text for one in questions for text in (one.question, one.context)))
            windows = [window for window in windows if window.has_target]
            for question in unlabelled:
                problems.add(UNLABELLED, question.place)
        report_problems(name, problems)
        examples = window_examples(windows)

        labelled = bool(questions) and not unlabelled

        @decoded_once
        def answers_of(outputs: Outputs) -> list[Answers]:
            logits = outputs.get("logits", np.zeros((0, 2), np.float32))  # no window at all: no batch
            rows = [logits[first:last] for first, last in itertools.pairwise(examples.bounds.tolist())]
            starts, ends = [row[:, 0] for row in rows], [row[:, 1] for row in rows]
            return find_answers(questions, windows, starts, ends, self.settings, self.tokenizer)

        @decoded_once
        def score_all(outputs: Outputs) -> dict[str, float]:
            return answer_figures(answers_of(outputs), gold, self.rules) if labelled else {}

        def write(outputs: Outputs, path: Path, figures: Mapping[str, float]) -> None:
            write_answers(path, answers_of(outputs), figures.get("null_threshold", 0.0))

        def details(outputs: Outputs) -> dict[str, Any]:
            if not labelled:
                return {}
            return {"mistakes": mistakes(questions, answers_of(outputs), score_all(outputs).get("null_threshold", 0.0))}

        return Dataset(examples, score_all, write, details, len(questions), writes_folder=True)


def mistakes(questions: list[Question], found: list[Answers], threshold: float = 0.0) -> list[dict[str, Any]]:
    """For a report: the answers given that share no word with any accepted one, the surest first.

    "" is accepted for an unanswerable question alone, and shown as "no answer". The probability is the given answer's
    share among its question's candidates.
    """
    wrong = []
    for question, answers in zip(questions, found, strict=True):
        accepted = [answer.text for answer in question.answers] or [""]
        given = answers.choose(threshold)
        words = set(" ".join(accepted).lower().split())
        right = not given if question.is_impossible else bool(words & set(given.lower().split()))
        if not right:
            share = next(candidate.probability for candidate in answers.candidates if candidate.text == given)
            row = {"text": question.question, "label": accepted[0] or NO_ANSWER, "prediction": given or NO_ANSWER}
            wrong.append(row | {"probability": share})
    return sorted(wrong, key=lambda row: -row["probability"])[:MISTAKES]


def window_examples(windows: list[Window]) -> Examples:
    """Windows as examples; those without a known answer have has_target 0 and any column."""
    columns = np.array([(window.start_column, window.end_column) for window in windows], np.int64).reshape(-1, 2)
    return Examples.of(
        [window.sequence for window in windows],
        targets={"has_target": np.asarray(columns[:, 0] >= 0, np.float32)},
        column_targets={
            "start_columns": np.maximum(columns[:, 0], 0),
            "end_columns": np.maximum(columns[:, 1], 0),
        },
    )


def answer_figures(answers: list[Answers], gold: Path | list[Question], rules: str | None) -> dict[str, float]:
    """The official figures, in per cent.

    Where "" competes: those with the tuned threshold "null_threshold" applied, those without ("..._at_0", the
    original's default), and the official program's own sweep ("best_f1" ...).
    """
    odds = null_odds(answers)
    at_zero = score(gold, predictions(answers), rules=rules)
    if not odds:
        return _shown(at_zero)
    tuned = tune_threshold(answers, gold, rules=rules)
    figures = score(gold, predictions(answers, math.inf), odds, threshold=tuned.threshold, rules=rules)
    without = {f"{name}_at_0": float(at_zero[name]) for name in ("exact_match", "f1")}
    return _shown(figures) | without | {"null_threshold": tuned.threshold}


def _shown(figures: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in figures.items() if not name.endswith(NOT_SHOWN)}
