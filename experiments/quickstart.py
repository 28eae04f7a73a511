"""From text to a trained BERT on this machine, offline: python -m experiments.quickstart --workdir runs/quickstart

The text is what every Python installation carries: the language reference in ``pydoc_data`` (a document a topic) and
the docstrings of the standard library (a document a module). Learns a vocabulary of 4,096 pieces, builds a corpus,
pre-trains a small BERT in two stages, evaluates it on documents it never saw and fills masks. Then fine-tunes it to
tell which module a docstring is from, predicts some, and writes report.html for both.
"""

from __future__ import annotations

import csv
import shutil
import sys
import textwrap
import time
from pathlib import Path
from zlib import crc32

from absl import flags

from experiments.program import run_program
from experiments.python_text import library_docstrings, python_documents

_WORKDIR = flags.DEFINE_string("workdir", "runs/quickstart", "directory for the corpus, the run and the report")
_STEPS = flags.DEFINE_integer("train_steps", None, "optimizer steps in all; the default learns for about four minutes")

VOCAB_SIZE = 4096
# Of so few documents every fifteenth or so is held out.
HELD_OUT = 0.06
# The fine-tuning: its folder in the workdir, the modules, docstrings of one at most, fewest words, predictions shown.
FINE_TUNED = "fine_tuned"
MODULES, MOST_DOCSTRINGS, SHORTEST, PREDICTED = 8, 250, 6, 4
MASKED_SENTENCES = (
    "Return a new list containing all [MASK] from the iterable.",
    "If the file does not exist, an [MASK] is raised.",
    "The optional argument specifies the [MASK] of bytes to read.",
    "This method is called when the object is about to be [MASK].",
    "The default value is [MASK].",
)


def main() -> None:
    """The stages, each with a line of what it did."""
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
    say("report", str(write_report(workdir, MASKED_SENTENCES).resolve()))
    fine_tune(workdir)
    report = write_report(workdir / FINE_TUNED)
    say("report", f"{report.resolve()}  ({(time.monotonic() - began) / 60:.1f} minutes in all)")


def fine_tune(workdir: Path) -> None:
    """Fine-tunes on docstrings and predicts those held out."""
    from bert_jax import train
    from bert_jax.training.evaluate import predict_workdir
    from configs import quickstart

    data = workdir / "docstrings"
    counts = write_docstrings(data)
    say("task", f"which module is this docstring from? {counts[0]:,} docstrings to learn from, {counts[1]:,} held out")
    config = quickstart.get_fine_tuning_config()
    config.data_dir, config.init_from = str(data), str(workdir)
    if _STEPS.value is not None:  # a short run is to be short
        config.train_epochs = min(8.0, _STEPS.value * 32 / counts[0])
    result = train(config, workdir / FINE_TUNED)
    share = result["majority_share"]
    say("held out", f"accuracy {result['accuracy']:.1%} (always the most frequent module: {share:.1%})")
    predictions = workdir / FINE_TUNED / "predictions.tsv"
    predict_workdir(workdir / FINE_TUNED, data / "dev.tsv", predictions)
    with predictions.open(encoding="utf-8") as found, (data / "dev.tsv").open(encoding="utf-8") as given:
        rows = zip(csv.DictReader(found, delimiter="\t"), list(given)[1:], strict=True)
        for row, line in list(rows)[:PREDICTED]:
            docstring, module = line.rstrip("\n").split("\t")
            answer = f"{row['prediction']} {float(row[row['prediction']]):.0%} (it is {module})"
            say("predicts", f"{textwrap.shorten(docstring, 60)}  ->  {answer}")


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


def write_docstrings(directory: Path) -> tuple[int, int]:
    """``train.tsv`` and ``dev.tsv`` of docstrings and the module they are from; how many of each.

    Of the modules (packages count as one) that have most; a docstring is held out by its hash.
    """
    found: dict[str, dict[str, None]] = {}
    for parts, texts in library_docstrings():
        name = parts[0].removesuffix(".py")
        for text in texts:
            line = " ".join(text.split())
            if len(line.split()) >= SHORTEST and not name.startswith("_"):
                found.setdefault(name, {})[line] = None
    modules = sorted(found, key=lambda name: (-len(found[name]), name))[:MODULES]
    rows: dict[str, list[str]] = {"train": [], "dev": []}
    for module in sorted(modules):
        for line in list(found[module])[:MOST_DOCSTRINGS]:
            rows["dev" if crc32(line.encode()) % 5 == 0 else "train"].append(f"{line}\t{module}\n")
    directory.mkdir(parents=True, exist_ok=True)
    for split, lines in rows.items():
        lines.sort(key=lambda line: crc32(line.encode()))  # modules mixed
        (directory / f"{split}.tsv").write_text("docstring\tmodule\n" + "".join(lines), encoding="utf-8")
    return len(rows["train"]), len(rows["dev"])


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
