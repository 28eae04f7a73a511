"""Imports go one way: experiments -> predict, report, training -> tasks, interop -> model, data. data: no JAX."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BELOW = {"bert_jax.tasks", "bert_jax.model", "bert_jax.data"}
# What each part may import of ours; itself always.
ALLOWED = {
    "bert_jax.data": set(),
    "bert_jax.model": set(),
    "bert_jax.interop": {"bert_jax.model", "bert_jax.data"},
    "bert_jax.tasks": {"bert_jax.model", "bert_jax.data"},
    "bert_jax.training": BELOW | {"bert_jax.interop"},
    "bert_jax.predict": BELOW | {"bert_jax.interop", "bert_jax.training"},
    "bert_jax.report": BELOW | {"bert_jax.interop", "bert_jax.training", "bert_jax.predict"},
    "configs": set(),
}


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(name: str) -> str:
    pieces = name.split(".")
    return ".".join(pieces[:2]) if pieces[0] == "bert_jax" else pieces[0]


def files(of: str) -> list[Path]:
    path = ROOT / of.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


@pytest.mark.parametrize("of", ALLOWED)
def test_imports_go_one_way(of: str) -> None:
    for path in files(of):
        ours = {part(name) for name in imports(path) if name.split(".")[0] in ("bert_jax", "experiments", "configs")}
        assert ours - {of} <= ALLOWED[of], path


@pytest.mark.parametrize(
    ("of", "banned"), [("bert_jax.data", {"jax", "flax"}), ("bert_jax", {"torch", "tensorflow", "transformers"})]
)
def test_no_file_imports_what_its_part_does_without(of: str, banned: set[str]) -> None:
    for path in files(of):
        assert not {name.split(".")[0] for name in imports(path)} & banned, path


def test_imports_and_works_where_torch_and_tensorflow_are_missing() -> None:
    # A None in sys.modules makes an import fail as if not installed (tensorboardX takes torch if it can).
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'tensorflow', 'transformers', 'datasets')));"
        "import bert_jax; import bert_jax.data.corpus_builder; assert 'jax' not in sys.modules, 'data imports JAX';"
        "bert_jax.train, bert_jax.load, bert_jax.BertConfig, bert_jax.load_tokenizer; import bert_jax.report"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT, timeout=120)
