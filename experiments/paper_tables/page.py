"""The tables as text: a line a cell, and below them the commands."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.paper_tables.cell import Line, Scale, Table
from experiments.paper_tables.estimates import seconds, where
from experiments.paper_tables.measured import Measured, measure
from experiments.paper_tables.results import Library
from experiments.paper_tables.run import Places, Run
from experiments.tables import marked, plain

MEASURED, SCALED_DOWN, NOT_RUN = "measured", "scaled down", "not run"
HEADER = ("row", "cell", "paper", "ours", "diff.", "spread", "seeds", "state", "time", "hardware", "command")
SMALL_HEADER = ("row", "cell", "ours", "spread", "seeds", "order", "paper's order", "paper", *HEADER[7:])
WIDTH = 120


class Filled(NamedTuple):
    """A line of a table with our figure, where there is one."""

    line: Line
    found: Measured | None


def fill(table: Table, library: Library) -> list[Filled]:
    return [Filled(line, measure(line.cell, library)) for line in table.lines()]


def page(name: str, scale: Scale, library: Library, places: Places, *, markdown: bool) -> str:
    """A table, what to mind, and its commands."""
    table, runs = scale.tables[name], scale.runs_of([name])
    lines = fill(table, library)
    numbers = {run.name: number for number, run in enumerate(runs, 1)}
    rows = small_rows(table, lines, scale, numbers) if scale.scaled_down else full_rows(lines, scale, numbers)
    header = SMALL_HEADER if scale.scaled_down else HEADER
    title = f"{table.paper.title}{', scaled down' if scale.scaled_down else ''}"
    notes = [*table.notes, *reasons(lines), *(line for run in runs for line in library.complaints(run.name))]
    notes += [] if scale.scaled_down else other_systems(table)
    commands = command_lines(runs, numbers, scale, places)
    if markdown:
        title, below = f"## {title}", [f"- {note}" for note in notes]
        text, commands = marked(header, rows), [f"    {line}" for one in commands for line in one.splitlines()]
    else:
        text = "\n".join(plain(header, rows))
        below = [textwrap.fill(note, WIDTH, subsequent_indent="  ") for note in notes]
    return "\n\n".join(filter(None, (title, text, "\n".join(below), "\n".join(commands))))


def full_rows(lines: Sequence[Filled], scale: Scale, numbers: Mapping[str, int]) -> list[tuple[str, ...]]:
    """The cells of ``HEADER``."""
    rows = []
    for one in lines:
        line, found = one.line, one.found
        split = f" ({line.cell.split})" if found and line.cell.split else ""
        difference = None if found is None or line.paper is None or split else found.value - line.paper
        ours = f"{number(found.value if found else None)}{split}"
        rows.append(
            (line.row, line.column, number(line.paper), ours, number(difference, "+"), *rest(one, scale, numbers))
        )
    return rows


def small_rows(
    table: Table, lines: Sequence[Filled], scale: Scale, numbers: Mapping[str, int]
) -> list[tuple[str, ...]]:
    """The cells of ``SMALL_HEADER``: no differences, which would mean nothing, but the order of a column's rows."""
    theirs = {column: orders(table, lines, column, theirs=True) for column in {one.line.column for one in lines}}
    # Without an order of the paper's there is nothing to compare with, and losses of other objectives have none.
    ours = {column: orders(table, lines, column, theirs=False) if there else {} for column, there in theirs.items()}
    rows = []
    for one in lines:
        (row, column, paper, _), (spread, seeds, *after) = one.line, rest(one, scale, numbers)
        first = (row, column, number(one.found.value if one.found else None), spread, seeds)
        order = (ours[column].get(row, ""), theirs[column].get(row, ""))
        rows.append((*first, *order, number(paper), *after))
    return rows


def orders(table: Table, lines: Sequence[Filled], column: str, *, theirs: bool) -> dict[str, str]:
    """Row -> its place in a column, the best first: "2 of 6". Rows with the same figure share a place.

    Both are counted among the rows that both have, the paper's alone where nothing is measured; nothing of one row.
    """
    there = [one for one in lines if one.line.column == column and one.line.paper is not None]
    there = [one for one in there if one.found] or there
    values = {one.line.row: one.line.paper if theirs else one.found and one.found.value for one in there}
    known = {row: value for row, value in values.items() if value is not None}
    if len(known) < 2:
        return {}
    sign = 1.0 if column in table.lower_is_better else -1.0
    return {
        row: f"{1 + sum(sign * other < sign * value for other in known.values())} of {len(known)}"
        for row, value in known.items()
    }


def rest(one: Filled, scale: Scale, numbers: Mapping[str, int]) -> tuple[str, ...]:
    """Spread, seeds, state, time, hardware and command of a line."""
    cell, found = one.line.cell, one.found
    command = f"[{numbers[cell.run]}]" if cell.run else "none"
    if found is None:
        run = scale.runs.get(cell.run)
        told = f"{duration(seconds(run, scale.runs, scale.data_sets, scale.machine))} est." if run else ""
        return ("", "", NOT_RUN, told, where(run, scale.machine) if run else "", command)
    spread = "" if found.spread is None else f"±{found.spread:.2f}"
    count = len(found.values)
    seeds = f"{count}" if found.points == count else f"{count} of {found.points}"
    state = SCALED_DOWN if scale.scaled_down else MEASURED
    return (spread, seeds, state, duration(found.seconds), found.hardware, command)


def reasons(lines: Sequence[Filled]) -> list[str]:
    """Why cells cannot be filled, each reason once with its cells."""
    found: dict[str, list[str]] = {}
    for one in lines:
        if one.line.cell.reason:
            found.setdefault(one.line.cell.reason, []).append(f"{one.line.row}, {one.line.column}")
    return [f"Not filled: {'; '.join(cells)}: {reason}." for reason, cells in found.items()]


def other_systems(table: Table) -> list[str]:
    """The paper's figures of rows that are not ours."""
    rows = (
        (row, "; ".join(f"{column} {number(figure)}" for column, figure in found.items()))
        for row, found in table.others()
    )
    return [f"Of another system, by the paper: {row}: {figures}" for row, figures in rows]


def command_lines(runs: Sequence[Run], numbers: Mapping[str, int], scale: Scale, places: Places) -> list[str]:
    """Numbered, with time and what goes before."""
    result = []
    for run in runs:
        told = seconds(run, scale.runs, scale.data_sets, scale.machine)
        hours = f", {duration(told)} on {where(run, scale.machine)} by estimate" if told else ""
        after = ", ".join(f"[{numbers[name]}]" for name in run.after)
        about = "".join(filter(None, (f"after {after}" if after else "first", hours)))
        result.append(f"[{numbers[run.name]}] {about}\n    {run.command(places)}")
    return result


def plan(runs: Sequence[Run], scale: Scale) -> list[str]:
    """Every run with its estimated time, and the sum."""
    times = [seconds(run, scale.runs, scale.data_sets, scale.machine) for run in runs]
    rows = [(run.name, run.program, duration(told)) for run, told in zip(runs, times, strict=True)]
    table = plain(("run", "program", "estimate"), rows)
    return [*table, "", f"{len(runs)} runs, {duration(sum(times))} by estimate: {scale.machine.about}"]


def number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.2f}".removesuffix("0")


def duration(told: float) -> str:
    """Hours, or where they are few minutes."""
    return f"{told / 3600:,.1f} h" if told >= 3600 else f"{told / 60:.1f} min"
