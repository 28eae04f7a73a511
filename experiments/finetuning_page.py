"""The page of ``compare_finetuning``: statistics over seeds, ``finetuning_comparison.json`` and ``.md``."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from experiments.finetuning_cases import CASES

NAME = "finetuning_comparison"
FEWEST = 3  # seeds for an interval
LABELS = {"ours": "bert_jax", "peer": "PyTorch transformers"}


def write_page(results: dict[str, Any], directory: Path) -> None:
    """Writes figures and page, and prints the table.

    Other cases that ``directory`` has already, of the same encoder and machine, stay.
    """
    for entry in results["cases"]:
        entry["summary"] = summarise(entry["case"], entry["runs"])
    path = directory / f"{NAME}.json"
    new = {entry["case"]: entry for entry in results["cases"]}
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"cases": []}
    same = found.get("encoder") == results["encoder"] and _hardware(found) == _hardware(results)
    old = {entry["case"]: entry for entry in found["cases"] if same}
    results = results | {"cases": [new.get(case) or old[case] for case in CASES if case in new or case in old]}
    directory.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = page(results)
    (directory / f"{NAME}.md").write_text(text, encoding="utf-8")
    print(score_table(results["cases"]))


def published_runs(directory: Path, case: str, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs of a case on the page in ``directory``, if they had just these settings."""
    path, wanted = directory / f"{NAME}.json", json.loads(json.dumps(settings))
    found = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []
    return [run for entry in found if entry["case"] == case and entry["settings"] == wanted for run in entry["runs"]]


def _hardware(results: dict[str, Any]) -> dict[str, Any]:
    """The machine but for its kernel, which a rented one changes overnight."""
    return {name: value for name, value in results.get("machine", {}).items() if name != "system"}


def summarise(case: str, runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """{"scores": {metric: {side: statistics, "verdict": ...}}, "degenerate": {side: runs}}.

    Scores in per cent; "verdict" says where our mean lies by the peer's 95 % interval.
    """
    of = {side: [run for run in runs if run["side"] == side] for side in LABELS}
    scores = {}
    for metric, (_, factor) in CASES[case].metrics.items():
        values = {side: [factor * run["scores"][metric] for run in of[side]] for side in LABELS}
        scores[metric] = {side: statistics(values[side]) for side in LABELS}
        low, high = scores[metric]["peer"]["interval"]
        mean = scores[metric]["ours"]["mean"]
        verdict = "unknown" if low is None else "below" if mean < low else "above" if mean > high else "inside"
        scores[metric]["verdict"] = verdict
    return {
        "scores": scores,
        "degenerate": {side: sum(is_degenerate(case, run["scores"]) for run in of[side]) for side in LABELS},
    }


def statistics(values: Sequence[float]) -> dict[str, Any]:
    """Mean, standard deviation (n - 1), median, max, and the 95 % interval of the mean by Student's t.

    One value has no deviation; fewer than ``FEWEST`` have no interval that says anything.
    """
    n = len(values)
    mean, deviation = float(np.mean(values)), float(np.std(values, ddof=1)) if n > 1 else None
    interval: list[float | None] = [None, None]
    if deviation is not None and n >= FEWEST:
        half = float(stats.t.ppf(0.975, n - 1)) * deviation / math.sqrt(n)
        interval = [mean - half, mean + half]
    return {
        "mean": mean,
        "standard_deviation": deviation,
        "median": float(np.median(values)),
        "max": float(max(values)),
        "interval": interval,
        "values": list(values),
    }


def is_degenerate(case: str, scores: dict[str, float]) -> bool:
    """Whether a run has learned nothing: one prediction for all, the majority's share, or no entity or answer right."""
    first = next(iter(CASES[case].metrics))
    return bool(scores.get("degenerate")) or scores[first] in (0.0, scores.get("majority_share", 0.0))


def score_table(cases: Sequence[dict[str, Any]]) -> str:
    """Markdown."""
    rows = [
        "| | | mean | s.d. | median | max | degenerate | peer's 95 % interval | our mean |",
        "|---|---" + "|--:" * 7 + "|",
    ]
    for entry in cases:
        case, summary = CASES[entry["case"]], entry["summary"]
        for metric, (title, _) in case.metrics.items():
            found = summary["scores"][metric]
            for side, label in LABELS.items():
                one, is_ours = found[side], side == "ours"
                low, high = found["peer"]["interval"]
                cells = [
                    f"{case.title}, {title}" if is_ours else "",
                    label,
                    *(_number(one[key]) for key in ("mean", "standard_deviation", "median", "max")),
                    f"{summary['degenerate'][side]} of {len(one['values'])}",
                    "" if is_ours else "–" if low is None else f"{low:.2f} to {high:.2f}",
                    f"**{found['verdict']}**" if is_ours else "",
                ]
                rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    cases, machine = results["cases"], results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    where = f"Machine: {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB; Python"
    where += f" {machine['python']}; {versions}."
    commands = "\n".join(f"    {command}" for command in dict.fromkeys(entry["command"] for entry in cases))
    return f"""# Fine-tuning beside PyTorch

{commands}

Encoder `{results["encoder"]}`, the same rows, hyperparameters and seeds on both sides. Head and dropout
are drawn by each side for itself; so is the order of the rows, but where the second table says "shared": there both
sides of a seed read them in one order, which on some thousand rows moves a score by points, on
either side alike. Ours packs several sequences into a row; the peer pads every batch to its longest sequence, evaluates
in the files' order, and both compute in float32. Scores in per cent on the development set after the last step.

{score_table(cases)}

The interval is that of the peer's mean (Student's t over seeds). A degenerate run gives one class for all, or finds no
entity or answer.

{_hyperparameters(cases)}

{textwrap.fill(where, 118)}
Hashes of data and encoder, and every seed's scores, are in `{NAME}.json`. How fast either is,
`experiments.benchmark` measures.
"""


def _hyperparameters(cases: Sequence[dict[str, Any]]) -> str:
    rows = [
        "| | seeds | batch | epochs | steps, ours / peer | length | learning rate | Adam's bias | order |",
        "|---|--:|--:|--:|--:|--:|--:|---|---|",
    ]
    for entry in cases:
        settings = entry["settings"]
        steps = {run["side"]: run["steps"] for run in entry["runs"]}
        rows.append(
            f"| {CASES[entry['case']].title} | {len({run['seed'] for run in entry['runs']})} |"
            f" {settings['batch_size']} | {settings['train_epochs']:g} |"
            f" {steps['ours']} / {steps['peer']} | {settings['max_seq_length']} |"
            f" {settings['optimizer']['learning_rate']:g} |"
            f" {'corrected' if settings['optimizer']['bias_correction'] else 'as the original'} |"
            f" {settings.get('order', 'its own')} |"
        )
    return "\n".join(rows)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
