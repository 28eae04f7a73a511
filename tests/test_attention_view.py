"""Attention maps of a page: what is drawn and what is said of a head, by hand."""

import numpy as np
import pytest

from bert_jax.predict import AttentionMap
from bert_jax.report.attention import MOST_HEADS, MOST_LAYERS, attention_view, habit, short_text, spread, squares
from bert_jax.report.samples import Sample
from tests.predict.small_models import for_pretraining
from tests.test_report import Page

TOKENS = ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]


def test_squares_of_one_shade_are_joined() -> None:
    weights = np.array([[0.8, 0.8, 0.0], [0.01, 0.5, 0.09], [0.76, 0.05, 0.0]])
    frame, *paths = squares(weights)
    assert 'class="frame"' in frame
    assert paths == [
        '<path class="w1" d="M2 1h1v1h-1zM1 2h1v1h-1z"/>',
        '<path class="w5" d="M1 1h1v1h-1z"/>',
        '<path class="w6" d="M0 0h2v1h-2zM0 2h1v1h-1z"/>',
    ]


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (np.eye(6), ("itself", 1.0)),
        (np.eye(6, k=1), ("after", 5 / 6)),
        (np.eye(6, k=-1), ("before", 5 / 6)),
        (np.tile([0.4, 0.0, 0.0, 0.3, 0.0, 0.3], (6, 1)), ("[SEP]", 0.6)),  # both separators
        (np.tile([0.7, 0.1, 0.1, 0.05, 0.0, 0.05], (6, 1)), ("[CLS]", 0.7)),
    ],
)
def test_the_habit_of_a_head(weights: np.ndarray, expected: tuple[str, float]) -> None:
    name, share = habit(weights, TOKENS)
    assert (name, share) == (expected[0], pytest.approx(expected[1]))


def test_evenly_spread() -> None:
    assert spread(3, 12) == [0, 1, 2] and spread(24, 12)[0] == 0 and spread(24, 12)[-1] == 23
    assert spread(9, 3) == [0, 4, 8]


def test_a_view_is_small_and_whole() -> None:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(24, 0.2), (24, 16, 24))
    html = attention_view(AttentionMap(["<s>", *["x"] * 22, "</s>"], weights))
    page = Page(html)
    assert html.count("<svg") == MOST_LAYERS * MOST_HEADS + 1 and len(html) < 700_000
    assert "&lt;s&gt;" in html and "layer 23" in page.text and "Layers and heads between are left out." in page.text
    html = attention_view(AttentionMap(TOKENS, np.eye(6)[None, None].repeat(2, 1)))
    assert "Layer 0, head 1: itself 100%" in html and "left out" not in html


def test_a_text_for_a_map_is_short_and_known() -> None:
    model = for_pretraining()
    texts = ["the", "the cats [MASK] on Zürich", "the " * 40, "the cats [MASK] on", "the cat"]
    assert short_text([Sample(text) for text in texts], model) == "the cats [MASK] on"
    assert short_text([], model) is None
