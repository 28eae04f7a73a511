"""What pages are made of: sections, cards, tables, folded details; numbers, durations and shares as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from bert_jax.data.writing import written
from bert_jax.report.style import STYLE

Number = int | float


def write_page(path: Path, title: str, body: str) -> None:
    """A whole, self-contained page."""
    page = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body><main>{body}</main></body></html>\n"
    )
    with written(path) as temporary:
        # Names of files may hold bytes that are no text.
        temporary.write_text(page, encoding="utf-8", errors="xmlcharrefreplace")


def header(title: str, facts: Sequence[str]) -> str:
    """The page's name and, as HTML, what is said under it; empty facts are left out."""
    return f'<header><h1>{escape(title)}</h1><p class="quiet">{" · ".join(filter(None, facts))}</p></header>'


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>"


def card(title: str, value: str, note: str = "", *, lead: bool = False, more: str = "") -> str:
    """One of the figures that a reader looks for first."""
    kind = ' class="lead"' if lead else ""
    small = f"<small>{escape(note)}</small>" if note else ""
    return f"<div{kind}><dt>{escape(title)}</dt><dd><span>{escape(value)}</span>{small}</dd>{more}</div>"


def table_head(names: Sequence[str], texts: int = 1) -> str:
    """The head of a table whose first ``texts`` columns are text and the others numbers."""
    kinds = ["" if number < texts else ' class="number"' for number in range(len(names))]
    cells = "".join(f"<th{kind}>{escape(name)}</th>" for kind, name in zip(kinds, names, strict=True))
    return f"<thead><tr>{cells}</tr></thead>"


def table_row(cells: Sequence[str], texts: int = 1) -> str:
    """A row of it; the cells are HTML, the first is the row's name."""
    first, *rest = cells
    kinds = ["" if number < texts else ' class="number"' for number in range(1, len(cells))]
    return f"<tr><th>{first}</th>{''.join(f'<td{k}>{cell}</td>' for k, cell in zip(kinds, rest, strict=True))}</tr>"


def details(title: str, values: dict[str, Any]) -> str:
    """A folded table of all leaves."""
    if not values:
        return ""
    rows = "".join(
        f'<tr><th class="name">{escape(name)}</th><td><code>{escape(value)}</code></td></tr>'
        for name, value in leaves(values)
    )
    return folded(title, f"<table><tbody>{rows}</tbody></table>")


def folded(title: str, content: str) -> str:
    """What a reader opens to see."""
    return f"<details><summary>{escape(title)}</summary>{content}</details>"


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted name, value as text) of every leaf of nested dicts and lists."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}")
    else:
        yield path, value if isinstance(value, str) else repr(value)


def percent(share: Number) -> str:
    """As a label on an axis."""
    return f"{100 * share:g}%"


def short(count: Number) -> str:
    """4,380 or 12.3k, 4.4M, 3.3G."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= size:
            return f"{count / min(size, 1e3 if suffix == 'k' else size):.1f}{suffix}"
    return f"{count:,.0f}"


def duration(seconds: Number) -> str:
    """45 s, 4 min 10 s, 3 h 20 min, 4 d 2 h."""
    for unit, name, below, below_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= unit:
            whole, rest = int(seconds // unit), int(seconds % unit // below)
            return f"{whole}\xa0{name} {rest}\xa0{below_name}"
    return f"{seconds:.0f} s"
