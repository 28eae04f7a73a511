"""The GLUE server's files: rows, headers and label strings as in its own samples."""

import zipfile

import pytest

from bert_jax.data.glue import GLUE
from bert_jax.tasks.glue_submission import FILES, constant_content, submission_file, write_submission


def rows(count, value="0"):
    return [(i, value) for i in range(count)]


@pytest.mark.parametrize(("task", "split"), [key for key in FILES if key[0] != "QQP"])
def test_our_files_equal_the_samples(shared_data, task, split):
    path = shared_data / "glue" / "submission_format_samples" / FILES[task, split]
    sample = path.read_text(encoding="utf-8")
    lines = [line.split("\t") for line in sample.rstrip("\n").split("\n")[1:]]
    # In another order, with indices as text: what a prediction of a shuffled test set gives.
    name, content = submission_file(task, split, [(index, value) for index, value in reversed(lines)])
    assert name == path.name
    assert content.rstrip("\n") == sample.rstrip("\n")


def test_every_file_of_the_server_is_known():
    samples = ["AX", "CoLA", "MNLI-m", "MNLI-mm", "MRPC", "QNLI", "QQP", "RTE", "SST-2", "STS-B", "WNLI"]
    assert sorted(FILES.values()) == sorted(f"{name}.tsv" for name in samples)


@pytest.mark.parametrize(
    ("task", "split", "predictions", "message"),
    [
        ("WNLI", "test", rows(145), r"WNLI.tsv has 145 predictions, the server takes 146"),
        ("WNLI", "test", [*rows(145), (146, "0")], r"WNLI.tsv: index 145 is missing among 146 predictions"),
        ("WNLI", "test", [*rows(146), (3, "0")], r"WNLI.tsv: index 3 is predicted twice"),
        ("WNLI", "test", [*rows(145), ("x", "0")], r"WNLI.tsv: index 'x' is no number"),
        ("WNLI", "test", rows(146, "entailment"), r"prediction 'entailment' at index 0 is no label of WNLI: give 0, 1"),
        ("RTE", "test", rows(3000), r"'0' at index 0 is no label of RTE: give entailment, not_entailment"),
        ("STS-B", "test", rows(1379, "nan"), r"prediction 'nan' at index 0 is no score"),
        ("STS-B", "test", rows(1379, "high"), r"prediction 'high' at index 0 is no score"),
        ("WNLI", "dev", rows(146), r"WNLI has no submission for 'dev': choose from test"),
        ("XNLI", "test", rows(146), r"'XNLI' is no task of GLUE"),
        ("QNLI", "test", rows(5000, "entailment"), r"the server takes 5,463 or 5,740"),
    ],
)
def test_errors(task, split, predictions, message):
    with pytest.raises(ValueError, match=message):
        submission_file(task, split, predictions)


def test_scores_are_limited():
    values = [5.3, -0.2, 2.0, *[1.23456] * 1376]
    _, content = submission_file("stsb", "test", list(enumerate(values)))
    assert content.split("\n")[:5] == ["index\tprediction", "0\t5.000", "1\t0.000", "2\t2.000", "3\t1.235"]
    assert content.endswith("1378\t1.235\n")


def test_the_zip(tmp_path):
    predictions = {("WNLI", "test"): rows(146), ("sst-2", "test"): rows(1821, "1")}
    path = tmp_path / "new" / "glue.zip"
    with pytest.raises(ValueError, match=r"the submission lacks CoLA.tsv, MRPC.tsv, .*AX.tsv: predict them"):
        write_submission(path, predictions)
    assert not path.parent.exists()
    filled = write_submission(path, predictions, fill=True)
    assert len(filled) == 9 and "WNLI.tsv" not in filled
    with zipfile.ZipFile(path) as archive:
        assert sorted(archive.namelist()) == sorted(FILES.values())
        assert archive.read("WNLI.tsv").decode().split("\n")[:2] == ["index\tprediction", "0\t0"]
        assert archive.read("QQP.tsv").count(b"\n") == 390_966
        assert archive.read("STS-B.tsv").decode().split("\n")[1] == "0\t0.000"
    first = path.read_bytes()
    write_submission(path, predictions, fill=True)
    assert path.read_bytes() == first
    assert [file.name for file in path.parent.iterdir()] == ["glue.zip"]


def test_filling_gives_the_first_label():
    assert constant_content("WNLI", "test") == submission_file("WNLI", "test", rows(146))[1]
    assert constant_content("MNLI", "test_mismatched").count("\tcontradiction\n") == 9847
    assert all(task.submission.keys() <= set(task.splits) for task in GLUE.values())
