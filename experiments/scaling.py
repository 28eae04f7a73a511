"""The table of ``experiments/results/scaling.md``: BASE and LARGE on accelerators to rent, by ``check_mesh``.

    python -m experiments.scaling --workdir runs/scaling

Every case is a run of ``check_mesh`` in a process of its own, two at a time; what is finished is kept in the workdir,
with a log of what is compiled, so that a stopped table goes on. On two CPU cores the TPU's compiler takes two minutes
a step, so a case takes ten, the CPU's a sixth of that; --no-largest leaves out the search for the largest batch.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.writing import written
from experiments.mesh.page import HEADER, NOTE, chips, row
from experiments.mesh.topologies import Topology
from experiments.tables import marked

TOPOLOGIES = ("v5e-8", "v6e-8", "v5p-16", "h100-8", "h200-8", "v5e-256")
MESHES = {"data": "data={count}", "fsdp": "fsdp={count}", "tensor": "data={half},tensor=2"}


class Case(NamedTuple):
    """A row's question: the paper's batch of 256 on this."""

    topology: str
    size: str
    length: int
    remat: bool

    @property
    def name(self) -> str:
        return f"{self.topology}-{self.size}-{self.length}{'-remat' if self.remat else ''}"

    def arguments(self, largest: bool, kinds: Sequence[str]) -> list[str]:
        config = f"configs/pretrain.py:size={self.size},seq={self.length}"
        count = Topology.of(self.topology).count
        meshes = " ".join(MESHES[kind].format(count=count, half=count // 2) for kind in kinds)
        flags = ["--meshes", meshes, *([] if largest else ["--nolargest"])]
        return ["--config", config, "--topology", self.topology, f"--config.model.remat={self.remat}", *flags]


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    directory = Path(args.workdir)
    directory.mkdir(parents=True, exist_ok=True)
    chosen = [
        Case(topology, size, length, remat)
        for topology in args.topologies.split(",")
        for size in ("base", "large")
        for length, remat in ((128, False), (512, True))
    ]
    try:
        for case in chosen:
            Topology.of(case.topology)  # before anything is run
    except ValueError as error:
        sys.exit(f"scaling: {error}")
    if args.at_a_time < 1:
        sys.exit(f"scaling: --at_a_time={args.at_a_time}; at least 1")
    kinds = args.meshes.split(",")
    if unknown := set(kinds) - MESHES.keys():
        sys.exit(f"scaling: --meshes has {min(unknown)!r}; take some of {','.join(MESHES)}")
    path, done = Path(args.results) / "scaling.md", []
    with ThreadPoolExecutor(args.at_a_time) as executor:
        for case, found in zip(
            chosen, executor.map(lambda c: ask(c, directory, args.largest, kinds), chosen), strict=True
        ):
            if found is not None:
                done.append((case, found))
                with written(path) as temporary:  # after each case: they take long
                    temporary.write_text(page(done), encoding="utf-8")
    if not done:
        sys.exit("scaling: no case could be computed; see above")
    print(f"{len(done)} of {len(chosen)} cases -> {path}")


def ask(case: Case, directory: Path, largest: bool, kinds: Sequence[str]) -> dict[str, Any] | None:
    """What ``check_mesh`` finds, or found before; None where it fails, which is said."""
    output = directory / f"{case.name}.json"
    if not output.exists():
        command = [
            sys.executable,
            "-m",
            "experiments.check_mesh",
            *case.arguments(largest, kinds),
            "--output",
            str(output),
        ]
        log = directory / f"{case.name}.log"
        with log.open("w", encoding="utf-8") as stream:
            status = subprocess.run(command, stdout=stream, stderr=stream).returncode
        if status:
            lines = log.read_text(encoding="utf-8").strip().splitlines()
            print(f"{case.name}: {lines[-1] if lines else f'ended with {status}'}", flush=True)
            return None
        print(f"{case.name}: done", flush=True)
    return json.loads(output.read_text(encoding="utf-8"))


def page(done: Sequence[tuple[Case, dict[str, Any]]]) -> str:
    """The whole page."""
    made = dict.fromkeys((name, version) for _, one in done for name, version in one["versions"].items())
    versions, dates = ", ".join(map(" ".join, made)), " and ".join(sorted({one["date"] for _, one in done}))
    parts = [_INTRODUCTION.format(date=dates, versions=versions, note=NOTE.replace("\n", " "))]
    parts.append(marked(("chip", "TFLOP/s (bfloat16)", "GiB", "GB/s memory", "GB/s to others"), chips()))
    for size in dict.fromkeys(case.size for case, _ in done):
        for length in dict.fromkeys(case.length for case, _ in done):
            rows = [
                line for case, one in done if (case.size, case.length) == (size, length) for line in lines(case, one)
            ]
            if rows:
                parts += [f"## {size.upper()}, {length} tokens", marked(("", *HEADER), rows)]
    return "\n\n".join(parts) + "\n"


def lines(case: Case, found: dict[str, Any]) -> list[list[str]]:
    """A line for each mesh, the cheapest in bold, and one for the largest batch."""
    phase = found["phases"][0]
    result = []
    for number, one in enumerate(phase["tried"]):
        cells = row(one)
        cells[0] = f"**{cells[0]}**" if number == phase["cheapest"] else cells[0]
        result.append([case.topology if number == 0 else "", *cells])
    if phase["largest"]:
        cells = row(phase["largest"])
        cells[1] = f"{cells[1]} ({phase['largest']['device_rows']:,} a device): the largest"
        result.append(["", *cells])
    return result


_INTRODUCTION = """# BERT pre-training on accelerators to rent

