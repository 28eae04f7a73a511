"""Building a corpus: every document once, in order, the same for any workers, and all or nothing."""

import filecmp
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data import corpus_builder
from bert_jax.data.corpus import Corpus, read_info
from bert_jax.data.corpus_builder import build, sample_texts
from bert_jax.data.corpus_worker import hash_documents, is_held_out
from bert_jax.data.documents import Documents, Reading, read_units
from bert_jax.data.wordpiece import WordPiece

WORDS = ["alpha", "beta", "gamma", "delta", "eps", "zeta", "한국", "어", "."]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tokenizer():
    return WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"], lowercase=False)


def make_file(path, documents=300, seed=0):
    rng = random.Random(seed)
    texts = [
        [" ".join(rng.choices(WORDS, k=rng.randint(1, 12))) for _ in range(rng.choice([1, 2, 5, 30]))]
        for _ in range(documents)
    ]
    path.write_text("\n\n".join("\n".join(text) for text in texts) + "\n", encoding="utf-8")
    return texts


def documents_of(directory, split="train"):
    corpus = Corpus.open(directory, split)
    return [
        [
            corpus.tokens[corpus.sentences[s] : corpus.sentences[s + 1]].tolist()
            for s in range(corpus.documents[d], corpus.documents[d + 1])
        ]
        for d in range(corpus.num_documents)
    ]


def assert_same_directories(a, b):
    names = sorted(str(p.relative_to(a)) for p in a.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(b)) for p in b.rglob("*") if p.is_file())
    assert filecmp.cmpfiles(a, b, names, shallow=False)[0] == names


def test_the_corpus_is_the_text(tmp_path, tokenizer):
    texts = make_file(tmp_path / "a.txt")
    info = build(
        str(tmp_path / "a.txt"), tokenizer, tmp_path / "c", held_out=0.2, reading=Reading("lines"), progress=False
    )
    expected = {"train": [], "held_out": []}
    for text in texts:
        held = is_held_out(hash_documents(Documents(sentences=text, lengths=[len(text)])), 0.2)[0]
        expected["held_out" if held else "train"].append([tokenizer.encode_ids(s) for s in text])
    assert documents_of(tmp_path / "c") == expected["train"]
    assert documents_of(tmp_path / "c", "held_out") == expected["held_out"]
    assert 30 < len(expected["held_out"]) < 90
    assert info == read_info(tmp_path / "c")
    corpus = Corpus.open(tmp_path / "c")
    assert corpus.unigrams.tolist() == np.bincount(corpus.tokens, minlength=corpus.vocab_size).tolist()
    assert (tmp_path / "c" / "tokenizer" / "vocab.txt").is_file()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "c"]


def test_workers_and_runs_give_the_same_bytes(tmp_path, tokenizer):
    for number in range(3):
        make_file(tmp_path / f"{number}.txt", seed=number)
    (tmp_path / "big.txt").write_text("alpha beta gamma.\n" * 2_000 + "\n", encoding="utf-8")
    reading = Reading(format="lines", block_bytes=8_000)
    infos = [
        build(
            str(tmp_path / "*.txt"),
            tokenizer,
            tmp_path / name,
            workers=workers,
            reading=reading,
            held_out=0.1,
            progress=False,
        )
        for name, workers in (("one", 1), ("again", 1), ("two", 2), ("three", 3))
    ]
    for name in ("again", "two", "three"):
        assert_same_directories(tmp_path / "one", tmp_path / name)
    whole = build(
        str(tmp_path / "*.txt"), tokenizer, tmp_path / "w", held_out=0.1, progress=False, reading=Reading("lines")
    )
    assert sum(s["documents"] for s in whole["splits"].values()) == 901
    assert infos[0]["splits"]["train"]["documents"] == whole["splits"]["train"]["documents"]


def test_what_is_read_together_makes_no_difference(tmp_path):
    """Small files share a unit of work here, but not on other machines (`corpus_beam`)."""
    uncased = WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], lowercase=True)
    texts = ["alpha.\n", "\u200b\n\nbeta.\n", "\u200b\ngamma.\n", "alpha.\n\n한국 어.\n", "beta.\nbeta.", "\ngamma.\n"]
    (tmp_path / "0.txt").write_text("beta.\n" * 300, encoding="utf-8")
    for number, text in enumerate(texts, 1):
        (tmp_path / f"{number}.txt").write_text(text, encoding="utf-8")
    (tmp_path / "7.txt").write_text("zeta.\n" * 3_000, encoding="utf-8")

    def file_by_file(names, encoder, problems, formats):
        for name in names:
            yield from map(encoder, read_units([name], encoder.reading, problems, formats))

    for name, encode_all in (("together", None), ("apart", file_by_file)):
        info = build(
            str(tmp_path / "*.txt"),
            uncased,
            tmp_path / name,
            held_out=0.3,
            workers=1,
            reading=Reading("lines", block_bytes=10_000),
            progress=False,
            encode_all=encode_all,
        )
    assert_same_directories(tmp_path / "together", tmp_path / "apart")
    assert info["skipped"]["sentence without tokens"] == {"count": 2, "first": str(tmp_path / "2.txt")}
    assert info["skipped"]["document without tokens"] == {"count": 1, "first": str(tmp_path / "2.txt")}
    assert any("Hangul" in warning for warning in info["warnings"])


