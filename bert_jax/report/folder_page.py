"""The page of a folder of runs: what each reached, what its settings reach on average, and how they learned."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from html import escape
from urllib.parse import quote

from bert_jax.report.charts import Number
from bert_jax.report.elements import duration, folded, header, section, short, table_head, table_row
from bert_jax.report.figures import figure_of
from bert_jax.report.folder import PAGE, Entry, Folder
from bert_jax.report.mistakes import confusion
from bert_jax.report.run import Run
from bert_jax.report.studies import COLOURS, Setting, Study, studies
from bert_jax.report.study_charts import accuracy_by_place, learning_curves, sensitivity

NONE = "–"


def folder_page(folder: Folder) -> str:
    """The body of the page."""
    found = studies(folder.entries)
    parts = [folder_header(folder, found), *(study_section(folder, study) for study in found)]
    if folder.unreadable:
        rows = "".join(table_row([escape(path), escape(why)], texts=2) for path, why in folder.unreadable)
        table = f'<div class="card"><table>{table_head(("folder", "why"), texts=2)}<tbody>{rows}</tbody></table></div>'
        parts.append(section("What could not be read", table))
    return "".join(parts)


def folder_header(folder: Folder, found: Sequence[Study]) -> str:
    """How much there is, and of when."""
    entries = folder.entries
    finished = sum(entry.finished is True for entry in entries)
    unfinished = sum(entry.finished is False for entry in entries)
    settings = sum(len(study.settings) for study in found)
    facts = [counted(len(entries), "run"), counted(settings, "setting")]
    facts[1] += f" of {len(found)} tasks or data sets" if len(found) > 1 else ""
    facts.append(f'<span class="status">{finished} finished</span>' if finished else "")
    facts.append(f'<span class="status open">{unfinished} not finished</span>' if unfinished else "")
    facts.append(f'<span class="status open">{len(folder.unreadable)} not readable</span>' if folder.unreadable else "")
    if seconds := sum(entry.run.seconds for entry in entries):
        facts.append(f"{duration(seconds)} of training in all")
    if times := [entry.run.last_time for entry in entries if entry.run.last_time]:
        days = [time.strftime("%Y-%m-%d", time.gmtime(moment)) for moment in (min(times), max(times))]
        facts.append(" to ".join(dict.fromkeys(days)))
    return header(folder.directory.name, facts)


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def study_section(folder: Folder, study: Study) -> str:
    """Everything of the runs that can be compared with each other."""
    charts = [sensitivity(study), *learning_curves(study)]
    right = "".join(accuracy_by_place(study))
    hidden = len(study.settings) - COLOURS
    about = "Lines are means over the seeds of a setting, bands reach from the lowest to the highest seed."
    about += f" Pale: the {hidden} settings with a lower rank." if hidden > 0 else ""
    about += " Unfinished runs are left out where others of their setting are finished."
    parts = [
        f'<p class="quiet">{hardware_line(study)}</p>',
        settings_table(study),
        runs_table(folder, study),
        part("How they learned", f'<p class="quiet">{about}</p><div class="charts">{"".join(charts)}</div>'),
        part("Where they are right", f'<div class="charts">{right}</div>') if right else "",
        part("Where they err", matrices) if (matrices := confusions(study)) else "",
    ]
    return section(study.title, "".join(parts))


def part(title: str, content: str) -> str:
    return f"<h3>{escape(title)}</h3>{content}"


def settings_table(study: Study) -> str:
    """A row a setting: the spread of the figure over its finished runs; the best median is marked."""
    if study.figure is None:
        return '<p class="quiet">Nothing was evaluated yet.</p>'
    title, _, write = figure_of(study.figure)
    best = next((setting for setting in study.ranked() if setting.complete), None)
    rows = []
    for setting in study.settings:
        name = f'<span class="key {setting.kind}"><i></i>{escape(setting.name)}</span>'
        if setting is best and len(study.settings) > 1:
            name = f"<b>{name}</b>"
        rows.append(table_row([name, *statistics_cells(study, setting, write)]))
    head = table_head((title, "median", "mean", "s.d.", "best", "n", *(("degenerate",) if told(study) else ())))
    about = f"{'Higher' if study.mode == 'max' else 'Lower'} is better; of the last evaluation of each finished run."
    if len(study.settings) > 1 and best is not None:
        about += f" Best by median: {best.name}."
    about += " s.d. is with n − 1." + (" A degenerate run gives one answer to all." if told(study) else "")
    about = f'<p class="answer">{escape(about)}</p>'
    return f'<div class="card part"><table class="settings">{head}<tbody>{"".join(rows)}</tbody></table>{about}</div>'


def statistics_cells(study: Study, setting: Setting, write: Callable[[Number], str]) -> list[str]:
    found = study.statistics(setting) if setting.complete else None
    if found is None:
        cells = [NONE, NONE, NONE, NONE, "0", NONE]
    else:
        deviation = NONE if found.deviation is None else write(found.deviation)
        cells = [write(found.median), write(found.mean), deviation, write(found.best), str(found.n)]
        cells.append(str(found.degenerate))
    return cells if told(study) else cells[:-1]


def told(study: Study) -> bool:
    """Whether evaluations say which runs are degenerate."""
    return any("degenerate" in entry.run.last_evaluation for entry in study.entries)


def runs_table(folder: Folder, study: Study) -> str:
    """A row a run, under its setting; hardware has a column where it differs."""
    several = len({hardware(entry.run) for entry in study.entries}) > 1
    title = figure_of(study.figure).title if study.figure else "figure"
    names = ("run", "state", *(("hardware",) if several else ()), title, "training loss", "tokens/s", "time")
    texts = 2 + several
    groups = []
    for setting in study.settings:
        name = f'<span class="key {setting.kind}"><i></i>{escape(setting.name)}</span>'
        rows = [table_row(run_cells(folder, study, entry, several), texts) for entry in setting.entries]
        groups.append(f'<tbody><tr class="group"><th colspan="{len(names)}">{name}</th></tr>{"".join(rows)}</tbody>')
    return f'<div class="card part"><table class="runs">{table_head(names, texts)}{"".join(groups)}</table></div>'


def run_cells(folder: Folder, study: Study, entry: Entry, several: bool) -> list[str]:
    """A run as HTML: its page is linked where it has one."""
    run, write = entry.run, figure_of(study.figure or "").write
    name, link = escape(entry.path), f"{quote(os.fsencode(entry.path))}/{PAGE}"
    if entry.path != "." and (folder.directory / entry.path / PAGE).is_file():
        name = f'<a href="{escape(link)}">{name}</a>'
    kind = "status" if entry.finished else "status open" if entry.finished is False else "quiet"
    state = f'<span class="{kind}">{escape(entry.state)}</span>'
    if run.last_evaluation.get("degenerate"):
        state += " · degenerate"
    value, loss = study.value(entry), run.curve("loss")[1]
    return [
        name,
        state,
        *([escape(hardware(run))] if several else []),
        NONE if value is None else write(value),
        f"{loss[-1]:.3f}" if loss else NONE,
        short(run.tokens_per_second) if run.tokens_per_second else NONE,
        duration(run.seconds) if run.seconds else NONE,
    ]


def hardware(run: Run) -> str:
    """Devices, and of a CPU which."""
    devices = str(run.environment.get("devices") or "")
    if devices.endswith("cpu"):
        cores = run.environment.get("cpu_cores")
        devices = ", ".join(filter(None, (run.environment.get("processor"), cores and f"{cores} cores")))
    return devices or "not recorded"


def hardware_line(study: Study) -> str:
    """What all runs were on, where it is the same, and their model."""
    found = {hardware(entry.run) for entry in study.entries}
    facts = [f"All on {found.pop()}"] if len(found) == 1 else []
    shapes = {(e.run.model.get("num_hidden_layers"), e.run.model.get("hidden_size")) for e in study.entries}
    if len(shapes) == 1 and None not in (shape := shapes.pop()):
        facts.append(f"BERT of {shape[0]} layers × {shape[1]}")
    return escape(" · ".join(facts))


def confusions(study: Study) -> str:
    """The best setting's confusion matrix, summed over its seeds, and folded those of the others that are in colour."""
    drawn = []
    for setting in study.ranked():
        matrices = [matrix for entry in setting.counted if (matrix := entry.run.evaluation.get("confusion_matrix"))]
        same = [matrix for matrix in matrices if matrix["labels"] == matrices[0]["labels"]]
        if same and setting.kind != "rest":
            title = f"{setting.name}" + (f", sum of {len(same)} runs" if len(same) > 1 else "")
            drawn.append((title, confusion(same[0]["labels"], summed([matrix["counts"] for matrix in same]))))
    if not drawn:
        return ""
    (title, first), *others = drawn
    return f'<p class="quiet">{escape(title)}</p>{first}{"".join(folded(*other) for other in others)}'


def summed(matrices: Sequence[Sequence[Sequence[int]]]) -> list[list[int]]:
    """Cell by cell."""
    return [[sum(cells) for cells in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]
