"""Reads the state dict in a PyTorch file (``pytorch_model.bin``) without PyTorch, and without running its pickle.

Such a file is a pickle beside raw numbers, and a pickle is a program: whoever wrote it chooses what unpickling calls.
So ``pickletools`` splits it into opcodes; those of a state dict are carried out below, where a call is one of five
known by name, and all others are refused. Python's unpickler with a restricted ``find_class`` would not do: one
flipped bit makes it zero gigabytes for its memo, and a tuple nested deep enough as a key crashes the process.

The formats, as torch/serialization.py of PyTorch 2.13 writes and reads them:

* zip (since 1.6): ``NAME/data.pkl``; ``NAME/data/KEY`` for each storage, uncompressed; ``NAME/byteorder``, or little.
* legacy (the BERT files of 2018 and 2019): five pickles (magic number, protocol version, the writer's machine, the
  object, the storages' keys), then for each key the count of its numbers in 8 bytes and the numbers; little-endian
  whatever the machine was (torch/csrc/generic/serialization.cpp).

A tensor is ``_rebuild_tensor_v2(storage, offset, sizes, strides, ...)``, all counted in numbers. A storage is a
persistent id ``("storage", class, key, device, count)``, in the legacy format with a sixth entry: None, or ``(key,
first, count)`` for a part of it.
"""

from __future__ import annotations

import io
import math
import mmap
import os
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
KINDS: dict[str, Any] = {"Float": "f4", "Double": "f8", "Half": "f2", "BFloat16": ml_dtypes.bfloat16, "Bool": "?"}
KINDS |= {"Long": "i8", "Int": "i4", "Short": "i2", "Char": "i1", "Byte": "u1"}
DTYPES = {f"torch.{name}Storage": np.dtype(kind) for name, kind in KINDS.items()}
REBUILD, REBUILD_V2 = "torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"
PARAMETERS = ("torch._utils._rebuild_parameter", "torch.nn.parameter.Parameter")
NAMES = {*DTYPES, "collections.OrderedDict", REBUILD, REBUILD_V2, *PARAMETERS}
# Opcodes whose argument is the value itself (the last is Python 2's), and those that are a value.
LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "SHORT_BINSTRING"}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
# What zipfile, pickletools and struct raise on damaged files; DeprecationWarning where warnings are errors.
DAMAGE = (ValueError, TypeError, LookupError, OverflowError, OSError, EOFError, RuntimeError)
DAMAGE = (*DAMAGE, struct.error, zipfile.BadZipFile, DeprecationWarning)


class _Name(NamedTuple):
    """A class or function that the pickle names, one of ``NAMES``."""

    name: str


class _Storage(NamedTuple):
    """Numbers ``first`` to ``first + count`` of the storage ``key``."""

    key: str
    first: Any
    count: Any


class _Tensor(NamedTuple):
    """As the pickle says it; ``_array`` checks it. ``offset`` and ``strides`` count numbers, not bytes."""

    storage: _Storage
    offset: Any
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]


class _Refused(ValueError):
    """No damage: the file holds what it should not."""


# By a storage's key: what numbers it has and how many; and these, as unsigned integers of their width.
Contents = dict[str, tuple[np.dtype, int]]
Numbers = dict[str, tuple[np.ndarray, np.dtype]]


def read_state_dict(path: Path) -> dict[str, np.ndarray]:
    """The tensors by name, of the file's shapes and dtypes (bfloat16 is ``ml_dtypes.bfloat16``).

    The arrays are read-only, and views of one another where the tensors were. A dict of which ``state_dict`` is an
    entry stands for that entry. Entries that are numbers, strings or None are left out.

    Raises:
        ValueError: damaged, incomplete, no state dict, or a pickle that asks for more than a state dict needs.
        OSError: there is no such file, or it cannot be opened.
    """
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                tensors, numbers = _read_zip(file) if data[:4] == b"PK\x03\x04" else _read_legacy(data)
            return {name: _array(name, tensor, *numbers[tensor.storage.key]) for name, tensor in tensors.items()}
        except _Refused as error:
            reason = f"holds {error}; a state dict needs none: do not trust it;"
        except DAMAGE as error:
            text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            reason = f"is no whole PyTorch state dict ({' '.join(text.split())[:300]}): copy it again, or"
    raise ValueError(f"{path} {reason} ask for model.safetensors")


