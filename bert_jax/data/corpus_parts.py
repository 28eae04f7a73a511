"""The encoded units of one input as a file: how another machine hands them to the process that appends them.

A part is a row of records, each 4 bytes of length, 4 bytes of CRC-32 (both little-endian) and so many bytes of
npz (`numpy.load` reads them). A record holds one unit; the last one says which input it was, how many units it
gave and what reading it met, so that a part that was cut off or belongs to another input is known as such.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Any, BinaryIO

import numpy as np

from bert_jax.data.corpus import SPLITS
from bert_jax.data.corpus_worker import Arrays, EncodedUnit
from bert_jax.data.text_files import Problems

_HEADER = struct.Struct("<II")
_HASHES = ("document_hashes", "sentence_hashes")
_STRUCTURED = ("head", "splits", "problems", *_HASHES)
_FACTS = [field.name for field in fields(EncodedUnit) if field.name not in _STRUCTURED]


def write_part(
    stream: BinaryIO, source: str, units: Iterable[EncodedUnit], problems: Problems, formats: dict[str, int]
) -> None:
    """Write the units of the input `source` as they come; then `problems` and `formats`, complete by that time."""
    count = 0
    for unit in units:
        _write(stream, *_pack(unit))
        count += 1
    _write(stream, {"source": source, "units": count, "problems": problems.as_dict(), "formats": formats}, {})


def read_part(
    stream: BinaryIO, place: str, source: str, problems: Problems, formats: dict[str, int]
) -> Iterator[EncodedUnit]:
    """The units of a part of the input `source`, one in memory at a time; at its end adds to the other two.

    `place` is the part's name in messages. ValueError where the part is damaged or of another input.
    """
    count = 0
    while "source" not in (record := _read(stream, place))[0]:
        yield _unpack(*record)
        count += 1
    end = record[0]
    if (end["source"], end["units"]) != (source, count) or stream.read(1):
        raise _damage(place, f"it ends as {end['units']} units of {end['source']}, not as {count} of {source}")
    problems.merge(_problems(end["problems"]))
    for kind, number in end["formats"].items():
        formats[kind] = formats.get(kind, 0) + number


def _pack(unit: EncodedUnit) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    arrays = {name: getattr(unit, name) for name in _HASHES}
    for place, documents in {"head": unit.head, **unit.splits}.items():
        arrays |= {f"{place}.{field.name}": getattr(documents, field.name) for field in fields(Arrays)}
    facts = {name: getattr(unit, name) for name in _FACTS}
    return facts | {"problems": unit.problems.as_dict()}, arrays


def _unpack(facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> EncodedUnit:
    head, *splits = (
        Arrays(**{field.name: arrays[f"{place}.{field.name}"] for field in fields(Arrays)})
        for place in ("head", *SPLITS)
    )
    return EncodedUnit(
        head=head,
        splits=dict(zip(SPLITS, splits, strict=True)),
        problems=_problems(facts.pop("problems")),
        **{name: arrays[name] for name in _HASHES},
        **facts,
    )


def _problems(known: dict[str, dict[str, Any]]) -> Problems:
    """What `Problems.as_dict` told."""
    problems = Problems()
    for reason, problem in known.items():
        problems.add(reason, problem["first"], problem["count"])
    return problems


def _write(stream: BinaryIO, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, facts=np.frombuffer(json.dumps(facts).encode(), np.uint8), **arrays)
    data = buffer.getbuffer()
    stream.write(_HEADER.pack(len(data), zlib.crc32(data)))
    stream.write(data)


def _read(stream: BinaryIO, place: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise _damage(place, "it was cut off")
    length, checksum = _HEADER.unpack(header)
    data = stream.read(length)
    if len(data) < length:
        raise _damage(place, "it was cut off")
    if zlib.crc32(data) != checksum:
        raise _damage(place, "a checksum is wrong")
    with np.load(io.BytesIO(data), allow_pickle=False) as record:
        arrays = dict(record)
    return json.loads(arrays.pop("facts").tobytes()), arrays


def _damage(place: str, reason: str) -> ValueError:
    return ValueError(f"{place} is damaged ({reason}); check the disk it is on and build again")
