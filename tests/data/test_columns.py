"""Readers of column files: hand-written ones of each format, and the real ones."""

import re

import pytest

from bert_jax.data.columns import FORMATS, ColumnFormat, TaggedSentence, format_of_file, read_columns

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER

-DOCSTART- -X- -X- O

LONDON NNP B-NP B-LOC"""


def write(folder, text, name="a.txt"):
    path = folder / name
    path.write_bytes(text.encode())
    return str(path)


def test_conll_documents_and_places(tmp_path):
    path = write(tmp_path, CONLL)
    assert read_columns(path, FORMATS["conll2003"]) == [
        TaggedSentence(("EU", "rejects"), ("B-ORG", "O"), 0, path, 3),
        TaggedSentence(("Peter", "Blackburn"), ("B-PER", "I-PER"), 0, path, 6),
        TaggedSentence(("LONDON",), ("B-LOC",), 1, path, 11),
    ]
    # Without a mark at the top the first document begins all the same; -DOCSTART- is never a sentence.
    path = write(tmp_path, CONLL.split("\n\n", 1)[1].replace("\n", "\r\n") + "\n\n\n")
    assert [(s.document, len(s.words), s.line) for s in read_columns(path)] == [(0, 2, 1), (0, 2, 4), (1, 1, 9)]
    for documents, numbers in (("sentence", [0, 1, 2]), ("file", [0, 0, 0]), ("docstart", [0, 0, 1])):
        assert [s.document for s in read_columns(path, ColumnFormat(documents=documents))] == numbers


def test_documents_are_numbered_through_all_files(tmp_path):
    paths = [write(tmp_path, CONLL, "a"), write(tmp_path, "", "empty"), write(tmp_path, CONLL, "b")]
    assert [s.document for s in read_columns(paths, FORMATS["conll2003"])] == [0, 0, 1, 2, 2, 3]
    # No mark, nothing known of documents: each sentence is one.
    assert [s.document for s in read_columns(write(tmp_path, "a O\n\nb O\n\nc O\n"))] == [0, 1, 2]


def test_wnut_blank_lines_and_odd_characters(tmp_path):
    text = "\ufeffa\tO\n#b\tO\n\t\n\n \t \nx\u2028y z\tB-creative-work\n\u200e\tI-creative-work\n\ufeff"
    sentences = read_columns(write(tmp_path, text), FORMATS["wnut17"])
    assert [s.words for s in sentences] == [("a", "#b"), ("x\u2028y z", "\u200e")]
    assert sentences[1].tags == ("B-creative-work", "I-creative-work")
    assert [s.line for s in sentences] == [1, 6]


def test_germeval_headers_outer_and_inner(tmp_path):
    text = (
        "#\turl1\t[2010]\n1\tEuropa\tB-ORG\tB-LOC\n2\tUnion\tI-ORG\tO\n\n#\turl1\t[2010]\n1\t#\tO\tO\t\n\n"
        "#\turl2\t[2010]\n1\tb\tO\tO\n\n#\turl1\t[2010]\n1\tc\tO\tO\n"
    )
    path = write(tmp_path, text)
    outer = read_columns(path, FORMATS["germeval2014"])
    assert [s.words for s in outer] == [("Europa", "Union"), ("#",), ("b",), ("c",)]
    assert [s.document for s in outer] == [0, 0, 1, 2]
    assert [s.line for s in outer] == [2, 6, 9, 12]
    assert outer[0].tags == ("B-ORG", "I-ORG")
    assert read_columns(path, FORMATS["germeval2014_inner"])[0].tags == ("B-LOC", "O")


def test_klue_characters(tmp_path):
    text = (
        "## CHAR\tNE_TAG\n## id-0\t<김 구:PS>는 # <2살:QT>\n김\tB-PS\n \tI-PS\n구\tI-PS\n는\tO\n \tO\n#\tO\n"
        " \tB-QT\n2\tI-QT\n살\tI-QT\n\n## id-1\tx\n나\tO\n"
    )
    first, second = read_columns(write(tmp_path, text), FORMATS["klue_ner"])
    assert first.words == tuple("김구는#2살")
    assert first.tags == ("B-PS", "I-PS", "O", "O", "B-QT", "I-QT")  # the B- of the space moved on
    assert first.spaces == (True, True, False, True, True, False)
    assert (second.words, second.document, second.line) == (("나",), 1, 14)


def test_text_without_tags_and_tags_of_any_kind(tmp_path):
    path = write(tmp_path, "The DT\ncat NN\n")
    assert read_columns(path, ColumnFormat(tag=None))[0] == TaggedSentence(("The", "cat"), None, 0, path, 1)
    assert read_columns(path, ColumnFormat(entities=False))[0].tags == ("DT", "NN")


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("a O\n\nb\n", ColumnFormat(), r"a\.txt:3: 1 columns where the first line has 2, so column -1 \(tag\)"),
        ("a O\nb\n", ColumnFormat(0, 1), r"a\.txt:2: no column 1 \(tag\), the line has 1"),
        ("a O\nb c O\n", ColumnFormat(), r"a\.txt:2: 3 columns where the first"),
        ("a\n", ColumnFormat(), r"a\.txt:1: the word is column 0 and the tag -1, but the line has 1 column;"),
        ("a O\n", ColumnFormat(0, 2), r"a\.txt:1: the word is column 0 and the tag 2, but the line has 2 columns;"),
        ("a O\n", ColumnFormat(-3, 1), r"a\.txt:1: the word is column -3"),
        ("a O\nb B\n", ColumnFormat(), r"a\.txt:2: tag 'B' of the word 'b' is neither O nor B-"),
        ("a o\n", ColumnFormat(), r"a\.txt:1: tag 'o'"),
        ("a X-PER\n", ColumnFormat(), r"a\.txt:1: tag 'X-PER'"),
        ("a B-\n", ColumnFormat(), r"a\.txt:1: tag 'B-'"),
        ("a\t\n", ColumnFormat(), r"a\.txt:1: the tag of the word 'a' is empty"),
        ("a\tX\nb\t\n", ColumnFormat(entities=False), r"a\.txt:2: the tag of the word 'b' is empty"),
        ("\tO\n", ColumnFormat(), r"a\.txt:1: the word \(column 0\) is empty"),
        ("a\n\nb\nc d e\n", ColumnFormat(tag=None), r"a\.txt:4: 3 columns where the first line has a word alone"),
        ("a O\r\nb O\rc O\n", ColumnFormat(), r"a\.txt:2: a carriage return within the line: end lines with \\n"),
        ("a\rb\rc\r", ColumnFormat(tag=None), r"a\.txt:1: a carriage return within the line"),
    ],
)
def test_bad_lines_are_named(tmp_path, text, columns, message):
    with pytest.raises(ValueError, match=message):
        read_columns(write(tmp_path, text), columns)


def test_a_no_break_space_is_part_of_its_word(tmp_path):
    path = write(tmp_path, " 10\u00a0km  O \nb\u3000c O\n")
    assert read_columns(path)[0].words == ("10\u00a0km", "b\u3000c")
    path = write(tmp_path, "10\u00a0km\nb\n")
    assert read_columns(path, format_of_file(path, ColumnFormat()))[0].words == ("10\u00a0km", "b")


def test_bad_files_and_settings(tmp_path):
    with pytest.raises(FileNotFoundError, match="no column file"):
        read_columns(tmp_path / "none")
    (tmp_path / "latin").write_bytes("Köln O\n".encode("latin-1"))
    with pytest.raises(ValueError, match="latin is not UTF-8 at byte 1"):
        read_columns(tmp_path / "latin")
    with pytest.raises(ValueError, match="documents='page' is not one of"):
        ColumnFormat(documents="page")
    with pytest.raises(ValueError, match="both column 1"):
        ColumnFormat(1, 1)


# File, format, sentences, words, entities. Of the train file the project's notes give 3,393 sentences; it has 3,394
# (as the paper of WNUT-17 says).
REAL = [
    ("ner/wnut17/wnut17train.conll", "wnut17", 3394, 62730, 1975),
    ("ner/wnut17/emerging.dev.conll", "wnut17", 1009, 15733, 835),
    ("ner/wnut17/emerging.test.annotated", "wnut17", 1287, 23394, 1079),
    ("ner/germeval2014/NER-de-dev.tsv", "germeval2014", 2200, 41653, None),
    ("ner/germeval2014/NER-de-test.tsv", "germeval2014", 5100, 96499, None),
]


@pytest.mark.parametrize(("name", "columns", "sentences", "words", "entities"), REAL)
def test_real_files(shared_data, name, columns, sentences, words, entities):
    found = read_columns(shared_data / name, FORMATS[columns])
    assert len(found) == sentences
    assert sum(len(s.words) for s in found) == words
    begun = sum(tag.startswith("B-") for s in found for tag in s.tags or ())
    rows = [line.split("\t") for line in (shared_data / name).read_text("utf-8").split("\n") if line[:1] != "#"]
    assert begun == (entities or sum(len(row) > 3 and row[2].startswith("B-") for row in rows))


def test_klue(shared_data):
    """The characters make the sentence of the header, in which entities are marked <so:PS>."""
    path = shared_data / "korean/klue_ner/klue-ner-v1.1_dev.tsv"
    found = read_columns(path, FORMATS["klue_ner"])
    lines = path.read_text(encoding="utf-8").split("\n")
    headers = [line for line in lines if line.startswith("## klue")]
    assert len(found) == len(headers) == 5000
    characters = [line for line in lines if "\t" in line and not line.startswith("##")]
    assert sum(len(s.words) for s in found) == sum(not line.startswith(" ") for line in characters) == 225_550
    begun = sum(tag.startswith("B-") for s in found for tag in s.tags or ())
    assert begun == sum("\tB-" in line for line in characters)
    same = 0
    for sentence, header in zip(found, headers, strict=True):
        text = "".join(" " * space + word for word, space in zip(sentence.words, sentence.spaces or (), strict=True))
        marked = re.sub(r"<([^<>]*):[A-Z]{2}>", r"\1", header.split("\t", 1)[1])
        same += text.split() == marked.split()
    assert same > 4950