def _read_zip(file: io.BufferedReader) -> tuple[dict[str, _Tensor], Numbers]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        stored = all(m.compress_type == zipfile.ZIP_STORED and m.compress_size == m.file_size for m in members)
        # So that no member can claim, nor several together, more memory than the file has bytes.
        if not stored or sum(m.file_size for m in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("a zip whose members are compressed or overlap, expected them stored one after the other")
        pickles = [m.filename for m in members if m.filename.partition("/")[2] == "data.pkl"]
        if len(pickles) != 1:
            raise ValueError(f"a zip with {len(pickles)} data.pkl, expected 1")
        folder = pickles[0].removesuffix("data.pkl")
        contents: Contents = {}
        tensors = _tensors(_unpickled(io.BytesIO(archive.read(pickles[0])), contents))
        order = archive.read(folder + "byteorder") if folder + "byteorder" in archive.namelist() else b"little"
        if order not in (b"little", b"big"):
            raise ValueError(f"byte order {order[:20]!r}, expected little or big")
        numbers: Numbers = {}
        for key in sorted({tensor.storage.key for tensor in tensors.values()}):
            data = archive.read(f"{folder}data/{key}")
            numbers[key] = _integers(key, data, *contents[key], order="<" if order == b"little" else ">")
    return tensors, numbers


def _read_legacy(data: mmap.mmap) -> tuple[dict[str, _Tensor], Numbers]:
    if data[:1] != b"\x80":
        raise ValueError(f"it starts with {data[:32]!r}, expected a zip or a pickle")
    if _unpickled(data, {}) != MAGIC or _unpickled(data, {}) != PROTOCOL:
        raise ValueError(f"it starts otherwise than with PyTorch's magic number and protocol version {PROTOCOL}")
    _unpickled(data, {})  # the writer's machine
    contents: Contents = {}
    numbers: Numbers = {}
    tensors = _tensors(_unpickled(data, contents))
    wanted = {tensor.storage.key for tensor in tensors.values()}
    keys = _unpickled(data, {})
    if type(keys) is not list or any(type(key) is not str for key in keys):
        raise ValueError("its fifth pickle is another, expected the storages' keys")
    for key in keys:
        dtype, count = contents[key]
        (found,) = struct.unpack("<Q", data.read(8))
        integers = _integers(key, data.read(found * dtype.itemsize), dtype, count, order="<")
        if key in wanted:
            numbers[key] = integers
    if missing := sorted(wanted - numbers.keys()):
        raise ValueError(f"storage {missing[0]!r} is missing")
    return tensors, numbers


def _integers(key: str, data: bytes, dtype: np.dtype, count: int, *, order: str) -> tuple[np.ndarray, np.dtype]:
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"storage {key!r} has {len(data)} bytes, expected {count} numbers of {dtype}")
    # Integers of the width, since ml_dtypes have no byte order.
    return np.frombuffer(data, f"{order}u{dtype.itemsize}").astype(f"=u{dtype.itemsize}", copy=False), dtype


