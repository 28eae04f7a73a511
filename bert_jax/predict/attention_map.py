"""What attends to what in one text: the weights of every layer and head, and their picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.data.sequences import Sequence as Input
from bert_jax.model.attention_weights import attention_weights
from bert_jax.model.config import BertConfig
from bert_jax.predict.engine import INPUTS, Engine
from bert_jax.predict.texts import whole
from bert_jax.tasks.task import Params

# Colours of the report (report/style.py, in print): from its card to its accent; its ink and its quiet text.
CARD, ACCENT, DARKEST = "#ffffff", "#0b6e69", "#04302e"
INK, QUIET, RULE = "#1d2329", "#656e78", "#e2e0d8"
# Fonts with the scripts that the common one lacks, where they are installed.
FONTS = ("DejaVu Sans", "Noto Sans CJK KR", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "AppleGothic")
# Tokens up to which all names stand at a small map, at a large one, and weights are written into its cells.
NAMED_SMALL, NAMED_LARGE, WRITTEN = 24, 90, 20


@dataclass(frozen=True, repr=False)
class AttentionMap:
    """Attention weights of one text.

    Attributes:
        tokens: t pieces, [CLS] and [SEP] among them.
        weights: [l, n, t, t]: ``weights[layer, head, i, j]`` says how much token i takes from token j; each row sums
            to 1. Layers and heads count from 0.
    """

    tokens: list[str]
    weights: Float[np.ndarray, "l n t t"]

    def __repr__(self) -> str:
        layers, heads, _, _ = self.weights.shape
        return f"AttentionMap({len(self.tokens)} tokens, {layers} layers x {heads} heads; plot() draws it)"

    def plot(self, layer: int | None = None, head: int | None = None) -> Any:
        """A matplotlib Figure: one head large where both are given; else every layer, or every head, beside each other.

        Without ``head`` the maps of ``layer`` are its heads; without ``layer`` they are the layers, of this head or of
        the mean over the heads.

        Raises:
            ValueError: a layer or head that the model does not have.
        """
        layers, heads, _, _ = self.weights.shape
        layer, head = _index(layer, layers, "layer"), _index(head, heads, "head")
        with _fonts():
            return self._drawn(layer, head)

    def _drawn(self, layer: int | None, head: int | None) -> Any:
        layers, heads, _, _ = self.weights.shape
        if layer is not None and head is not None:
            return _large(self.weights[layer, head], self.tokens, f"Layer {layer}, head {head}")
        if layer is not None:
            titles = [f"head {number}" for number in range(heads)]
            return _grid(self.weights[layer], self.tokens, titles, f"Layer {layer}: attention of each head")
        titles = [f"layer {number}" for number in range(layers)]
        if head is not None:
            return _grid(self.weights[:, head], self.tokens, titles, f"Head {head}: attention in each layer")
        return _grid(self.weights.mean(1), self.tokens, titles, "Attention in each layer, mean of its heads")


@dataclass(frozen=True)
class Weights:
    """``Call``: "weights" [l, r, n, t, t]."""

    config: BertConfig

    @property
    def inputs(self) -> tuple[str, ...]:
        return INPUTS

    def __call__(self, params: Params, batch: Any) -> dict[str, Any]:
        return {"weights": attention_weights(params, self.config, *(batch[name] for name in INPUTS))}


def attention_map(engine: Engine, sequence: Input) -> AttentionMap:
    """The attention weights of a sequence, without those of padding."""
    weights = engine.run_alone(Weights(engine.config), sequence)["weights"][:, 0]
    length = len(sequence.ids)
    tokens = [engine.tokenizer.readable(i) for i in sequence.ids.tolist()]
    return AttentionMap(tokens, np.ascontiguousarray(weights[..., :length, :length]))


def _index(given: int | None, count: int, what: str) -> int | None:
    if given is None:
        return None
    given = whole(given, what)
    if not -count <= given < count:
        raise ValueError(f"{what}={given} is not one of 0 to {count - 1}, or {-count} to -1")
    return given % count


def _grid(maps: Float[np.ndarray, "k t t"], tokens: Sequence[str], titles: Sequence[str], title: str) -> Any:
    """Small maps beside each other, with one scale of colours."""
    columns = min(len(maps), 3 if len(maps) % 3 == 0 and len(maps) % 4 else 4)
    rows = math.ceil(len(maps) / columns)
    side = min(max(2.2, 0.17 * len(tokens) + 1.0), 4.2)
    figure = _figure(columns * side + 1.9, rows * side + 1.6, title)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
    top = float(maps.max())
    image = None
    for number, axis in enumerate(axes.flat):
        if number >= len(maps):
            axis.set_visible(False)
            continue
        image = _draw(axis, maps[number], top)
        axis.set_title(titles[number], fontsize=10.5, color=INK, pad=5)
        below = number + columns >= len(maps)
        _name(axis, tokens, NAMED_SMALL, 9.0, left=number % columns == 0, below=below)
    figure.supxlabel("attended to", color=QUIET, fontsize=11)
    figure.supylabel("attending token", color=QUIET, fontsize=11)
    _colour_bar(figure, image, axes)
    return figure


def _large(weights: Float[np.ndarray, "t t"], tokens: Sequence[str], title: str) -> Any:
    """One map, with the weights in the cells of a short text."""
    side = min(max(4.8, 0.42 * len(tokens) + 1.6), 13.0)
    figure = _figure(side + 0.7, side, title)
    axis = figure.subplots()
    top = float(weights.max())
    image = _draw(axis, weights, top)
    _name(axis, tokens, NAMED_LARGE, 11.0 if len(tokens) <= 30 else 7.5, left=True, below=True)
    axis.set_xlabel("attended to", color=QUIET, fontsize=11)
    axis.set_ylabel("attending token", color=QUIET, fontsize=11)
    if len(tokens) <= WRITTEN:
        for (i, j), weight in np.ndenumerate(weights):
            if weight >= 0.005:
                colour = CARD if weight > 0.3 * top else INK
                axis.text(j, i, f"{100 * weight:.0f}", ha="center", va="center", fontsize=8.5, color=colour)
    _colour_bar(figure, image, axis)
    return figure


def _figure(width: float, height: float, title: str) -> Any:
    """An empty figure that notebooks show once: where it is the value of a cell."""
    from matplotlib import pyplot
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    spaced = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.02, hspace=0.02)
    figure = pyplot.figure(figsize=(width, height), layout=spaced, facecolor=CARD)
    figure.suptitle(title, fontsize=14, fontweight="bold", color=INK)
    pyplot.close(figure)
    return figure


@contextmanager
def _fonts() -> Iterator[None]:
    """Texts made meanwhile have ``FONTS``, one after the other."""
    import matplotlib
    from matplotlib import font_manager

    # A notebook's backend, chosen in the context, would be interactive only until its end.
    matplotlib.get_backend()
    installed = set(font_manager.get_font_names())
    families = [name for name in FONTS if name in installed]
    with matplotlib.rc_context({"font.family": families} if families else {}):
        yield


def _draw(axis: Any, weights: Float[np.ndarray, "t t"], top: float) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("attention", [CARD, ACCENT, DARKEST])
    image = axis.imshow(weights, cmap=colours, vmin=0.0, vmax=top, interpolation="nearest")
    for spine in axis.spines.values():
        spine.set_color(RULE)
    return image


def _name(axis: Any, tokens: Sequence[str], most: int, size: float, *, left: bool, below: bool) -> None:
    """The tokens along an axis, or every second, third ... of a long text."""
    step = -(-len(tokens) // most)
    places = range(0, len(tokens), step)
    # "$" would begin a formula.
    names = [tokens[place].replace("$", r"\$") for place in places]
    axis.set_xticks(places, names, rotation=90, fontsize=size)
    axis.set_yticks(places, names, fontsize=size)
    axis.tick_params(length=0, labelcolor=INK, labelleft=left, labelbottom=below)


def _colour_bar(figure: Any, image: Any, axes: Any) -> None:
    bar = figure.colorbar(image, ax=axes, shrink=0.6, aspect=30, pad=0.02, format=lambda value, _: f"{value:.0%}")
    bar.outline.set_edgecolor(RULE)
    bar.ax.tick_params(labelsize=9, labelcolor=QUIET, length=0)
    bar.set_label("weight", color=QUIET, fontsize=10)
