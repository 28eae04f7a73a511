"""TensorFlow's checkpoints: read and written as TensorFlow does; whatever is damaged is refused in one line."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from bert_jax.interop import google, tensor_bundle
from bert_jax.interop.tensor_bundle import DTYPES, Entry, read_entries, read_tensors, write_tensors
from bert_jax.training.source import open_source
from tests.interop.models import CONFIG, HEADS, TOKENIZER, random_params

# What TensorFlow 2.21's SaveV2 writes for {"w": float32 [1.5, -2]}, taken apart.
HEADER = "00 00 06 08 01 1a 02 08 01"  # key "", one shard, version {producer: 1}
TINY_ENTRY = "00 01 0f 77 08 01 12 04 12 02 08 02 28 08 35 3d 33 c8 f4"  # key "w", float32, [2], 8 bytes, crc32c
END = "00 00 00 00 01 00 00 00 00"  # one whole key, at 0; not compressed
FOOTER = "29 08 36 0e" + " 00" * 36 + "57 fb 80 8b 24 75 47 db"  # blocks of 8 bytes at 41, of 14 at 54
THEIR_LAST = "00 01 02 78 00 24"  # key "x", the shortest above "w": block of 36 bytes at 0
OUR_LAST = "00 01 02 77 00 24"  # key "w"
EMPTY_BLOCK = f"{END} c0 f2 a1 b0"
THEIRS = bytes.fromhex(f"{HEADER} {TINY_ENTRY} {END} 1d 0b 04 17 {EMPTY_BLOCK} {THEIR_LAST} {END} ab 30 70 7f {FOOTER}")
OURS = bytes.fromhex(f"{HEADER} {TINY_ENTRY} {END} 1d 0b 04 17 {EMPTY_BLOCK} {OUR_LAST} {END} 94 60 b2 cd {FOOTER}")
DATA = bytes.fromhex("00 00 c0 3f 00 00 00 c0")
TINY = Entry("float32", (2,), 0, 0, 8, 0xF4C8333D, False)


def save(prefix: Path, index: bytes, data: bytes = DATA) -> Path:
    prefix.with_name(f"{prefix.name}.index").write_bytes(index)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)
    return prefix


def entry(shape: bytes = b"\x12\x02\x08\x02", dtype: int = 1, more: bytes = b"", size: int = 8) -> bytes:
    """The entry of "w", or of something like it."""
    message = b"\x08" + bytes([dtype]) + tensor_bundle._field(2, shape) + tensor_bundle._field(5, size)
    return message + bytes.fromhex("35 3d 33 c8 f4") + more


def table(*pairs: tuple[bytes, bytes], header: bytes = b"\x08\x01") -> bytes:
    return tensor_bundle._table([(b"", header), *pairs])


def same(ours: dict[str, np.ndarray], theirs: dict[str, Any]) -> None:
    """To the bit, NaNs too."""
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        value = np.asarray(value)
        assert (ours[name].dtype, ours[name].shape) == (value.dtype, value.shape), name
        assert ours[name].tobytes() == value.tobytes(), name


def various() -> dict[str, np.ndarray]:
    """Every dtype, with every byte; scalars, empty tensors, many axes and names."""
    rng = np.random.default_rng(0)
    tensors = {f"type/{name}": rng.integers(0, 2, (3, 5)).astype(name) for name in DTYPES.values()}
    for name in ("float32", "bfloat16", "float16", "int64", "uint8"):
        raw = rng.integers(0, 256, 8 * 64, dtype=np.uint8)
        tensors[f"bits/{name}"] = raw.view(name).reshape(2, -1)
    return tensors | {
        "global_step": np.asarray(2**40, np.int64),
        "scalar/half": np.asarray(1.5, ml_dtypes.bfloat16),
        "empty": np.zeros((0,), np.float32),
        "empty/rows": np.zeros((3, 0, 4), np.int32),
        "axes": np.arange(24, dtype=np.float32).reshape(1, 2, 1, 3, 4, 1),
        "층/가중치": np.ones(3, np.float64),
        "large": rng.standard_normal(700_000).astype(np.float32),  # more than a chunk
    }


def test_the_bytes_of_tensorflow_are_read(tmp_path: Path) -> None:
    prefix = save(tmp_path / "model.ckpt-1", THEIRS)
    assert read_entries(prefix) == {"w": TINY}
    same(read_tensors(prefix), {"w": np.asarray([1.5, -2], np.float32)})


def test_the_bytes_written_are_tensorflows_but_for_one_separator(tmp_path: Path) -> None:
    write_tensors(tmp_path / "tiny", {"w": np.asarray([1.5, -2], np.float32)})
    assert (tmp_path / "tiny.index").read_bytes() == OURS
    assert (tmp_path / "tiny.data-00000-of-00001").read_bytes() == DATA


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tensors = various()
    write_tensors(tmp_path / "new" / "folder", dict(reversed(tensors.items())))
    read = read_tensors(tmp_path / "new" / "folder")
    assert list(read) == sorted(tensors)
    same(read, tensors)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["folder.data-00000-of-00001", "folder.index"]


def test_other_layouts_of_memory_are_written_as_they_read(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    write_tensors(tmp_path / "a", {"big": values.astype(">i4"), "turned": values.T, "part": values[:, ::2]})
    same(read_tensors(tmp_path / "a"), {"big": values, "turned": values.T.copy(), "part": values[:, ::2].copy()})


def test_a_big_index_has_several_blocks(tmp_path: Path) -> None:
    names = [f"bert/encoder/layer_{i}/{'x' * (i % 130)}/kernel" for i in range(700)]
    tensors = {name: np.asarray([i], np.int32) for i, name in enumerate(names)}
    write_tensors(tmp_path / "a", tensors)
    index = (tmp_path / "a.index").read_bytes()
    (_, _, *last), _ = tensor_bundle._read_numbers(index, len(index) - 48, 4)
    assert len(list(tensor_bundle._read_block(index, *last))) == 11  # of 64 names, the header's too
    assert list(read_entries(tmp_path / "a")) == sorted(names)
    same(read_tensors(tmp_path / "a"), tensors)


def test_no_tensors(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", {})
    assert read_entries(tmp_path / "a") == read_tensors(tmp_path / "a") == {}


def test_only_the_tensors_asked_for_are_read(tmp_path: Path) -> None:
    tensors = various()
    write_tensors(tmp_path / "a", tensors)
    read = read_tensors(tmp_path / "a", (name for name in ("large", "axes")))
    assert list(read) == ["large", "axes"]
    data = tmp_path / "a.data-00000-of-00001"
    data.write_bytes(b"\xff" + data.read_bytes()[1:])  # of "axes"
    same(read_tensors(tmp_path / "a", ["global_step"]), {"global_step": tensors["global_step"]})
    with pytest.raises(ValueError, match=r"a\.index: no tensor 'b': read_entries lists the 27"):
        read_tensors(tmp_path / "a", ["axes", "b"])


def test_shards(tmp_path: Path) -> None:
    index = table((b"v", entry(more=b"\x18\x01\x20\x02")), (b"w", entry()), header=b"\x08\x02")
    (tmp_path / "a.index").write_bytes(index)
    (tmp_path / "a.data-00000-of-00002").write_bytes(DATA)
    with pytest.raises(FileNotFoundError, match=r"a\.data-00001-of-00002 does not exist, .* 'v': copy it beside"):
        read_tensors(tmp_path / "a")
    same(read_tensors(tmp_path / "a", ["w"]), {"w": np.asarray([1.5, -2], np.float32)})
    (tmp_path / "a.data-00001-of-00002").write_bytes(b"..." + DATA)
    with pytest.raises(ValueError, match=r"00001-of-00002: 'v' has crc32c 0x\w{8}, expected 0xf4c8333d: .* copy"):
        read_tensors(tmp_path / "a")
    (tmp_path / "a.data-00001-of-00002").write_bytes(b".." + DATA)
    same(read_tensors(tmp_path / "a", ["v"]), {"v": np.asarray([1.5, -2], np.float32)})


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"": np.zeros(1)}, "called ''.* rename"),
        ({"\0a": np.zeros(1)}, r"called '\\x00a'.* rename"),
        ({"a": np.asarray(["text"])}, "'a' is <U4: convert it to one of float32, "),
        ({"a": np.asarray([{}])}, "'a' is object: convert"),
        ({"a": np.zeros(1), "\ud800": np.zeros(1)}, "surrogates"),
    ],
)
def test_what_cannot_be_written_leaves_what_there_is(
    tensors: dict[str, np.ndarray], message: str, tmp_path: Path
) -> None:
    prefix = save(tmp_path / "a", THEIRS)
    with pytest.raises(ValueError, match=message):
        write_tensors(prefix, tensors)
    same(read_tensors(prefix), {"w": np.asarray([1.5, -2], np.float32)})
    assert len(list(tmp_path.iterdir())) == 2
    write_tensors(prefix, {"b": np.zeros(1)})
    same(read_tensors(prefix), {"b": np.zeros(1)})


def with_compression(method: int) -> bytes:
    """The first block's, with a crc32c that is right."""
    block = THEIRS[:36] + bytes([method])
    return block + tensor_bundle._crc32c(memoryview(block)).to_bytes(4, "little") + THEIRS[41:]