Made by `python -m experiments.scaling --workdir runs/scaling` on {date} with {versions}. No accelerator was there: the
step that training compiles (bfloat16, layers in a loop, the paper's batch of 256 sequences; with `model.remat` at 512
tokens, without at 128) is compiled for the devices, TPUs by the TPU compiler, GPUs as a mesh of as many CPU devices,
and the program is read:

- **GiB/device**: the TPU compiler's peak, parameters and moments included. For GPUs what the CPU's program holds at
  once, which computes much of bfloat16 in float32: more than a GPU needs. "does not fit" is the compiler's word, or
  means more than nine tenths of a GPU's memory.
- **TFLOP**: matrix products of a device, forward and backward, with what remat computes again. **MFU** counts what is
  needed, once.
- **GB read+written**: operands and results of all instructions, loops as often as they run; what the TPU compiler
  keeps in VMEM does not count. Not known for GPUs, whose compiler fuses otherwise than a CPU's: their times are of
  arithmetic and links alone, and so too short.
- **GB sent**: by one device, the ring algorithms' share of every exchange; for GPUs partly in float32, as the CPU's
  program has it.
- **ms a step, sequences/s, MFU**: {note} None has been compared with a real machine yet.
- **bold**: the cheapest of the meshes tried, by the slower of both times; a mesh that stands alone is the only one that
  was tried. The last line of each, where it was looked for: about the largest batch that fits on it. The paper's batch
  is small for 256 chips: a sequence each.

What the makers state, of one chip:"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scaling", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, metavar="DIR", help="for what each case found")
    parser.add_argument("--topologies", default=",".join(TOPOLOGIES), metavar="NAMES", help="default: %(default)s")
    parser.add_argument("--meshes", default=",".join(MESHES), metavar="KINDS", help="default: %(default)s")
    parser.add_argument("--results", default="experiments/results", metavar="DIR", help="default: %(default)s")
    parser.add_argument("--largest", action=argparse.BooleanOptionalAction, default=True, help="batch; see above")
    parser.add_argument("--at_a_time", type=int, default=2, metavar="N", help="cases at once (default %(default)s)")
    return parser


if __name__ == "__main__":
    main()
