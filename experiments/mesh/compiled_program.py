"""What a compiled program does beside arithmetic, read from its text: exchanges between devices, memory traffic.

The text is an optimized HLO module's (``compiled.as_text()``), as one device runs it. Loops count as often as they
run, which XLA's own ``cost_analysis`` does not do.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

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
    """The computations of a module, and how often each that runs on its own (not inside a fusion) runs."""

    computations: dict[str, list[_Instruction]]
    devices: int
    times: Counter[str] = field(default_factory=Counter)

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

    def _visit(self, computation: str, count: int) -> None:
        self.times[computation] += count
        for one in self.computations.get(computation, ()):
            if one.kind == "fusion":
                continue
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', one.rest)
            for called in one.called:
                if called in self.computations and called != computation:
                    self._visit(called, count * (int(trips[1]) if trips and one.kind == "while" else 1))

    def collectives(self) -> list[Collective]:
        """The largest first."""
        result = []
        for one, times in self._running():
            kind = one.kind.removesuffix("-start")
            if kind in KINDS and not one.kind.endswith("-done"):
                result.append(_collective(one, kind, times, self.devices))
        return sorted(result, key=lambda one: -one.times * math.prod(one.shape))

    def memory_traffic(self) -> float:
        """Bytes that a step reads from and writes to a device's main memory, unless its caches save some.

        Each instruction reads its operands and writes its result; of what it takes a slice of, only that. Arrays that
        the compiler has put elsewhere (a TPU's VMEM, memory space 1) do not count.
        """
        return sum(times * self._traffic(one, types) for one, times, types in self._running_with_types())

    def _running(self) -> Iterator[tuple[_Instruction, int]]:
        for computation, times in self.times.items():
            for one in self.computations.get(computation, ()):
                yield one, times

    def _running_with_types(self) -> Iterator[tuple[_Instruction, int, dict[str, str]]]:
        for computation, times in self.times.items():
            instructions = self.computations.get(computation, [])
            types = {one.name: one.type for one in instructions}
            for one in instructions:
                yield one, times, types

    def _traffic(self, one: _Instruction, types: dict[str, str]) -> int:
        if one.kind in FREE or one.kind.endswith(("-done", "-update")):
            return 0
        result, operands = main_memory_bytes(one.type), [main_memory_bytes(types.get(o, "")) for o in one.operands]
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
        """An operand that is only sliced inside counts as its slices, one that is updated in place as the part."""
        total, types = 0, {one.name: one.type for one in inside}
        updated = {one.operands[0]: one.operands[1] for one in inside if one.kind == "dynamic-update-slice"}
        for one in inside:
            if one.kind != "parameter":
                continue
            number = int(re.match(r"(\d+)", one.rest)[1])  # pyright: ignore[reportOptionalSubscript]
            size = operands[number] if number < len(operands) else 0
            users = [user for user in inside if one.name in user.operands]
            if size and users and all(user.kind in SLICES for user in users):
                size = min(size, sum(array_bytes(user.type) for user in users))
            elif size and one.name in updated:
                part = array_bytes(types.get(updated[one.name], ""))
                result = max(result - size, 0) + part
                size = part
            total += size
        return total + result


def array_bytes(type_text: str) -> int:
    """Of all arrays in a type: ``(f32[8]{0}, bf16[2,3])`` is 44."""
    return sum(_size(dtype, dims) for dtype, dims, _ in _ARRAY.findall(type_text))


def main_memory_bytes(type_text: str) -> int:
    """``array_bytes`` without arrays in another memory space than 0."""
    return sum(
        _size(dtype, dims) for dtype, dims, layout in _ARRAY.findall(type_text) if not re.search(r"S\([1-9]", layout)
    )


def _size(dtype: str, dims: str) -> int:
    bits = _BITS.get(dtype) if dtype in _BITS else int(found[1]) if (found := re.search(r"(\d+)", dtype)) else 0
    return (math.prod(map(int, filter(None, dims.split(",")))) * (bits or 0) + 7) // 8


def _collective(one: _Instruction, kind: str, times: int, devices: int) -> Collective:
    arrays = [(dtype, tuple(map(int, filter(None, dims.split(","))))) for dtype, dims, _ in _ARRAY.findall(one.type)]
    sizes = [_size(dtype, dims) for dtype, dims, _ in _ARRAY.findall(one.type)]
    dtype, shape = max(arrays, key=lambda array: math.prod(array[1]))
    size = sum(sizes)
    if one.kind.endswith("-start"):  # operand and result
        size = max(sizes)
    elif len(arrays) > 1:  # several results in one exchange
        shape = (sum(math.prod(dims) for _, dims in arrays),)
    return Collective(kind, dtype, shape, _group(one.rest, devices), times, size)


def _group(rest: str, devices: int) -> int:
    """Devices of a group: replica_groups={{0,1},{2,3}}, as iota [2,2]<=[4], or {}: all."""
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", rest):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=", rest):
        return int(found[1].split(",")[-1])
    return 2 if "source_target_pairs" in rest else devices
