"""What devices say to each other in a compiled program, read from its text."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass

KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute", "ragged-all-to-all")
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$")
_INSTRUCTION = re.compile(rf"= (.+?) ({'|'.join(KINDS)})(-start)?\((.*)$")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_CALL = re.compile(r"(?:body|condition|to_apply|calls|branch_computations)=\{?%?([\w.\-, %]+)")


@dataclass(frozen=True)
class Collective:
    """One exchange of a step.

    Attributes:
        kind: of ``KINDS``. dtype, shape: of its largest result, on one device. group: how many devices take part.
        times: how often a step does it (the trips of the loops around it).
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    group: int
    times: int


def collectives(text: str) -> list[Collective]:
    """Those of an optimized HLO module (``compiled.as_text()``), the largest first."""
    lines_of: dict[str, list[str]] = {}
    name = entry = ""
    for line in text.splitlines():
        if found := _COMPUTATION.match(line):
            name = found[1]
            lines_of[name] = []
            entry = name if line.startswith("ENTRY") else entry
        elif name:
            lines_of[name].append(line)
    times: Counter[str] = Counter()

    def visit(computation: str, count: int) -> None:
        times[computation] += count
        for line in lines_of.get(computation, ()):
            trips = re.search(r'"known_trip_count":\{"n":"(\d+)"\}', line)
            for found in _CALL.finditer(line):
                for called in re.findall(r"[\w.\-]+", found[1]):
                    if called in lines_of and called != computation:
                        visit(called, count * (int(trips[1]) if trips and "body=" in line else 1))

    visit(entry, 1)
    everyone = re.search(r"(?:num_partitions|replica_count)=(\d+)", text)
    devices = int(everyone[1]) if everyone else 1
    result = [
        one
        for computation, count in times.items()
        for line in lines_of[computation]
        if (one := _read(line, count, devices))
    ]
    return sorted(result, key=lambda one: -one.times * math.prod(one.shape))


def _read(line: str, times: int, devices: int) -> Collective | None:
    found = _INSTRUCTION.search(line)
    if not found:
        return None
    arrays = [(dtype, tuple(map(int, filter(None, dims.split(","))))) for dtype, dims in _ARRAY.findall(found[1])]
    dtype, shape = max(arrays, key=lambda array: math.prod(array[1]))
    if not found[3] and len(arrays) > 1:  # several results in one exchange
        shape = (sum(math.prod(one) for _, one in arrays),)
    return Collective(found[2], dtype, shape, _group(line, devices), times)


def _group(line: str, devices: int) -> int:
    """Devices of a group: replica_groups={{0,1},{2,3}}, as iota [2,2]<=[4], or {}: all."""
    if found := re.search(r"replica_groups=\{\{([\d,]+)\}", line):
        return len(found[1].split(","))
    if found := re.search(r"replica_groups=\[([\d,]+)\]<=", line):
        return int(found[1].split(",")[-1])
    return 2 if "source_target_pairs" in line else devices
