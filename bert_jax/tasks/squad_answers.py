"""Start and end logits of windows -> answers, cut from the text by character offsets.

The n-best list, the null score and its threshold are those of `run_squad.py` of google-research/bert, with three
deviations: padding never takes one of the `n_best_size` places, answers are cut from the context as it was given
(`original_text=True` restores them as the original does), and a question without a candidate gets "" instead of
"empty" (1.1) or a crash (2.0).
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bert_jax.data.characters import BasicRules
from bert_jax.data.squad import Dataset, Question, Window
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import written
from bert_jax.tasks.squad_score import find_rules, gain, raw_scores, read_gold

# Of each window: a list of vectors, or a padded array.
Logits = Sequence[Float[np.ndarray, " _"]] | Float[np.ndarray, "w _"]
# Null odds of a question without any candidate: above every threshold, and JSON can hold it.
NO_CANDIDATE_ODDS = 1e6


@dataclass(frozen=True)
class AnswerSettings:
    """How answers are found; the original's defaults.

    max_answer_length: in tokens.
    unanswerable: whether "" competes, as in SQuAD 2.0.
    original_text: restore the text as the original does, rather than cut it by the tokens' characters.
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    unanswerable: bool = False
    original_text: bool = False

    def __post_init__(self) -> None:
        if self.n_best_size < 1 or self.max_answer_length < 1:
            raise ValueError(
                f"n_best_size is {self.n_best_size}, max_answer_length {self.max_answer_length}: "
                "both must be at least 1"
            )