INDEX_ERRORS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "0 bytes that end in '', expected 48 or more and '57fb808b247547db': cut off .* copy it again"),
    "cut off": (THEIRS[:-1], "120 bytes that end in '0057fb808b247547', expected .* copy it again"),
    "beginning lost": (THEIRS[-47:], "47 bytes that end in '57fb808b247547db', expected 48 or more .* copy it again"),
    "middle lost": (THEIRS[:20] + THEIRS[-60:], "block at byte 54 ends at 68, expected at most 27: .* copy it again"),
    "other magic": (THEIRS[:-8] + b"SQLite 3", "expected 48 or more and '57fb808b247547db': cut off or no index"),
    "block": (b"\1" + THEIRS[1:], "block at byte 0 has crc32c 0x.*, expected 0x17040b1d: it is damaged, copy it again"),
    "last block": (
        THEIRS[:58] + b"\1" + THEIRS[59:],
        "block at byte 54 has crc32c 0x.*, expected 0x7f7030ab: .* copy it again",
    ),
    "snappy": (with_compression(1), r"byte 0 has compression 1 \(1: snappy\), expected 0: save it with Tensor"),
    "unknown compression": (with_compression(7), "byte 0 has compression 7 .* save it with TensorFlow 2"),
    "no header": (tensor_bundle._table([(b"w", entry())]), "without a header, expected one under the empty name: give"),
    "big-endian": (
        table(header=b"\x08\x01\x10\x01"),
        "from a big-endian machine, expected little-endian: save it again",
    ),
    "newer": (
        table(header=b"\x08\x01\x1a\x02\x10\x02"),
        "needs a reader of version 2, this is 1: save it with an older",
    ),
    "order": (
        table((b"w", entry()), (b"v", entry())),
        "the name b'v' follows b'w', expected sorted names: copy it again",
    ),
    "twice": (
        table((b"w", entry()), (b"w", entry())),
        "the name b'w' follows b'w', expected sorted names: copy it again",
    ),
    "entry cut off": (table((b"w", entry()[:-1])), "a field of kind 5 ends beyond its message: .* copy it again"),
    "endless integer": (table((b"w", b"\x80" * 11)), "no integer at byte 0, expected 1 to 10 bytes: .* copy it again"),
    "wire type": (table((b"w", b"\x0b")), "a field of kind 3 ends beyond its message: .* copy it again"),
}


