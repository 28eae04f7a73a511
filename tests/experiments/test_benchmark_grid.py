"""The benchmark of grids measures steps of whole grids, and counts members."""

from pathlib import Path

import pytest

from experiments import benchmark_grid
from experiments.benchmark_grid import measure, report
from tests.experiments.test_benchmark_finetuning import data_dir  # noqa: F401  (a fixture)


def test_both_encoders_and_all_sizes(encoder: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    tiny = {"num_hidden_layers": 1, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    monkeypatch.setattr(benchmark_grid, "SMALL", tiny)
    figures = measure(str(encoder), str(data_dir), sizes=(1, 2), rounds=2, steps=1)
    assert {name: list(seconds) for name, seconds in figures.items()} == {
        "2 layers of 128": [1, 2],
        str(encoder): [1, 2],
    }
    assert all(len(values) == 2 and min(values) > 0 for seconds in figures.values() for values in seconds.values())


def test_report() -> None:
    lines = report({"small": {1: [0.2, 0.4, 0.3], 4: [0.1, 0.15, 0.2]}}).splitlines()
    assert lines[1].split() == ["small", "1", "300.0", "1.00", "1.00"]
    assert lines[2].split() == ["4", "150.0", "2.00", "2.00"]
    assert benchmark_grid.SIZES[0] == 1  # what the others are compared with
