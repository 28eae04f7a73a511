"""Outputs are decoded once for all who ask."""

from typing import Any

import numpy as np

from bert_jax.tasks.decoding import decoded_once


def test_once_for_the_same_outputs() -> None:
    asked: list[Any] = []

    @decoded_once
    def total(outputs: Any) -> float:
        asked.append(outputs)
        return float(outputs["x"].sum())

    first, second = {"x": np.ones(2)}, {"x": np.ones(3)}
    assert [total(first), total(first), total(second), total(second), total(first)] == [2.0, 2.0, 3.0, 3.0, 2.0]
    assert [outputs is first for outputs in asked] == [True, False, True]
