"""The corpus directory: what is written is read back; damage and absence are told in one line."""

import json

import numpy as np
import pytest

from bert_jax.data.corpus import Corpus, SplitWriter, read_info, token_dtype, write_corpus

DOCUMENTS = [[[1, 2], [3]], [[4, 4, 5]]]


def test_arrays_of_a_small_corpus(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, [[[9]]], vocab_size=10)
    corpus = Corpus.open(tmp_path)
    assert corpus.tokens.tolist() == [1, 2, 3, 4, 4, 5]
    assert corpus.sentences.tolist() == [0, 2, 3, 6]
    assert corpus.documents.tolist() == [0, 2, 3]
    assert corpus.unigrams.tolist() == [0, 1, 1, 1, 2, 1, 0, 0, 0, 0]
    assert (corpus.num_tokens, corpus.num_sentences, corpus.num_documents, corpus.vocab_size) == (6, 3, 2, 10)
    assert corpus.tokens.dtype == np.uint16
    assert Corpus.open(tmp_path, "held_out").tokens.tolist() == [9]


def test_arrays_are_read_only_and_survive_release_pages(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    corpus = Corpus.open(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        corpus.tokens[0] = 1
    corpus.release_pages()
    assert corpus.tokens.tolist() == [1, 2, 3, 4, 4, 5]


def test_an_empty_split_opens(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    corpus = Corpus.open(tmp_path, "held_out")
    assert (corpus.num_tokens, corpus.num_documents, corpus.sentences.tolist()) == (0, 0, [0])


@pytest.mark.parametrize(("size", "dtype"), [(1, "uint16"), (65536, "uint16"), (65537, "uint32")])
def test_ids_take_the_smallest_dtype(tmp_path, size, dtype):
    assert token_dtype(size) == np.dtype(dtype)
    write_corpus(tmp_path, [[[size - 1]]], vocab_size=size)
    assert Corpus.open(tmp_path).tokens.tolist() == [size - 1]


def test_a_document_may_come_in_parts(tmp_path):
    write_corpus(tmp_path / "whole", [[[1, 2], [3], [4]], [[5]]], vocab_size=10)
    writer = SplitWriter(tmp_path / "parts", 10)
    writer.append(np.array([1, 2]), np.array([2]), np.array([1]))
    writer.append(np.array([3]), np.array([1]), np.array([1]), continues=True)
    writer.append(np.array([4, 5]), np.array([1, 1]), np.array([1, 1]), continues=True)
    counts = writer.close()
    assert counts == read_info(tmp_path / "whole")["splits"]["train"]


def test_the_content_hash_tells_contents_apart(tmp_path):
    hashes = []
    for name, documents in (("a", DOCUMENTS), ("b", DOCUMENTS), ("c", DOCUMENTS[::-1])):
        write_corpus(tmp_path / name, documents, vocab_size=10)
        hashes.append(read_info(tmp_path / name)["content_sha256"])
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.parametrize(
    ("ids", "sentences", "documents", "message"),
    [
        ([1, 10], [2], [1], "token id 10"),
        ([1, -1], [2], [1], "token id -1"),
        ([1, 2], [2, 0], [2], "without tokens"),
        ([1, 2], [2], [1, 0], "without tokens"),
        ([1, 2], [1], [1], "add up"),
        ([1, 2], [1, 1], [1], "add up"),
    ],
)
def test_the_writer_refuses_what_the_format_cannot_hold(tmp_path, ids, sentences, documents, message):
    writer = SplitWriter(tmp_path / "train", 10)
    try:
        with pytest.raises(ValueError, match=message):
            writer.append(np.array(ids), np.array(sentences), np.array(documents))
    finally:
        writer.abandon()


def test_a_directory_without_corpus_json_is_no_corpus(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    (tmp_path / "corpus.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"not a finished corpus .*build_corpus"):
        Corpus.open(tmp_path)


def test_damage_is_told(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    tokens = tmp_path / "train" / "tokens.bin"
    tokens.write_bytes(tokens.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"tokens.bin has 11 bytes, corpus.json says 12"):
        Corpus.open(tmp_path)
    tokens.unlink()
    with pytest.raises(FileNotFoundError, match=r"tokens.bin is missing"):
        Corpus.open(tmp_path)
    with pytest.raises(ValueError, match="no split 'dev'; it has train, held_out"):
        Corpus.open(tmp_path, "dev")


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1}', "\xff"])
def test_a_damaged_corpus_json_is_told(tmp_path, text):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    (tmp_path / "corpus.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match="damaged"):
        Corpus.open(tmp_path)


def test_another_format_version_is_refused(tmp_path):
    write_corpus(tmp_path, DOCUMENTS, vocab_size=10)
    path = tmp_path / "corpus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format_version": 2}))
    with pytest.raises(ValueError, match="format_version 2, this code reads 1"):
        Corpus.open(tmp_path)
