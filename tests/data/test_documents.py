"""Inputs -> documents of sentences, whatever the blocks they are read in."""

import json
import random

import pytest

from bert_jax.data.documents import Reading, expand_inputs, parse, read_units, total_bytes
from bert_jax.data.text_files import Problems


def read(inputs, **reading):
    """All documents of the inputs as lists of sentences, joined over units, and the problems."""
    settings = Reading(**reading)
    problems = Problems()
    documents, is_open = [], False
    for unit in read_units(expand_inputs(inputs), settings, problems):
        part = parse(unit, settings)
        assert sum(part.lengths) == len(part.sentences)
        problems.merge(part.problems)
        start = 0
        for number, length in enumerate(part.lengths):
            sentences = part.sentences[start : start + length]
            start += length
            if number == 0 and part.continues and is_open:
                documents[-1] += sentences
            else:
                documents.append(sentences)
        is_open = part.ends_open
    return [document for document in documents if document], problems.as_dict()


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return str(path)


def test_one_sentence_a_line(tmp_path):
    name = write(tmp_path / "a.txt", "\n\none. Still one.\n two \r\n\r\n\n \t\nthree\n\u3000\nfour")
    documents, problems = read(name, format="lines")
    assert documents == [["one. Still one.", "two"], ["three"], ["four"]]
    assert problems == {}


def test_running_text(tmp_path):
    name = write(tmp_path / "a.txt", "A heading\n\nIt is long and\ngoes on. It ends.\r\n\r\nNext.\n")
    assert read(name, format="text")[0] == [["A heading", "It is long and goes on.", "It ends.", "Next."]]
    paragraphs = [["A heading"], ["It is long and goes on.", "It ends."], ["Next."]]
    assert read(name, format="text", documents="blank_line")[0] == paragraphs


def test_json_lines(tmp_path):
    rows = [{"text": "One. Two.\nThree\n\nfour."}, {"text": "글. 자!", "id": 3}]
    name = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)) + "\n\n")
    assert read(name)[0] == [["One.", "Two.", "Three", "four."], ["글.", "자!"]]


def test_another_field(tmp_path):
    name = write(tmp_path / "a.jsonl", '{"text": "No.", "body": "Yes."}\n')
    assert read(name, text_field="body")[0] == [["Yes."]]


def test_bad_json_lines_are_skipped_and_counted(tmp_path):
    lines = ['{"text": "One."}', "{", "[1]", '{"body": "x"}', '{"text": null}', '{"text": " "}', '{"text": "Two."}']
    name = write(tmp_path / "a.jsonl", "\n".join(lines))
    documents, problems = read(name)
    assert documents == [["One."], ["Two."]]
    assert problems == {
        "line that is no JSON": {"count": 1, "first": f"{name}:2"},
        "JSON line without a text in 'text'": {"count": 3, "first": f"{name}:3"},
        "document without text": {"count": 1, "first": f"{name}:6"},
    }


def test_deep_json_is_a_skip(tmp_path):
    name = write(tmp_path / "a.jsonl", "[" * 100_000 + '\n{"text": "One."}')
    documents, problems = read(name)
    assert documents == [["One."]] and list(problems) == ["line that is no JSON"]


def test_lone_surrogates_are_dropped_and_counted(tmp_path):
    name = write(tmp_path / "a.jsonl", r'{"text": "a\ud800b \ud83e\udd71."}')
    documents, problems = read(name)
    assert documents == [["ab 🥱."]]
    assert problems == {"lone surrogate, dropped": {"count": 1, "first": f"{name}:1"}}


def test_undecodable_bytes_are_dropped_and_counted(tmp_path):
    name = write(tmp_path / "a.txt", b"good.\nb\xffa\xfed\xc3.\n\nok\n")
    documents, problems = read(name, format="lines")
    assert documents == [["good.", "bad."], ["ok"]]
    assert problems == {"byte that is not UTF-8, dropped": {"count": 3, "first": f"{name}:2"}}


def test_unicode_separators_are_no_line_ends(tmp_path):
    name = write(tmp_path / "a.txt", "a\u2028b\x0cc\x85d\n")
    assert read(name, format="lines")[0] == [["a\u2028b\x0cc\x85d"]]


def test_documents_in_memory():
    inputs = [("a", "It is long\nand wrapped. Two."), ("b", " \n"), ("c", "Three.\n\nFour.")]
    expected = [["It is long and wrapped.", "Two."], ["Three.", "Four."]]
    for given in (inputs, tuple(inputs), iter(inputs)):
        documents, problems = read(given)
        assert documents == expected
        assert problems == {"document without text": {"count": 1, "first": "b:1"}}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("file_format", "documents"), [("lines", "file"), ("text", "blank_line"), ("text", "file"), ("jsonl", "file")]
)
def test_documents_do_not_depend_on_the_size_of_blocks(tmp_path, seed, file_format, documents):
    rng = random.Random(seed)
    names = []
    for number in range(3):
        lines = []
        for _ in range(rng.randint(1, 60)):
            lines += [f"Sentence {rng.randint(0, 99)} é한." for _ in range(rng.choice([1, 2, 5, 40]))]
            lines += [rng.choice(["", " ", "\u3000", "\r", "\t \t"])] * rng.randint(1, 2)
        if file_format == "jsonl":
            lines = [json.dumps({"text": line}) for line in lines if line.strip()]
        names.append(write(tmp_path / f"{number}.txt", "\n".join(lines)))
    reading = {"format": file_format, "documents": documents}
    whole, _ = read(names, **reading)
    assert len(whole) == (3 if documents == "file" and file_format == "text" else len(whole)) > 1
    for block_bytes in (30, 100, 1_000):
        assert read(names, **reading, block_bytes=block_bytes)[0] == whole


def test_files_are_sorted_and_taken_once(tmp_path):
    for name in "bac":
        write(tmp_path / f"{name}.txt", name)
    (tmp_path / "folder.txt").mkdir()
    pattern = str(tmp_path / "*.txt")
    names = [str(tmp_path / f"{name}.txt") for name in "abc"]
    assert expand_inputs(pattern) == names
    assert expand_inputs([names[2], pattern]) == [names[2], *names[:2]]
    assert total_bytes(names) == 3
    odd = write(tmp_path / "[x].txt", "x")
    assert expand_inputs(odd) == [odd]


def test_a_pattern_without_files_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\*.txt' matches no file"):
        expand_inputs(str(tmp_path / "none*.txt"))


@pytest.mark.parametrize("settings", [{"format": "csv"}, {"documents": "line"}])
def test_unknown_settings_are_refused(settings):
    with pytest.raises(ValueError, match="is not one of"):
        Reading(**settings)


def test_small_files_share_a_unit_and_memory_holds_one_at_a_time(tmp_path):
    for number in range(100):
        write(tmp_path / f"{number:03}.txt", "A sentence.\n" * 10)
    units = list(read_units(expand_inputs(str(tmp_path / "*.txt")), Reading(block_bytes=2_400), Problems()))
    assert len(units) == 10
