"""Files written by PyTorch in both of its formats, and files made here by hand, of which many are damaged or evil."""

import os
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from bert_jax.interop.torch_file import read_state_dict

MAGIC = 0x1950A86A20F9469CFC6C
Write = Callable[[Path, bytes, dict[str, bytes]], Path]


@pytest.fixture
def torch() -> Any:
    return pytest.importorskip("torch", reason="files to read are written by torch")


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def number(value: int) -> bytes:
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def several(*parts: bytes) -> bytes:
    return b"(" + b"".join(parts) + b"t"


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


DICT = name("collections", "OrderedDict") + b")R"


def storage(key: str, count: int, kind: str = "FloatStorage", *view: bytes) -> bytes:
    return several(text("storage"), name("torch", kind), text(key), text("cpu"), number(count), *view) + b"Q"


def tensor(where: bytes, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> bytes:
    sizes, steps = several(*map(number, shape)), several(*map(number, strides))
    return (
        name("torch._utils", "_rebuild_tensor_v2") + several(where, number(offset), sizes, steps, b"\x89", DICT) + b"R"
    )


def state(**entries: bytes) -> bytes:
    return b"\x80\x02" + DICT + b"(" + b"".join(text(key) + value for key, value in entries.items()) + b"u."


def zipped(path: Path, pickled: bytes, storages: dict[str, bytes], order: bytes | None = None) -> Path:
    members = {"data.pkl": pickled} | ({} if order is None else {"byteorder": order})
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in (members | {f"data/{key}": data for key, data in storages.items()}).items():
            archive.writestr(f"model/{member}", data)
    return path


def legacy(path: Path, pickled: bytes, storages: dict[str, bytes], item_size: int = 4) -> Path:
    parts = [pickle.dumps(part, protocol=2) for part in (MAGIC, 1001, {"little_endian": True})]
    parts += [pickled, pickle.dumps(list(storages), protocol=2)]
    parts += [struct.pack("<Q", len(data) // item_size) + data for data in storages.values()]
    path.write_bytes(b"".join(parts))
    return path


BOTH = pytest.mark.parametrize("write", [zipped, legacy])
BY_TORCH = pytest.mark.parametrize("new", [True, False])  # in the zip format
FOUR = storage("0", 4)


def floats(*values: float) -> bytes:
    return np.asarray(values, "<f4").tobytes()


def refused(path: Path) -> str:
    """The message, a line, with the file and the remedy."""
    with pytest.raises(ValueError) as caught:
        read_state_dict(path)
    message = str(caught.value)
    assert type(caught.value) is ValueError and message.startswith(f"{path} ") and "\n" not in message
    assert message.endswith("ask for model.safetensors")
    return message


def same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> bool:
    return found.keys() == expected.keys() and all(
        found[key].dtype == value.dtype and found[key].shape == value.shape and found[key].tobytes() == value.tobytes()
        for key, value in expected.items()
    )


@BOTH
def test_strides_offsets_and_shared_storages(tmp_path: Path, write: Write) -> None:
    entries = {
        "whole": tensor(storage("0", 6), (2, 3), (3, 1)),
        "turned": tensor(storage("0", 6), (3, 2), (1, 3)),
        "row": tensor(storage("0", 6), (3,), (1,), 3),
        "one": tensor(storage("0", 6), (), (), 5),
        "single": tensor(storage("0", 6), (1, 2), (2**62, 3), 1),
        "none": tensor(storage("1", 0), (0, 2**40), (1, 1)),
    }
    found = read_state_dict(write(tmp_path / "f", state(**entries), {"0": floats(*range(6)), "1": b""}))
    whole = np.arange(6, dtype=np.float32).reshape(2, 3)
    expected = {
        "whole": whole,
        "turned": whole.T,
        "row": whole[1],
        "one": whole[1, 2, ...],
        "single": whole[None, :, 1],
    }
    assert same({key: found[key] for key in expected}, expected) and found["none"].shape == (0, 2**40)
    assert np.shares_memory(found["whole"], found["row"]) and not found["whole"].flags.writeable


def test_parts_of_a_storage_as_old_files_have_them(tmp_path: Path) -> None:
    part = several(text("7"), number(2), number(3))
    entries = {
        "a": tensor(storage("0", 6, "FloatStorage", part), (2,), (1,), 1),
        "b": tensor(storage("0", 6, "FloatStorage", b"N"), (1,), (1,)),
    }
    found = read_state_dict(legacy(tmp_path / "f", state(**entries), {"0": floats(*range(6))}))
    assert found["a"].tolist() == [3, 4] and found["b"].tolist() == [0]
    outside = {"a": tensor(storage("0", 6, "FloatStorage", part), (3,), (1,), 1)}
    assert "up to 5 of a storage of 6" in refused(legacy(tmp_path / "g", state(**outside), {"0": floats(*range(6))}))


KINDS = [("Float", "f4"), ("Double", "f8"), ("Half", "f2"), ("BFloat16", ml_dtypes.bfloat16), ("Bool", "?")]
KINDS += [("Long", "i8"), ("Int", "i4"), ("Short", "i2"), ("Char", "i1"), ("Byte", "u1")]


@pytest.mark.parametrize(("kind", "dtype"), KINDS)
def test_byte_orders(tmp_path: Path, kind: str, dtype: Any) -> None:
    values = np.asarray([1, 0, 3, 100]).astype(dtype)
    width = values.dtype.itemsize
    pickled = state(a=tensor(storage("0", 4, f"{kind}Storage"), (4,), (1,)))
    little, big = ({"0": values.view(f"u{width}").astype(f"{order}u{width}").tobytes()} for order in "<>")
    for order, data in ((None, little), (b"little", little), (b"big", big)):
        found = read_state_dict(zipped(tmp_path / "f", pickled, data, order))
        assert same(found, {"a": values}) and found["a"].dtype.isnative
    assert same(read_state_dict(legacy(tmp_path / "g", pickled, little, width)), {"a": values})
    assert "byte order b'middle'" in refused(zipped(tmp_path / "f", pickled, little, b"middle"))


@BOTH
def test_what_else_a_dict_may_hold(tmp_path: Path, write: Write) -> None:
    weight = tensor(storage("0", 2), (2,), (1,))
    one = several(number(1))
    entries = {
        "w": weight,
        "old": name("torch._utils", "_rebuild_tensor") + several(storage("0", 2), number(1), one, one) + b"R",
        "parameter": name("torch._utils", "_rebuild_parameter") + several(weight, b"\x88", DICT) + b"R",
    }
    entries |= {"version": number(3), "nothing": b"N", "kind": text("bert")}
    expected = {"w": [1.0, 2.0], "old": [2.0], "parameter": [1.0, 2.0]}
    inner = state(**entries)[:-1] + b"}" + text("_metadata") + DICT + b"sb."  # attributes, as state_dict() has them
    wrapped = state(state_dict=inner[2:-1], epoch=number(7), optimizer=b"}")
    # As Python 2 wrote it: OrderedDict([["w", ...]]), with str for bytes.
    python2 = b"\x80\x02" + name("collections", "OrderedDict") + b"(]]U\x01wa" + weight + b"aatR."
    for pickled, keys in ((inner, expected), (wrapped, expected), (python2, ["w"])):
        found = read_state_dict(write(tmp_path / "f", pickled, {"0": floats(1, 2)}))
        assert {key: value.tolist() for key, value in found.items()} == {key: expected[key] for key in keys}


@BOTH
@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (tensor(FOUR, (5,), (1,)), "'a' has 5 numbers, up to 4 of a storage of 4"),
        (tensor(FOUR, (2, 2), (3, 1)), "up to 4 of a storage of 4"),
        (tensor(FOUR, (2,), (1,), 3), "up to 4 of a storage of 4"),
        (tensor(FOUR, (2**40, 2**40), (0, 0)), "up to 0 of a storage of 4"),
        (tensor(FOUR, (2**70,), (1,)), "no natural numbers"),
        (tensor(FOUR, (2,), (-1,), 1), "no natural numbers"),
        (tensor(FOUR, (2, 2), (1,)), "2 sizes and 1 strides"),
        (tensor(FOUR, (1,) * 65, (1,) * 65), "65 sizes"),
        (tensor(storage("0", 5), (1,), (1,)), "storage '0' has 16 bytes, expected 5 numbers of float32"),
        (tensor(storage("0", -4), (1,), (1,)), "storage '0' has 16 bytes, expected -4 numbers"),
        (tensor(storage("0", 2**61), (1,), (1,)), "storage '0' has 16 bytes"),
        (FOUR, "entry 'a' is a Storage, expected a tensor"),
        (b"]", "entry 'a' is a list, expected a tensor"),
        (number(1), "no tensors"),
        (b"X\xff\xff\xff\x7fabc", "expected 2147483647 bytes"),
        (b"\x8d" + struct.pack("<Q", 2**60) + b"abc", "in a unicodestring8"),
        (b"Nr\xff\xff\xff\xff0", "opcode POP"),
        (b"}" + b")" + b"\x85" * 10**5 + b"Ns", "strings and integers for keys"),
        (b"h\x07", "KeyError"),
        (b"\x82\x01", "opcode EXT1"),
        (name("collections", "OrderedDict") + b")\x81", "opcode NEWOBJ"),
        (name("collections", "OrderedDict") + b"}b", "opcode BUILD"),
        (name("collections", "OrderedDict") + several(number(9)) + b"R", "calls collections.OrderedDict with other"),
        (name("torch._utils", "_rebuild_tensor_v2") + b")R", "calls torch._utils._rebuild_tensor_v2 with other"),
        (DICT + b")R", "calls dict"),
        (several(FOUR, storage("0", 4, "IntStorage")), "storage '0' is said to be of two kinds"),
        (text("module") + b"Q", "refers to data in another way"),
    ],
)
def test_lies(tmp_path: Path, write: Write, entry: bytes, reason: str) -> None:
    assert reason in refused(write(tmp_path / "f", state(a=entry), {"0": floats(1, 2, 3, 4)}))


class Evil:
    """Unpickled, it makes a file."""

    def __init__(self, marker: Path, function: Any = os.system) -> None:
        python = f"open({str(marker)!r}, 'w').close()"
        self.call = function, (f"touch {marker}" if function is os.system else python,)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("function", [os.system, eval])
def test_code_is_named_and_not_run(tmp_path: Path, function: Any, protocol: int) -> None:
    marker = tmp_path / "ran"
    evil = Evil(marker, function)
    pickle.loads(pickle.dumps(evil, protocol))
    marker.unlink()  # it would have worked
    module = {os.system: "posix.system", eval: "builtins.eval" if protocol == 4 else "__builtin__.eval"}[function]
    for held in (evil, {"w": evil}, OrderedDict(state_dict=OrderedDict(a=[1, {"b": (evil,)}]))):
        pickled = pickle.dumps(held, protocol)
        (tmp_path / "plain").write_bytes(pickled)
        for path in (tmp_path / "plain", zipped(tmp_path / "z", pickled, {}), legacy(tmp_path / "l", pickled, {})):
            assert f"holds code ({module}); a state dict needs none: do not trust it" in refused(path)
    assert not marker.exists()


def test_other_names_are_refused_too(tmp_path: Path) -> None:
    for module, attribute in (("torch", "load"), ("collections", "Counter"), ("torch", "ComplexFloatStorage")):
        path = zipped(tmp_path / "f", state(a=name(module, attribute)), {})
        assert f"holds code ({module}.{attribute})" in refused(path)
    # A name may have line breaks where two strings give it.
    two = b"\x80\x04" + text("o\ns") + text("x" * 999) + b"\x93."
    assert f"(o\\ns.{'x' * 96})" in refused(zipped(tmp_path / "f", two, {}))


def test_what_is_no_such_file(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "starts with b'version https://git-lfs.github.c', expected a zip or a pickle" in refused(path)
    path.write_bytes(b"")
    assert "empty" in refused(path)
    path.write_bytes(pickle.dumps({"a": 1}))
    assert "magic number" in refused(path)
    path.write_bytes(pickle.dumps(MAGIC, 2) + pickle.dumps(1000, 2))
    assert "protocol version 1001" in refused(path)
    assert "holds a list" in refused(zipped(path, b"\x80\x02].", {}))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "")
    assert "0 data.pkl" in refused(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data.pkl", state(a=b"N") + bytes(10**6))
    assert "compressed" in refused(path)
    with pytest.raises(FileNotFoundError):
        read_state_dict(tmp_path / "absent")


@BOTH
def test_missing_storage(tmp_path: Path, write: Write) -> None:
    pickled = state(a=tensor(storage("0", 1), (1,), (1,)), b=tensor(storage("1", 1), (1,), (1,)))
    reason = "no item named 'model/data/1'" if write is zipped else "storage '1' is missing"
    assert reason in refused(write(tmp_path / "f", pickled, {"0": floats(1)}))


def test_numbers_are_checked_against_the_zips_checksum(tmp_path: Path) -> None:
    path = zipped(tmp_path / "f", state(a=tensor(storage("0", 2), (2,), (1,))), {"0": b"12345678"})
    path.write_bytes(path.read_bytes().replace(b"12345678", b"12345679"))
    assert "Bad CRC-32 for file 'model/data/0'" in refused(path)


@BOTH
def test_truncated_and_flipped(tmp_path: Path, write: Write) -> None:
    entries = {f"layer.{i}.weight": tensor(storage(str(i), 6), (2, 3), (1, 2)) for i in range(3)}
    whole = write(tmp_path / "f", state(**entries), {str(i): floats(*range(i, i + 6)) for i in range(3)})
    check_damage(whole, checked=write is zipped)


def check_damage(path: Path, *, checked: bool) -> None:
    """A ValueError when cut short; with a bit flipped a ValueError, or the same arrays where there are checksums."""
    expected, data = read_state_dict(path), path.read_bytes()
    rng = np.random.default_rng(0)
    for length in sorted({*range(0, len(data), max(1, len(data) // 100)), *range(len(data) - 30, len(data))}):
        path.write_bytes(data[:length])
        refused(path)
    for position in rng.integers(0, len(data) * 8, 400):
        flipped = bytearray(data)
        flipped[position // 8] ^= 1 << (position % 8)
        path.write_bytes(flipped)
        try:
            found = read_state_dict(path)
        except ValueError as error:
            assert type(error) is ValueError and "\n" not in str(error), error
        else:
            assert not checked or same(found, expected), position


@BY_TORCH
def test_what_torch_writes(tmp_path: Path, torch: Any, new: bool) -> None:
    torch.manual_seed(0)
    base = torch.randn(4, 6)
    dtypes = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"]
    tensors = {f"in_{dtype}": (torch.arange(7) % 3).to(getattr(torch, dtype)) for dtype in dtypes}
    tensors |= {
        "base": base,
        "turned": base.T,
        "part": base[1:3, ::2],
        "middle": base[2],
        "parameter": torch.nn.Parameter(base * 2),
        "number": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "positions": torch.arange(5).expand((1, -1)),
    }
    path = tmp_path / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=new)
    found = read_state_dict(path)
    bfloat16 = tensors["in_bfloat16"].float().numpy().astype(ml_dtypes.bfloat16)
    tensors["in_bfloat16"] = base  # of which there is no numpy()
    expected = {key: value.detach().numpy() for key, value in tensors.items()} | {"in_bfloat16": bfloat16}
    assert same(found, expected) and np.shares_memory(found["base"], found["middle"])


@BY_TORCH
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_modules_state_dict(tmp_path: Path, torch: Any, new: bool, protocol: int) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    expected = {key: value.numpy() for key, value in module.state_dict().items()}
    path = tmp_path / "f"
    options = {"_use_new_zipfile_serialization": new, "pickle_protocol": protocol}
    torch.save(module.state_dict(), path, **options)
    assert same(read_state_dict(path), expected)
    wrapped = {"optimizer": optimizer.state_dict(), "state_dict": module.state_dict(), "epoch": 3}
    torch.save(wrapped, path, **options)
    assert same(read_state_dict(path), expected)
    torch.save(module, path, **options)
    assert "holds code (torch.nn.modules.container.Sequential)" in refused(path)


@BY_TORCH
def test_torchs_files_damaged_and_evil(tmp_path: Path, torch: Any, new: bool) -> None:
    path, marker = tmp_path / "f", tmp_path / "ran"
    torch.save(torch.nn.Linear(3, 4).state_dict(), path, _use_new_zipfile_serialization=new)
    check_damage(path, checked=new)
    torch.save({"w": torch.ones(2), "x": Evil(marker)}, path, _use_new_zipfile_serialization=new)
    assert "holds code (posix.system)" in refused(path)
    assert not marker.exists()