@pytest.mark.parametrize("case", INDEX_ERRORS)
def test_a_bad_index_is_told_in_a_line(case: str, tmp_path: Path) -> None:
    index, message = INDEX_ERRORS[case]
    prefix = save(tmp_path / "model.ckpt", index)
    for read in (read_entries, read_tensors):
        with pytest.raises(ValueError, match=rf"^\S*model\.ckpt\.index: .*{message}") as error:
            read(prefix)
        assert "\n" not in str(error.value)


HUGE = b"\xff" * 8 + b"\x7f"  # 2**63 - 1
TENSOR_ERRORS: dict[str, tuple[bytes, str]] = {
    "strings": (entry(dtype=7), "is of dtype string, expected numbers: read the others by their names"),
    "resource": (entry(dtype=20), "is of dtype DT_20, expected numbers"),
    "no dtype": (entry(dtype=0), "is of dtype DT_0, expected numbers"),
    "partitioned": (entry(more=b"\x3a\x00"), "is a partitioned variable, expected a whole one: save it unpartitioned"),
    "shape": (entry(b"\x12\x02\x08\x03"), r"has 8 bytes, expected 12 of float32 \(3,\): copy the index again"),
    "dtype": (entry(dtype=2), r"has 8 bytes, expected 16 of float64 \(2,\): copy the index again"),
    "size": (entry(size=2**60), "has 1152921504606846976 bytes, expected 8 of float32 .* copy the index again"),
    "huge": (
        entry(b"\x12\x02\x08\x08", 4, b"\x20" + HUGE),
        "ends at byte 9223372036854775815, but the file at 8: .* copy",
    ),
    "huge shape": (
        entry(b"\x12\x0a\x08" + HUGE, 4, size=2**63 - 1),
        r"ends at byte 9223372036854775807, but the file at 8",
    ),
    "empty and huge": (
        entry(b"\x12\x0a\x08" + HUGE + b"\x12\x00", size=0),
        "expected what numpy can hold: copy the index",
    ),
    "negative": (
        entry(b"\x12\x0b\x08" + b"\xff" * 9 + b"\1" + b"\x12\x00", size=0),
        "expected what numpy can hold: copy",
    ),
    "axes": (
        entry(b"\x12\x02\x08\x01" * 99 + b"\x12\x02\x08\x02"),
        "expected what numpy can hold: copy the index again",
    ),
    "no crc": (b"\x08\x01" + entry()[2:-5], "has crc32c 0xf4c8333d, expected 0x00000000: damaged, copy it again"),
}


