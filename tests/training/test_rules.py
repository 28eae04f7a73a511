"""First match wins, and nothing goes unmatched."""

import pytest

from bert_jax.training.rules import apply_rules


def test_first_match_wins() -> None:
    tree = {"encoder": {"layer_0": {"kernel": 0, "bias": 0}}, "head": {"bias": 0}}
    values = apply_rules((("encoder/.*bias$", "a"), ("bias", "b"), (".*", "c")), tree, "test")
    assert values == {"encoder": {"layer_0": {"kernel": "c", "bias": "a"}}, "head": {"bias": "b"}}


def test_an_unmatched_parameter_is_an_error() -> None:
    with pytest.raises(ValueError, match="no decay rule matches parameter 'a/b'"):
        apply_rules((("^c", 1),), {"a": {"b": 0}}, "decay")
