"""Parameter paths are API: one mechanism of ordered rules for decay, freezing, learning rates and sharding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import jax

Rules = Sequence[tuple[str, Any]]


def path_of(key_path: tuple[Any, ...]) -> str:
    """The slash-separated path of a leaf: ``encoder/layer_0/attention/query/kernel``."""
    return "/".join(str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in key_path)


def apply_rules(rules: Rules, tree: Any, what: str) -> Any:
    """A tree like ``tree`` that holds, for every leaf, the value of the first rule whose pattern occurs in its path.

    Args:
        rules: ordered ``(regular expression, value)`` pairs, matched with ``re.search``.
        tree: any tree; only its paths are read.
        what: what the values are, for the error.

    Raises:
        ValueError: a leaf that no rule matches. End the list with ``(".*", default)`` to allow it.
    """

    def value(key_path: tuple[Any, ...], _leaf: Any) -> Any:
        path = path_of(key_path)
        for pattern, result in rules:
            if re.search(pattern, path):
                return result
        raise ValueError(f"no {what} rule matches parameter {path!r}; add one, or end the rules with ('.*', ...)")

    return jax.tree_util.tree_map_with_path(value, tree)
