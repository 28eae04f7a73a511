"""Exact match and F1 of answers, as the official evaluators of SQuAD 1.1 and 2.0 and of KorQuAD 1.0 count them.

Sources of the rules: `evaluate-v1.1.py` and `evaluate-v2.0.py` of the SQuAD site, `evaluate_v1_0.py` of KorQuAD. Sums
run in their order, so figures agree to the last digit. One deviation: a question without a prediction counts 0 in
2.0 as in 1.1, where the official 2.0 program stops with a KeyError; "missing" says how many there are.
"""

from __future__ import annotations

import json
import operator
import os
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.squad import Dataset, Question, load_dataset, walk

Figures = dict[str, int | float]


@dataclass(frozen=True)
class Rules:
    """How texts are compared: `units` cuts a normalised answer into what F1 counts."""

    normalise: Callable[[str], str]
    units: Callable[[str], Sequence[str]]


class Gold(NamedTuple):
    """A question's id and its accepted texts; none if it is unanswerable."""

    id: str
    texts: tuple[str, ...]


def score(
    dataset: Dataset | Sequence[Question],
    predictions: Mapping[str, str] | str | os.PathLike[str],
    null_odds: Mapping[str, int | float] | str | os.PathLike[str] | None = None,
    *,
    threshold: int | float | None = None,
    rules: str | None = None,
) -> Figures:
    """Figures in per cent: "exact_match", "f1", with "total" and "missing" (questions without a prediction).

    dataset: a file in SQuAD's layout, its parsed content, or questions. If any question is unanswerable (or the
      version says 2), the rules are those of 2.0, with "HasAns_exact", "HasAns_f1", "HasAns_total" and NoAns_ alike.
    predictions: id -> text, "" for no answer; or a predictions.json.
    null_odds: id -> how much likelier no answer is; or a null_odds.json. Gives "best_exact", "best_exact_thresh",
      "best_f1", "best_f1_thresh".
    threshold: questions with larger null odds are taken as answered "" (None: none; the official 2.0 program's
      own default is 1.0).
    rules: "squad" or "korquad" (F1 over characters); None takes the second if the version of the file names it.

    Raises ValueError for a data set without answers, or a prediction that is no text.
    """
    gold, version = read_gold(dataset)
    compare = find_rules(rules, version)
    texts = _load(predictions, str, "predictions")
    has_answer = [bool(question.texts) for question in gold]
    two = version.lower().startswith(("2", "v2")) or not all(has_answer)
    exact, f1 = raw_scores(gold, texts, compare, two=two)
    odds = None if null_odds is None else _load(null_odds, (int, float), "null odds")
    figures: Figures = {}
    if odds is not None:
        for name, values in (("exact", exact), ("f1", f1)):
            best, at = best_threshold(gold, texts, values, odds)
            figures |= {f"best_{name}": best, f"best_{name}_thresh": at}
        if threshold is not None:
            exact, f1 = (_apply_threshold(gold, values, odds, threshold) for values in (exact, f1))
    elif threshold is not None:
        raise ValueError(f"threshold is {threshold} but there are no null_odds to compare with it: give both")
    add = sum if two else _sum  # what the official programs use
    means: Figures = {"exact_match": _percent(exact, add), "f1": _percent(f1, add), "total": len(gold)}
    if two:
        means |= _part("HasAns", exact, f1, has_answer) | _part("NoAns", exact, f1, [not has for has in has_answer])
    return means | {"missing": sum(question.id not in texts for question in gold)} | figures


def read_gold(dataset: Dataset | Sequence[Question]) -> tuple[list[Gold], str]:
    """The accepted texts of every question, in order, and the version the file gives ("" for none)."""
    if isinstance(dataset, Sequence) and not isinstance(dataset, str):
        unlabelled = [question.place for question in dataset if not question.answers and not question.is_impossible]
        gold = [Gold(question.id, tuple(a.text for a in question.answers)) for question in dataset]
        name, version = "the list of questions", ""
    else:
        content, name = load_dataset(dataset)
        version = str(content.get("version", ""))
        rows = [(qa, place) for qa, _, _, place in walk(content)]
        unlabelled = [place for qa, place in rows if "answers" not in qa]
        gold = [Gold(str(qa["id"]), tuple(a["text"] for a in qa.get("answers", ()))) for qa, _ in rows]
    if not gold:
        raise ValueError(f"{name} has no questions: nothing can be scored")
    if unlabelled:
        raise ValueError(f"{len(unlabelled):,} questions have no answers to compare with, first {unlabelled[0]}")
    return gold, version


