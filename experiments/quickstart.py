"""From text to a trained BERT on this machine, offline: python -m experiments.quickstart --workdir runs/quickstart

The text is what every Python installation carries: the language reference in ``pydoc_data`` (a document a topic) and
the docstrings of the standard library (a document a module). Learns a vocabulary of 4,096 pieces, builds a corpus,
pre-trains a small BERT in two stages, evaluates it on documents it never saw, fills masks and writes report.html.
"""

from __future__ import annotations

import ast
import shutil
import sys
import sysconfig
import textwrap
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

from absl import flags

from experiments.program import run_program

_WORKDIR = flags.DEFINE_string("workdir", "runs/quickstart", "directory for the corpus, the run and the report")
_STEPS = flags.DEFINE_integer("train_steps", None, "optimizer steps in all; the default learns for about four minutes")

VOCAB_SIZE = 4096
# Of so few documents every fifteenth or so is held out.
HELD_OUT = 0.06
MASKED_SENTENCES = (
    "Return a new list containing all [MASK] from the iterable.",
    "If the file does not exist, an [MASK] is raised.",
    "The optional argument specifies the [MASK] of bytes to read.",
    "This method is called when the object is about to be [MASK].",
    "The default value is [MASK].",
)


def main() -> None:
    """The five stages, each with a line of what it did."""
    from bert_jax import load, train
    from bert_jax.report import write_report
    from configs import quickstart

    began = time.monotonic()
    workdir = Path(_WORKDIR.value)
    corpus = prepare_corpus(workdir / "corpus")
    config = quickstart.get_config()
    config.corpus = str(corpus)
    if _STEPS.value is not None:
        config.phases = quickstart.phases(_STEPS.value)
    result = train(config, workdir)
    say("held out", summary(result))
    for sentence, filling in zip(MASKED_SENTENCES, load(workdir).fill_mask(list(MASKED_SENTENCES)), strict=True):
        say("fill", f"{sentence}  ->  " + ", ".join(f"{word} {share:.0%}" for word, share in filling[0]))
    report = write_report(workdir, MASKED_SENTENCES)
    say("report", f"{report.resolve()}  ({(time.monotonic() - began) / 60:.1f} minutes in all)")


def prepare_corpus(directory: Path) -> Path:
    """The corpus directory; one that is already there is used again."""
    from bert_jax.data.corpus_builder import build
    from bert_jax.data.vocabulary import learn_wordpiece

    if (directory / "corpus.json").exists():
        return directory
    documents = list(python_documents())
    characters = sum(len(text) for _, text in documents)
    say("text", f"{len(documents):,} documents, {characters / 1e6:.1f} million characters")
    tokenizer = learn_wordpiece((text for _, text in documents), VOCAB_SIZE, lowercase=True)
    say("vocabulary", f"{tokenizer.vocab_size:,} pieces")
    shutil.rmtree(directory, ignore_errors=True)
    info = build(documents, tokenizer, directory, held_out=HELD_OUT, workers=1, progress=False)
    counts = {split: info["splits"][split] for split in ("train", "held_out")}
    say("corpus", "; ".join(f"{k}: {c['documents']:,} documents, {c['tokens']:,} tokens" for k, c in counts.items()))
    return directory


def python_documents() -> Iterator[tuple[str, str]]:
    """(name, text) of every topic of the language reference and of every module of the standard library."""
    from pydoc_data import topics

    for name, text in sorted(topics.topics.items()):
        yield f"topic {name}", text
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).parts
        if not {"site-packages", "test", "tests", "idle_test", "pydoc_data", "lib2to3"} & set(parts):
            text = docstrings(path)
            if text:
                yield ".".join(parts).removesuffix(".py"), text


def docstrings(path: Path) -> str:
    """All docstrings of a source file, in order, a blank line between two; nothing is executed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's sources
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return ""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return "\n\n".join(text for text in found if text)


def summary(result: dict[str, float]) -> str:
    """What was reached, beside what a model that only knows how frequent each piece is would reach."""
    loss, unigram = result["mlm_loss"], result["unigram_loss"]
    return (
        f"masked-LM loss {loss:.3f} nats, {1 - loss / unigram:.1%} below the unigram baseline {unigram:.3f};"
        f" accuracy {result['mlm_accuracy']:.1%}; next sentence {result['nsp_accuracy']:.1%} (chance 50%)"
    )


def say(stage: str, text: str) -> None:
    """One line a stage, folded to the width of a terminal."""
    width = shutil.get_terminal_size((120, 24)).columns
    print(textwrap.fill(f"{stage:>10}  {text}", width, subsequent_indent=" " * 12), file=sys.stdout, flush=True)


if __name__ == "__main__":
    run_program(main)
