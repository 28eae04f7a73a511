"""Files of every compression, size and state of repair -> blocks that end where documents end."""

import bz2
import gzip
import lzma
import random

import pytest
import zstandard

from bert_jax.data import text_files
from bert_jax.data.text_files import Problems, detect_format, read_blocks

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def blocks_of(path, *, file_format="lines", split_documents=False, block_bytes=1 << 20):
    problems = Problems()
    return list(read_blocks(path, file_format, split_documents, block_bytes, problems)), problems


def lines_file(documents=2_000, seed=0):
    rng = random.Random(seed)
    return b"".join(
        b"".join(b"word " * rng.randint(1, 9) + b"end.\n" for _ in range(rng.randint(1, 9))) + b"\n"
        for _ in range(documents)
    )


@pytest.mark.parametrize("suffix", COMPRESS)
def test_blocks_are_the_file_cut_at_documents(tmp_path, suffix):
    data = lines_file()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](data))
    blocks, problems = blocks_of(path, block_bytes=20_000)
    assert b"".join(block.data for block in blocks) == data
    assert len(blocks) > 10 and not problems.counts
    assert all(len(b.data) <= 20_000 and b.data.endswith(b"\n\n") and not b.continues for b in blocks)
    assert sum(block.file_bytes for block in blocks) == path.stat().st_size
    line = 1
    for block in blocks:
        assert block.first_line == line
        line += block.data.count(b"\n")


def test_several_frames_in_one_file(tmp_path):
    for suffix, compress in COMPRESS.items():
        path = tmp_path / f"a.txt{suffix}"
        path.write_bytes(compress(b"one.\n") + compress(b"two.\n"))
        assert blocks_of(path)[0][0].data == b"one.\ntwo.\n"


