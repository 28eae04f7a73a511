"""The benchmark of fine-tuning measures what it says."""

from pathlib import Path

import numpy as np
import pytest

from bert_jax.data.glue import read_glue
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import load_tokenizer
from experiments import benchmark_finetuning
from experiments.benchmark import main
from experiments.benchmark_finetuning import (
    Texts,
    measure,
    nsmc_lengths,
    report,
    summary,
    texts_of_lengths,
    write_texts,
)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """STS-B and NSMC of a few rows."""
    for name in ("glue/STS-B", "korean/nsmc_reconstructed"):
        (tmp_path / name).mkdir(parents=True)
    for split in ("train", "dev"):
        rows = [f"{i}\tx\ta man runs\tthe dog{' runs' * i}\t{i % 5}.5" for i in range(12)]
        text = "\n".join(["index\tgenre\tsentence1\tsentence2\tscore", *rows]) + "\n"
        (tmp_path / "glue/STS-B" / f"{split}.tsv").write_text(text)
    reviews = [f"{i}\t{'재미 있다 ' * (1 + i % 4)}\t{i % 2}" for i in range(30)]
    (tmp_path / "korean/nsmc_reconstructed/ratings_train.txt").write_text("\n".join(["id\tdocument\tlabel", *reviews]))
    return tmp_path


def test_texts(data_dir: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = nsmc_lengths(data_dir)
    assert len(lengths) == 30 and lengths[3] == 4 * lengths[0]
    texts = texts_of_lengths(lengths, encoder)
    assert [len(load_tokenizer(encoder).encode_ids(text)) for text in texts] == lengths.tolist()
    cases = benchmark_finetuning.CASES
    small = {name: case._replace(predicted=5, max_seq_length=32) for name, case in cases.items()}
    monkeypatch.setattr(benchmark_finetuning, "CASES", small)
    counts = {"sts-b": [12, 5, 5], "sts-b-shuffled": [12, 5, 5], "nsmc": [25, 5, 5], "full": [595, 5, 5]}
    for name, case in small.items():
        (tmp_path / name).mkdir()
        write_texts(name, encoder, data_dir, tmp_path / name)
        rows = {split: read_glue(case.task, tmp_path / name, split, Problems()) for split in ("train", "dev", "test")}
        assert [len(found) for found in rows.values()] == counts[name]
        assert [row.text_a for row in rows["dev"]] == [row.text_a for row in rows["test"]]
    scores = [
        [row.label for row in read_glue("STS-B", tmp_path / name, "dev", Problems())]
        for name in ("sts-b", "sts-b-shuffled")
    ]
    assert scores[0] != scores[1] and sorted(scores[0]) == sorted(scores[1])  # pyright: ignore
    full = read_glue("SST-2", tmp_path / "full", "train", Problems())
    assert {len(row.text_a.split()) for row in full} == {30}


def test_summary_by_hand() -> None:
    found = summary({"ours": [1.0, 2.0, 4.0], "peer": [6.0, 5.0, 3.0], "padded": [8.0, 8.0, 9.0]})
    assert found["median"] == {"ours": 2.0, "peer": 5.0, "padded": 8.0}
    assert found["ratio"] == {"peer": 2.5, "padded": 4.0}
    assert found["ratio_of_minima"] == {"peer": 3.0, "padded": 8.0}
    text = report({"sts-b": {"train": found, "predict": found}})
    assert "fine-tuning" in text and "padded / ours 4.00 (minima 8.00)" in text and "ours 0.5/s" in text


def test_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="finetuning, prediction and grid need --encoder DIR and --data_dir DIR"):
        main(["--only", "finetuning"])


@pytest.mark.slow
def test_small_measurement(data_dir: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_finetuning, "CASES", {"sts-b": Texts("STS-B", "STS-B", 32, 4, 8, padded=True)})
    found = measure(str(encoder), str(data_dir), cases=["sts-b"], rounds=2, steps=2)["sts-b"]
    for what in ("train", "predict"):
        assert {side: len(values) for side, values in found[what]["seconds"].items()} == {
            "ours": 2,
            "peer": 2,
            "padded": 2,
        }
        assert all(np.isfinite(ratio) and ratio > 0 for ratio in found[what]["ratio"].values())
