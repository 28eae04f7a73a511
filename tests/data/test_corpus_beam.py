"""Apache Beam builds the corpus that this machine's processes build, to the byte, and leaves nothing else."""

import filecmp
import gzip
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("apache_beam", reason="pipelines run in Apache Beam: pip install '.[beam]'", exc_type=ImportError)

from bert_jax.data import corpus_beam
from bert_jax.data.corpus import Corpus
from bert_jax.data.corpus_beam import EncodeInput, encode_on_beam
from bert_jax.data.corpus_builder import build
from bert_jax.data.corpus_worker import UnitEncoder
from bert_jax.data.documents import Reading
from bert_jax.data.text_files import Problems
from bert_jax.data.vocabulary import learn_sentencepiece
from bert_jax.data.wordpiece import WordPiece
from experiments.build_corpus import main

ROOT = Path(__file__).parents[2]
WORDS = ["alpha", "beta", "gamma", "delta", "the", "cat", "story", "."]
READING = Reading(block_bytes=2_000)


@pytest.fixture(scope="module")
def wordpiece():
    return WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s"], lowercase=True)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Every kind of file: many small ones, one of many units, damaged, empty, of every format, with every problem."""
    folder = tmp_path_factory.mktemp("texts")
    rows = [{"text": f"Story {number} begins.\nThe cat sat on mat {number}."} for number in range(200)]
    packed = gzip.compress("\n".join(map(json.dumps, [*rows, {"no": "text"}, {"text": "\ud800 "}])).encode())
    (folder / "a.jsonl.gz").write_bytes(packed)
    (folder / "b damaged.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "c damaged.gz").write_bytes(b"\x1f\x8b\x08 broken")
    for number in range(60):
        lines = "".join(f"Alpha beta {number * k % 17}.\n{'' if k % 3 else chr(10)}" for k in range(number % 9))
        (folder / f"d{number:02}.txt").write_text(lines + "\u200b\n" * (number % 5 == 2) + "Gamma!", encoding="utf-8")
    (folder / "d07.txt").write_text("한국 어.\n", encoding="utf-8")
    (folder / "d08.txt").write_bytes(b"alpha \xff beta.\n\n\n")
    (folder / "d09.txt").write_text("\u200b\n\n\u200b\n", encoding="utf-8")
    long = [f"The cat {'and the cat ' * (k % 7)}sat. Then\nit was {k}." for k in range(400)]
    (folder / "e book.txt").write_text("\n\n".join(long) + "\n", encoding="utf-8")
    (folder / "f lines.txt").write_text("alpha beta gamma.\n" * 900 + "\ndelta.\n", encoding="utf-8")
    (folder / "g empty.txt").touch()
    (folder / "h.txt").write_bytes(b"\xff\xfea\0")
    (folder / "i.txt").write_text("The end.", encoding="utf-8")
    return folder


def build_both(folder, tokenizer, output, options="", **how):
    """The infos of the corpora `here` and `beam` in `output`."""
    infos = []
    for name in ("here", "beam"):
        encode_all = None if name == "here" else encode_on_beam(options, str(output / "parts"))
        arguments = {"reading": READING, "workers": 1, "progress": False, "encode_all": encode_all} | how
        infos.append(build(str(folder / "*"), tokenizer, output / name, **arguments))
    return infos


def assert_same_and_nothing_else(output):
    here, there = output / "here", output / "beam"
    names = sorted(str(p.relative_to(here)) for p in here.rglob("*") if p.is_file())
    assert names == sorted(str(p.relative_to(there)) for p in there.rglob("*") if p.is_file())
    assert filecmp.cmpfiles(here, there, names, shallow=False)[0] == names and "corpus.json" in names
    assert sorted(p.name for p in output.iterdir()) == ["beam", "here"]


@pytest.mark.parametrize("documents", ["file", "blank_line"])
def test_the_same_bytes_as_without_beam(tmp_path, texts, wordpiece, documents):
    reading = Reading(documents=documents, block_bytes=2_000)
    info, other = build_both(texts, wordpiece, tmp_path, held_out=0.2, reading=reading)
    assert_same_and_nothing_else(tmp_path)
    assert list(info) == list(other) and info == other
    assert set(info["formats"]) == {"lines", "text", "jsonl"} and len(info["skipped"]) >= 8
    assert any("Hangul" in warning for warning in info["warnings"])
    assert info["splits"]["held_out"]["documents"] > 20
    longest = max((d := Corpus.open(tmp_path / "here").documents)[1:] - d[:-1])
    assert longest * 10 > READING.block_bytes, "no document goes on over several units"


def test_inputs_at_urls(tmp_path, texts, wordpiece):
    for name in ("here", "beam"):
        encode_all = None if name == "here" else encode_on_beam("", str(tmp_path / "parts"))
        inputs = [f"file://{texts}/d0*.txt", f"file://{texts}/a.jsonl.gz"]
        build(inputs, wordpiece, tmp_path / name, reading=READING, workers=1, progress=False, encode_all=encode_all)
    assert_same_and_nothing_else(tmp_path)


def test_sentencepiece_and_other_formats(tmp_path, texts):
    sentences = [line for path in texts.glob("[def]*.txt") for line in path.read_text("utf-8", "ignore").split("\n")]
    tokenizer = learn_sentencepiece(sentences, 90)
    build_both(texts, tokenizer, tmp_path, held_out=0.1)
    assert_same_and_nothing_else(tmp_path)


@pytest.mark.parametrize("options", ["--direct_runner_bundle_repeat=2", "--direct_running_mode=multi_threading"])
def test_repeated_bundles_are_harmless(tmp_path, texts, wordpiece, options):
    build_both(texts, wordpiece, tmp_path, options)
    assert_same_and_nothing_else(tmp_path)


def test_the_program_on_processes_of_beam(tmp_path, texts, wordpiece):
    wordpiece.save(tmp_path / "t")
    options = "--beam_options=--direct_running_mode=multi_processing --direct_num_workers=2"
    for name, runner in (("here", []), ("beam", ["--runner", "beam", options])):
        arguments = [
            "--input",
            texts / "*",
            "--output",
            tmp_path / "out" / name,
            "--tokenizer",
            tmp_path / "t",
            *runner,
        ]
        program(*arguments)
    assert_same_and_nothing_else(tmp_path / "out")


def program(*arguments):
    command = [sys.executable, "-m", "experiments.build_corpus", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=240, capture_output=True)


def test_an_attempt_that_fails_leaves_nothing_and_can_be_repeated(tmp_path, texts, wordpiece, monkeypatch):
    name = str(texts / "e book.txt")
    step = EncodeInput(UnitEncoder(wordpiece, READING, 0.1), str(tmp_path / "part-x-"))

    def fail_late(stream, source, units, problems, formats):
        stream.write(b"half a part")
        next(iter(units))
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"):
        patch.setattr(corpus_beam, "write_part", fail_late)
        step.process((3, name))
    assert not list(tmp_path.iterdir())
    step.process((3, name))
    first = (tmp_path / "part-x-000003").read_bytes()
    step.process((3, name))
    with monkeypatch.context() as patch:  # two attempts at once
        patch.setattr(corpus_beam.FileSystems, "exists", lambda _: False)
        step.process((3, name))
    assert (tmp_path / "part-x-000003").read_bytes() == first
    assert [path.name for path in tmp_path.iterdir()] == ["part-x-000003"]


def test_a_failing_job_is_one_line_and_leaves_nothing(tmp_path, texts, wordpiece, monkeypatch, capsys):
    wordpiece.save(tmp_path / "t")
    good = UnitEncoder.__call__

    def fail(self, unit):
        if "book" in unit.parts[0].source:
            raise MemoryError("of this\nworker")
        return good(self, unit)

    monkeypatch.setattr(UnitEncoder, "__call__", fail)
    with pytest.raises(SystemExit, match=r"^build_corpus: Beam: .*worker \[while running 'encode'\]"):
        arguments = ["--input", texts / "*", "--output", tmp_path / "c", "--tokenizer", tmp_path / "t"]
        main([*map(str, arguments), "--runner=beam"])
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_damaged_and_missing_parts_are_no_corpus(tmp_path, texts, wordpiece, monkeypatch):
    def after(change):
        run = corpus_beam._run

        def run_and_change(options, names, encoder, prefix):
            run(options, names, encoder, prefix)
            change(next(path for path in sorted((tmp_path / "parts").iterdir()) if path.stat().st_size > 9_000))

        return run_and_change

    def damage(part):
        part.write_bytes(part.read_bytes()[:-9_000])

    for change, message in ((damage, "is damaged .it was cut off"), (Path.unlink, "is not here .* share")):
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=message):
            patch.setattr(corpus_beam, "_run", after(change))
            build_both(texts, wordpiece, tmp_path, overwrite=True)
        assert [path.name for path in tmp_path.iterdir()] == ["here"]