@pytest.mark.parametrize("case", TENSOR_ERRORS)
def test_a_tensor_that_cannot_be_read_is_listed_and_told_in_a_line(case: str, tmp_path: Path) -> None:
    value, message = TENSOR_ERRORS[case]
    prefix = save(tmp_path / "a", table((b"v", value), (b"w", entry())))
    assert list(read_entries(prefix)) == ["v", "w"]
    with pytest.raises(ValueError, match=rf"^\S*a\.data-00000-of-00001: 'v' .*{message}") as error:
        read_tensors(prefix)
    assert "\n" not in str(error.value)
    same(read_tensors(prefix, ["w"]), {"w": np.asarray([1.5, -2], np.float32)})


def test_slices_are_not_listed(tmp_path: Path) -> None:
    prefix = save(tmp_path / "a", table((b"\0w\0\1\1", entry()), (b"w", entry(more=b"\x3a\x00"))))
    assert {name: found.sliced for name, found in read_entries(prefix).items()} == {"w": True}


def test_damaged_data_is_told(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"of-00001: 'w' ends at byte 8, but the file at 7: it is cut off, copy it"):
        read_tensors(save(tmp_path / "a", THEIRS, DATA[:-1]))
    for flipped in flips(DATA):
        with pytest.raises(ValueError, match=r"'w' has crc32c 0x\w{8}, expected 0xf4c8333d: damaged, copy it again"):
            read_tensors(save(tmp_path / "a", THEIRS, flipped))
    (tmp_path / "a.data-00000-of-00001").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.data-00000-of-00001 does not exist, but should hold 'w': copy it"):
        read_tensors(tmp_path / "a")
    with pytest.raises(FileNotFoundError, match=r"b\.index does not exist: give a checkpoint's path without \.index"):
        read_entries(tmp_path / "b")


