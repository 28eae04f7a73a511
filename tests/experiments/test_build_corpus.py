"""The program: flags, summary, one line and a non-zero exit on bad input."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_jax.data.corpus import Corpus, read_info
from bert_jax.data.tokenizer import load_tokenizer
from experiments.build_corpus import main

ROOT = Path(__file__).parents[2]


def run(*arguments):
    main([str(argument) for argument in arguments])


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(20):
        rows = [{"text": f"Story {number} begins here. The cat number {i} sat on the mat."} for i in range(20)]
        (folder / f"{number:02}.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, rows)).encode()))
    return folder


@pytest.mark.parametrize(("kind", "size"), [("wordpiece", 90), ("sentencepiece", 90), ("byte_bpe", 300)])
def test_a_vocabulary_is_learned_first(tmp_path, texts, capsys, kind, size):
    output = tmp_path / "corpus"
    options = ["--vocab_size", size, "--held_out", 0.1, "--tokenizer_kind", kind]
    options += [] if kind == "byte_bpe" else ["--lowercase"]
    run("--input", texts / "*.gz", "--output", output, *options)
    corpus = Corpus.open(output)
    assert corpus.num_documents + Corpus.open(output, "held_out").num_documents == 400
    tokenizer = load_tokenizer(output / "tokenizer")
    assert (tokenizer.kind, tokenizer.lowercase) == (kind, kind != "byte_bpe")
    assert tokenizer.vocab_size == corpus.vocab_size <= size
    text = tokenizer.decode(corpus.tokens[: corpus.sentences[1]].tolist())
    assert text.replace(" ", "").lower().startswith("story")
    printed = capsys.readouterr().out
    for word in ("documents", "sentences", "tokens", "[UNK]", "repeated documents", "jsonl 20", "MB/s"):
        assert word in printed


def test_a_given_tokenizer_and_what_was_skipped(tmp_path, texts, capsys):
    (texts / "zz.jsonl").write_text('{"no": "text"}\n{"text": "Good."}\nbad\n')
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", ".", "good"]))
    run(
        *("--input", texts / "*.gz", "--input", texts / "*.jsonl", "--output", tmp_path / "c"),
        *("--tokenizer", vocabulary, "--workers", 2, "--held_out", 0),
    )
    assert read_info(tmp_path / "c")["splits"]["train"]["documents"] == 401
    printed = capsys.readouterr().out
    assert f"skipped: 1 x line that is no JSON; first: {texts}/zz.jsonl:3" in printed
    assert "WARNING" in printed and "[UNK]" in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "nothing/*.txt"], "matches no file"),
        (["--input", "nothing/*.txt", "--tokenizer", "gone"], "gone"),
        (["--input", __file__, "--held_out", "2"], "held_out"),
        (["--input", __file__, "--vocab_size", "3"], "vocab_size"),
        (["--input", __file__, "--tokenizer_kind", "byte_bpe", "--lowercase"], "has case"),
        (["--input", __file__, "--workers", "0"], "workers"),
        (["--input", __file__, "--runner", "beam", "--workers", "2"], "direct_num_workers"),
        (["--input", __file__, "--beam_options=--runner=FlinkRunner"], "--beam_options is of --runner beam"),
        (["--input", __file__, "--parts_dir", "parts"], "--parts_dir is of --runner beam"),
    ],
)
def test_bad_input_is_one_line(tmp_path, arguments, message):
    with pytest.raises(SystemExit) as stop:
        run(*arguments, "--output", tmp_path / "c")
    assert message in str(stop.value) and "\n" not in str(stop.value)
    assert not list(tmp_path.iterdir())


def test_without_beam_it_says_what_to_install(tmp_path):
    code = (
        "import sys; sys.modules['apache_beam'] = None; from experiments.build_corpus import main; main(sys.argv[1:])"
    )
    arguments = ["--input", __file__, "--output", tmp_path / "c", "--runner", "beam"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("build_corpus: --runner beam needs Apache Beam") and "'.[beam]'" in done.stderr
    assert not list(tmp_path.iterdir())


def test_as_a_program(tmp_path):
    def program(*arguments):
        command = [sys.executable, "-m", "experiments.build_corpus", *map(str, arguments)]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    usage = program("--help")
    assert usage.returncode == 0 and "--input GLOB" in usage.stdout
    (tmp_path / "empty.txt").touch()
    failed = program("--input", tmp_path / "*.txt", "--output", tmp_path / "c", "--vocab_size", 100)
    assert failed.returncode == 1
    assert failed.stderr.strip().splitlines()[-1].startswith("build_corpus: no ")
    assert os.listdir(tmp_path) == ["empty.txt"]
    assert program("--output", tmp_path / "c").returncode == 2