def test_a_worker_that_does_not_see_an_input_says_so(tmp_path, wordpiece):
    encode_all = encode_on_beam("", str(tmp_path / "parts"))
    encoder = UnitEncoder(wordpiece, READING, 0.1)
    with pytest.raises(RuntimeError, match=r"Beam: .*worker .* does not see .*gone\.txt"):
        list(encode_all([str(tmp_path / "gone.txt")], encoder, Problems(), {}))
    with pytest.raises(FileNotFoundError, match=r"does not see .*part-x-inputs.* all machines share"):
        list(corpus_beam._numbered(str(tmp_path / "part-x-inputs")))
    with pytest.raises(ValueError, match="documents in memory cannot go"):
        list(encode_all([("a", "text")], encoder, Problems(), {}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("surplus", "'surplus', which is no option"),
        ("--runner=Nobody", "Unexpected pipeline runner: Nobody"),
        ("--runner=no.such.Runner", "No module named 'no'"),
        ("--num_wrokers=3", "has --num_wrokers, unknown to Beam's FnApiRunner"),
        ("--direct_num_workers=many", "': argument --direct_num_workers: invalid int value: 'many'"),
        ("'", "No closing quotation"),
    ],
)
def test_bad_options_are_one_line_before_anything_is_done(tmp_path, options, message):
    with pytest.raises(SystemExit) as stop:
        main(["--input", __file__, "--output", str(tmp_path / "c"), "--runner=beam", f"--beam_options={options}"])
    assert str(stop.value).startswith("build_corpus: --beam_options") and message in str(stop.value)
    assert "\n" not in str(stop.value) and not list(tmp_path.iterdir())