def flips(data: bytes) -> Iterator[bytes]:
    """Each bit, and each byte wholly."""
    for at in range(len(data)):
        for mask in (1, 2, 4, 8, 16, 32, 64, 128, 255):
            yield data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_a_flipped_bit_or_cut_is_refused_or_does_not_matter(tmp_path: Path) -> None:
    refused = 0
    cuts = [THEIRS[:at] + THEIRS[at + 1 :] for at in range(len(THEIRS))] + [THEIRS[:at] for at in range(len(THEIRS))]
    for index in [*flips(THEIRS), *cuts]:
        (tmp_path / "a.index").write_bytes(index)
        try:
            entries = read_entries(tmp_path / "a")
        except ValueError:
            refused += 1
        else:
            assert entries == {"w": TINY}
    assert refused > 0.6 * 11 * len(THEIRS)  # what may change: the empty block, where it lies, the zeros


def test_a_wrong_index_with_right_checksums_is_refused_or_read(tmp_path: Path) -> None:
    """As a faulty program would write it: no other error, and no memory taken for what is not there."""
    prefix, read = save(tmp_path / "a", THEIRS), 0
    for block in flips(THEIRS[:36]):
        checked = block + b"\0"
        checked += tensor_bundle._crc32c(memoryview(checked)).to_bytes(4, "little")
        (tmp_path / "a.index").write_bytes(checked + THEIRS[41:])
        try:
            read += len(read_tensors(prefix))
        except (ValueError, FileNotFoundError) as error:
            assert str(tmp_path) in str(error) and "\n" not in str(error)
    assert read  # under another name, say


@pytest.fixture(scope="module")
def tf() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("tensorflow", reason="the checkpoints are to be TensorFlow's: it must be installed")


def save_v2(tf: Any, prefix: Path, tensors: dict[str, Any], slices: dict[str, str] | None = None) -> None:
    tf.raw_ops.SaveV2(
        prefix=str(prefix),
        tensor_names=list(tensors),
        shape_and_slices=[(slices or {}).get(name, "") for name in tensors],
        tensors=[tf.constant(value) for value in tensors.values()],
    )


def test_tensorflows_files_are_read(tf: Any, tmp_path: Path) -> None:
    tensors = various() | {f"layer_{i}/{'x' * 99}/kernel": np.full((2, i % 5), i, np.float32) for i in range(3000)}
    save_v2(tf, tmp_path / "a", tensors)
    index = (tmp_path / "a.index").read_bytes()
    (_, _, *last), _ = tensor_bundle._read_numbers(index, len(index) - 48, 4)
    assert len(list(tensor_bundle._read_block(index, *last))) > 1
    same(read_tensors(tmp_path / "a"), tensors)
    assert list(read_entries(tmp_path / "a")) == sorted(tensors)


def test_tensorflow_reads_our_files(tf: Any, tmp_path: Path) -> None:
    tensors = various() | {f"layer_{i}/kernel": np.full((2, i % 5), i, np.float32) for i in range(1000)}
    write_tensors(tmp_path / "a", tensors)
    theirs = tf.train.load_checkpoint(str(tmp_path / "a"))
    assert theirs.get_variable_to_shape_map() == {name: list(value.shape) for name, value in tensors.items()}
    same({name: np.asarray(theirs.get_tensor(name)) for name in tensors}, tensors)


def test_our_data_and_entries_are_tensorflows(tf: Any, tmp_path: Path) -> None:
    tensors = dict(sorted(various().items()))
    save_v2(tf, tmp_path / "theirs", tensors)
    write_tensors(tmp_path / "ours", tensors)
    theirs, ours = ((tmp_path / f"{name}.data-00000-of-00001").read_bytes() for name in ("theirs", "ours"))
    assert ours == theirs
    theirs, ours = (tensor_bundle._read_table((tmp_path / f"{name}.index").read_bytes()) for name in ("theirs", "ours"))
    assert ours == theirs


