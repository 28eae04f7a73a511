"""The page of ``gpu_check``: ``gpu.json`` and ``gpu.md`` in one directory, and the same tables for a terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from bert_jax.data.writing import write_json, written
from experiments.gpu.plan import PARTS
from experiments.mesh.topologies import CHIPS
from experiments.tables import marked, plain

NAME = "gpu"
AIM_UTILISATION, AIM_RATIO = 0.60, 1.2  # of LARGE at 128
# Dense bfloat16 TFLOP/s by NVIDIA's data sheets (half of what they give "with sparsity"); the first name that fits.
DATA_SHEETS = {"H200 NVL": 835.0, "H100 NVL": 835.0, "H100 PCIe": 756.0, "L40S": 362.0, "L40": 181.0, "L4": 121.0}
DATA_SHEETS |= {name.upper(): chip.flops / 1e12 for name, chip in CHIPS.items() if chip.platform == "cuda"}
ABOUT = f"""Pre-training is the step that training compiles: masking, forward, backward, clip, update, in bfloat16 with
float32 parameters, dropout 0.1. The peer is `BertForPreTraining` of PyTorch `transformers` with SDPA, autocast and
fused AdamW, fed ready-masked batches of the same shape, eager and through `torch.compile`. Both compile at once; then
each has the card to itself, with the largest batch of a short list that fits. Sequences a second are by the median of
rounds of queued steps. MFU is the operations of the matrix products that a step cannot do without
(`benchmark_step.required_flops`: logits of predicted tokens only) over time and peak: the best product of two matrices
seen in the same run, JAX's or PyTorch's, and the data sheet's. Aim, for LARGE at 128: at least {AIM_UTILISATION:.0%} of
the measured peak, and at least {AIM_RATIO} times the peer's faster form."""


class Table(NamedTuple):
    """A title, a line below it (may be empty), the header, and rows of as many cells."""

    title: str
    note: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]


def write_page(whole: dict[str, Any], directory: Path) -> str:
    """Writes figures and page; returns the text for the terminal."""
    write_json(directory / f"{NAME}.json", whole)
    with written(directory / f"{NAME}.md") as temporary:
        temporary.write_text(markdown(whole), encoding="utf-8")
    return "\n\n".join(map(_plain, tables(whole)))


def markdown(whole: dict[str, Any]) -> str:
    title = "# On a GPU"
    if whole["settings"]["dry_run"]:
        title = "# DRY RUN: tiny sizes on a CPU, no figure here means anything"
    return "\n\n".join([title, ABOUT, *map(_marked, tables(whole))]) + "\n"


def tables(whole: dict[str, Any]) -> list[Table]:
    """Those for which there is something, and always what ran."""
    parts = {name: entry["figures"] for name, entry in whole["parts"].items() if entry["figures"]}
    made = [_machine(whole, parts), _aims(parts), _pretraining(whole, parts)]
    makers = {"settings": _settings, "correctness": _correctness, "attention": _attention}
    makers |= {"finetuning": _finetuning, "layers": _layers}
    for name, make in makers.items():
        if name in parts:
            made.append(make(parts[name], parts))
    return [table for table in [*made, _states(whole)] if table.rows]


def measured_peak(parts: dict[str, Any]) -> tuple[str, float] | None:
    """Which product of matrices was the fastest, and its TFLOP/s."""
    speeds = parts.get("machine", {}).get("matmul_gflops")
    if not speeds:
        return None
    best = max(speeds, key=speeds.__getitem__)
    return best, speeds[best] / 1000


def data_sheet_peak(card: dict[str, str] | None) -> float | None:
    """TFLOP/s of a card that the table has."""
    name = card["name"] if card else ""
    return next((peak for part, peak in DATA_SHEETS.items() if re.search(rf"\b{part}\b", name)), None)