def test_options_of_a_cluster_that_only_its_server_knows_are_passed_on(tmp_path):
    encode_on_beam("--runner=FlinkRunner --flink_master=host:8081 --parallelism=64", str(tmp_path / "parts"))


def test_what_is_in_the_parts_directory_is_never_lost(tmp_path, wordpiece):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "thesis.tex").write_text("precious")
    with pytest.raises(ValueError, match=r"thesis\.tex is no part of a corpus"):
        encode_on_beam("", str(tmp_path / "parts"))
    assert (tmp_path / "parts" / "thesis.tex").read_text() == "precious"
    with pytest.raises(ValueError, match="one of"):
        encode_on_beam("", str(tmp_path / "parts[1]"))


SLOW = """
import signal, sys, time
from bert_jax.data import corpus_beam
from experiments.build_corpus import main

def write_and_wait(stream, *_):
    stream.write(b"half a part" * 1000)
    stream.flush()
    time.sleep(600)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job inherits that it is ignored
    corpus_beam.write_part = write_and_wait
    main(sys.argv[1:])
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_killed_build_leaves_nothing_that_the_next_does_not_remove(tmp_path, wordpiece, how):
    wordpiece.save(tmp_path / "t")
    (tmp_path / "a.txt").write_text("alpha.\n")
    (tmp_path / "slow.py").write_text(SLOW)
    arguments = [f"--input={tmp_path}/a.txt", f"--output={tmp_path}/c", f"--tokenizer={tmp_path}/t", "--held_out=0"]
    process = subprocess.Popen(
        [sys.executable, tmp_path / "slow.py", *arguments, "--runner=beam"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
    )
    parts = tmp_path / "c.parts"
    deadline = time.monotonic() + 60
    while not any(parts.glob("part-*.tmp")) and time.monotonic() < deadline:
        assert process.poll() is None, process.stderr.read().decode()
        time.sleep(0.05)
    with pytest.raises(SystemExit, match="another process is building"):
        main([*arguments, "--runner=beam"])
    assert any(parts.iterdir()), "the parts of a living build are another's"
    process.send_signal(how)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and not (tmp_path / "c").exists()
    assert (b"interrupted; nothing was written" in errors) == (how == signal.SIGINT)
    assert parts.exists() == (tmp_path / "c.building").exists() == (how == signal.SIGKILL)
    main([*arguments, "--runner=beam"])
    assert Corpus.open(tmp_path / "c").num_documents == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "c", "slow.py", "t"]


def test_the_module_says_what_is_missing(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "apache_beam", None)
        with pytest.raises(ImportError, match=r"needs Apache Beam .*pip install '\.\[beam\]'"):
            importlib.reload(corpus_beam)
