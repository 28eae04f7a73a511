"""Tables of one's own: formats, quoting, and every kind of bad row, counted or named."""

import bz2
import csv
import gzip
import json

import pytest

from bert_jax.data.tables import (
    BLANK_LINE,
    EMPTY_TEXT,
    EXTRA_CELLS,
    FEW_CELLS,
    MALFORMED,
    REPAIRED,
    Columns,
    read_rows,
    read_table,
)
from bert_jax.data.text_files import Problems

PAIR = Columns("first", "second", "label", "id")
# Without the time, which would be in the test's name, and the two processes must collect the same tests.
GZIP = gzip.compress(b"text\nx\n" * 99, mtime=0)


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return path


def cells(examples):
    return [(e.text_a, e.text_b, e.label, e.row_id, e.line) for e in examples]


def test_tsv_quotes_are_literal(tmp_path):
    path = write(tmp_path / "a.tsv", 'id\tfirst\tlabel\tsecond\r\n7\t"So\ta\tit\u2028goes\n8\t""x"\tb\t"\n')
    problems = Problems()
    assert cells(read_table(path, PAIR, problems)) == [
        ('"So', "it\u2028goes", "a", "7", 2),
        ('""x"', '"', "b", "8", 3),
    ]
    assert problems.as_dict() == {}


def test_csv_is_quoted(tmp_path):
    path = write(tmp_path / "a.csv", 'id,first,label,second\n7,"one, ""two""\nthree",a,x\n\n8,y,b,z\n')
    assert cells(read_table(path, PAIR, Problems())) == [
        ('one, "two"\nthree', "x", "a", "7", 2),
        ("y", "z", "b", "8", 5),
    ]
    limit = csv.field_size_limit()
    long = write(tmp_path / "long.csv", f"text\n{'x' * 200_000}\n")
    assert len(read_table(long, Columns("text"), Problems())[0].text_a) == 200_000
    assert csv.field_size_limit() == limit


def test_json_lines(tmp_path):
    rows = [
        {"first": "a\tb", "second": "c", "label": 1, "id": 5},
        {"first": "d", "second": "e", "label": True, "id": "x"},
        {"first": "f", "second": "g", "label": 0.5, "id": None},
    ]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows[:2])) + "\n\n")
    assert cells(read_table(path, PAIR, Problems())) == [("a\tb", "c", "1", "5", 1), ("d", "e", "true", "x", 2)]
    path = write(tmp_path / "b.jsonl", json.dumps(rows[2]))
    with pytest.raises(ValueError, match=r"b.jsonl has no key 'id'; its objects have first, id, label, second"):
        read_table(path, PAIR, Problems())
    nested = write(tmp_path / "c.json", json.dumps([{"t": "x", "labels": {"real": 2.5}}], indent=1))
    (example,) = read_table(nested, Columns("t", label="labels.real"), Problems(), kind="regression")
    assert example.label == 2.5 and example.row_id == "0"


def test_without_header_by_position(tmp_path):
    path = write(tmp_path / "a.tsv", "x\t1\t\tfirst\ny\t0\t*\tsecond\n")
    read = read_table(path, Columns(3, label=1), Problems(), header=False)
    assert cells(read) == [("first", None, "1", "0", 1), ("second", None, "0", "1", 2)]
    with pytest.raises(ValueError, match=r"without header, so 'label' is no column"):
        read_table(path, Columns(3, label="label"), Problems(), header=False)


@pytest.mark.parametrize("compress", [(gzip.compress, ".gz"), (bz2.compress, ".bz2"), (bytes, "")])
def test_compression_and_byte_order_mark(tmp_path, compress):
    pack, suffix = compress
    path = write(tmp_path / f"a.tsv{suffix}", pack("\ufefftext\tlabel\n한글\t1\n".encode()))
    assert read_table(path, Columns("text", label="label"), Problems())[0].text_a == "한글"


