"""GLUE's official layouts with their quirks, and the same examples from TFDS."""

import collections
import subprocess
import sys

import pytest

from bert_jax.data.glue import GLUE, glue_task, read_glue, read_glue_file, read_glue_tfds
from bert_jax.data.tables import EMPTY_TEXT, MALFORMED, REPAIRED
from bert_jax.data.text_files import Problems


def write(folder, name, text):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(text.encode("utf-8"))


def texts(examples):
    return [(e.text_a, e.text_b, e.label, e.row_id) for e in examples]


def test_cola_has_a_header_only_in_test(tmp_path):
    write(tmp_path / "CoLA", "train.tsv", 'gj04\t1\t\tHe said "no.\ngj04\t0\t*\tThem sees.\n')
    write(tmp_path / "CoLA", "test.tsv", "index\tsentence\n0\tIt goes.\n")
    problems = Problems()
    assert texts(read_glue("cola", tmp_path, "train", problems)) == [
        ('He said "no.', None, "1", "0"),
        ("Them sees.", None, "0", "1"),
    ]
    assert texts(read_glue("CoLA", tmp_path / "CoLA", "test", problems)) == [("It goes.", None, None, "0")]
    assert problems.counts == {}


def test_qqp_counts_malformed_rows(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    write(tmp_path, "train.tsv", header + '1\t2\t3\tWhy?\t"How?\t1\n4\t5\t6\tWhat\n7\t8\t9\tA?\tB?\t0\n')
    problems = Problems()
    assert texts(read_glue("QQP", tmp_path, "train", problems)) == [
        ("Why?", '"How?', "1", "1"),
        ("A?", "B?", "0", "7"),
    ]
    assert problems.as_dict() == {MALFORMED: {"count": 1, "first": f"{tmp_path}/train.tsv:3"}}
    # The server wants all rows of the test set.
    write(tmp_path, "test.tsv", "id\tquestion1\tquestion2\n0\tWhy?\n1\tA\tB\n")
    problems = Problems()
    assert texts(read_glue("QQP", tmp_path, "test", problems)) == [("Why?", "", None, "0"), ("A", "B", None, "1")]
    assert problems.counts == {REPAIRED: 1, EMPTY_TEXT: 1}


@pytest.mark.parametrize(
    ("task", "text", "expected"),
    [
        ("cola", 'gj04\t1\t\tIt "goes.\ngj04\t0\t*\tThem.\n', [('It "goes.', None), ("Them.", None)]),
        ("cola", "index\tsentence\n7\tIt goes.\n", [("It goes.", None, "7")]),
        ("cola", "sentence\nIt goes.\n", [("It goes.", None)]),
        ("sst2", "sentence\tlabel\nfine .\t1\n", [("fine .", None)]),
        ("mrpc", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t5\t6\ta\tb\n", [("a", "b")]),
        ("rte", "sentence1\tsentence2\r\na\tb\r\n", [("a", "b")]),
        ("qqp", "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n5\t1\t2\ta\tb\t1\n", [("a", "b", "5")]),
        ("wnli", "3\ta\tb\t1\n", [("a", "b", "3")]),
    ],
)
def test_a_file_to_predict_has_any_layout_of_the_task(tmp_path, task, text, expected):
    write(tmp_path, "file.tsv", text)
    rows = [(a, b, None, *(rest or [str(i)])) for i, (a, b, *rest) in enumerate(expected)]
    assert texts(read_glue_file(task, tmp_path / "file.tsv", Problems())) == rows


def test_a_file_to_predict_of_another_task_is_refused(tmp_path):
    write(tmp_path, "file.tsv", "question1\tquestion2\na\tb\n")
    for task in ("rte", "cola"):
        with pytest.raises(ValueError, match=r"has no column 'sentence1?'; its first row is 'question1', 'question2'"):
            read_glue_file(task, tmp_path / "file.tsv", Problems())


def test_mnli(tmp_path):
    common = "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse"
    common += "\tsentence1_parse\tsentence2_parse\tsentence1\tsentence2"
    row = "\t".join(["0", "1", "1e", "fiction", "(", "(", "(", "(", "One.", "Two."])
    write(tmp_path / "MNLI", "train.tsv", f"{common}\tlabel1\tgold_label\n{row}\tentailment\tneutral\n")
    write(tmp_path / "MNLI", "dev_mismatched.tsv", f"{common}\tlabel1\tlabel2\tgold_label\n{row}\ta\tb\tneutral\n")
    write(tmp_path / "MNLI", "test_matched.tsv", f"{common}\n{row}\n")
    for split in ("train", "dev_mismatched"):
        assert texts(read_glue("MNLI", tmp_path, split, Problems())) == [("One.", "Two.", "neutral", "0")]
    assert texts(read_glue("MNLI", tmp_path, "test_matched", Problems())) == [("One.", "Two.", None, "0")]
    with pytest.raises(ValueError, match=r"MNLI has no split 'dev': choose from train, dev_matched, dev_mismatched"):
        read_glue("MNLI", tmp_path, "dev", Problems())


def test_mrpc_of_microsoft_and_of_glue(tmp_path):
    header = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
    rows = '1\t10\t11\tA "a.\tB b.\r\n0\t12\t13\tC.\tD.\r\n'
    write(tmp_path / "MRPC", "msr_paraphrase_train.txt", header + rows)
    write(tmp_path / "MRPC", "msr_paraphrase_test.txt", header + "1\t1\t2\tE.\tF.\r\n")
    with pytest.raises(FileNotFoundError, match=r"no dev_ids.tsv or mrpc_dev_ids.tsv, which says which rows"):
        read_glue("MRPC", tmp_path, "dev", Problems())
    write(tmp_path / "MRPC", "dev_ids.tsv", "12\t13\n")
    assert texts(read_glue("MRPC", tmp_path, "train", Problems())) == [('A "a.', "B b.", "1", "0")]
    assert texts(read_glue("MRPC", tmp_path, "dev", Problems())) == [("C.", "D.", "0", "1")]
    assert texts(read_glue("MRPC", tmp_path, "test", Problems())) == [("E.", "F.", None, "0")]
    write(tmp_path / "MRPC", "test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\tG.\tH.\n")
    assert texts(read_glue("MRPC", tmp_path, "test", Problems())) == [("G.", "H.", None, "0")]


def test_diagnostics(tmp_path):
    write(tmp_path / "diagnostic", "diagnostic.tsv", "index\tsentence1\tsentence2\n0\tThe cat.\tA cat.\n")
    assert texts(read_glue("AX", tmp_path, "test", Problems())) == [("The cat.", "A cat.", None, "0")]
    assert GLUE["AX"].splits == ("test",) and GLUE["AX"].labels == GLUE["MNLI"].labels


@pytest.mark.parametrize(
    ("task", "split", "count"),
    [
        ("STS-B", "train", 5749),
        ("STS-B", "dev", 1500),
        ("QNLI", "dev", 5463),
        ("WNLI", "train", 518),
        ("WNLI", "val", 117),
        ("WNLI", "dev", 71),
        ("WNLI", "test", 146),
    ],
)
def test_real_files_are_read_whole(shared_data, task, split, count):
    problems = Problems()
    examples = read_glue(task, shared_data / "glue", split, problems)
    assert len(examples) == count and problems.counts == {}
    if split == "test":
        assert [example.row_id for example in examples] == [str(i) for i in range(count)]
    elif GLUE[task].labels is None:
        assert all(isinstance(e.label, float) and 0 <= e.label <= 5 for e in examples)
    else:
        assert {example.label for example in examples} == set(GLUE[task].labels)


def test_real_values(shared_data):
    dev = read_glue("sts-b", shared_data / "glue", "dev", Problems())
    assert texts(dev[1:2]) == [("A young child is riding a horse.", "A child is riding a horse.", 4.75, "1")]
    labels = collections.Counter(e.label for e in read_glue("QNLI", shared_data / "glue", "dev", Problems()))
    assert labels == {"not_entailment": 2761, "entailment": 2702}


def test_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no dev.tsv of RTE in .* or its folder RTE: put GLUE's files there"):
        read_glue("RTE", tmp_path, "dev", Problems())
    write(tmp_path, "dev.tsv", "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tmaybe\n")
    with pytest.raises(ValueError, match=r"dev.tsv:2: label 'maybe' is not one of entailment, not_entailment"):
        read_glue("RTE", tmp_path, "dev", Problems())
    with pytest.raises(ValueError, match=r"'snli' is no task of GLUE: choose from CoLA, SST-2"):
        glue_task("snli")
    assert [glue_task(name).name for name in ("sst2", "SST-2", "sts_b", "stsb")] == ["SST-2", "SST-2", "STS-B", "STS-B"]


PREPARE = """
import sys
import numpy as np
import tensorflow_datasets as tfds

class Glue(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=n, version="1.0.0") for n in ("mnli", "mrpc", "stsb")]
    NAMES = {"mnli": ["entailment", "neutral", "contradiction"], "mrpc": ["not_equivalent", "equivalent"]}
    def _fields(self):
        return ("premise", "hypothesis") if self.builder_config.name == "mnli" else ("sentence1", "sentence2")
    def _info(self):
        names = self.NAMES.get(self.builder_config.name)
        label = tfds.features.ClassLabel(names=names) if names else np.float32
        features = {"label": label, "idx": np.int32, **{f: tfds.features.Text() for f in self._fields()}}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))
    def _split_generators(self, dl_manager):
        end = "_matched" if self.builder_config.name == "mnli" else ""
        return {"train": self._generate_examples(False), f"test{end}": self._generate_examples(True)}
    def _generate_examples(self, unlabelled):
        a, b = self._fields()
        for n in range(9):
            label = -1 if unlabelled else n / 2 if self.builder_config.name == "stsb" else n % 2
            yield n, {"idx": n, a: f"A \\u00e9{n}", b: f"B {n}", "label": label}

for config in ("mnli", "mrpc", "stsb"):
    Glue(config=config, data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A small set in the layout of TFDS's glue."""
    pytest.importorskip("tensorflow_datasets")
    pytest.importorskip("array_record")
    folder = tmp_path_factory.mktemp("tfds")
    (folder / "glue.py").write_text(PREPARE)
    command = [sys.executable, folder / "glue.py", folder]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    return folder


def test_tfds_gives_the_files_labels_in_the_files_order(prepared, monkeypatch):
    builder_dirs = {name: prepared / "glue" / name / "1.0.0" for name in ("mnli", "mrpc", "stsb")}
    from bert_jax.data import tfds_texts

    def opened(name):
        config, split = name.removeprefix("tfds:glue/").split(":")
        return original(f"tfds:{builder_dirs[config]}:{split}")

    original = tfds_texts._open
    monkeypatch.setattr(tfds_texts, "_open", opened)
    mrpc = read_glue_tfds("MRPC", "train", Problems())
    assert texts(mrpc[:2]) == [("A é0", "B 0", "0", "0"), ("A é1", "B 1", "1", "1")]
    assert [e.row_id for e in mrpc] == [str(n) for n in range(9)]
    mnli = read_glue_tfds("MNLI", "train", Problems())
    assert [e.label for e in mnli[:2]] == ["entailment", "neutral"]
    assert {e.label for e in read_glue_tfds("MNLI", "test_matched", Problems())} == {None}
    assert [e.label for e in read_glue_tfds("STS-B", "train", Problems())[:3]] == [0.0, 0.5, 1.0]
    assert sorted(e.place for e in mnli)[1] == "tfds:glue/mnli:train:1"


def test_tfds_downloads_only_when_told(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="is not prepared in"):
        read_glue_tfds("CoLA", "train", Problems())
    with pytest.raises(ValueError, match=r"MRPC has no split 'test_matched'"):
        read_glue_tfds("MRPC", "test_matched", Problems())


def test_configurations_of_tfds():
    """Names of fields, splits and classes as the installed TFDS has them."""
    tfds = pytest.importorskip("tensorflow_datasets")
    import tensorflow_datasets.text  # noqa: F401  (registers the set)

    for task in GLUE.values():
        config, field_a, field_b = task.tfds
        features = tfds.builder(f"glue/{config}").info.features
        assert {field_a, field_b or field_a, "label", "idx"} == set(features)
        names = getattr(features["label"], "names", None)
        assert (names is None) == task.is_regression
        if task.labels:
            assert len(names) == len(task.labels)
            assert set(names) == set(task.labels) or task.labels == ("0", "1")