def test_the_contents_tell_the_compression(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(gzip.compress(b"one.\n"))
    assert blocks_of(path)[0][0].data == b"one.\n"


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_broken_file_gives_what_comes_before_the_damage(tmp_path, suffix):
    rng = random.Random(0)
    data = b"".join(b"%x.\n" % rng.getrandbits(256) for _ in range(30_000))  # compresses badly: many pieces
    packed = COMPRESS[suffix](data)
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(packed[: len(packed) // 2])
    blocks, problems = blocks_of(path)
    read = b"".join(block.data for block in blocks)
    assert data.startswith(read) and len(read) > len(data) / 5
    assert problems.counts == {"damaged file, rest skipped": 1}
    assert problems.first["damaged file, rest skipped"].startswith(f"{path}:{read.count(10) + 1} (")


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_name_that_lies_is_reported(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(b"plain text.\n")
    blocks, problems = blocks_of(path)
    assert not blocks and "damaged file, rest skipped" in problems.counts


@pytest.mark.parametrize("data", [b"", b"\n \n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("suffix", COMPRESS)
def test_an_empty_file_is_reported(tmp_path, data, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESS[suffix](data) if data else b"")
    blocks, problems = blocks_of(path)
    assert not blocks and problems.as_dict() == {"empty file": {"count": 1, "first": str(path)}}


def test_utf16_is_reported_and_a_byte_order_mark_dropped(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("text.".encode("utf-16"))
    blocks, problems = blocks_of(path)
    assert not blocks and list(problems.counts) == ["file in UTF-16 (convert it to UTF-8)"]
    path.write_bytes(b"\xef\xbb\xbftext.\n")
    assert blocks_of(path)[0][0].data == b"text.\n"


def test_a_file_that_cannot_be_opened_is_reported(tmp_path):
    assert list(blocks_of(tmp_path / "gone.txt")[1].counts) == ["unreadable file"]


def test_a_document_longer_than_a_block_comes_in_several(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"short.\n\n" + b"long one.\n" * 1_000 + b"\nlast.\n")
    blocks, _ = blocks_of(path, block_bytes=3_000)
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert [block.continues for block in blocks] == [False, False, True, True, True]
    assert blocks[0].data == b"short.\n\n" and all(b.data.endswith(b"one.\n") for b in blocks[1:4])


def test_a_text_file_is_one_document_cut_between_paragraphs(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one line\nof text.\n\n" * 1_000)
    whole, _ = blocks_of(path, file_format="text", block_bytes=1_000)
    assert [block.continues for block in whole] == [False] + [True] * (len(whole) - 1)
    assert all(block.data.endswith(b"\n\n") for block in whole)
    split, _ = blocks_of(path, file_format="text", split_documents=True, block_bytes=1_000)
    assert not any(block.continues for block in split)


def test_a_long_line_is_read_whole_within_the_limit(tmp_path):
    path = tmp_path / "a.txt"
    line = b"word " * 200_000 + b"end.\n"
    path.write_bytes(b"one.\n\n" + line + b"\nlast.\n")
    blocks, problems = blocks_of(path, block_bytes=10_000)
    assert line in [block.data for block in blocks] and not problems.counts
    assert b"".join(block.data for block in blocks) == path.read_bytes()


@pytest.mark.parametrize("character", [b"word ", "글자".encode()])
def test_a_longer_line_is_cut_and_counted(tmp_path, monkeypatch, character):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 3 << 20)
    path = tmp_path / "a.txt"
    path.write_bytes(b"one.\n" + character * 1_500_000 + b"\nlast.\n")
    blocks, problems = blocks_of(path, block_bytes=10_000)
    assert b"".join(block.data for block in blocks) == path.read_bytes()
    assert max(len(block.data) for block in blocks) <= 3 << 20
    for block in blocks:
        block.data.decode("utf-8")
    assert problems.first == {"line longer than 3 MB, cut": f"{path}:2"}


def test_a_json_line_too_long_is_skipped_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 3 << 20)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\n' + b"x" * (9 << 20) + b'\n{"b": 2}\n' + b"y" * (9 << 20))
    blocks, problems = blocks_of(path, file_format="jsonl", block_bytes=10_000)
    assert b"".join(block.data for block in blocks) == b'{"a": 1}\n{"b": 2}\n'
    assert problems.as_dict() == {"JSON line longer than 3 MB": {"count": 2, "first": f"{path}:2"}}
    assert blocks[-1].first_line == 3


WRAPPED = """It was a fine day in the village, and the people who lived there had
nothing better to do than to walk up and down the only street that it
had, looking at each other and at the sky.

Then a stranger came, whom nobody had ever seen before, and asked for
the way to the sea, which nobody knew, as it was very far away.
"""


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("", "a.jsonl", "jsonl"),
        ("", "a.NDJSON", "jsonl"),
        ('\n{"text": "One."}\n', "a.txt", "jsonl"),
        ("{ no json. At all. Here.\n", "a.txt", "text"),
        ("One sentence.\nAnother one here!\n\nA new document?\n", "a.txt", "lines"),
        ("w1 w2 w3 w4\nw5\n\nw6 w7 w8 w9 w10 w11\nw12 w13\n", "a.txt", "lines"),
        ("한국어는 어렵다.\n그러나 재미있다!\n\n정말?\n", "a.txt", "lines"),
        (WRAPPED, "a.txt", "text"),
        ("One paragraph. It has three sentences. On a line.\nThe next one. It has two.\n", "a.txt", "text"),
        ("A poem's line,\nand one more, and\none more still;\nand here it ends.\n", "a.txt", "text"),
    ],
)
def test_formats_are_detected(text, name, expected):
    assert detect_format(text.encode(), name) == expected


def test_the_compression_suffix_does_not_hide_the_format(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"no json\n"))
    assert blocks_of(path, file_format=None)[0][0].format == "jsonl"


def test_formats_of_real_files(shared_data):
    corpora = shared_data / "corpora"
    for name, expected in (
        ("gutenberg/austen-emma.txt", "lines"),  # one tokenised sentence a line
        ("wikitext-2/test.raw.txt", "text"),
    ):
        assert detect_format((corpora / name).read_bytes()[: 1 << 16], name) == expected
