"""What a compiled program does beside arithmetic, read from its text: exchanges between devices, memory traffic.

The text is an optimized HLO module's (``compiled.as_text()``), as one device runs it. Loops count as often as they
run, which XLA's own ``cost_analysis`` does not do.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
# They move nothing themselves: names for what is there, or the computations inside count.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "conditional", "call", "after-all"}
FREE |= {"partition-id", "replica-id", "opt-barrier", "optimization-barrier", "iota"}
SLICES = ("dynamic-slice", "gather", "slice")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(r"^(?:ROOT )?%?([\w.\-]+) = (.+?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\](\{[^{}]*\})?")
_CALL = re.compile(
    r"(?:body|condition|to_apply|calls|branch_computations|true_computation|false_computation)="
    r"(?:\{([^}]*)\}|%?([\w.\-]+))"
)
_ELSEWHERE = re.compile(r"S\([1-9]")  # of a layout: another memory
_BITS = {"pred": 8, "bf16": 16, "token": 0}


@dataclass(frozen=True)
class Collective:
    """One exchange of a step.

    Attributes:
        kind: of ``KINDS``. dtype, shape: of its largest result, on one device. group: how many devices take part.
        times: how often a step does it (the trips of the loops around it).
        result_bytes: of all its results, on one device.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    group: int
    times: int
    result_bytes: int = 0

    @property
    def sent_bytes(self) -> float:
        """What one device sends in all its times, by the ring algorithms (Thakur et al. 2005), which send least."""
        others = (self.group - 1) / self.group
        share = {
            "all-reduce": 2 * others,
            "all-gather": others,
            "reduce-scatter": self.group - 1,  # its result is one part of what is summed
            "collective-permute": 1,
        }
        return share.get(self.kind, others) * self.result_bytes * self.times


@dataclass
class _Instruction:
    name: str
    type: str
    kind: str
    rest: str  # operands and attributes
    root: bool

    @property
    def operands(self) -> list[str]:
        depth, end = 1, len(self.rest)
        for position, character in enumerate(self.rest):
            depth += (character == "(") - (character == ")")
            if depth == 0:
                end = position
                break
        return re.findall(r"%([\w.\-]+)", self.rest[:end])

    @property
    def called(self) -> list[str]:
        found = [several or one for several, one in _CALL.findall(self.rest)]
        return [name for names in found for name in re.findall(r"[\w.\-]+", names)]