def best_of_same_model(parts: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
    """Title and figures of our fastest settings, of those that train what the default trains, the default included."""
    settings = parts.get("settings", {})
    found = {"default": parts.get(settings.get("case", "large-128"), {}).get("ours", {"failed": ""})}
    for entry in settings.get("variants", ()):
        if entry["variant"]["same_model"]:
            found[entry["variant"]["title"]] = entry["found"]
    ran = {title: figures for title, figures in found.items() if "failed" not in figures}
    title = max(ran, key=lambda name: ran[name]["sequences_a_second"], default=None)
    return None if title is None else (title, ran[title])


def _machine(whole: dict[str, Any], parts: dict[str, Any]) -> Table:
    settings, peak = whole["settings"], measured_peak(parts)
    card = settings["card"] or {"name": "no NVIDIA card"}
    sheet = data_sheet_peak(settings["card"])
    rows = [("card", ", ".join(f"{value}" if key == "name" else f"{key} {value}" for key, value in card.items()))]
    rows.append(("versions", ", ".join(f"{name} {version}" for name, version in settings["versions"].items())))
    if host := parts.get("machine", {}).get("machine"):
        rows.append(("host", f"{host['processor']}, {host['cores']} cores, Python {host['python']}, {host['system']}"))
    if peak:
        speeds = parts["machine"]["matmul_gflops"]
        shown = ", ".join(f"{name} {speed / 1000:,.1f}" for name, speed in speeds.items())
        rows += [("peak measured, bfloat16", f"{peak[1]:,.1f} TFLOP/s ({peak[0]})"), ("all products, TFLOP/s", shown)]
    rows.append(("peak by the data sheet, dense", f"{sheet:,.0f} TFLOP/s" if sheet else "not known for this card"))
    return Table("Machine", "", ("", ""), rows)


def _aims(parts: dict[str, Any]) -> Table:
    rows: list[tuple[str, ...]] = []
    case, best, peak = parts.get("large-128", {}), best_of_same_model(parts), measured_peak(parts)
    if best and peak:
        used = best[1]["tflops"] / peak[1]
        rows.append((f"MFU at least {AIM_UTILISATION:.0%}", f"{used:.1%} ({best[0]})", _met(used >= AIM_UTILISATION)))
    peers = [case[side] for side in ("peer", "compiled") if "sequences_a_second" in case.get(side, {})]
    if best and peers:
        ratio = best[1]["sequences_a_second"] / max(peer["sequences_a_second"] for peer in peers)
        rows.append((f"at least {AIM_RATIO} x PyTorch", f"{ratio:.2f} ({best[0]})", _met(ratio >= AIM_RATIO)))
    return Table("Aims, LARGE at 128", "", ("aim", "found", ""), rows)


def _pretraining(whole: dict[str, Any], parts: dict[str, Any]) -> Table:
    header = ("case", "batch", "ours/s", "MFU", "of data sheet", "GB", "compile s")
    header += ("eager/s", "ours / eager", "compiled/s", "ours / compiled", "its compile s")
    peak, sheet = measured_peak(parts), data_sheet_peak(whole["settings"]["card"])
    rows, failures = [], []
    for part in PARTS:
        found = parts.get(part.name, {})
        if "case" not in found or part.name == "layers" or not isinstance(found["case"], dict):
            continue
        sides = {side: found.get(side, {"failed": "not measured"}) for side in ("ours", "peer", "compiled")}
        failures += [f"{part.name}, {name}: {one['failed']}" for name, one in sides.items() if "failed" in one]
        batches = dict.fromkeys(str(one["batch"]) for one in sides.values() if "batch" in one)
        ours, eager, compiled = sides.values()
        rows.append(
            (
                f"{found['case']['size']} {found['case']['seq']}",
                ", ".join(batches) or "-",
                _number(ours, "sequences_a_second"),
                _share(ours, peak[1] if peak else None),
                _share(ours, sheet),
                _number(ours, "memory_gb"),
                _number(ours, "compile_seconds"),
                _number(eager, "sequences_a_second"),
                _ratio(ours, eager),
                _number(compiled, "sequences_a_second"),
                _ratio(ours, compiled),
                _number(compiled, "compile_seconds"),
            )
        )
    return Table("Pre-training, sequences a second", "; ".join(failures), header, rows)


def _settings(found: dict[str, Any], parts: dict[str, Any]) -> Table:
    peak, default = measured_peak(parts), parts.get(found["case"], {}).get("ours", {"failed": "not measured"})
    rows = []
    for title, figures, same in [
        ("default", default, True),
        *((one["variant"]["title"], one["found"], one["variant"]["same_model"]) for one in found["variants"]),
    ]:
        told = figures.get("failed", "" if same else "trains another model: for its cost only")
        speed, used = _number(figures, "sequences_a_second"), _share(figures, peak[1] if peak else None)
        rows.append((title, _number(figures, "batch"), speed, used, _number(figures, "compile_seconds"), told))
    best = best_of_same_model(parts)
    note = f"Fastest that trains the same model: {best[0]}." if best else ""
    return Table(f"Settings, {found['case']}", note, ("settings", "batch", "ours/s", "MFU", "compile s", ""), rows)


def _correctness(found: dict[str, Any], parts: dict[str, Any]) -> Table:
    rows = [
        (check["what"], check["name"], f"{check['value']:.2e}", f"{check['limit']:.0e}", _passed(check["passed"]))
        for check in found["checks"]
    ]
    verdict = _passed(all(check["passed"] for check in found["checks"]))
    note = f"{verdict}. Attention by auto: {found['kernel']}."
    return Table("Against float32, highest precision", note, ("computed in", "what", "found", "limit", ""), rows)


def _attention(found: dict[str, Any], parts: dict[str, Any]) -> Table:
    rows = []
    for case in found["cases"]:
        count, seq, packed = (case["rows"][name] for name in ("rows", "seq", "packed"))
        for name, one in case["found"].items():
            figures = (_number(one, "milliseconds", ".3f"), _number(one, "tflops"), _number(one, "difference", ".1e"))
            rows.append((f"{count} x {seq}{' packed' * packed}", name, *figures, one.get("failed", "")))
    header = ("rows", "by", "ms, both passes", "TFLOP/s", "off, in deviations", "")
    return Table("Attention alone, one layer, bfloat16", "", header, rows)


def _finetuning(found: dict[str, Any], parts: dict[str, Any]) -> Table:
    rows = []
    for case in found["cases"]:
        for what, figures in case["found"].items():
            median, ratio = figures["median"], figures["ratio"].get("peer")
            peer = f"{1 / median['peer']:,.0f}" if "peer" in median else "-"
            against = f"{ratio:.2f}" if ratio else "-"
            rows.append((what, str(case["batch_size"]), f"{1 / median['ours']:,.0f}", peer, against))
    note = "Ours packed, the peer padded to the longest of each batch; sentences of 24 words in the median."
    header = ("", "batch", "ours/s", "peer/s", "ours / peer")
    return Table(f"Fine-tuning {found['size']}, sentences a second", note, header, rows)


def _layers(found: dict[str, Any], parts: dict[str, Any]) -> Table:
    whole = sum(found["parts"].values())
    rows = [(name, f"{ms:.2f}", f"{ms / whole:.1%}") for name, ms in found["parts"].items()]
    title = f"Parts of our step, {found['case']}, {found['batch']} rows, each compiled on its own"
    return Table(title, "", ("both passes", "ms", "of their sum"), rows)


def _states(whole: dict[str, Any]) -> Table:
    titles = {part.name: part.title for part in PARTS}
    rows = [
        (titles[name], entry["state"], f"{entry['seconds']:.0f}" if "seconds" in entry else "-", entry["date"])
        for name, entry in whole["parts"].items()
    ]
    return Table("What ran", "", ("part", "", "seconds", "date"), rows)


def _number(figures: dict[str, Any], name: str, form: str = ",.1f") -> str:
    value = figures.get(name)
    return "-" if value is None else str(value) if isinstance(value, int) else format(value, form)


def _share(figures: dict[str, Any], peak: float | None) -> str:
    return "-" if peak is None or "tflops" not in figures else f"{figures['tflops'] / peak:.1%}"


def _ratio(ours: dict[str, Any], peer: dict[str, Any]) -> str:
    if "failed" in ours or "failed" in peer:
        return "-"
    return f"{ours['sequences_a_second'] / peer['sequences_a_second']:.2f}"


def _met(met: bool) -> str:
    return "met" if met else "missed"


def _passed(passed: bool) -> str:
    return "PASS" if passed else "FAIL"


def _marked(table: Table) -> str:
    return "\n\n".join([f"## {table.title}", *[table.note] * bool(table.note), marked(table.header, table.rows)])


def _plain(table: Table) -> str:
    lines = (f"  {line}" for line in plain(table.header, table.rows))
    return "\n".join([table.title, *[table.note] * bool(table.note), *lines])