def test_counted_not_lost(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\n\t1\n \t0\n\na\tb\tc\n")
    problems = Problems()
    assert [e.text_a for e in read_table(path, Columns("text", label="label"), problems)] == ["", " ", "a"]
    assert problems.as_dict() == {
        BLANK_LINE: {"count": 1, "first": f"{path}:4"},
        EMPTY_TEXT: {"count": 2, "first": f"{path}:2"},
        EXTRA_CELLS: {"count": 1, "first": f"{path}:5"},
    }


def test_missing_cells(tmp_path):
    path = write(tmp_path / "a.tsv", "id\tfirst\tsecond\tlabel\n1\ta\n2\tb\tc\t0\n")
    with pytest.raises(ValueError, match=r"a.tsv:2: the row has no 'second' and no 'label': complete it"):
        read_table(path, PAIR, Problems())
    problems = Problems()
    assert [e.row_id for e in read_table(path, PAIR, problems, missing="skip")] == ["2"]
    assert problems.as_dict() == {MALFORMED: {"count": 1, "first": f"{path}:2"}}
    problems = Problems()
    kept = read_table(path, Columns("first", "second", row_id="id"), problems, missing="keep")
    assert [(e.text_a, e.text_b) for e in kept] == [("a", ""), ("b", "c")]
    assert problems.counts == {REPAIRED: 1, EMPTY_TEXT: 1}
    problems = Problems()
    write(path, "first\tid\tlabel\na\n")
    assert [e.text_a for e in read_table(path, Columns("first"), problems, missing="skip")] == ["a"]
    assert problems.as_dict() == {FEW_CELLS: {"count": 1, "first": f"{path}:2"}}
    pair = write(tmp_path / "pair.jsonl", '{"text": "\\ud83d\\ude00"}')
    assert read_table(pair, Columns("text"), Problems())[0].text_a == "\U0001f600"
    with pytest.raises(ValueError, match=r"b.jsonl:2: the row has no 'label'"):
        lines = write(tmp_path / "b.jsonl", '{"text": "x", "label": "1"}\n{"text": "x"}\n')
        read_table(lines, Columns("text", label="label"), Problems())


@pytest.mark.parametrize(
    ("name", "text", "columns", "message"),
    [
        ("a.tsv", "text,label\nx,1\n", Columns("text"), r"no column 'text'; its first row is 'text,label': name one"),
        ("a.tsv", "text\ttext\nx\ty\n", Columns("text"), "has 2 columns 'text'"),
        ("a.tsv", "text\nx\n", Columns(3), "has 1 columns, none at position 3"),
        ("a.tsv", "text\tlabel\nx\t \n", Columns("text", label="label"), r"a.tsv:2: the cell of 'label' is empty"),
        ("a.tsv", "text\tlabel\n", Columns("text"), "has no rows below its header"),
        ("a.tsv", "", Columns("text"), "a.tsv is empty: give a file"),
        ("a.tsv", "text\tid\tlabel\nx\t1\n", Columns("text"), r"a.tsv:2: the row has 2 of 3 cells"),
        ("a.jsonl", '{"text": "x"}\n{"text": "\\ud83d"}\n', Columns("text"), r"a.jsonl:2 has \\ud83d, half of a char"),
        ("a.tsv.gz", b"text\n", Columns("text"), r"a.tsv.gz cannot be decompressed \(Not a gzipped"),
        ("a.tsv.gz", GZIP[:-12], Columns("text"), r"a.tsv.gz cannot be decompressed"),
        ("a.tsv.gz", GZIP[:10] + b"\xff" * 20, Columns("text"), r"cannot be decompressed"),
        ("a.tsv.bz2", bz2.compress(b"text\nx\n")[:-9], Columns("text"), r"a.tsv.bz2 cannot be decompressed"),
        ("a.tsv.bz2", b"text\n", Columns("text"), r"a.tsv.bz2 cannot be decompressed"),
        ("a.tsv", b"text\nok\n\xc7\xd1\n", Columns("text"), r"a.tsv:3: byte 0xc7 is not UTF-8.*iconv"),
        ("a.csv", 'text\n"a"b\n', Columns("text"), r"a.csv:2: .*double the quotes"),
        ("a.csv", 'text\n"open\n', Columns("text"), r"a.csv:2: .*double the quotes"),
        ("a.xls", "x", Columns("text"), "the format is not told by the name"),
        ("a.jsonl", '{"text": "x"}\n{"text"\n', Columns("text"), r"a.jsonl:2: not JSON"),
        ("a.jsonl", "[1]\n", Columns("text"), r"a.jsonl:1: no JSON object"),
        ("a.jsonl", '{"text": ["x"]}\n', Columns("text"), r"a.jsonl:1: 'text' is a list"),
        ("a.jsonl", '{"body": "x"}\n', Columns("text"), r"no key 'text'; its objects have body"),
        ("a.jsonl", "", Columns("text"), "has no rows"),
        ("a.json", '{"text": "x"}', Columns("text"), "no JSON array of objects"),
    ],
)
def test_errors_name_file_row_and_remedy(tmp_path, name, text, columns, message):
    path = write(tmp_path / name, text)
    with pytest.raises(ValueError, match=message) as error:
        read_table(path, columns, Problems())
    assert "\n" not in str(error.value)


def test_scores(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tscore\nx\t2.5\ny\t-1\n")
    columns = Columns("text", label="score")
    assert [e.label for e in read_table(path, columns, Problems(), kind="regression")] == [2.5, -1.0]
    assert [e.label for e in read_table(path, columns, Problems())] == ["2.5", "-1"]
    write(path, "text\tscore\nx\thigh\n")
    with pytest.raises(ValueError, match=r"a.tsv:2: 'high' is no score"):
        read_table(path, columns, Problems(), kind="regression")


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a.tsv does not exist"):
        read_table(tmp_path / "a.tsv", Columns("text"), Problems())


def test_rows_with_tabs_and_quotes(tmp_path):
    path = write(tmp_path / "a.tsv", 'a\tb\n"x\ty"\tz\n')
    assert list(read_rows(path, ["b", "a"], Problems(), table_format="quoted_tsv")) == [(2, ["z", "x\ty"])]
