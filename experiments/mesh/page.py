"""What ``search.check`` found, as a table for the terminal and as one for a page."""

from __future__ import annotations

from typing import Any

from experiments.mesh.topologies import CHIPS, GPUS_IN_A_BOX, Topology
from experiments.tables import plain

HEADER = ("mesh", "batch", "GiB/device", "TFLOP", "GB read+written", "GB sent", "ms a step", "sequences/s", "MFU")
NOTE = (
    "Two figures are estimates at the chip's stated speeds: arithmetic, memory and links all at once, and one after the"
    " other.\nNeither knows of any inefficiency; they are for comparing meshes."
)
BEYOND_THE_BOX = (
    f"More than {GPUS_IN_A_BOX} GPUs: what is sent between boxes goes by a slower network, which is not counted."
)


def terminal_table(found: dict[str, Any]) -> str:
    """One table a phase, the cheapest mesh marked, and the largest batch that fits on it."""
    topology = Topology.of(found["topology"])
    model = found["model"]
    lines = [
        f"{found['task']}, {model['num_hidden_layers']} layers of {model['hidden_size']}, {model['dtype']}, on"
        f" {found['topology']}: {topology.count} x {stated(topology)}; {found['compiler']}"
    ]
    for phase in found["phases"]:
        lines += ["", f"batch {phase['batch_size']:,} of {phase['length']} tokens", ""]
        rows = [row(one) for one in phase["tried"]]
        if phase["cheapest"] is not None:
            rows[phase["cheapest"]][0] += " *"
        if phase["largest"]:
            rows.append(row(phase["largest"]))
        lines += plain(HEADER, rows, right=True)
        lines.append("* cheapest of these" if phase["cheapest"] is not None else fits_nowhere(phase))
        if phase["largest"]:
            lines[-1] += (
                f"; last line: about the largest batch that fits there ({phase['largest']['device_rows']:,} a device)"
            )
    beyond = [BEYOND_THE_BOX] if topology.chip.platform == "cuda" and topology.count > GPUS_IN_A_BOX else []
    return "\n".join([*lines, "", NOTE, *beyond])


def stated(topology: Topology) -> str:
    """The chip's figures that the predictions use."""
    chip = topology.chip
    return (
        f"{chip.flops / 1e12:.0f} TFLOP/s, {chip.memory_bytes / 2**30:.0f} GiB at {chip.memory_speed / 1e9:,.0f} GB/s,"
        f" links {chip.link_speed / 1e9:.0f} GB/s"
    )


def row(one: dict[str, Any]) -> list[str]:
    """The cells of ``HEADER``."""
    name = one["mesh_name"] + (" remat" if one["remat"] else "")
    if not one["fits"]:
        room = "does not fit" if one["memory_bytes"] is None else f"{one['memory_bytes'] / 2**30:.1f}: does not fit"
        return [name, f"{one['batch_size']:,}", room, *[""] * (len(HEADER) - 3)]
    best, worst = one["seconds"]
    speeds = [one["batch_size"] / seconds for seconds in (best, worst)]
    return [
        name,
        f"{one['batch_size']:,}",
        f"{one['memory_bytes'] / 2**30:.2f}",
        f"{one['device_flops'] / 1e12:.3g}",
        f"{one['traffic_bytes'] / 1e9:.3g}" if one["traffic_bytes"] else "not known",
        f"{one['sent_bytes'] / 1e9:.2g}",
        f"{1e3 * best:.3g} - {1e3 * worst:.3g}",
        f"{speeds[1]:,.0f} - {speeds[0]:,.0f}",
        f"{one['mfu'][1]:.0%} - {one['mfu'][0]:.0%}",
    ]


def fits_nowhere(phase: dict[str, Any]) -> str:
    """What to do about it."""
    return (
        f"a batch of {phase['batch_size']:,} fits on none of these; try --config.model.remat=True,"
        " --config.accumulation_steps=2, or --meshes with more fsdp or tensor"
    )


def chips() -> list[list[str]]:
    """The stated figures of every chip, for a page."""
    return [
        [
            name,
            f"{chip.flops / 1e12:.0f}",
            f"{chip.memory_bytes / 2**30:.0f}",
            f"{chip.memory_speed / 1e9:,.0f}",
            f"{chip.link_speed / 1e9:.0f}",
        ]
        for name, chip in CHIPS.items()
    ]
