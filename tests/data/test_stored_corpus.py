"""Corpora at URLs: kept by content, checked when fetched, built here and pushed with corpus.json last."""

import json
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data.corpus import Corpus, write_corpus
from bert_jax.data.object_cache import Copy
from bert_jax.data.object_store import Store, push
from bert_jax.data.stored_corpus import known_copy, local_corpus, stored_info
from bert_jax.data.wordpiece import WordPiece
from experiments import build_corpus
from tests.shaky_store import Shaky, clean_stores, failing  # noqa: F401  (a fixture)

pytestmark = pytest.mark.usefixtures("clean_stores")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film"]


def stored(url: str, folder: Path, *sentences: list[int]) -> None:
    write_corpus(folder, [[list(sentence)] for sentence in sentences], [[[5, 6]]], vocab_size=len(PIECES))
    WordPiece(PIECES, lowercase=True).save(folder / "tokenizer")
    push(folder, Store(url), "corpus.json")


def test_a_corpus_is_mapped_from_a_copy_that_is_kept_by_its_content(tmp_path: Path) -> None:
    stored("memory://b/corpus", tmp_path / "one", [5, 6, 7], [6, 7])
    Store("memory://b/corpus").write("notes/large.bin", b"not the corpus's")
    assert not known_copy("memory://b/corpus").exists()
    first = local_corpus("memory://b/corpus")
    opened = Corpus.open(first)
    assert opened.tokens.tolist() == [5, 6, 7, 6, 7] and known_copy("memory://b/corpus") == first
    assert not (first / "notes").exists() and (first / "tokenizer" / "vocab.txt").exists()
    assert local_corpus("memory://b/corpus") == first and local_corpus(tmp_path / "one") == tmp_path / "one"
    stored("memory://b/corpus", tmp_path / "two", [7, 7, 7])
    second = local_corpus("memory://b/corpus")
    assert second != first and Corpus.open(second).tokens.tolist() == [7, 7, 7]
    np.testing.assert_array_equal(opened.tokens, [5, 6, 7, 6, 7])  # who has mapped the old one keeps it


def test_what_corpus_json_does_not_say_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"^memory://b/corpus is not a finished corpus \(no corpus.json\)"):
        local_corpus("memory://b/corpus")
    stored("memory://b/corpus", tmp_path / "one", [5, 6, 7], [6, 7])
    whole = Store("memory://b/corpus").read("train/tokens.bin") or b""
    Store("memory://b/corpus").write("train/tokens.bin", b"\x05" + b"\0" * (len(whole) - 1))
    with pytest.raises(ValueError, match=r"^memory://b/corpus/train/tokens.bin is not what its corpus.json says"):
        local_corpus("memory://b/corpus")
    copy = Copy("memory://b/corpus", stored_info("memory://b/corpus")["content_sha256"])
    assert not copy.path("corpus.json").exists() and not copy.path("train/tokens.bin").exists()
    Store("memory://b/corpus").write("train/tokens.bin", whole)
    assert Corpus.open(local_corpus("memory://b/corpus")).num_tokens == 5
    Store("memory://b/corpus").remove("held_out/sentences.bin")
    with pytest.raises(ValueError, match=r"^memory://b/corpus/held_out/sentences.bin is missing; copy or build"):
        local_corpus("memory://b/corpus")
    Store("memory://b/corpus").write("corpus.json", b"{")
    with pytest.raises(ValueError, match=r"^memory://b/corpus/corpus.json is damaged"):
        local_corpus("memory://b/corpus")


def test_a_fetch_that_stops_is_no_corpus(tmp_path: Path) -> None:
    stored("shaky://b/corpus", tmp_path / "one", [5, 6, 7])
    Shaky.fails = failing("get", "corpus.json", ConnectionError("reset"))
    with pytest.raises(OSError, match="reset"):
        local_corpus("shaky://b/corpus")
    with pytest.raises(FileNotFoundError, match="not a finished corpus"):
        Corpus.open(known_copy("shaky://b/corpus"))
    Shaky.fails = None
    Corpus.open(local_corpus("shaky://b/corpus"))


def test_built_from_urls_to_a_url_it_is_that_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.dumps({"text": f"A good film {number}. It is not a bad one."}) for number in range(200)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    Store("memory://b").write("texts/text.jsonl", "\n".join(lines).encode())
    WordPiece(PIECES, lowercase=True).save(tmp_path / "tokenizer")
    options = ["--tokenizer", str(tmp_path / "tokenizer"), "--workers", "1", "--held_out", "0.1"]
    build_corpus.main(["--input", str(tmp_path / "*.jsonl"), "--output", str(tmp_path / "here"), *options])
    there = ["--input", "memory://b/texts/*.jsonl", "--output", "memory://b/corpus", *options]
    build_corpus.main(there)
    assert "-> memory://b/corpus" in capsys.readouterr().out
    copy = local_corpus("memory://b/corpus")
    for name in ("train/tokens.bin", "held_out/documents.bin", "tokenizer/vocab.txt"):
        assert (copy / name).read_bytes() == (tmp_path / "here" / name).read_bytes()
    with pytest.raises(SystemExit, match=r"memory://b/corpus is a finished corpus; choose another output or pass"):
        build_corpus.main(there)
    Store("memory://b/corpus").write("tokenizer/old.model", b"of another tokenizer")
    build_corpus.main([*there, "--overwrite"])
    assert "tokenizer/old.model" not in Store("memory://b/corpus").files()
    with pytest.raises(SystemExit, match=r"memory://b/texts exists and is no finished corpus; choose another output"):
        build_corpus.main([*there, "--output", "memory://b/texts", "--overwrite"])


def test_a_push_of_a_corpus_that_fails_leaves_none_there(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("A good film.\nA bad film.\n\nIt is good.\n")
    WordPiece(PIECES, lowercase=True).save(tmp_path / "tokenizer")
    given = ["--input", str(tmp_path / "t.txt"), "--output", "shaky://b/corpus", "--workers", "1"]
    given += ["--tokenizer", str(tmp_path / "tokenizer"), "--held_out", "0"]
    Shaky.fails = failing("put", "train/tokens.bin", ConnectionError("reset"))
    with pytest.raises(SystemExit, match=r"reset; what was written is whole in \S+/corpus: copy it from there$"):
        build_corpus.main(given)
    assert "corpus.json" not in Store("shaky://b/corpus").files()
    with pytest.raises(FileNotFoundError, match=r"no corpus\.json"):
        local_corpus("shaky://b/corpus")