def _array(name: str, tensor: _Tensor, numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The tensor as a view of its storage; ValueError where it reaches outside, or has more numbers than there are.

    More, as ``expand`` makes it: such a view takes no memory until it is copied, and then whatever the file claims.
    """
    (_, first, length), offset, shape, strides = tensor
    if len(shape) != len(strides) or len(shape) > 64:
        raise ValueError(f"tensor {name!r} has {len(shape)} sizes and {len(strides)} strides")
    if any(type(n) is not int or not 0 <= n < 2**63 for n in (first, length, offset, *shape, *strides)):
        raise ValueError(f"tensor {name!r} has sizes, strides or offsets that are no natural numbers")
    count = math.prod(shape)
    if count == 0:
        return np.zeros(shape, dtype)
    last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if max(last + 1, count) > length or first + length > numbers.size:
        raise ValueError(f"tensor {name!r} has {count} numbers, up to {first + last} of a storage of {numbers.size}")
    # Of a single size any stride is right, even one that NumPy could not hold.
    steps = [stride * dtype.itemsize if size > 1 else 0 for size, stride in zip(shape, strides, strict=True)]
    array = np.ndarray(shape, dtype, buffer=numbers, offset=(first + offset) * dtype.itemsize, strides=steps)
    array.flags.writeable = False
    return array


def _tensors(state: Any) -> dict[str, _Tensor]:
    if type(state) is dict and type(state.get("state_dict")) is dict:
        state = state["state_dict"]
    if type(state) is not dict:
        raise ValueError(f"it holds a {type(state).__name__.strip('_')}, expected a dict of tensors")
    tensors = {}
    for name, value in state.items():
        if isinstance(value, _Tensor) and type(name) is str:
            tensors[name] = value
        elif not isinstance(value, str | int | float | None):
            raise ValueError(f"entry {name!r} is a {type(value).__name__.strip('_')}, expected a tensor")
    if not tensors:
        raise ValueError("its dict has no tensors")
    return tensors


def _unpickled(file: io.BytesIO | mmap.mmap, contents: Contents) -> Any:
    """The next object pickled in ``file``: plain values and our stand-ins. Its storages are added to ``contents``."""
    stack: list[Any] = []
    below: list[list[Any]] = []
    memo: dict[int, Any] = {}
    for opcode, argument, _ in pickletools.genops(file):  # type: ignore[arg-type]  (a file is whatever can be read)
        match opcode.name:
            case "STOP":
                return stack.pop()
            case "PROTO" | "FRAME":
                pass
            case "MARK":
                below.append(stack)
                stack = []
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = stack[-1]  # type: ignore[index]  (an int)
            case "MEMOIZE":
                memo[len(memo)] = stack[-1]
            case "BINGET" | "LONG_BINGET":
                stack.append(memo[argument])  # type: ignore[index]
            case "TUPLE" | "SETITEMS" | "APPENDS" as name:
                items, stack = stack, below.pop()
                stack.append(tuple(items)) if name == "TUPLE" else _fill(stack[-1], items, pairs=name == "SETITEMS")
            case name if name in LITERALS:
                stack.append(argument)
            case name if name in CONSTANTS:
                stack.append(CONSTANTS[name])
            case name:
                _apply(name, argument, stack, contents)


def _apply(opcode: str, argument: Any, stack: list[Any], contents: Contents) -> None:
    """An opcode that takes a certain number of values from the stack."""
    match opcode:
        case "EMPTY_DICT" | "EMPTY_LIST":
            stack.append({} if opcode == "EMPTY_DICT" else [])
        case "TUPLE1" | "TUPLE2" | "TUPLE3":
            stack.append(tuple(_popped(stack, int(opcode[-1]))))
        case "SETITEM" | "APPEND":
            items = _popped(stack, 2 if opcode == "SETITEM" else 1)
            _fill(stack[-1], items, pairs=opcode == "SETITEM")
        case "GLOBAL":
            stack.append(_named(*argument.split(" ", 1)))
        case "STACK_GLOBAL" if type(stack[-1]) is type(stack[-2]) is str:
            stack.append(_named(*_popped(stack, 2)))
        case "REDUCE":
            stack.append(_called(*_popped(stack, 2)))
        case "BUILD" if type(stack[-2]) is dict:
            stack.pop()  # attributes of an OrderedDict: the modules' versions
        case "BINPERSID":
            stack.append(_storage(stack.pop(), contents))
        case _:
            raise ValueError(f"pickle opcode {opcode}, expected those of a state dict")


def _popped(stack: list[Any], count: int) -> list[Any]:
    return [stack.pop() for _ in range(count)][::-1]


def _fill(target: Any, items: list[Any], *, pairs: bool) -> None:
    # No other keys: hashing a tuple nested deep enough overflows the C stack.
    if pairs and type(target) is dict and all(type(key) in (str, int) for key in items[::2]):
        target.update(zip(items[::2], items[1::2], strict=True))
    elif not pairs and type(target) is list:
        target.extend(items)
    else:
        raise ValueError("a pickle that adds to what is no list, nor a dict with strings and integers for keys")


def _named(module: str, name: str) -> _Name:
    if (full := f"{module}.{name}") not in NAMES:
        raise _Refused(f"code ({ascii(full[:100])[1:-1]})")
    return _Name(full)


def _called(function: Any, arguments: Any) -> Any:
    """What the function would give in PyTorch."""
    match function, arguments:
        case [_Name("collections.OrderedDict"), []]:
            return {}
        case [_Name("collections.OrderedDict"), [list(pairs)]] if all(type(p) is list and len(p) == 2 for p in pairs):
            made: dict[Any, Any] = {}  # as Python 2 pickles it: [[key, value], ...]
            _fill(made, [entry for pair in pairs for entry in pair], pairs=True)
            return made
        case [_Name(name), [_Storage() as storage, offset, tuple(shape), tuple(strides), *rest]]:
            # The rest: whether it had gradients, and hooks, of which PyTorch writes none.
            if (name, len(rest)) in ((REBUILD, 0), (REBUILD_V2, 2)):
                return _Tensor(storage, offset, shape, strides)
        case [_Name(name), [_Tensor() as tensor, *_]] if name in PARAMETERS:
            return tensor
    called = function.name if isinstance(function, _Name) else type(function).__name__
    raise ValueError(f"a pickle that calls {called} with other arguments than PyTorch does")


def _storage(identifier: Any, contents: Contents) -> _Storage:
    match identifier:
        case ["storage", _Name(name), str(key), str(), int(count), *view] if name in DTYPES:
            if contents.setdefault(key, (DTYPES[name], count)) != (DTYPES[name], count):
                raise ValueError(f"storage {key!r} is said to be of two kinds or sizes")
            _, first, length = view[0] if any(view) else (key, 0, count)
            return _Storage(key, first, length)
    raise ValueError("a pickle that refers to data in another way than PyTorch does")
