"""The page of the tables at a laptop's size: prose by hand, and between marks what results files give.

``<!-- begin NAME -->`` and ``<!-- end -->`` stand around each block of ``experiments/results/paper_small.md``;
``blocks`` has their texts. NAME is "table N", "table figure5", "contrasts" or "runs". A figure of several seeds is
their mean with half the width of its 95 % interval (Student's t).
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from scipy import stats

from experiments.paper_tables.cell import Scale
from experiments.paper_tables.measured import Measured
from experiments.paper_tables.page import Filled, fill
from experiments.paper_tables.results import Library
from experiments.tables import marked

BLOCK = re.compile(r"(<!-- begin ([^>]+) -->\n).*?(<!-- end -->)", re.DOTALL)
# The row of each table that the others are compared with.
REFERENCES = {
    **{"1": "BERT-BASE", "2": "BERT-BASE", "4": "BERT-BASE", "5": "BERT-BASE", "6": "L 12, H 768, A 12"},
    **{"7": "BERT-LARGE, fine-tuning", "8": "80 / 10 / 10", "figure5": "left-to-right"},
}
AS_PAPER, OTHERWISE, OPEN = "as the paper's", "the other way round", "not told apart"


def refresh(path: Path, scale: Scale, library: Library) -> None:
    """Writes every block of the page anew, and the plot beside it.

    Raises:
        ValueError: the page has a block of an unknown name.
    """
    texts = blocks(scale, library)

    def block(found: re.Match[str]) -> str:
        if found[2] not in texts:
            raise ValueError(f"{path} has a block {found[2]!r}; take one of {', '.join(texts)}")
        return f"{found[1]}{texts[found[2]]}\n{found[3]}"

    path.write_text(BLOCK.sub(block, path.read_text(encoding="utf-8")), encoding="utf-8")
    plot(fill(scale.tables["figure5"], library), path.with_name(f"{path.stem}_figure5.svg"))


def blocks(scale: Scale, library: Library) -> dict[str, str]:
    """Name -> Markdown."""
    filled = {name: fill(table, library) for name, table in scale.tables.items()}
    found = {f"table {name}": matrix(lines) for name, lines in filled.items()}
    return found | {"contrasts": contrasts(filled), "runs": runs(scale, library)}


def matrix(lines: Sequence[Filled]) -> str:
    """Rows by columns: ours, and the paper's figure of what a cell stands for in brackets."""
    rows, columns = (list(dict.fromkeys(getattr(one.line, name) for one in lines)) for name in ("row", "column"))
    cells = {(one.line.row, one.line.column): cell(one) for one in lines}
    return marked(("", *columns), [(row, *(cells.get((row, column), "") for column in columns)) for row in rows])


def cell(one: Filled) -> str:
    if one.found is None:
        return "not run"
    half = interval(one.found.values)
    paper = "" if one.line.paper is None else f" ({one.line.paper:g})"
    return f"{one.found.value:.{2 if half is None else 1}f}{'' if half is None else f' ± {half:.1f}'}{paper}"


def interval(values: Sequence[float]) -> float | None:
    """Half the width of the mean's 95 % interval; None of a single value."""
    n = len(values)
    return float(stats.t.ppf(0.975, n - 1)) * statistics.stdev(values) / math.sqrt(n) if n > 1 else None


def contrasts(filled: Mapping[str, Sequence[Filled]]) -> str:
    """Every row against its table's reference, where the paper has both: its difference, ours seed by seed, whether the
    interval of ours has one sign, and whether that is the paper's."""
    rows, counts = [], dict.fromkeys((AS_PAPER, OTHERWISE, OPEN), 0)
    for table, reference in REFERENCES.items():
        first = {one.line.column: one for one in filled[table] if one.line.row == reference}
        for one in filled[table]:
            against = first.get(one.line.column)
            if against is None or one is against or not (one.found and against.found):
                continue
            if one.line.paper is None or against.line.paper is None or len(one.found.values) < 2:
                continue
            theirs = one.line.paper - against.line.paper
            mean, half = paired(one.found, against.found)
            verdict = OPEN if abs(mean) <= half else AS_PAPER if mean * theirs > 0 else OTHERWISE
            counts[verdict] += 1
            title = "Figure 5" if table == "figure5" else f"Table {table}"
            names = (title, f"{one.line.row} − {reference}", one.line.column)
            rows.append((*names, f"{theirs:+.1f}", f"{mean:+.1f} ± {half:.1f}", verdict))
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    header = ("", "difference", "of", "paper", "here", "its sign is")
    return f"Of {len(rows)} differences: {summary}.\n\n{marked(header, rows)}"


def paired(one: Measured, other: Measured) -> tuple[float, float]:
    """(mean, half the width of its interval) of the differences of the same seeds."""
    differences = [a - b for a, b in zip(one.values, other.values, strict=True)]
    return statistics.fmean(differences), interval(differences) or 0.0


def runs(scale: Scale, library: Library) -> str:
    """What was measured, in which time, on what, by which code."""
    names = [name for name, run in scale.runs.items() if run.has_results]
    found = [results for name in names if (results := library.find(name))]
    points = [point for results in found for point in results["points"].values()]
    if not points:
        return "Nothing was run."
    environments = [point["environment"] for point in points]

    def each(values: Sequence[str]) -> str:
        return "; ".join(dict.fromkeys(values))

    versions = [", ".join(f"{k} {v}" for k, v in one["packages"].items()) for one in environments]
    return "\n".join(
        (
            f"- {len(found)} of {len(names)} trainings and sweeps with {len(points)} runs, which took"
            f" {sum(point['seconds'] for point in points) / 3600:.1f} hours, each counted for itself",
            f"- {each([one['processor'] + ', ' + str(one['cpu_cores']) + ' cores' for one in environments])};"
            f" {each([point['date'] for point in points])}",
            f"- Python {each([one['python'] for one in environments])}; {each(versions)}",
            f"- code {each([one['code'] for one in environments])}",
        )
    )


def plot(lines: Sequence[Filled], path: Path) -> None:
    """Figure 5 as here: score against hundredths of the steps, with the seeds as dots; none where nothing was run."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    style = {"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9}
    with pyplot.rc_context(style | {"axes.spines.top": False, "axes.spines.right": False}):  # type: ignore[arg-type]
        figure, axis = pyplot.subplots(figsize=(5.2, 3.4), layout="constrained")
        for name, colour in zip(dict.fromkeys(one.line.row for one in lines), ("#1f6feb", "#d9730d"), strict=True):
            own = [(int(x.line.column.split()[0]), x.found) for x in lines if x.line.row == name and x.found]
            axis.plot([x for x, _ in own], [y.value for _, y in own], color=colour, label=name, linewidth=1.5)
            dots = [(x, value) for x, y in own for value in y.values]
            axis.scatter([x for x, _ in dots], [y for _, y in dots], color=colour, s=12, alpha=0.6, linewidths=0)
        axis.set_xlabel("% of the steps of pre-training")
        axis.set_ylabel("STS-B, Spearman x 100")
        axis.grid(alpha=0.25)
        axis.legend(frameon=False)
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
