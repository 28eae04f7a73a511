"""Sentence splitting, English and Korean."""

import time

import pytest

from bert_jax.data.sentences import split_sentences


@pytest.mark.parametrize(
    ("language", "paragraph", "expected"),
    [
        ("en", "", []),
        ("en", "  one  ", ["one"]),
        ("en", "He met Mr. Smith. Why? Nobody knows!", ["He met Mr. Smith.", "Why?", "Nobody knows!"]),
        ("en", "It costs $3.50 in the U.S. today.", ["It costs $3.50 in the U.S. today."]),
        ("ko", "한국어는 어렵다. 그러나 재미있다! 정말?", ["한국어는 어렵다.", "그러나 재미있다!", "정말?"]),
        ("ko", "원주율은 3.14이다. 끝.", ["원주율은 3.14이다.", "끝."]),
        ("en", "한국어는 어렵다. 정말?", ["한국어는 어렵다.", "정말?"]),
        ("ja", "これは本です。あれは?", ["これは本です。", "あれは?"]),
    ],
)
def test_sentences(language, paragraph, expected):
    assert split_sentences(paragraph, language) == expected


@pytest.mark.parametrize("unit", ["word ", "word. ", ".", 'He said "so (and. ', "단어다. "])
def test_long_paragraphs_take_linear_time_and_lose_nothing(unit):
    paragraph = unit * (500_000 // len(unit))
    start = time.perf_counter()
    sentences = split_sentences(paragraph)
    assert time.perf_counter() - start < 5
    assert "".join("".join(sentences).split()) == "".join(paragraph.split())
