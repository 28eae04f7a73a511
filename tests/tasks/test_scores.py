"""Metrics against values worked out by hand, and against SciPy and scikit-learn where they are installed."""

import math

import numpy as np
import pytest

from bert_jax.tasks.scores import (
    METRICS,
    accuracy,
    confusion_matrix,
    f1,
    f1_above_3,
    is_degenerate,
    macro_f1,
    majority_share,
    matthews,
    pearson,
    ranks,
    scores,
    spearman,
)

# 10 rows: 3 true positives, 1 false positive, 2 false negatives, 4 true negatives
PREDICTED = np.array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
TRUE = np.array([1, 1, 1, 0, 1, 1, 0, 0, 0, 0])


def test_binary_by_hand():
    assert accuracy(PREDICTED, TRUE) == 0.7
    assert f1(PREDICTED, TRUE) == pytest.approx(6 / 9)
    assert matthews(PREDICTED, TRUE) == pytest.approx((3 * 4 - 1 * 2) / math.sqrt(4 * 5 * 5 * 6))
    assert macro_f1(PREDICTED, TRUE) == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert confusion_matrix(PREDICTED, TRUE, 2).tolist() == [[4, 1], [2, 3]]
    assert matthews(TRUE, TRUE) == 1.0 and matthews(1 - TRUE, TRUE) == -1.0


def test_f1_is_of_class_one():
    assert f1(np.zeros(4, int), np.zeros(4, int)) == 0.0
    assert f1(1 - PREDICTED, 1 - TRUE) == pytest.approx(8 / 11)


def test_matthews_of_three_classes_by_hand():
    # confusion [[2, 1, 0], [0, 2, 0], [1, 0, 1]] (rows: labels); R_K = (7*5 - 16) / sqrt((49-19) (49-17))
    labels = np.array([0, 0, 0, 1, 1, 2, 2])
    predictions = np.array([0, 0, 1, 1, 1, 0, 2])
    by_prediction, by_label = [3, 3, 1], [3, 2, 2]
    covariance = 7 * 5 - sum(p * t for p, t in zip(by_prediction, by_label, strict=True))
    expected = covariance / math.sqrt((49 - 19) * (49 - 17))
    assert matthews(predictions, labels) == pytest.approx(expected)


def test_correlations_by_hand():
    x, y = np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])
    assert pearson(x, y) == pytest.approx(0.5)
    assert spearman(np.array([1.0, 10.0, 100.0]), np.array([0.0, 1.0, 50.0])) == pytest.approx(1.0)
    assert ranks(np.array([5.0, 1.0, 5.0, 5.0, 0.0])).tolist() == [4.0, 2.0, 4.0, 4.0, 1.0]
    # ranks (1, 2.5, 2.5, 4) and (1, 2, 3, 4)
    assert spearman(np.array([1, 2, 2, 3]), np.array([1, 2, 3, 4])) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


def test_constant_predictions_are_degenerate_and_score_0():
    # Rounding makes the mean of these values differ from them.
    constant = np.full(1000, 0.1)
    assert (constant != constant.mean()).all()
    varied = np.linspace(0, 5, 1000)
    results = scores(["pearson", "spearman"], constant, varied)
    assert results == {"pearson": 0.0, "spearman": 0.0, "score": 0.0, "degenerate": 1.0}
    results = scores(["matthews"], np.ones(10, int), TRUE)
    assert results == {"matthews": 0.0, "score": 0.0, "degenerate": 1.0, "majority_share": 0.5}
    assert pearson(varied, constant) == 0.0 and not is_degenerate(varied)


def test_the_mean_of_a_tasks_metrics():
    results = scores(("accuracy", "f1"), PREDICTED, TRUE)
    assert results["score"] == pytest.approx((0.7 + 6 / 9) / 2)
    assert results["degenerate"] == 0.0 and results["majority_share"] == 0.5
    assert list(results) == ["accuracy", "f1", "score", "degenerate", "majority_share"]


def test_similar_from_3():
    assert f1_above_3(np.array([2.99, 3.0, 4.0]), np.array([3.0, 3.0, 1.0])) == pytest.approx(0.5)


def test_majority():
    assert majority_share(np.array([2, 2, 0])) == pytest.approx(2 / 3)
    assert majority_share(np.array(["a", "b", "a", "a"])) == 0.75
    assert majority_share(np.zeros(0)) == 0.0


@pytest.mark.parametrize(
    ("metrics", "predictions", "labels", "message"),
    [
        (["acuracy"], [1], [1], "no metrics acuracy: choose from accuracy, f1"),
        ([], [1], [1], "no metrics given"),
        (["accuracy"], [1, 0], [1], "2 predictions for 1 labels"),
        (["accuracy"], [], [], "0 predictions for 0 labels"),
        (["pearson"], [1.0, math.nan], [1.0, 2.0], "prediction 1 is nan"),
        (["pearson"], [1.0, 2.0], [math.inf, 2.0], "label 0 is inf"),
    ],
)
def test_errors(metrics, predictions, labels, message):
    with pytest.raises(ValueError, match=message):
        scores(metrics, np.array(predictions, np.float64), np.array(labels, np.float64))


def test_against_scipy():
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(0)
    for n in (2, 3, 17, 1500):
        x, y = rng.normal(size=n), rng.normal(size=n)
        ties = np.round(x)
        assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=1e-12)
        assert ranks(ties).tolist() == stats.rankdata(ties).tolist()
        if len(set(ties)) > 1:
            assert spearman(ties, y) == pytest.approx(stats.spearmanr(ties, y)[0], abs=1e-12)


def test_against_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for classes in (2, 3, 5):
        x, y = rng.integers(0, classes, 200), rng.integers(0, classes, 200)
        assert matthews(x, y) == pytest.approx(metrics.matthews_corrcoef(y, x), abs=1e-12)
        assert macro_f1(x, y) == pytest.approx(metrics.f1_score(y, x, average="macro"), abs=1e-12)
        assert confusion_matrix(x, y, classes).tolist() == metrics.confusion_matrix(y, x).tolist()
    assert f1(x % 2, y % 2) == pytest.approx(metrics.f1_score(y % 2, x % 2), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 50])
def test_matthews_is_the_correlation_of_two_classes(n):
    rng = np.random.default_rng(n)
    for _ in range(20):
        x, y = rng.integers(0, 2, n), rng.integers(0, 2, n)
        assert matthews(x, y) == pytest.approx(pearson(x, y), abs=1e-12)


def test_every_metric_takes_integers_and_gives_a_float():
    for metric in METRICS.values():
        assert isinstance(metric(PREDICTED, TRUE), float)