def test_held_out_documents_do_not_depend_on_the_order_and_duplicates_stay_together(tmp_path, tokenizer):
    texts = make_file(tmp_path / "a.txt", documents=100)
    documents = [(str(i), "\n\n".join(text)) for i, text in enumerate(texts)] * 2
    build(documents, tokenizer, tmp_path / "a", held_out=0.3, progress=False)
    build(documents[::-1], tokenizer, tmp_path / "b", held_out=0.3, progress=False)
    train, held_out = documents_of(tmp_path / "a"), documents_of(tmp_path / "a", "held_out")
    assert train == documents_of(tmp_path / "b")[::-1]
    assert not {str(d) for d in train} & {str(d) for d in held_out}
    assert read_info(tmp_path / "a")["duplicate_documents"]["share"] >= 0.5


def test_counts_in_the_summary(tmp_path, tokenizer):
    texts = ["alpha beta.", "alpha beta.", "unknown beta. alpha.", "\u200b", " "]
    info = build([("d", text) for text in texts], tokenizer, tmp_path / "c", held_out=0.0, progress=False)
    train = info["splits"]["train"]
    assert (train["documents"], train["sentences"], train["tokens"], train["unknown_tokens"]) == (3, 4, 11, 1)
    assert info["unknown_share"] == pytest.approx(1 / 11)
    assert info["duplicate_documents"] == {"share": pytest.approx(1 / 3), "exact": True}
    assert info["duplicate_sentences"] == {"share": pytest.approx(1 / 4), "exact": True}
    assert info["one_sentence_documents"] == 2
    assert {reason: problem["count"] for reason, problem in info["skipped"].items()} == {
        "sentence without tokens": 1,
        "document without tokens": 1,
        "document without text": 1,
    }


def test_warnings(tmp_path, tokenizer):
    info = build([("a", "x y z alpha.")], tokenizer, tmp_path / "c", progress=False)
    text = "\n".join(info["warnings"])
    assert "60% of 5 tokens are [UNK]" in text
    assert "no document was held out of 1" in text and "one document" in text
    uncased = WordPiece(tokenizer.pieces, lowercase=True)
    documents = [(str(i), f"alpha {i} 한국.") for i in range(9)]
    for which, expected in ((uncased, True), (tokenizer, False)):
        info = build(documents, which, tmp_path / f"{expected}", held_out=0.0, progress=False)
        assert any("Hangul" in warning for warning in info["warnings"]) == expected


def test_no_documents_is_an_error_and_leaves_nothing(tmp_path, tokenizer):
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no document in the inputs \(1 x empty file\)"):
        build(str(tmp_path / "a.txt"), tokenizer, tmp_path / "c", progress=False)
    with pytest.raises(ValueError, match="no document in the inputs"):
        build([], tokenizer, tmp_path / "c", progress=False)
    with pytest.raises(ValueError, match=r"held_out 1\.0"):
        build([("a", "b")], tokenizer, tmp_path / "c", held_out=1.0)
    with pytest.raises(ValueError, match="workers 0"):
        build([("a", "b")], tokenizer, tmp_path / "c", workers=0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt"]


def test_existing_output_is_never_lost(tmp_path, tokenizer):
    documents = [("a", "alpha."), ("b", "beta.")]
    build(documents, tokenizer, tmp_path / "c", held_out=0.0, progress=False)
    with pytest.raises(ValueError, match=r"finished corpus; .*--overwrite"):
        build(documents[:1], tokenizer, tmp_path / "c", progress=False)
    with pytest.raises(ValueError, match="no document"):
        build([], tokenizer, tmp_path / "c", overwrite=True, progress=False)
    assert Corpus.open(tmp_path / "c").num_documents == 2
    build(documents[:1], tokenizer, tmp_path / "c", held_out=0.0, overwrite=True, progress=False)
    assert Corpus.open(tmp_path / "c").num_documents == 1
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match="is no corpus"):
        build(documents, tokenizer, tmp_path / "mine", overwrite=True, progress=False)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "precious"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "mine"]


def test_an_error_half_way_leaves_nothing(tmp_path, tokenizer):
    def documents():
        for number in range(100):
            yield (str(number), "alpha. " * 100)
        raise OSError(28, "No space left on device")

    for workers in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            build(
                documents(),
                tokenizer,
                tmp_path / "c",
                workers=workers,
                reading=Reading(block_bytes=1_000),
                progress=False,
            )
        assert not list(tmp_path.iterdir())


