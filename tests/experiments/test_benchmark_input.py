from pathlib import Path

import numpy as np

from bert_jax.data.corpus import Corpus
from experiments.benchmark_input import measure, report, write_synthetic_corpus


def test_small_run(tmp_path: Path):
    figures = measure(corpus_tokens=3_000_000, step=700, scratch=str(tmp_path), speed_tokens=200_000)
    opening = figures["opening"]
    assert abs(opening["tokens"] / 3_000_000 - 1) < 0.02
    assert opening["examples_per_epoch"] > 20_000
    assert opening["peak_megabytes"] < 1000
    assert all(entry["examples_per_second"] > 0 for entry in figures["speed"])
    assert "opened in" in report(figures)
    assert list(tmp_path.iterdir()) == []


def test_synthetic_corpus_is_whole(tmp_path: Path):
    corpus = Corpus.open(write_synthetic_corpus(tmp_path / "corpus", 100_000))
    assert corpus.sentences[-1] == corpus.num_tokens
    assert corpus.documents[-1] == corpus.num_sentences
    assert np.diff(corpus.sentences).min() >= 1
    counts = np.diff(corpus.documents)
    assert 5 <= counts.min() <= counts.max() <= 40
