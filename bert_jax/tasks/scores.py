"""Metrics of classification and regression, in fractions (not per cent), in double precision.

Definitions are those of GLUE's evaluator (scikit-learn's and SciPy's). Where one is undefined, because predictions or
labels do not vary, it is 0, and `scores` says `degenerate` if the predictions are all the same: a run that has learned
nothing, whose accuracy is then the share of one class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Num, Shaped

Values = Num[np.ndarray, " n"]
Score = Callable[[Values, Values], float]


def scores(metrics: Sequence[str], predictions: Num[np.ndarray, " p"], labels: Values) -> dict[str, float]:
    """Each metric by its name, and

    score: their mean, by which GLUE ranks runs (MRPC, QQP: accuracy and F1; STS-B: Pearson and Spearman);
    degenerate: 1.0 if all predictions are the same;
    majority_share: the share of the most frequent label, where the metrics are of classes.
    ValueError for an unknown metric, for arrays of different lengths or none, and for values that are not finite.
    """
    unknown = [name for name in metrics if name not in METRICS]
    if unknown or not metrics:
        raise ValueError(f"no metrics {', '.join(unknown) or 'given'}: choose from {', '.join(METRICS)}")
    _check(predictions, labels)
    results = {name: METRICS[name](predictions, labels) for name in metrics}
    results["score"] = float(np.mean(list(results.values())))
    results["degenerate"] = float(is_degenerate(predictions))
    if not set(metrics) & {"pearson", "spearman"}:
        results["majority_share"] = majority_share(labels)
    return results


def accuracy(predictions: Values, labels: Values) -> float:
    return float((predictions == labels).mean())


def f1(predictions: Values, labels: Values) -> float:
    """F1 of class 1, the positive one."""
    return _f1_of(1, predictions, labels)


def macro_f1(predictions: Values, labels: Values) -> float:
    """The mean of the F1 of all classes that occur among predictions or labels (KoBEST)."""
    classes = np.union1d(predictions, labels).tolist()
    return float(np.mean([_f1_of(c, predictions, labels) for c in classes]))


def f1_above_3(predictions: Values, labels: Values) -> float:
    """F1 of "similar", a score of at least 3 of 5, of predictions and labels alike (KLUE-STS)."""
    return _f1_of(1, (predictions >= 3).astype(np.int64), (labels >= 3).astype(np.int64))


def matthews(predictions: Values, labels: Values) -> float:
    """Matthews' correlation coefficient; of more than two classes Gorodkin's R_K (2004)."""
    classes, codes = np.unique(np.concatenate([predictions, labels]), return_inverse=True)
    predicted, true = codes.reshape(2, -1)
    by_prediction = np.bincount(predicted, minlength=len(classes)).astype(np.float64)
    by_label = np.bincount(true, minlength=len(classes)).astype(np.float64)
    n = float(len(true))
    covariance = float((predicted == true).sum()) * n - by_prediction @ by_label
    spread = (n * n - by_prediction @ by_prediction) * (n * n - by_label @ by_label)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0


def pearson(predictions: Values, labels: Values) -> float:
    x, y = _centred(predictions), _centred(labels)
    spread = np.linalg.norm(x) * np.linalg.norm(y)
    return float(np.clip(x @ y / spread, -1.0, 1.0)) if spread > 0 else 0.0


def spearman(predictions: Values, labels: Values) -> float:
    """Pearson's correlation of the ranks; equal values share the mean of their ranks."""
    return pearson(ranks(predictions), ranks(labels))


def ranks(values: Values) -> Num[np.ndarray, " n"]:
    """1 for the smallest; equal values get the mean of the ranks they take."""
    _, codes, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[codes]


def is_degenerate(predictions: Values) -> bool:
    """Whether all predictions are the same."""
    return len(predictions) > 0 and bool((predictions == predictions[0]).all())


def majority_share(labels: Shaped[np.ndarray, " n"]) -> float:
    """The accuracy of always giving the most frequent label; 0 for no labels."""
    if not len(labels):
        return 0.0
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))


def confusion_matrix(predictions: Values, labels: Values, classes: int) -> Num[np.ndarray, "c c"]:
    """Counts: a row for each label, a column for each prediction."""
    return np.bincount(labels * classes + predictions, minlength=classes * classes).reshape(classes, classes)


METRICS: dict[str, Score] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "f1_above_3": f1_above_3,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def _check(predictions: Num[np.ndarray, " p"], labels: Values) -> None:
    if len(predictions) != len(labels) or not len(labels):
        raise ValueError(f"{len(predictions)} predictions for {len(labels)} labels: give one for each, at least one")
    for name, values in (("prediction", predictions), ("label", labels)):
        wrong = np.flatnonzero(~np.isfinite(values))
        if len(wrong):
            raise ValueError(f"{name} {int(wrong[0])} is {values[wrong[0]]}: the run diverged, lower the learning rate")


def _f1_of(positive: int | float, predictions: Values, labels: Values) -> float:
    predicted, true = predictions == positive, labels == positive
    total = int(predicted.sum() + true.sum())
    return 2 * int((predicted & true).sum()) / total if total else 0.0


def _centred(values: Values) -> Num[np.ndarray, " n"]:
    """Around the mean; exactly 0 where all are the same, which rounding would hide."""
    values = values.astype(np.float64)
    return values - values.mean() if len(values) and (values != values[0]).any() else np.zeros(len(values))
