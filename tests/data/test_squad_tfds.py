"""SQuAD as TFDS prepares it gives the same questions as the files."""

import itertools
import subprocess
import sys

import pytest

from bert_jax.data.squad_tfds import read_squad_tfds
from bert_jax.data.text_files import Problems

tfds = pytest.importorskip("tensorflow_datasets")
pytest.importorskip("array_record")

PREPARE = """
import sys
import numpy as np
import tensorflow_datasets as tfds

class Squad(tfds.core.GeneratorBasedBuilder):
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name="v2.0", version="3.0.0")]
    def _info(self):
        text, answers = tfds.features.Text(), {"text": tfds.features.Text(), "answer_start": np.int32}
        features = {name: text for name in ("id", "title", "context", "question")}
        features |= {"answers": tfds.features.Sequence(answers), "is_impossible": np.bool_}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))
    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}
    def _generate_examples(self):
        for n in range(12):
            context = f"caf\\u00e9 {n % 3} b c"
            answers = {"text": [["b", "b c"], ["caf\\u00e9"], []][n // 4], "answer_start": [[7, 7], [0], []][n // 4]}
            record = {"id": str(n), "title": "T", "context": context, "question": f"q{n}", "answers": answers}
            yield n, record | {"is_impossible": n >= 8}

Squad(config="v2.0", data_dir=sys.argv[1], file_format="array_record").download_and_prepare()
"""


def test_questions_of_a_prepared_set(tmp_path, monkeypatch):
    (tmp_path / "squad.py").write_text(PREPARE)
    command = [sys.executable, tmp_path / "squad.py", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    from bert_jax.data import tfds_texts

    original = tfds_texts._open
    folder = tmp_path / "squad" / "v2.0" / "3.0.0"
    monkeypatch.setattr(tfds_texts, "_open", lambda name: original(name.replace("squad/v2.0", str(folder))))
    problems = Problems()
    questions = read_squad_tfds("2.0", "train", problems)
    assert problems.as_dict() == {}
    assert sorted(int(question.id) for question in questions) == list(range(12))
    contexts = [question.context for question in questions]
    assert sorted(set(contexts)) == ["café 0 b c", "café 1 b c", "café 2 b c"]
    assert sum(a != b for a, b in itertools.pairwise(contexts)) == 2  # those on one context together
    for question in questions:
        n = int(question.id)
        spans = [[("b", (7, 8)), ("b c", (7, 10))], [("café", (0, 4))], []][n // 4]
        assert [(answer.text, answer.span) for answer in question.answers] == spans
        assert (question.question, question.title, question.is_impossible) == (f"q{n}", "T", n >= 8)
        assert question.place.startswith("tfds:squad/v2.0:train:")


def test_nothing_is_downloaded_unless_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"squad/v1\.1 is not prepared in"):
        read_squad_tfds("1.1", "dev", Problems())


@pytest.mark.parametrize("version", ["v1.1", "v2.0"])
def test_fields_of_the_installed_tfds(version):
    import tensorflow_datasets.question_answering  # noqa: F401  (registers the set)

    features = tfds.builder(f"squad/{version}").info.features
    assert {"id", "title", "context", "question", "answers"} <= set(features)
    assert ("is_impossible" in features) == (version == "v2.0")
    assert {"text", "answer_start"} <= set(features["answers"].feature)
