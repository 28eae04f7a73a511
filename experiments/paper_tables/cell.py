"""Tables, rows and cells: what the paper says, and which figure of which run stands beside it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from experiments.paper_tables.estimates import DataSet, Machine
from experiments.paper_tables.run import Run, in_order

BEST, MEAN = "best", "mean"


@dataclass(frozen=True)
class Cell:
    """Where our figure of a cell comes from.

    Attributes:
        run: the run whose results hold it; "" where no run can give it.
        figure: its name in the result of a point.
        factor: from there to the paper's unit.
        statistic: ``BEST`` of all points, or the ``MEAN`` over the seeds of the best setting, both by the figure that
            the sweep chooses by.
        chosen_by: a run of the same points on other data, whose results choose the setting instead.
        split: what our figure is of; where the paper's is of another, "dev" for instance, they are not subtracted.
        reason: why no results file can fill the cell.
    """

    run: str = ""
    figure: str = ""
    factor: float = 1.0
    statistic: str = MEAN
    chosen_by: str = ""
    split: str = ""
    reason: str = ""


Cells = dict[tuple[str, str], Cell]  # of (row, column)


@dataclass(frozen=True)
class Published:
    """A table of the paper: a figure or None for each column of a row."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float | None, ...]]

    def figure(self, row: str, column: str) -> float | None:
        """None also where the paper has no such row or column."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]


class Line(NamedTuple):
    """One cell: its names, the paper's figure (None: it has none), and where ours comes from."""

    row: str
    column: str
    paper: float | None
    cell: Cell


@dataclass(frozen=True)
class Table:
    """A table as we make it.

    Attributes:
        paper: the paper's.
        cells: (row, column) -> where ours comes from. Rows of the paper without any are of other systems.
        stands_for: at another scale, our column -> the paper's that is shown beside it.
        lower_is_better: columns where it is.
        notes: what must be known to compare.
    """

    paper: Published
    cells: Mapping[tuple[str, str], Cell]
    stands_for: Mapping[str, str] = field(default_factory=dict)
    lower_is_better: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[Line]:
        """Our cells, in the order given."""
        for (row, column), cell in self.cells.items():
            yield Line(row, column, self.paper.figure(row, self.stands_for.get(column, column)), cell)

    def others(self) -> Iterator[tuple[str, dict[str, float]]]:
        """The other systems' rows: name, figures by column."""
        ours = {row for row, _ in self.cells}
        for row, figures in self.paper.rows.items():
            if row not in ours:
                found = zip(self.paper.columns, figures, strict=True)
                yield row, {column: figure for column, figure in found if figure is not None}


@dataclass(frozen=True)
class Scale:
    """All tables at one size: their runs by name, the data sets and the machine by which hours are estimated."""

    tables: Mapping[str, Table]
    runs: Mapping[str, Run]
    data_sets: Mapping[str, DataSet]
    machine: Machine
    scaled_down: bool = False

    def runs_of(self, tables: Iterable[str]) -> list[Run]:
        """Those of some tables, with all that they need, in an order in which they can run."""
        cells = (cell for name in tables for cell in self.tables[name].cells.values())
        return in_order((run for cell in cells for run in (cell.chosen_by, cell.run) if run), self.runs)