ENDLESS = """
import itertools, signal, sys
from bert_jax.data.corpus_builder import build
from bert_jax.data.documents import Reading
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
    documents = ((str(i), "alpha. " * 1000) for i in itertools.count())
    build(documents, sys.argv[1], sys.argv[2], workers=2, reading=Reading(block_bytes=10_000), progress=False)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_build_leaves_nothing_that_looks_finished(tmp_path, tokenizer, how):
    tokenizer.save(tmp_path / "t")
    (tmp_path / "endless.py").write_text(ENDLESS)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "endless.py", tmp_path / "t", tmp_path / "c"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    tokens = tmp_path / "c.building" / "train" / "tokens.bin"
    deadline = time.monotonic() + 60
    while not (tokens.exists() and tokens.stat().st_size) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.05)
    with pytest.raises(ValueError, match="another process is building"):
        build([("a", "alpha.")], tokenizer, tmp_path / "c", progress=False)
    process.send_signal(how)
    # The pipe ends when the last worker has ended too: none is left behind.
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and not (tmp_path / "c").exists()
    assert (b"KeyboardInterrupt" in errors) == (how == signal.SIGINT)
    assert (tmp_path / "c.building").exists() == (how == signal.SIGKILL)
    build([("a", "alpha.")], tokenizer, tmp_path / "c", held_out=0.0, progress=False)
    assert documents_of(tmp_path / "c") == [[tokenizer.encode_ids("alpha.")]]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c", "endless.py", "t"]


def test_workers_import_neither_jax_nor_tfds():
    code = (
        "import sys\n"
        "import bert_jax.data.corpus_builder, bert_jax.data.corpus_worker\n"
        "assert 'jax' not in sys.modules, 'jax'\n"
        "assert 'tensorflow_datasets' not in sys.modules, 'tfds'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_a_ten_megabyte_line_and_odd_files_are_no_trouble(tmp_path, tokenizer):
    (tmp_path / "long.txt").write_text("alpha. " * 1_500_000 + "\n")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00" + bytes(range(256)) * 9)
    (tmp_path / "noise.txt").write_bytes(bytes(range(128, 256)) * 9 + b"alpha\n")
    (tmp_path / "broken.txt.gz").write_bytes(b"\x1f\x8b\x08 broken")
    (tmp_path / "one.txt").write_text("beta.\n")
    info = build(str(tmp_path / "*"), tokenizer, tmp_path / "c", held_out=0.0, progress=False)
    assert info["splits"]["train"]["tokens"] > 3_000_000
    assert set(info["skipped"]) == {
        "byte that is not UTF-8, dropped",
        "damaged file, rest skipped",
        "empty file",
        "file in UTF-16 (convert it to UTF-8)",
    }


def test_a_document_of_many_blocks_is_one_document(tmp_path, tokenizer):
    paragraphs = [f"alpha {'beta ' * (i % 7)}gamma." for i in range(500)]
    (tmp_path / "book.txt").write_text("\n\n".join(paragraphs))
    (tmp_path / "next.txt").write_text("delta.")
    for workers in (1, 2):
        info = build(
            str(tmp_path / "*.txt"),
            tokenizer,
            tmp_path / f"c{workers}",
            reading=Reading("text", block_bytes=1_000),
            held_out=0.0,
            workers=workers,
            progress=False,
        )
        assert info["splits"]["train"]["documents"] == 2
        assert documents_of(tmp_path / f"c{workers}")[0] == [tokenizer.encode_ids(p) for p in paragraphs]


def test_the_vocabulary_sample_is_bounded_spread_and_without_held_out_documents(tmp_path, monkeypatch):
    texts = make_file(tmp_path / "a.txt", documents=2_000)
    reading = Reading("lines", block_bytes=4_000)
    everything = [sentence for text in texts for sentence in text]
    assert list(sample_texts(str(tmp_path / "a.txt"), reading)) == everything
    train = [
        text
        for text in texts
        if not is_held_out(hash_documents(Documents(sentences=text, lengths=[len(text)])), 0.3)[0]
    ]
    assert list(sample_texts(str(tmp_path / "a.txt"), reading, 0.3)) == [s for text in train for s in text]
    size = (tmp_path / "a.txt").stat().st_size
    monkeypatch.setattr(corpus_builder, "VOCABULARY_BYTES", size // 10)
    sample = list(sample_texts(str(tmp_path / "a.txt"), reading))
    assert 0.05 < sum(map(len, sample)) / sum(map(len, everything)) < 0.2
    assert set(sample) <= set(everything)
    assert list(sample_texts(iter([("a", "alpha. " * size)] * 9), reading))


def test_corpus_json_has_no_time_and_no_place(tmp_path, tokenizer):
    info = build([("a", "alpha.")], tokenizer, tmp_path / "c", held_out=0.0, progress=False)
    assert str(tmp_path) not in json.dumps(info)
