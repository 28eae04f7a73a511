"""Reads and writes TensorFlow's checkpoints (V2, "tensor bundle": ``PREFIX.index``, ``PREFIX.data-...``) without it.

The format, after TensorFlow's ``tensor_bundle.proto``, ``tensor_bundle.h`` and its variant of LevelDB's tables:

- A data file, or shard, holds the bytes of its tensors one after the other: little-endian, the last axis fastest.
- The index is a sorted table from a tensor's name to its ``BundleEntryProto``: dtype (1), shape (2), shard (3), offset
  (4), size in bytes (5), crc32c (6), slices (7). The empty name has the ``BundleHeaderProto``: number of shards (1),
  whether big-endian (2), version (3). Names that begin with a zero byte are slices of partitioned variables.
- A table is blocks and a footer of 48 bytes. The last block says where those with names lie, each under a key not
  below its names; the footer, where a block without use here and that last one lie, and a magic number.
- A block is entries (bytes shared with the key before, bytes of the key not shared, bytes of the value; these two), the
  positions of some keys that share nothing and their number as uint32, a byte for the compression, and a crc32c.
- Other integers are varints: 7 bits a byte, the lowest first. Every crc32c is masked: rotated, a number added.
"""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedWriter
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import google_crc32c
import ml_dtypes  # noqa: F401  (gives numpy its bfloat16)
import numpy as np

from bert_jax.data.writing import written

MAGIC, FOOTER, TRAILER = (0xDB4775248B80FB57).to_bytes(8, "little"), 48, 5
VERSION = 1  # of the bundle: what we write, and the newest that we read
BLOCK_NAMES, CHUNK = 64, 1 << 20
# TensorFlow's ``DataType``: what we read and write.
DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 8: "complex64", 9: "int64", 10: "bool",
    14: "bfloat16", 17: "uint16", 18: "complex128", 19: "float16", 22: "uint32", 23: "uint64",
}  # fmt: skip


class Entry(NamedTuple):
    """Where a tensor lies."""

    dtype: str  # numpy's name, or one that read_tensors refuses: "string", "DT_20"
    shape: tuple[int, ...]
    shard: int
    offset: int  # bytes
    size: int  # bytes
    crc32c: int  # masked, as stored
    sliced: bool  # a partitioned variable: its parts lie elsewhere


def read_entries(prefix: Path) -> dict[str, Entry]:
    """All tensors by name, sorted; of the files only ``PREFIX.index`` is read.

    Raises:
        FileNotFoundError: no index.
        ValueError: it is damaged, compressed, of a newer version or from a big-endian machine.
    """
    return _read_index(prefix)[1]