def test_savers_of_version_1_are_read_and_restored_from_ours(tf: Any, tmp_path: Path) -> None:
    v1, values = tf.compat.v1, {"bert/kernel": np.eye(3, dtype=np.float32), "global_step": np.asarray(7, np.int64)}
    with v1.Graph().as_default(), v1.Session() as session:
        variables = {name: v1.get_variable(name, initializer=value) for name, value in values.items()}
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(sharded=True)
        saver.save(session, str(tmp_path / "model.ckpt"), global_step=7)
        same(read_tensors(tmp_path / "model.ckpt-7"), values)
        changed = {"bert/kernel": np.full((3, 3), 2, np.float32), "global_step": np.asarray(9, np.int64)}
        write_tensors(tmp_path / "ours", changed)
        saver.restore(session, str(tmp_path / "ours"))
        same({name: np.asarray(session.run(variable)) for name, variable in variables.items()}, changed)


def test_a_bert_that_tensorflow_saved_is_read_whole(tf: Any, tmp_path: Path) -> None:
    """Variables under Google's names, and an optimizer's, by TensorFlow's Saver; then back by its ``restore``."""
    params = random_params(CONFIG, HEADS["pre-training"])
    google.write(tmp_path, CONFIG, params, TOKENIZER)
    prefix = tmp_path / "bert_model.ckpt"
    values: dict[str, Any] = read_tensors(prefix)
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        variables = {name: v1.get_variable(name, initializer=value) for name, value in values.items()}
        slots = [v1.get_variable(f"{name}/adam_m", initializer=0 * value) for name, value in values.items()]
        v1.train.get_or_create_global_step()
        for file in tmp_path.glob("bert_model.ckpt*"):
            file.unlink()
        session.run(v1.global_variables_initializer())
        v1.train.Saver().save(session, str(prefix))
        assert len(read_entries(prefix)) == len(variables) + len(slots) + 1
        found = open_source(tmp_path).read()
        assert not found.unexpected
        jax.tree.map(np.testing.assert_array_equal, found.params, params)
        google.write(tmp_path / "again", CONFIG, jax.tree.map(np.negative, found.params), TOKENIZER)
        v1.train.Saver(variables).restore(session, str(tmp_path / "again" / "bert_model.ckpt"))
        same(
            {name: np.asarray(session.run(one)) for name, one in variables.items()}, {n: -x for n, x in values.items()}
        )


def test_tensorflows_shards_are_read(tf: Any, tmp_path: Path) -> None:
    parts = [{"a": np.arange(3.0), "c": np.arange(5)}, {"b": np.ones(2, np.float32)}]
    for i, part in enumerate(parts):
        save_v2(tf, tmp_path / f"part{i}", part)
    prefixes = [str(tmp_path / f"part{i}") for i in range(2)]
    tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=prefixes, destination_prefix=str(tmp_path / "all"))
    assert (tmp_path / "all.data-00001-of-00002").is_file()
    same(read_tensors(tmp_path / "all"), parts[0] | parts[1])


def test_tensorflows_strings_and_partitions_are_refused(tf: Any, tmp_path: Path) -> None:
    tensors = {"part": np.ones((2, 3), np.float32), "text": np.asarray([b"ab", b"c"], object), "w": np.ones(2)}
    save_v2(tf, tmp_path / "a", tensors, {"part": "4 3 0,2:0,3"})
    assert {name: (e.dtype, e.shape, e.sliced) for name, e in read_entries(tmp_path / "a").items()} == {
        "part": ("float32", (4, 3), True),
        "text": ("string", (2,), False),
        "w": ("float64", (2,), False),
    }
    for name, message in (("part", "partitioned variable"), ("text", "dtype string")):
        with pytest.raises(ValueError, match=message):
            read_tensors(tmp_path / "a", [name])
    same(read_tensors(tmp_path / "a", ["w"]), {"w": np.ones(2)})
