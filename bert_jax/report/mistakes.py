"""Of a fine-tuned run: where its predictions go wrong, as ``evaluation.json`` in the workdir records it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

# So many classes make a table; of more the most confused are listed.
MOST_CLASSES = 20
LONGEST_TEXT = 280


def mistakes(evaluation: dict[str, Any]) -> str:
    """Confusion matrix, figures of each type, and the mistakes the model was surest of; "" if there is nothing."""
    parts = []
    if matrix := evaluation.get("confusion_matrix"):
        parts.append(confusion(matrix["labels"], matrix["counts"]))
    if types := evaluation.get("types"):
        parts.append(type_table(types))
    if wrong := evaluation.get("mistakes"):
        parts.append("".join(mistake(one) for one in wrong))
        parts[-1] = f'<p class="quiet">The mistakes it was surest of:</p><div class="samples">{parts[-1]}</div>'
    return "".join(f'<div class="part">{part}</div>' for part in parts)


def confusion(labels: list[str], counts: list[list[int]]) -> str:
    """A table, a row for each label, shaded by its share of the row; for many classes the largest confusions."""
    total = sum(map(sum, counts))
    right = sum(row[i] for i, row in enumerate(counts))
    caption = f'<p class="quiet">{right:,} of {total:,} right. Rows are the labels, columns the predictions.</p>'
    if len(labels) > MOST_CLASSES:
        return f'<div class="card">{caption}{largest_confusions(labels, counts)}</div>'
    head = "".join(f"<th>{escape(label)}</th>" for label in labels)
    rows = "".join(f"<tr><th>{escape(label)}</th>{''.join(cells(i, counts[i]))}</tr>" for i, label in enumerate(labels))
    table = (
        f'<table class="confusion"><thead><tr><th></th>{head}<th>recall</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    return f'<div class="card">{caption}{table}</div>'


def cells(label: int, row: list[int]) -> Iterator[str]:
    """The counts of one label, and its recall."""
    total = sum(row)
    for column, count in enumerate(row):
        kind = "right" if column == label else "wrong"
        share = count / total if total else 0.0
        yield f'<td class="{kind}" style="--share:{share:.3f}" title="{share:.1%}">{count:,}</td>'
    yield f'<td class="number">{row[label] / total:.1%}</td>' if total else '<td class="number">–</td>'


def largest_confusions(labels: list[str], counts: list[list[int]]) -> str:
    pairs = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if n and i != j]
    rows = "".join(
        f'<tr><th>{escape(labels[i])}</th><td>{escape(labels[j])}</td><td class="number">{n:,}</td></tr>'
        for n, i, j in sorted(pairs, reverse=True)[:MOST_CLASSES]
    )
    head = '<tr><th>label</th><th>taken for</th><th class="number">times</th></tr>'
    return f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"


def type_table(types: list[dict[str, Any]]) -> str:
    """A row for each type; the columns are the keys of the first. Integers are counts, the rest per cent."""
    names = list(types[0])
    head = "".join(f'<th class="{"" if i == 0 else "number"}">{escape(name)}</th>' for i, name in enumerate(names))
    rows = "".join(f"<tr>{''.join(type_cell(row[name]) for name in names)}</tr>" for row in types)
    return f'<div class="card"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def type_cell(value: Any) -> str:
    if isinstance(value, str):
        return f"<th>{escape(value)}</th>"
    return f'<td class="number">{value:,}</td>' if isinstance(value, int) else f'<td class="number">{value:.1f}%</td>'


def mistake(one: dict[str, Any]) -> str:
    text = one["text"] if len(one["text"]) <= LONGEST_TEXT else one["text"][: LONGEST_TEXT - 1] + "…"
    share = f" ({one['probability']:.0%})" if "probability" in one else ""
    said = f"It is <b>{escape(one['label'])}</b>, predicted was {escape(one['prediction'])}{share}."
    return f'<div class="card"><p class="sentence">{escape(text)}</p><p class="answer">{said}</p></div>'
