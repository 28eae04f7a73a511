"""Answers to questions, as spans of a text: the original's windows, n-best list and null score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from bert_jax.data.squad import QUESTION_CUT, Question, WindowSettings, make_question, make_windows
from bert_jax.data.text_files import Problems
from bert_jax.predict.engine import Engine
from bert_jax.predict.heads import HeadLogits
from bert_jax.predict.records import Answer
from bert_jax.predict.texts import Limit, as_list, shortened
from bert_jax.tasks.squad import window_examples
from bert_jax.tasks.squad_answers import Answers, AnswerSettings, find_answers


class AnswerRules(NamedTuple):
    """How a model was trained to answer: its windows, its answers, and the threshold on the null odds."""

    windows: WindowSettings
    answers: AnswerSettings
    threshold: float


def answer_rules(
    run: Mapping[str, Any], figures: Mapping[str, float], limit: Limit, unanswerable: bool | None, top_k: int
) -> AnswerRules:
    """Those of a run of SQuAD; for models of other programs the original's defaults, as far as they fit.

    Args:
        unanswerable: whether "" competes; None: as in the run.
        top_k: candidates that are wanted at least.
    """
    longest = limit.tokens if run else min(limit.tokens, WindowSettings.max_seq_length)
    query = int(run.get("max_query_length") or WindowSettings.max_query_length)
    if not run:  # a model may be too short for the original's
        query = min(query, max(1, 2 * (longest - 3) // 3))
    windows = WindowSettings(longest, int(run.get("doc_stride") or WindowSettings.doc_stride), query)
    best, most = (int(run.get(name) or getattr(AnswerSettings, name)) for name in ("n_best_size", "max_answer_length"))
    version = run.get("version", "2.0" if run else "1.1")
    competes = version == "2.0" if unanswerable is None else unanswerable
    answers = AnswerSettings(max(best, top_k), most, competes)
    return AnswerRules(windows, answers, float(figures.get("null_threshold", 0.0)))


def paired(question: str | Sequence[str], context: str | Sequence[str]) -> list[tuple[str, str]]:
    """(question, context) of each; one alone goes with all of the other."""
    questions, contexts = (
        [given] if isinstance(given, str) else as_list(given, f"no {what}; give a string, or a list of them")
        for given, what in ((question, "question"), (context, "context"))
    )
    if isinstance(question, str):
        questions *= len(contexts)
    if isinstance(context, str):
        contexts *= len(questions)
    if len(questions) != len(contexts):
        raise ValueError(f"{len(questions)} questions but {len(contexts)} contexts; give as many, or one for all")
    for number, pair in enumerate(zip(questions, contexts, strict=True)):
        if bad := [part for part in pair if not isinstance(part, str)]:
            raise ValueError(f"question {number} or its context is {shortened(bad[0])}; give strings")
    return list(zip(questions, contexts, strict=True))


def answer(
    engine: Engine,
    call: HeadLogits,
    pairs: Sequence[tuple[str, str]],
    rules: AnswerRules,
    top_k: int,
    *,
    truncate: bool,
) -> list[list[Answer]]:
    """The ``top_k`` best answers to each question, the one that is given first.

    Raises:
        ValueError: a question that is too long, unless it may be truncated.
    """
    questions = [make_question(str(number), *pair) for number, pair in enumerate(pairs)]
    problems = Problems()
    windows = make_windows(questions, engine.tokenizer, rules.windows, problems)
    if not truncate and QUESTION_CUT in problems.as_dict():
        _refuse_long_question(engine, questions, rules.windows.max_query_length)
    examples = window_examples(windows)
    logits = engine.run(call, examples).get("logits", np.zeros((0, 2), np.float32))
    rows = [logits[first:last] for first, last in pairwise(examples.bounds.tolist())]
    found = find_answers(questions, windows, [row[:, 0] for row in rows], [row[:, 1] for row in rows], rules.answers)
    return [_best(answers, rules.threshold)[:top_k] for answers in found]


def _best(found: Answers, threshold: float) -> list[Answer]:
    """All candidates; first the one that the threshold decides for, then by their probability."""
    given = found.choose(threshold)
    ordered = sorted(found.candidates, key=lambda candidate: candidate.text != given)  # stable
    return [Answer(one.text, one.probability, *(one.span or (0, 0))) for one in ordered]


def _refuse_long_question(engine: Engine, questions: Sequence[Question], most: int) -> None:
    for number, question in enumerate(questions):
        if (length := len(engine.tokenizer.encode_ids(question.question))) > most:
            raise ValueError(
                f"question {number} has {length} tokens, max_query_length is {most}: {shortened(question.question)};"
                " shorten it, or give truncate=True to cut it"
            )
