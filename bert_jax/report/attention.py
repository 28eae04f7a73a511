"""What every head attends to in one text: small maps beside each other, drawn as the page's other figures."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

import numpy as np
from jaxtyping import Float

from bert_jax.predict import AttentionMap, Predictor
from bert_jax.report.samples import Sample, known

# Weights from these on are drawn, each step darker (the style sheet has as many shades); what is below stays white.
SHADES = (0.04, 0.1, 0.2, 0.35, 0.5, 0.75)
SHORTEST, LONGEST = 6, 24  # tokens of a text whose maps say something and can be read
MOST_LAYERS, MOST_HEADS = 12, 16
NAMED = 0.3  # the share of a head's attention from which it is called a habit
CELL, ROOM = 14, 92  # of the large map: side of a cell, room for the tokens' names


def short_text(samples: Sequence[Sample], model: Predictor) -> str | None:
    """The first text that the model can read and that is short enough for a map."""
    for sample in samples:
        tokens = 2 + len(model.tokenizer.encode(sample.text, special_tokens=True).ids)
        if SHORTEST <= tokens <= LONGEST and known(sample, model):
            return sample.text
    return None


def attention_view(found: AttentionMap) -> str:
    """The text's tokens, a row of maps a layer with each head's habit, and the last layer's mean large.

    Of more than 12 layers and 16 heads some are left out, evenly.
    """
    counts = found.weights.shape[:2]
    layers, heads = spread(counts[0], MOST_LAYERS), spread(counts[1], MOST_HEADS)
    rows = []
    for layer in layers:
        rows.append(f'<span class="quiet">layer {layer}</span>')
        rows += [small_map(found, layer, head) for head in heads]
    last = counts[0] - 1
    left_out = "" if (len(layers), len(heads)) == counts else " Layers and heads between are left out."
    about = (
        "Rows are the tokens that attend, columns what they attend to; darker is more, in steps from"
        f" {SHADES[0]:.0%} to {SHADES[-1]:.0%}. Said under a map: to which one place at least {NAMED:.0%} of a head's"
        f" attention goes, the token itself, the one before or after, the first or the last.{left_out}"
    )
    grid = f'<div class="maps" style="--heads:{len(heads)}">{"".join(rows)}</div>'
    large = large_map(found.weights[last].mean(0), found.tokens, f"Layer {last}, mean of its heads")
    tokens = escape(" ".join(found.tokens))
    return (
        f'<p class="quiet">{about}</p><div class="card"><p class="sentence">{tokens}</p>'
        f'<div class="attention">{grid}{large}</div></div>'
    )


def spread(count: int, most: int) -> list[int]:
    """At most so many numbers below ``count``, evenly, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]


def small_map(found: AttentionMap, layer: int, head: int) -> str:
    weights = found.weights[layer, head]
    name, share = habit(weights, found.tokens)
    told = f"{name} {share:.0%}" if share >= NAMED else ""
    size = len(found.tokens)
    label = escape(f"Layer {layer}, head {head}{': ' * bool(told)}{told}")
    drawn = "".join(squares(weights))
    return (
        f'<div><svg class="map" viewBox="0 0 {size} {size}" role="img" aria-label="{label}"><title>{label}</title>'
        f"{drawn}</svg><small>{escape(told) or '&nbsp;'}</small></div>"
    )


def large_map(weights: Float[np.ndarray, "t t"], tokens: Sequence[str], title: str) -> str:
    """One map with the tokens' names at its sides."""
    size = len(tokens)
    end = ROOM + CELL * size
    rows = [
        f'<text class="left" x="{ROOM - 6}" y="{ROOM + CELL * i + 11}">{escape(t)}</text>' for i, t in enumerate(tokens)
    ]
    columns = [
        f'<text transform="translate({ROOM + CELL * i + 11} {ROOM - 6}) rotate(-90)">{escape(t)}</text>'
        for i, t in enumerate(tokens)
    ]
    place = f'transform="translate({ROOM} {ROOM}) scale({CELL})"'
    return (
        f'<div><p class="quiet">{escape(title)}</p><svg class="map large" viewBox="0 0 {end} {end}" role="img"'
        f' aria-label="{escape(title)}" style="max-width:{end}px"><g {place}>{"".join(squares(weights))}</g>'
        f"{''.join(rows + columns)}</svg></div>"
    )


def squares(weights: Float[np.ndarray, "t t"]) -> Iterator[str]:
    """A path for each shade; cells of one shade beside each other are one piece of it."""
    paths: dict[int, list[str]] = {}
    for y, row in enumerate(weights.tolist()):
        x = 0
        for shade, cells in groupby(bisect_right(SHADES, weight) for weight in row):
            width = len(list(cells))
            if shade:
                paths.setdefault(shade, []).append(f"M{x} {y}h{width}v1h-{width}z")
            x += width
    size = len(weights)
    yield f'<path class="frame" d="M0 0h{size}v{size}h-{size}z"/>'
    for shade, path in sorted(paths.items()):
        yield f'<path class="w{shade}" d="{"".join(path)}"/>'


def habit(weights: Float[np.ndarray, "t t"], tokens: Sequence[str]) -> tuple[str, float]:
    """Where most of a head's attention goes, of five places, and the share that goes there, mean over the tokens.

    "itself" is the token, "before" and "after" are its neighbours, of which the first and the last have but one; the
    other places are the first token ([CLS]), and all that are like the last ([SEP]).
    """
    separators = [i for i, token in enumerate(tokens) if token == tokens[-1]]
    size = len(tokens)
    shares = {
        "itself": np.trace(weights),
        "before": np.trace(weights, -1),
        "after": np.trace(weights, 1),
        tokens[0]: weights[:, 0].sum(),
        tokens[-1]: weights[:, separators].sum(),
    }
    name = max(shares, key=lambda key: shares[key])
    return name, float(shares[name]) / size
