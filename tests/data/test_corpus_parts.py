"""A part file gives back the units that were written, or says that it is damaged."""

import tempfile

import numpy as np
import pytest

from bert_jax.data.corpus_parts import read_part, write_part
from bert_jax.data.corpus_worker import UnitEncoder
from bert_jax.data.documents import Reading, read_units
from bert_jax.data.text_files import Problems
from bert_jax.data.wordpiece import WordPiece

WORDS = ["alpha", "beta", "gamma"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """(units, problems, formats, bytes) of a file that is damaged and holds a document of two units."""
    path = tmp_path_factory.mktemp("parts") / "ä.txt"
    path.write_bytes(b"alpha beta.\n\ngamma.\n\n" + b"beta \xff.\n" * 40 + b"\n\xe2\x80\x8b\n\nalpha.\n")
    encoder = UnitEncoder(
        WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "."], lowercase=True),
        Reading("lines", block_bytes=200),
        0.5,
    )
    problems, formats = Problems(), {}
    problems.add("reading", "somewhere:3", 2)
    units = list(map(encoder, read_units([str(path)], encoder.reading, problems, formats)))
    assert len(units) > 1 and any(unit.head.num_documents for unit in units)
    assert any(unit.problems.counts for unit in units)
    return str(path), units, problems, formats, write(str(path), units, problems, formats)


def write(*arguments):
    with tempfile.TemporaryFile() as stream:
        write_part(stream, *arguments)
        stream.seek(0)
        return stream.read()


def read(data, source, problems=None, formats=None):
    problems, formats = problems or Problems(), {} if formats is None else formats
    with tempfile.TemporaryFile() as stream:
        stream.write(data)
        stream.seek(0)
        return list(read_part(stream, "PART", source, problems, formats)), problems, formats


def flat(value):
    if isinstance(value, np.ndarray):
        return value.dtype, value.tolist()
    if isinstance(value, dict):
        return {key: flat(item) for key, item in value.items()}
    if hasattr(value, "__dict__"):
        return flat(vars(value))
    return value


def test_what_was_written_is_read(written):
    source, units, problems, formats, data = written
    found, found_problems, found_formats = read(data, source)
    assert [flat(unit) for unit in found] == [flat(unit) for unit in units]
    assert (flat(found_problems), found_formats) == (flat(problems), formats)


def test_formats_and_problems_add_up(written):
    source, _, _, _, data = written
    problems, formats = Problems(), {"jsonl": 2, "lines": 1}
    problems.add("reading", "before")
    read(data, source, problems, formats)
    assert formats == {"jsonl": 2, "lines": 2}
    assert problems.as_dict() == {"reading": {"count": 3, "first": "before"}}


def test_every_damage_is_seen(written):
    source, _, _, _, data = written
    for size in range(0, len(data), 41):
        with pytest.raises(ValueError, match="PART is damaged"):
            read(data[:size], source)
    for place in range(0, len(data), 29):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match="PART is damaged"):
            read(bytes(damaged), source)
    for other in (data + b"\0", data + data):
        with pytest.raises(ValueError, match="PART is damaged"):
            read(other, source)


def test_a_missing_unit_and_another_input_are_seen(written):
    source, units, _, _, data = written
    with pytest.raises(ValueError, match=r"PART is damaged .* of .*ä\.txt, not as \d+ of other"):
        read(data, "other")
    size = len(write(source, units[:1], Problems(), {})) - len(write(source, [], Problems(), {}))
    with pytest.raises(ValueError, match=f"PART is damaged .it ends as {len(units)} units"):
        read(data[size:], source)