class Candidate(NamedTuple):
    """An entry of the n-best list; `text` "" means no answer.

    span: (start, end) of `text` in characters of the context; None where it is no part of it (none, or restored).
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    span: tuple[int, int] | None = None


@dataclass(frozen=True)
class Answers:
    """What was found for a question.

    candidates: at least one, best first, no text twice; probabilities are a softmax over them of the summed logits.
    text: the best that is not "", or "" if there is none.
    null_odds: null score less the score of `text`; None where "" does not compete.
    """

    id: str
    candidates: tuple[Candidate, ...]
    text: str
    null_odds: float | None = None

    def choose(self, threshold: float = 0.0) -> str:
        """The answer, "" if the null odds are above the threshold."""
        return "" if self.null_odds is not None and self.null_odds > threshold else self.text


class Threshold(NamedTuple):
    """Answer where the null odds are at most `threshold`; `f1` is what this gives on the tuning set, in per cent."""

    threshold: float
    f1: float


def find_answers(
    questions: Sequence[Question],
    windows: Sequence[Window],
    start_logits: Logits,
    end_logits: Logits,
    settings: AnswerSettings | None = None,
    tokenizer: Tokenizer | None = None,
) -> list[Answers]:
    """The answers of all questions, in their order.

    start_logits, end_logits: of each window, one a column of its sequence; more columns (padding) are not looked at.
    tokenizer: needed for `original_text` only.

    Raises ValueError if logits are missing or not finite.
    """
    settings = settings or AnswerSettings()
    if settings.original_text and tokenizer is None:
        raise ValueError("original_text=True needs the tokenizer that the windows were made with: give it")
    of_question: dict[int, list[int]] = defaultdict(list)
    for number, window in enumerate(windows):
        of_question[window.question_index].append(number)
    results = []
    for index, question in enumerate(questions):
        numbers = of_question[index]
        chosen = [windows[n] for n in numbers]
        starts = [_logits(start_logits, n, windows[n], question) for n in numbers]
        ends = [_logits(end_logits, n, windows[n], question) for n in numbers]
        results.append(_answer(question, chosen, starts, ends, settings, tokenizer))
    return results


def predictions(answers: Sequence[Answers], threshold: float = 0.0) -> dict[str, str]:
    """Question id -> answer, as `squad_score.score` takes it."""
    return {found.id: found.choose(threshold) for found in answers}


def null_odds(answers: Sequence[Answers]) -> dict[str, float]:
    """Question id -> null odds, of the questions that have them."""
    return {found.id: found.null_odds for found in answers if found.null_odds is not None}


def tune_threshold(
    answers: Sequence[Answers], dataset: Dataset | Sequence[Question], *, rules: str | None = None
) -> Threshold:
    """The threshold on the null odds that maximises F1 on a development set; the smallest of equally good ones.

    As the official 2.0 evaluator's sweep, over answers before any threshold. Unlike there, questions of equal odds go
    together, if answering nothing is best, the threshold lies below all odds, and it stands halfway to the next higher
    odds (at most 1 above those it lets pass): F1 is what `choose` gives, and rounding seldom flips an answer.
    Raises ValueError if a question of the data set has no null odds. `rules` as for `squad_score.score`.
    """
    gold, version = read_gold(dataset)
    odds_of = null_odds(answers)
    missing = [question.id for question in gold if question.id not in odds_of]
    if missing:
        raise ValueError(
            f"{len(missing):,} of {len(gold):,} questions have no null odds, first {missing[0]!r}: "
            "find the answers of the whole set with AnswerSettings(unanswerable=True)"
        )
    texts = {found.id: found.text for found in answers}
    _, f1 = raw_scores(gold, texts, find_rules(rules, version), two=True)
    rows = sorted((odds_of[g.id], gain(g, texts[g.id], value)) for g, value in zip(gold, f1, strict=True))
    odds = np.array([odd for odd, _ in rows])
    # total[i]: the sum of F1 when the i questions of the lowest odds are answered; levels[i] parts them from the rest.
    total = np.cumsum([float(sum(not question.texts for question in gold)), *(value for _, value in rows)])
    highest, next_higher = np.append(odds[0] - 2.0, odds), np.append(odds, np.inf)
    levels = np.minimum(highest + 1.0, (highest + next_higher) / 2)
    # Among equal odds the gains rise (they are sorted), so the best total never lies between two of them.
    best = int(np.argmax(total))
    return Threshold(float(levels[best]), 100.0 * float(total[best]) / len(gold))


def write_answers(directory: str | os.PathLike[str], answers: Sequence[Answers], threshold: float = 0.0) -> None:
    """Writes `predictions.json`, `nbest_predictions.json` and, where "" competes, `null_odds.json`: all or none."""
    target = Path(directory)
    files: dict[str, Any] = {
        "predictions.json": predictions(answers, threshold),
        "nbest_predictions.json": {found.id: [_entry(c) for c in found.candidates] for found in answers},
    }
    if odds := null_odds(answers):
        files["null_odds.json"] = odds
    with ExitStack() as stack:  # no file takes its place before every one is written
        for name, content in files.items():
            text = json.dumps(content, indent=4, ensure_ascii=False, allow_nan=False) + "\n"
            stack.enter_context(written(target / name)).write_text(text, encoding="utf-8")


def _entry(candidate: Candidate) -> dict[str, Any]:
    """What the original writes of a candidate."""
    return {name: value for name, value in candidate._asdict().items() if name != "span"}


def restore_text(tokenized: str, original: str, lowercase: bool) -> str:
    """The part of `original` whose basic tokens are `tokenized`, or all of it where they cannot be aligned.

    The original's `get_final_text`: `tokenized` is looked for in the tokens of `original`, and the place is carried
    over by counting characters other than spaces.
    """
    words = " ".join(BasicRules(lowercase=lowercase).words(original))
    first = words.find(tokenized)
    kept = [i for i, char in enumerate(original) if char != " "]
    unclear = not tokenized or tokenized != tokenized.strip(" ") or len(kept) != len(words.replace(" ", ""))
    if first < 0 or unclear:
        return original
    before = first - words.count(" ", 0, first)
    length = len(tokenized.replace(" ", ""))
    return original[kept[before] : kept[before + length - 1] + 1]


class _Span(NamedTuple):
    """Columns of a candidate in a window; window -1: the null answer. place: its characters in the context."""

    window: int
    start: int
    end: int
    start_logit: float
    end_logit: float
    place: tuple[int, int] | None = None

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


def _logits(logits: Logits, number: int, window: Window, question: Question) -> Float[np.ndarray, " t"]:
    length = len(window.sequence.ids)
    if number >= len(logits) or len(logits[number]) < length:
        given = len(logits[number]) if number < len(logits) else 0
        raise ValueError(f"window {number} of {question.id!r} has {length} tokens but {given} logits: give one each")
    values = np.asarray(logits[number][:length], np.float64)
    if not np.isfinite(values).all():
        raise ValueError(f"window {number} of {question.id!r} has logits that are not finite: the model has diverged")
    return values


def _answer(
    question: Question,
    windows: Sequence[Window],
    starts: Sequence[Float[np.ndarray, " _"]],
    ends: Sequence[Float[np.ndarray, " _"]],
    settings: AnswerSettings,
    tokenizer: Tokenizer | None,
) -> Answers:
    spans = [span for i, w in enumerate(windows) for span in _spans(i, w, starts[i], ends[i], settings)]
    null = None
    if settings.unanswerable:
        at_cls = [_Span(-1, 0, 0, float(s[0]), float(e[0])) for s, e in zip(starts, ends, strict=True)]
        null = min(at_cls, key=lambda span: span.score, default=_Span(-1, 0, 0, 0.0, 0.0))
        spans.append(null)
    spans.sort(key=lambda span: span.score, reverse=True)
    chosen: dict[str, _Span] = {}
    for span in spans:
        if len(chosen) == settings.n_best_size:
            break
        text, place = "", None
        if span.window >= 0:
            text, place = _text(question, windows[span.window], span, settings, tokenizer)
        if text or span is null:
            chosen.setdefault(text, span._replace(place=place))
    if null is not None:
        chosen.setdefault("", null)
    best = next((text for text in chosen if text), "")
    odds = None
    if null is not None:
        odds = null.score - chosen[best].start_logit - chosen[best].end_logit if best else NO_CANDIDATE_ODDS
    return Answers(question.id, _candidates(chosen or {"": _Span(-1, 0, 0, 0.0, 0.0)}), best, odds)


def _spans(
    number: int,
    window: Window,
    starts: Float[np.ndarray, " t"],
    ends: Float[np.ndarray, " t"],
    settings: AnswerSettings,
) -> Iterator[_Span]:
    """The allowed pairs of the best starts and the best ends, best start first."""
    start = _largest(starts, settings.n_best_size)
    end = _largest(ends, settings.n_best_size)
    first, last = window.first_column, window.first_column + len(window.offsets)
    in_context = (start >= first) & (start < last)
    start = start[in_context]
    start = start[window.max_context[start - first]]
    end = end[(end >= first) & (end < last)]
    length = end[None, :] - start[:, None] + 1
    for i, j in np.argwhere((length >= 1) & (length <= settings.max_answer_length)):
        s, e = int(start[i]), int(end[j])
        yield _Span(number, s, e, float(starts[s]), float(ends[e]))


def _largest(logits: Float[np.ndarray, " t"], count: int) -> Int[np.ndarray, " n"]:
    return np.argsort(-logits, kind="stable")[:count]


def _text(
    question: Question, window: Window, span: _Span, settings: AnswerSettings, tokenizer: Tokenizer | None
) -> tuple[str, tuple[int, int] | None]:
    """The text of a span, and its characters in the context unless it is restored."""
    start = int(window.offsets[span.start - window.first_column, 0])
    end = int(window.offsets[span.end - window.first_column, 1])
    if not settings.original_text or tokenizer is None:
        text = question.context[start:end].strip()
        start += question.context[start:end].find(text)
        return text, (start, start + len(text))
    pieces = [tokenizer.pieces[i] for i in window.sequence.ids[span.start : span.end + 1]]
    tokenized = " ".join(" ".join(pieces).replace(" ##", "").replace("##", "").split())
    words = [w[0] for w in _WORD.finditer(question.context) if w.end() > start and w.start() < end]
    return restore_text(tokenized, " ".join(words), tokenizer.lowercase), None


# What the original's reader of SQuAD takes for the end of a word.
_WORD = re.compile("[^ \t\r\n\u202f]+")


def _candidates(chosen: Mapping[str, _Span]) -> tuple[Candidate, ...]:
    scores = np.array([span.score for span in chosen.values()])
    weights = np.exp(scores - scores.max())
    shares = weights / weights.sum()
    return tuple(
        Candidate(text, float(share), span.start_logit, span.end_logit, span.place)
        for (text, span), share in zip(chosen.items(), shares, strict=True)
    )
