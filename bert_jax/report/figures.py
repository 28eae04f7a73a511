"""The figures of evaluations: what a reader calls them and how they are written."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

Number = int | float


class Figure(NamedTuple):
    """``write`` gives its text; a share is written in per cent."""

    title: str
    note: str
    write: Callable[[Number], str]


SHARE = "{:.1%}".format
TO_THREE = "{:.3f}".format
DEVELOPMENT = "on the development set"
# What is not here is shown by its own name.
EVALUATION = {
    "score": Figure("Score", "the mean of the task's metrics", "{:.4f}".format),
    "loss": Figure("Loss", DEVELOPMENT, TO_THREE),
    "mlm_loss": Figure("Masked-LM loss", "nats, held out", TO_THREE),
    "perplexity": Figure("Perplexity", "of masked pieces, held out", "{:,.1f}".format),
    "mlm_accuracy": Figure("Masked-LM accuracy", "held out", SHARE),
    "nsp_accuracy": Figure("Next-sentence accuracy", "held out, chance 50%", SHARE),
    "sop_accuracy": Figure("Sentence-order accuracy", "held out, chance 50%", SHARE),
    "accuracy": Figure("Accuracy", DEVELOPMENT, SHARE),
    "f1": Figure("F1", DEVELOPMENT, SHARE),
    "macro_f1": Figure("Macro F1", "mean over the classes", SHARE),
    "f1_above_3": Figure("F1 of similar", "a score of at least 3", SHARE),
    "precision": Figure("Precision", DEVELOPMENT, SHARE),
    "recall": Figure("Recall", DEVELOPMENT, SHARE),
    "matthews": Figure("Matthews correlation", DEVELOPMENT, TO_THREE),
    "pearson": Figure("Pearson correlation", DEVELOPMENT, TO_THREE),
    "spearman": Figure("Spearman correlation", "of the ranks", TO_THREE),
    "exact_match": Figure("Exact match", DEVELOPMENT, SHARE),
    "HasAns_exact": Figure("Exact match, answerable", "questions that have an answer", SHARE),
    "HasAns_f1": Figure("F1, answerable", "questions that have an answer", SHARE),
    "NoAns_exact": Figure("Exact match, unanswerable", "questions without an answer", SHARE),
    "NoAns_f1": Figure("F1, unanswerable", "questions without an answer", SHARE),
    "null_threshold": Figure("Threshold of no answer", "tuned on the development set", "{:.2f}".format),
    "exact_match_at_0": Figure("Exact match, untuned", "threshold of no answer 0", SHARE),
    "f1_at_0": Figure("F1, untuned", "threshold of no answer 0", SHARE),
    "best_exact": Figure("Best exact match", "over all thresholds of no answer", SHARE),
    "best_exact_thresh": Figure("Threshold", "of the best exact match", "{:.2f}".format),
    "best_f1": Figure("Best F1", "over all thresholds of no answer", SHARE),
    "best_f1_thresh": Figure("Threshold", "of the best F1", "{:.2f}".format),
    "start_accuracy": Figure("Start accuracy", "of the answers' first pieces", SHARE),
    "end_accuracy": Figure("End accuracy", "of the answers' last pieces", SHARE),
    "majority_share": Figure("Most frequent class", "its share: the accuracy of always guessing it", SHARE),
}
# Said elsewhere on the page, or of no use to a reader.
HIDDEN = ("score", "degenerate", "loss")
# The first of these that a fine-tuned run has is what it is known by.
FINE_TUNED = ("f1", "matthews", "accuracy", "pearson")

# Tasks whose official programs give these in per cent; everywhere else they are shares of 1.
PER_CENT_TASKS = ("tagging", "features", "squad")
PER_CENT = re.compile(r"(?:eval/)?(?:precision|recall|(?:\w+_)?(?:f1|exact|exact_match)(?:_at_0)?)")


def figure_of(name: str) -> Figure:
    """Of a figure of which nothing is known: its name without underscores, four digits."""
    spaced = name.replace("_", " ")
    return EVALUATION.get(name) or Figure(spaced[:1].upper() + spaced[1:], "", "{:.4g}".format)


def scale(task: str, name: str) -> float:
    """What the task's figure is multiplied by to be a share of 1 where it is a percentage."""
    return 0.01 if task in PER_CENT_TASKS and PER_CENT.fullmatch(name) else 1.0