@dataclass
class Program:
    """The computations of a module, and how often each runs: on its own, or (``fused``) inside a fusion."""

    computations: dict[str, list[_Instruction]]
    devices: int
    times: Counter[str] = field(default_factory=Counter)
    fused: Counter[str] = field(default_factory=Counter)

    @classmethod
    def read(cls, text: str) -> Program:
        computations: dict[str, list[_Instruction]] = {}
        name = entry = ""
        for line in text.splitlines():
            if found := _COMPUTATION.match(line):
                name = found[1]
                computations[name] = []
                entry = name if line.startswith("ENTRY") else entry
            elif name and (found := _INSTRUCTION.match(line.strip())):
                root = line.strip().startswith("ROOT ")
                computations[name].append(_Instruction(*found.groups(), root=root))
        everyone = [int(n) for n in re.findall(r"(?:num_partitions|replica_count)=(\d+)", text.partition("\n")[0])]
        program = cls(computations, math.prod(everyone) if everyone else 1)
        program._visit(entry, 1)
        return program

    def _visit(self, computation: str, count: int, fused: bool = False) -> None:
        (self.fused if fused else self.times)[computation] += count
        for one in self.computations.get(computation, ()):
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', one.rest)
            for called in one.called:
                if called in self.computations and called != computation:
                    often = count * (int(trips[1]) if trips and one.kind == "while" else 1)
                    self._visit(called, often, fused or one.kind == "fusion")

    def collectives(self) -> list[Collective]:
        """The largest first.

        A TPU's compiler cuts one into several fusions, in which it appears again and again under one channel.
        """
        result: dict[Any, Collective] = {}
        for times in (self.times, self.fused):
            for computation, count in times.items():
                for one in self.computations.get(computation, ()):
                    kind = one.kind.removesuffix("-start")
                    if kind in KINDS:
                        channel = re.search(r"channel_id=(\d+)", one.rest)
                        key = (kind, channel[1]) if channel else (computation, one.name)
                        result.setdefault(key, _collective(one, kind, count, self.devices))
        return sorted(result.values(), key=lambda one: -one.times * math.prod(one.shape))

    def memory_traffic(self) -> float:
        """Bytes that a step reads from and writes to a device's main memory, unless its caches save some.

        Each instruction reads its operands and writes its result; of what it takes a slice of, only that. Arrays that
        the compiler has put elsewhere (a TPU's VMEM, memory space 1) do not count.
        """
        total = 0
        for computation, times in self.times.items():
            instructions = self.computations.get(computation, [])
            types = {one.name: one.type for one in instructions}
            total += times * sum(self._traffic(one, types) for one in instructions)
        return float(total)

    def _traffic(self, one: _Instruction, types: dict[str, str]) -> int:
        if one.kind in FREE or one.kind.endswith(("-done", "-update")):
            return 0
        result, operands = main_memory_bytes(one.type), [main_memory_bytes(types.get(o, "")) for o in one.operands]
        if one.kind in ("slice-start", "dynamic-slice-start"):  # (operand, slice, ...)
            part = _ARRAY.findall(one.type)[1]
            return _size(*part[:2]) + (0 if _ELSEWHERE.search(part[2]) else _size(*part[:2]))
        if one.kind.endswith("-start"):  # its result names its operand too
            return result
        if one.kind in SLICES:
            return 2 * result
        if one.kind == "dynamic-update-slice":
            return 2 * (operands[1] if len(operands) > 1 else 0)
        if one.kind == "fusion" and one.called:
            return self._fused_traffic(self.computations.get(one.called[0], []), result, operands)
        return result + sum(operands)

    @staticmethod
    def _fused_traffic(inside: list[_Instruction], result: int, operands: list[int]) -> int:
        """An operand that is only sliced inside counts as its slices, one that is updated in place as the part that is
        written; one that is only passed on not at all."""
        total, types = 0, {one.name: one.type for one in inside}
        updated = {one.operands[0]: one.operands[1] for one in inside if one.kind == "dynamic-update-slice"}
        handed = {name for one in inside if one.root and one.kind == "tuple" for name in one.operands}
        for one in inside:
            if one.kind != "parameter":
                continue
            number = int(re.match(r"(\d+)", one.rest)[1])  # pyright: ignore[reportOptionalSubscript]
            size = operands[number] if number < len(operands) else 0
            users = [user for user in inside if one.name in user.operands]
            if one.name in handed and all(user.root or user.kind in KINDS for user in users):
                result, size = result - size, 0
            elif size and users and all(user.kind in SLICES for user in users):
                size = min(size, sum(array_bytes(user.type) for user in users))
            elif size and one.name in updated:
                result = max(result - size, 0) + array_bytes(types.get(updated[one.name], ""))
                size = 0
            total += size
        return total + result


def array_bytes(type_text: str) -> int:
    """Of all arrays in a type: ``(f32[8]{0}, bf16[2,3])`` is 44."""
    return sum(_size(dtype, dims) for dtype, dims, _ in _ARRAY.findall(type_text))


def main_memory_bytes(type_text: str) -> int:
    """``array_bytes`` without arrays in another memory space than 0."""
    return sum(_size(dtype, dims) for dtype, dims, layout in _ARRAY.findall(type_text) if not _ELSEWHERE.search(layout))


def _size(dtype: str, dims: str) -> int:
    bits = _BITS.get(dtype) if dtype in _BITS else int(found[1]) if (found := re.search(r"(\d+)", dtype)) else 0
    return (math.prod(map(int, filter(None, dims.split(",")))) * (bits or 0) + 7) // 8


def _collective(one: _Instruction, kind: str, times: int, devices: int) -> Collective:
    arrays = [(dtype, dims) for dtype, dims, _ in _ARRAY.findall(one.type)]
    if one.kind.endswith("-start") and kind != "all-reduce":  # operands, as many results, and what counts steps
        arrays = [(dtype, dims) for dtype, dims in arrays if dims or dtype != "u32"]
        arrays = arrays[len(arrays) // 2 :]
    shapes = [tuple(map(int, filter(None, dims.split(",")))) for _, dims in arrays]
    largest = max(range(len(arrays)), key=lambda number: math.prod(shapes[number]))
    # Several results in one exchange have no shape but their size.
    shape = shapes[0] if len(shapes) == 1 else (sum(map(math.prod, shapes)),)
    size = sum(_size(dtype, dims) for dtype, dims in arrays)
    return Collective(kind, arrays[largest][0], shape, _group(one.rest, devices), times, size)


def _group(rest: str, devices: int) -> int:
    """Devices of a group: replica_groups={{0,1},{2,3}}, as iota [2,2]<=[4], mesh['a'=2,'b'=2] {'a'}, or {}: all."""
    if found := re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest):
        sizes = {name: int(size) for name, size in re.findall(r"'(\w+)'=(\d+)", found[1])}
        return math.prod(sizes.get(name, 1) for name in re.findall(r"'(\w+)'", found[2]))
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=", rest):
        return int(found[1].split(",")[-1])
    return 2 if "source_target_pairs" in rest else devices
