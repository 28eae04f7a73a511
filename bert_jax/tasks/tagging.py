"""Tagging of words (the paper, sections 4 and 5.3): named entities, parts of speech, from column files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bert_jax.data.columns import FORMATS, ColumnFormat, TaggedSentence, format_of_file, read_columns
from bert_jax.data.packing import Examples
from bert_jax.data.sources import Files, check_options, split_paths
from bert_jax.data.tagging import UNKNOWN_LABEL, TaggedData, decode, label_inventory, tag_windows
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import written
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.decoding import decoded_once
from bert_jax.tasks.entities import score, word_accuracy
from bert_jax.tasks.fine_tuning import fine_tuning_task, of_head, open_model, report_problems, warn_of_taken_apart
from bert_jax.tasks.task import Batch, Dataset, Figures, Outputs, Task

HEAD = "tagging_head"


@dataclass(frozen=True)
class TaggedText:
    """Where tagged sentences come from, and how they become windows; see ``tagging`` for the fields.

    ``labels`` are the tags that a model can predict, in the order of their ids.
    """

    data_dir: str
    files: Mapping[str, Files]
    columns: ColumnFormat
    labels: tuple[str, ...]
    context: str = "sentence"
    stride: int | None = None
    join_words: bool = True

    def read(self, split: str) -> list[TaggedSentence]:
        """The sentences of a split. ValueError for one that has no file, or files without a sentence; a run may have no
        development set."""
        paths = split_paths(self.files, split, self.data_dir)
        if paths and not self.data_dir:
            # TFDS's conll2003 has lost where documents begin, and WNUT-17, GermEval and KLUE are not in it.
            raise ValueError("data_dir is not set: give the folder of the column files (no tagging data in TFDS)")
        sentences = read_columns(paths, self.columns)
        if paths and not sentences:
            hint = "" if split == "train" else f", or {split}='' for none"
            raise ValueError(f"{', '.join(map(str, paths))} has no sentence: give a file with words and tags{hint}")
        return sentences


def tagging(
    *,
    seed: int,
    data_dir: str = "",
    train: Files,
    dev: Files = "",
    test: Files = "",
    format: str | dict[str, Any] = "columns",
    context: str = "sentence",
    stride: int | None = None,
    join_words: bool = True,
    model: dict[str, Any] | None = None,
    tokenizer: str = "",
    labels: tuple[str, ...] | None = None,
    bilstm_size: int = 0,
    concatenated: bool = False,
) -> Task:
    """One tag for each word: a softmax at its first piece, no CRF.

    Args:
        train, dev, test: files of a split, one or several, relative to ``data_dir``.
        format: a name of ``columns.FORMATS``, or the fields of ``ColumnFormat``.
        context: "sentence", or "document" for as many neighbouring sentences of a document as max_seq_length holds;
            an example, of which ``batch_size`` make a batch, is then such a window.
        stride, join_words: see ``tag_windows``.
        model, tokenizer: the encoder's, taken from ``init_from`` where that is set.
        labels: the tags; None takes those of the training data. Other tags elsewhere are counted and scored as wrong.
        bilstm_size, concatenated: see ``BertWithHead``.

    Raises:
        ValueError, FileNotFoundError: data that do not fit, said with file, line and remedy.
    """
    text = open_tagged_text(
        data_dir, {"train": train, "dev": dev, "test": test}, format, labels, context, stride, join_words
    )
    config, found = open_model(model or {}, tokenizer)
    module = BertWithHead(config, HEAD, len(text.labels), True, bilstm_size=bilstm_size, concatenated=concatenated)
    return fine_tuning_task(
        name="tagging",
        **of_head(module),
        tokenizer=found,
        seed=seed,
        read_split=lambda split, length: build_dataset(
            text, found, split, text.read(split), length, training=split == "train"
        ),
        read_file=lambda path, length: build_dataset(
            text, found, path.name, read_any(text, path), length, training=False
        ),
        figures=tag_figures,
        outputs=tag_outputs,
        selection=selection_of(text),
        labels=text.labels,
    )


def open_tagged_text(
    data_dir: str,
    files: Mapping[str, Files],
    columns: str | Mapping[str, Any],
    labels: tuple[str, ...] | None,
    context: str,
    stride: int | None,
    join_words: bool,
) -> TaggedText:
    """The source of a tagging task; reads the training data where ``labels`` are to be found there."""
    fields = partial(TaggedText, data_dir, files, column_format(columns))
    options = {"context": context, "stride": stride, "join_words": join_words}
    if labels is None:
        labels = label_inventory(fields((), **options).read("train"))
    if len(set(labels)) != len(labels):
        raise ValueError(f"labels={', '.join(labels)} holds a tag twice; give each once")
    return fields(labels, **options)


def column_format(given: str | Mapping[str, Any]) -> ColumnFormat:
    """By its name or by its fields."""
    if isinstance(given, str):
        if given not in FORMATS:
            raise ValueError(f"format={given!r} is unknown; take one of {', '.join(FORMATS)}, or ColumnFormat's fields")
        return FORMATS[given]
    check_options(ColumnFormat, "format", **given)
    return ColumnFormat(**given)


def read_any(text: TaggedText, path: Path) -> list[TaggedSentence]:
    """A file to predict: with tags, or words alone."""
    return read_columns(path, format_of_file(path, text.columns))


def build_dataset(
    text: TaggedText,
    tokenizer: Tokenizer,
    name: str,
    sentences: list[TaggedSentence],
    max_seq_length: int,
    *,
    training: bool,
) -> Dataset:
    """The packed form of sentences; the token target ``labels`` is -1 wherever there is nothing to learn.

    ``name`` is what messages call it.
    """
    data = tag_windows(
        sentences,
        tokenizer,
        text.labels,
        max_length=max_seq_length,
        context=text.context,
        stride=text.stride,
        join_words=text.join_words,
        allow_unseen=not training,
    )
    report_problems(name, problems_of(data, sentences, name))
    if training:
        warn_of_taken_apart(tokenizer, (" ".join(sentence.words) for sentence in sentences))
    examples = Examples.of([window.sequence for window in data.windows])
    places = [start + window.label_columns for start, window in zip(examples.bounds, data.windows, strict=False)]
    labels = np.full(len(examples.ids), UNKNOWN_LABEL, np.int32)
    if places:
        labels[np.concatenate(places)] = np.concatenate([window.labels for window in data.windows])
    examples = replace(examples, token_targets={"labels": (labels, UNKNOWN_LABEL)})

    @decoded_once
    def tags_of(outputs: Outputs) -> list[list[str]]:
        return decode(data, [outputs["tags"][columns] for columns in places])

    gold = [sentence.tags or () for sentence in sentences]
    labelled = bool(sentences) and all(sentence.tags is not None for sentence in sentences)

    def score_all(outputs: Outputs) -> dict[str, float]:
        return tag_scores(gold, tags_of(outputs), text.columns.entities) if labelled else {}

    def write(outputs: Outputs, path: Path, _figures: Mapping[str, float]) -> None:
        write_columns(path, sentences, tags_of(outputs))

    def details(outputs: Outputs) -> dict[str, Any]:
        return {"types": type_rows(gold, tags_of(outputs))} if labelled and text.columns.entities else {}

    return Dataset(examples, score_all, write, details, len(sentences))


def problems_of(data: TaggedData, sentences: list[TaggedSentence], name: str) -> Problems:
    """What was done so that no word is lost, for ``report_problems``."""
    counts, problems = data.counts, Problems()
    for reason, what in (
        ("word of which the tokenizer makes nothing, read as [UNK]", "without_pieces"),
        ("sentence longer than max_seq_length, read in overlapping windows", "split_sentences"),
        ("character within a piece whose tag that piece cannot give (see join_words)", "inexact"),
    ):
        if count := getattr(counts, what):
            place = counts.places.get(what)
            problems.add(reason, f"in the sentence at {place}" if place else name, count)
    if counts.unseen:
        known = set(data.labels)
        first = next(s for s in sentences if s.tags is not None and not known.issuperset(s.tags))
        tag = next(tag for tag in first.tags or () if tag not in known)
        place = f"{tag} in the sentence at {first.file}:{first.line}"
        problems.add("word with a tag that the training data lack, scored as wrong", place, counts.unseen)
    return problems


def tag_figures(logits: Float[Array, "r t c"], batch: Batch) -> Figures:
    """Cross-entropy (nats) and accuracy over the labelled words."""
    weights = (batch["labels"] >= 0).astype(jnp.float32)
    return cross_entropy(logits, jnp.maximum(batch["labels"], 0), weights)


def tag_outputs(logits: Float[Array, "r t c"], _batch: Batch) -> dict[str, Array]:
    """The likeliest label of every token [r, t]."""
    return {"tags": jnp.argmax(logits, axis=-1).astype(jnp.int32)}


def tag_scores(gold: list[tuple[str, ...] | tuple[()]], predicted: list[list[str]], entities: bool) -> dict[str, float]:
    """Precision, recall and F1 of exact entities in per cent, as conlleval; the accuracy of words as a fraction, as
    while training. Tags that are no entities have the accuracy alone."""
    if not entities:
        return {"accuracy": word_accuracy(gold, predicted) / 100}
    found = score(gold, predicted)
    result = {"precision": found.precision, "recall": found.recall, "f1": found.f1, "macro_f1": found.macro_f1}
    return result | {"accuracy": found.accuracy / 100}


def type_rows(gold: list[tuple[str, ...] | tuple[()]], predicted: list[list[str]]) -> list[dict[str, Any]]:
    """For a report: how many entities of each type there are, were found and were right, and the F1."""
    return [
        {"type": kind, "there": found.gold, "found": found.predicted, "right": found.correct, "F1": found.f1}
        for kind, found in score(gold, predicted).types.items()
    ]


def selection_of(text: TaggedText) -> tuple[str, str]:
    """The figure that decides which checkpoint is best."""
    return ("f1" if text.columns.entities else "accuracy"), "max"


def write_columns(path: Path, sentences: list[TaggedSentence], predicted: list[list[str]]) -> None:
    """Word TAB tag, or word TAB gold TAB predicted, which ``conlleval -d '\\t'`` scores; blank lines between sentences.

    Files of characters get their white space back, which is no word: its tag goes on with an entity around it.
    """
    with written(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        for number, (sentence, tags) in enumerate(zip(sentences, predicted, strict=True)):
            file.write("\n" * (number > 0))
            columns = [tags] if sentence.tags is None else [list(sentence.tags), tags]
            for i, (word, *row) in enumerate(zip(sentence.words, *columns, strict=True)):
                if i and sentence.spaces is not None and sentence.spaces[i]:
                    around = ["I" + tag[1:] if tag[:2] in ("I-", "E-") else "O" for tag in row]
                    file.write("\t".join([" ", *around]) + "\n")
                file.write("\t".join([word, *row]) + "\n")