def raw_scores(
    gold: Iterable[Gold], predictions: Mapping[str, str], rules: Rules, *, two: bool
) -> tuple[list[float], list[float]]:
    """Exact match and F1 of each question, 0 to 1: the best over its accepted texts; 0 without a prediction.

    `two`: by the rules of 2.0. They differ only where normalisation leaves nothing: in 2.0 such an accepted text is
    none, and if there is no other, "" is right; in 1.1 it stays one, and its F1 is 0 even against "".
    """
    exact: list[float] = []
    f1: list[float] = []
    for question in gold:
        text = predictions.get(question.id)
        if text is None:
            exact.append(0.0)
            f1.append(0.0)
            continue
        found = rules.normalise(text)
        accepted = list(map(rules.normalise, question.texts))
        if two:
            accepted = list(filter(None, accepted)) or [""]
        exact.append(max(float(found == text) for text in accepted))
        both_empty = float(two and not found)
        f1.append(max(_f1(rules.units(found), rules.units(text)) if text else both_empty for text in accepted))
    return exact, f1


def best_threshold(
    gold: Sequence[Gold], predictions: Mapping[str, str], scores: Sequence[float], odds: Mapping[str, int | float]
) -> tuple[float, int | float]:
    """The best mean in per cent that a threshold on the null odds can reach, and the threshold; O(n log n).

    Questions with odds up to the threshold keep their prediction, the others are answered "". The official sweep with
    its two habits: 0.0 stands for "answer nothing", and questions of equal odds are let in one by one.
    `squad_answers.tune_threshold` has neither.
    """
    current = best = float(sum(not question.texts for question in gold))
    at: int | float = 0.0
    rows = {question.id: (question, value) for question, value in zip(gold, scores, strict=True)}
    for id in sorted(odds, key=lambda id: odds[id]):
        if id not in predictions or id not in rows:
            continue
        question, value = rows[id]
        current += gain(question, predictions[id], value)
        if current > best:
            best, at = current, odds[id]
    return 100.0 * best / len(gold), at


def gain(question: Gold, prediction: str, value: float) -> float:
    """What the sum of scores wins if a question is answered with its prediction rather than with ""."""
    return value if question.texts else -1.0 if prediction else 0.0


def normalise_squad(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def normalise_korquad(text: str) -> str:
    """Quotes and brackets become spaces, then lower case, no ASCII punctuation, single spaces."""
    return " ".join(text.translate(_KOREAN_MARKS).lower().translate(_NO_PUNCTUATION).split())


_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_KOREAN_MARKS = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))

RULES = {
    "squad": Rules(normalise_squad, str.split),
    "korquad": Rules(normalise_korquad, lambda text: text.replace(" ", "")),
}


def find_rules(name: str | None, version: str = "") -> Rules:
    """The rules of that name; for None, "korquad" if the version of the file names it, else "squad"."""
    if name is None:
        name = "korquad" if "korquad" in version.lower() else "squad"
    if name not in RULES:
        raise ValueError(f"rules={name!r} is unknown: choose one of {', '.join(RULES)}")
    return RULES[name]


def _load(source: Any, kind: type | tuple[type, ...], what: str) -> Mapping[str, Any]:
    name = f"the {what} given"
    if not isinstance(source, Mapping):
        name = str(source)
        try:
            source = json.loads(Path(name).read_bytes())
        except FileNotFoundError:
            raise FileNotFoundError(f"{name} is no file: give a JSON file of {what} by question id") from None
        except ValueError as error:
            raise ValueError(f"{name} is not JSON ({error}): give an object of {what} by question id") from None
    if not isinstance(source, Mapping):
        raise ValueError(f"{name}: {type(source).__name__} is no object of {what} by question id")
    for id, value in source.items():
        if not isinstance(value, kind):
            raise ValueError(f"{name}: {id!r} has {type(value).__name__}; {what} map each id to one value")
    return source


def _f1(found: Sequence[str], accepted: Sequence[str]) -> float:
    same = sum((Counter(found) & Counter(accepted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(accepted)
    return 2 * precision * recall / (precision + recall)


def _apply_threshold(
    gold: Sequence[Gold], scores: Sequence[float], odds: Mapping[str, int | float], threshold: int | float
) -> list[float]:
    return [
        float(not question.texts) if odds.get(question.id, threshold) > threshold else value
        for question, value in zip(gold, scores, strict=True)
    ]


def _part(name: str, exact: Sequence[float], f1: Sequence[float], inside: Sequence[bool]) -> Figures:
    chosen = [(e, f) for e, f, is_in in zip(exact, f1, inside, strict=True) if is_in]
    if not chosen:
        return {}
    exact, f1 = zip(*chosen, strict=True)
    return {f"{name}_exact": _percent(exact, sum), f"{name}_f1": _percent(f1, sum), f"{name}_total": len(chosen)}


def _sum(values: Iterable[float]) -> float:
    """One by one; sum() carries a correction since Python 3.12."""
    return reduce(operator.add, values, 0.0)


def _percent(values: Sequence[float], add: Callable[[Iterable[float]], float]) -> float:
    return 100.0 * add(values) / len(values)
