"""The text that every Python installation carries: its language reference and the docstrings of its library."""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path


def python_documents() -> Iterator[tuple[str, str]]:
    """(name, text) of every topic of the language reference and of every module of the standard library."""
    from pydoc_data import topics

    for name, text in sorted(topics.topics.items()):
        yield f"topic {name}", text
    for parts, texts in library_docstrings():
        if texts:
            yield ".".join(parts).removesuffix(".py"), "\n\n".join(texts)


def library_docstrings() -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """(parts of the path, docstrings) of every module of the standard library."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "test", "tests", "idle_test", "pydoc_data", "lib2to3"} & set(parts):
            yield parts, docstrings(path)


def docstrings(path: Path) -> list[str]:
    """All docstrings of a source file, in order; nothing is executed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's sources
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [text for text in found if text]