def read_tensors(prefix: Path, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """The tensors of these names (all of them by default), each checked by its crc32c.

    Raises:
        FileNotFoundError: no index, or a shard of it is missing.
        ValueError: as ``read_entries``; no such name; a tensor is damaged, or is strings or a partitioned variable.
    """
    num_shards, entries = _read_index(prefix)
    wanted = list(entries if names is None else names)
    if unknown := [name for name in wanted if name not in entries]:
        raise ValueError(f"{_index_path(prefix)}: no tensor {unknown[0]!r}: read_entries lists the {len(entries)}")
    paths = {name: _data_path(prefix, entries[name].shard, num_shards) for name in wanted}
    return {name: _read_tensor(path, name, entries[name]) for name, path in paths.items()}


def write_tensors(prefix: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes ``PREFIX.data-00000-of-00001`` and then ``PREFIX.index``, each whole or not at all.

    Raises:
        ValueError: a name that the format cannot hold, or a dtype that numpy and TensorFlow do not share.
    """
    codes = {dtype: code for code, dtype in DTYPES.items()}
    for name, tensor in tensors.items():
        if not name or name[0] == "\0":
            raise ValueError(f"{prefix}: a tensor is called {name!r}, which the format keeps for itself: rename it")
        if tensor.dtype.name not in codes:
            raise ValueError(f"{prefix}: {name!r} is {tensor.dtype}: convert it to one of {', '.join(codes)}")
    pairs = [(b"", _field(1, 1) + _field(3, _field(1, VERSION)))]
    # The data takes its place first: without its index it is nothing yet.
    with written(_index_path(prefix)) as index, written(_data_path(prefix, 0, 1)) as data:
        with open(data, "wb") as file:
            for name in sorted(tensors):  # so are their bytes in UTF-8
                pairs.append((name.encode(), _write_tensor(file, tensors[name], codes[tensors[name].dtype.name])))
        index.write_bytes(_table(pairs))


def _index_path(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def _data_path(prefix: Path, shard: int, num_shards: int) -> Path:
    return prefix.with_name(f"{prefix.name}.data-{shard:05d}-of-{num_shards:05d}")


def _read_index(prefix: Path) -> tuple[int, dict[str, Entry]]:
    """The number of shards, and the entries."""
    path = _index_path(prefix)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist: give a checkpoint's path without .index")
    try:
        pairs = _read_table(path.read_bytes())
        num_shards = _read_header(pairs.pop(b"", None))
        # A zero byte: a slice. Its variable is listed under its own name.
        entries = {key.decode(): _read_entry(value) for key, value in pairs.items() if key[0]}
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return num_shards, entries


def _read_table(data: bytes) -> dict[bytes, bytes]:
    if len(data) < FOOTER or not data.endswith(MAGIC):
        end = f"{len(data)} bytes that end in {data[-len(MAGIC) :].hex()!r}"
        raise ValueError(f"{end}, expected {FOOTER} or more and {MAGIC.hex()!r}: cut off or no index, copy it again")
    (_, _, *last), _ = _read_numbers(data, len(data) - FOOTER, 4)
    places = [_read_numbers(place, 0, 2)[0] for _, place in _read_block(data, *last)]
    pairs = [pair for place in places for pair in _read_block(data, *place)]
    for (before, _), (after, _) in pairwise(pairs):
        if before >= after:
            raise ValueError(f"the name {after!r} follows {before!r}, expected sorted names: copy it again")
    return dict(pairs)


def _read_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    end, limit, block = offset + size, len(data) - FOOTER - TRAILER, f"the block at byte {offset}"
    if end > limit:
        raise ValueError(f"{block} ends at {end}, expected at most {limit}: it is damaged, copy it again")
    found, expected = _crc32c(memoryview(data)[offset : end + 1]), int.from_bytes(data[end + 1 : end + 5], "little")
    if found != expected:
        raise ValueError(f"{block} has crc32c {found:#010x}, expected {expected:#010x}: it is damaged, copy it again")
    if data[end]:
        raise ValueError(f"{block} has compression {data[end]} (1: snappy), expected 0: save it with TensorFlow 2")
    end -= 4 + 4 * int.from_bytes(data[max(offset, end - 4) : end], "little")
    at, key = offset, b""
    while at != end:
        (shared, unshared, length), at = _read_numbers(data, at, 3)
        if shared > len(key) or at + unshared + length > end:
            raise ValueError(f"{block} has an entry that ends beyond {end}: it is damaged, copy it again")
        key = key[:shared] + data[at : at + unshared]
        at += unshared + length
        yield key, data[at - length : at]


def _read_numbers(data: bytes, at: int, count: int) -> tuple[list[int], int]:
    """``count`` varints, and where they end."""
    numbers = []
    for _ in range(count):
        part = data[at : at + 10]  # 64 bits
        length = next((i for i, byte in enumerate(part, 1) if byte < 0x80), None)
        if length is None:
            raise ValueError(f"no integer at byte {at}, expected 1 to 10 bytes: it is damaged, copy it again")
        numbers.append(sum((byte & 0x7F) << 7 * i for i, byte in enumerate(part[:length])))
        at += length
    return numbers, at


def _read_header(value: bytes | None) -> int:
    """The number of shards."""
    if value is None:
        raise ValueError("a table without a header, expected one under the empty name: give a checkpoint's index")
    integers, messages = _read_fields(value)
    if integers[2]:
        raise ValueError("from a big-endian machine, expected little-endian: save it again on a little-endian one")
    for version in messages[3]:
        if (least := _read_fields(version)[0][2]) > VERSION:
            raise ValueError(f"needs a reader of version {least}, this is {VERSION}: save it with an older TensorFlow")
    return integers[1]


def _read_entry(value: bytes) -> Entry:
    integers, messages = _read_fields(value)
    dims = [dim for shape in messages[2] for dim in _read_fields(shape)[1][2]]
    code = integers[1]
    return Entry(
        dtype="string" if code == 7 else DTYPES.get(code, f"DT_{code}"),
        shape=tuple(_read_fields(dim)[0][1] for dim in dims),
        shard=integers[3],
        offset=integers[4],
        size=integers[5],
        crc32c=integers[6],
        sliced=7 in messages,
    )


def _read_fields(message: bytes) -> tuple[Counter[int], defaultdict[int, list[bytes]]]:
    """A protocol buffer's integers (0 if absent) and messages, by field number."""
    integers, messages = Counter[int](), defaultdict[int, list[bytes]](list)
    at = 0
    while at < len(message):
        (tag,), at = _read_numbers(message, at, 1)
        field, kind, value = tag >> 3, tag & 7, 0
        if kind in (0, 2):
            (value,), at = _read_numbers(message, at, 1)
        length = {0: 0, 1: 8, 2: value, 5: 4}.get(kind, len(message))
        part = message[at : at + length]
        at += length
        if at > len(message):
            raise ValueError(f"a field of kind {kind} ends beyond its message: it is damaged, copy it again")
        if kind == 2:
            messages[field].append(part)
        else:
            integers[field] = int.from_bytes(part, "little") if part else value
    return integers, messages


def _read_tensor(path: Path, name: str, entry: Entry) -> np.ndarray:
    tensor = f"{path}: {name!r}"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist, but should hold {name!r}: copy it beside the index")
    if entry.sliced:
        raise ValueError(f"{tensor} is a partitioned variable, expected a whole one: save it unpartitioned")
    if entry.dtype not in DTYPES.values():
        raise ValueError(f"{tensor} is of dtype {entry.dtype}, expected numbers: read the others by their names")
    length, shape = path.stat().st_size, f"{entry.dtype} {entry.shape}"
    if (size := math.prod(entry.shape) * np.dtype(entry.dtype).itemsize) != entry.size:
        raise ValueError(f"{tensor} has {entry.size} bytes, expected {size} of {shape}: copy the index again")
    if (end := entry.offset + entry.size) > length:
        raise ValueError(f"{tensor} ends at byte {end}, but the file at {length}: it is cut off, copy it again")
    try:
        array = np.empty(entry.shape, entry.dtype)
    except (ValueError, OverflowError):  # (0, 2**62), or more axes than numpy has
        raise ValueError(f"{tensor} is {shape}, expected what numpy can hold: copy the index again") from None
    data = array.reshape(-1).view(np.uint8).data
    with open(path, "rb") as file:
        file.seek(entry.offset)
        file.readinto(data)
    if (crc := _crc32c(data)) != entry.crc32c:
        raise ValueError(f"{tensor} has crc32c {crc:#010x}, expected {entry.crc32c:#010x}: damaged, copy it again")
    return array


def _crc32c(data: memoryview) -> int:
    """Masked, since otherwise a crc of data with its own crc in it says little."""
    crc = 0
    for start in range(0, len(data), CHUNK):  # the library takes bytes alone: copies, but small ones
        crc = google_crc32c.extend(crc, data[start : start + CHUNK].tobytes())
    return (crc >> 15 | crc << 17) + 0xA282EAD8 & 0xFFFFFFFF


def _write_tensor(file: BufferedWriter, tensor: np.ndarray, code: int) -> bytes:
    """Its entry."""
    offset, shape = file.tell(), b"".join(_field(2, _field(1, size)) for size in tensor.shape)
    data = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("=")).reshape(-1).view(np.uint8).data
    file.write(data)
    crc = _numbers(6 << 3 | 5) + _crc32c(data).to_bytes(4, "little")
    return _field(1, code) + _field(2, shape) + _field(4, offset) + _field(5, len(data)) + crc


def _field(number: int, value: int | bytes) -> bytes:
    """Of a protocol buffer; 0 is the default and left out."""
    if isinstance(value, bytes):
        return _numbers(number << 3 | 2, len(value)) + value
    return _numbers(number << 3, value) if value else b""


def _numbers(*numbers: int) -> bytes:
    """Varints."""
    out = bytearray()
    for number in numbers:
        while number >= 0x80:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _table(pairs: list[tuple[bytes, bytes]]) -> bytes:
    table, places, footer = b"", [], b""
    for start in range(0, len(pairs), BLOCK_NAMES):
        part = pairs[start : start + BLOCK_NAMES]
        block = _block(part)
        places.append((part[-1][0], _numbers(len(table), len(block) - TRAILER)))
        table += block
    for block in (_block([]), _block(places)):
        footer += _numbers(len(table), len(block) - TRAILER)
        table += block
    return table + footer.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC


def _block(pairs: list[tuple[bytes, bytes]]) -> bytes:
    block, before = b"", b""
    for key, value in pairs:
        shared = len(os.path.commonprefix([before, key]))
        block += _numbers(shared, len(key) - shared, len(value)) + key[shared:] + value
        before = key
    block += bytes([0, 0, 0, 0, 1, 0, 0, 0, 0])  # the key at 0 is whole, and 1 is; not compressed
    return block + _crc32c(memoryview(block)).to_bytes(4, "little")
