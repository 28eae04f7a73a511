"""TFDS without TensorFlow: prepared sets are read whole, anything else is refused before a download."""

import subprocess
import sys

import pytest

from bert_jax.data.corpus_builder import build
from bert_jax.data.documents import Reading, expand_inputs, parse, read_units, total_bytes
from bert_jax.data.text_files import Problems
from bert_jax.data.tfds_texts import _parse
from bert_jax.data.wordpiece import WordPiece

tfds = pytest.importorskip("tensorflow_datasets")
pytest.importorskip("array_record")

PREPARE = """
import sys
import numpy as np
import tensorflow_datasets as tfds

class Novels(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")
    def _info(self):
        features = tfds.features.FeaturesDict({"text": tfds.features.Text(), "number": np.int64})
        return tfds.core.DatasetInfo(builder=self, features=features)
    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(100), "test": self._generate_examples(3)}
    def _generate_examples(self, count):
        for number in range(count):
            yield number, {"text": f"Novel {number}. It ends.", "number": number}

builder = Novels(data_dir=sys.argv[1], file_format="array_record")
builder.download_and_prepare()
print(builder.data_dir)
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tfds")
    (folder / "novels.py").write_text(PREPARE)  # in a file of its own: TFDS wants the builder's module
    run = subprocess.run(
        [sys.executable, folder / "novels.py", folder], capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()[-1]


def read(name, reading=None):
    reading = reading or Reading()
    units = read_units(expand_inputs(name), reading, Problems())
    return [parse(unit, reading) for unit in units]


def test_names():
    assert _parse("tfds:glue/sst2") == ("glue/sst2", "train")
    assert _parse("tfds:wikipedia/20230601.ko:1.0.0") == ("wikipedia/20230601.ko:1.0.0", "train")
    assert _parse("tfds:wikipedia/20230601.ko:1.0.0:train[:10%]") == ("wikipedia/20230601.ko:1.0.0", "train[:10%]")
    assert _parse("tfds:/a/b:test") == ("/a/b", "test")


def test_every_row_is_a_document(prepared):
    (documents,) = read(f"tfds:{prepared}")
    assert documents.lengths == [2] * 100
    assert sorted(documents.sentences[::2]) == sorted(f"Novel {number}." for number in range(100))
    assert sum(len(part.lengths) for part in read(f"tfds:{prepared}", Reading(block_bytes=300))) == 100
    assert read(f"tfds:{prepared}:test")[0].lengths == [2] * 3
    assert read(f"tfds:{prepared}:train[:10%]")[0].lengths == [2] * 10
    assert total_bytes([f"tfds:{prepared}"]) > 1_000


def test_what_cannot_be_read_is_told_before_any_download(prepared, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"no split 'dev'; choose from train, test|no split 'dev'"):
        read(f"tfds:{prepared}:dev")
    with pytest.raises(ValueError, match="no field 'body'; choose from"):
        read(f"tfds:{prepared}", Reading(text_field="body"))
    with pytest.raises(ValueError, match="not known to TFDS"):
        read("tfds:no_such_set")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"is not prepared in .*array_record"):
        read("tfds:imdb_reviews/plain_text")


def test_beam_reads_them_too(prepared, tmp_path):
    pytest.importorskip("apache_beam", reason="pipelines run in Apache Beam: pip install '.[beam]'")
    from bert_jax.data.corpus_beam import encode_on_beam

    tokenizer = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "novel", "it", "ends", "."], lowercase=True)
    names = [f"tfds:{prepared}", f"tfds:{prepared}:test"]
    encode_all = encode_on_beam("", str(tmp_path / "parts"))
    here = build(names, tokenizer, tmp_path / "here", workers=1, progress=False)
    beam = build(names, tokenizer, tmp_path / "beam", progress=False, encode_all=encode_all)
    assert here == beam and here["formats"] == {"tfds": 2}
