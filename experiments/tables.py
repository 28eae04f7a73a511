"""Tables of cells of text, for pages and for terminals."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def marked(header: Row, rows: Sequence[Row]) -> str:
    """In Markdown."""
    cells = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def plain(header: Row, rows: Sequence[Row], *, right: bool = False) -> list[str]:
    """Lines padded to the widest cell of each column; with ``right`` all but the first to the right."""
    table = [header, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]

    def line(row: Row) -> str:
        first, *rest = (
            cell.rjust(width) if right and number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        return "  ".join((first, *rest)).rstrip()

    return [line(row) for row in table]
