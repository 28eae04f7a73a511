"""Sentence and pair classification and regression (the paper, section 4.1): GLUE, Korean benchmarks, one's own data."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bert_jax.data.packing import Examples
from bert_jax.data.text_data import TextData, open_text_data
from bert_jax.data.text_examples import TextExample, label_ids, label_scores, to_sequences, to_windows
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import written
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.decoding import decoded_once
from bert_jax.tasks.fine_tuning import fine_tuning_task, of_head, open_model, report_problems, warn_of_taken_apart
from bert_jax.tasks.scores import confusion_matrix, scores
from bert_jax.tasks.task import Batch, Dataset, Figures, Outputs, Task

# Mistakes that a report shows.
MISTAKES = 20


def classification(
    *,
    seed: int,
    data: dict[str, Any],
    data_dir: str = "",
    model: dict[str, Any] | None = None,
    tokenizer: str = "",
    labels: tuple[str, ...] | None = None,
    doc_stride: int | None = None,
    bilstm_size: int = 0,
    concatenated: bool = False,
) -> Task:
    """Classes, or scores, for sentences and pairs.

    Args:
        data: ``source`` ("glue", "korean" or "table") and the arguments of ``data/text_data.py``'s function for it.
        data_dir: folder of the files; for GLUE empty takes TFDS.
        model, tokenizer: the encoder's, taken from ``init_from`` where that is set.
        labels: the classes; None takes those of the task or finds them in the training data.
        doc_stride: texts that are too long are read in windows that start so many tokens apart, and the windows'
            logits averaged; None cuts them, as the original, and counts how many.
        bilstm_size, concatenated: see ``BertWithHead``.

    Raises:
        ValueError, FileNotFoundError: data that do not fit, said with file, row and remedy.
    """
    source = open_text_data(data_dir=data_dir, labels=labels, **data)
    config, found = open_model(model or {}, tokenizer)
    outputs = len(source.labels) if source.labels else 1
    head = "classifier" if source.labels else "regressor"
    module = BertWithHead(config, head, outputs, False, bilstm_size=bilstm_size, concatenated=concatenated)
    build = partial(build_dataset, source, found, doc_stride)

    def read_split(split: str, max_seq_length: int) -> Dataset:
        problems = Problems()
        examples = source.read(split, problems)
        return build(split, examples, max_seq_length, problems, training=split == "train")

    def read_file(path: Path, max_seq_length: int) -> Dataset:
        problems = Problems()
        return build(path.name, source.read_file(path, problems), max_seq_length, problems, training=False)

    return fine_tuning_task(
        name="classification",
        **of_head(module),
        tokenizer=found,
        seed=seed,
        read_split=read_split,
        read_file=read_file,
        figures=class_figures if source.labels else score_figures,
        outputs=lambda logits, batch: {"logits": logits},
        selection=("score", "max"),
        eval_split=source.eval_split,
        labels=source.labels,
    )


def build_dataset(
    source: TextData,
    tokenizer: Tokenizer,
    doc_stride: int | None,
    name: str,
    rows: list[TextExample],
    max_seq_length: int,
    problems: Problems,
    *,
    training: bool,
) -> Dataset:
    """The packed form of text examples. Labels of rows without one are 0, and the set then has no scores.

    ``name`` is what messages call it. ValueError: no label in training or in part of the rows.
    """
    labelled = bool(rows) and all(row.label is not None for row in rows)
    if (not labelled and any(row.label is not None for row in rows)) or (training and not labelled):
        place = next(row.place for row in rows if row.label is None) if rows else name
        raise ValueError(f"{place}: no label: fill it in, or use the file for prediction only")
    if labelled:
        labels = label_ids(rows, source.labels) if source.labels else label_scores(rows)
    else:
        labels = np.zeros(len(rows), np.int32 if source.labels else np.float32)
    if doc_stride is None:
        sequences, owners = to_sequences(rows, tokenizer, max_seq_length, problems), np.arange(len(rows))
    else:
        sequences, owners = to_windows(rows, tokenizer, max_seq_length, doc_stride, problems)
    report_problems(name, problems)
    if training:
        warn_of_taken_apart(tokenizer, (text for row in rows for text in (row.text_a, row.text_b or "")))
    examples = Examples.of(sequences, targets={"labels": labels[owners]})

    @decoded_once
    def logits_of(outputs: Outputs) -> Float[np.ndarray, "n c"]:
        return mean_by_owner(outputs["logits"], owners, len(rows))

    def score_all(outputs: Outputs) -> dict[str, float]:
        if not labelled:
            return {}
        logits = logits_of(outputs)
        return scores(source.metrics, logits.argmax(-1) if source.labels else logits[:, 0], labels)

    def write(outputs: Outputs, path: Path, _figures: Mapping[str, float]) -> None:
        ids = [row.row_id for row in rows]
        write_predictions(path, ids, logits_of(outputs), source.labels, source.names)

    def details(outputs: Outputs) -> dict[str, Any]:
        return class_details(rows, logits_of(outputs), labels, source.labels) if labelled and source.labels else {}

    return Dataset(examples, score_all, write, details, len(rows))


def class_figures(logits: Float[Array, "r m c"], batch: Batch) -> Figures:
    """Cross-entropy (nats) and accuracy."""
    return cross_entropy(logits, batch["labels"], batch["example_weights"])


def score_figures(logits: Float[Array, "r m c"], batch: Batch) -> Figures:
    """Mean squared error of the one output, on the scale of the labels."""
    weights = batch["example_weights"]
    return {"loss": (jnp.sum(weights * jnp.square(logits[..., 0] - batch["labels"])), jnp.sum(weights))}


def mean_by_owner(values: Float[np.ndarray, "w c"], owners: np.ndarray, count: int) -> Float[np.ndarray, "n c"]:
    """The mean over the windows of each example."""
    sums = np.zeros((count, values.shape[1]), np.float64)
    np.add.at(sums, owners, values)
    return sums / np.maximum(np.bincount(owners, minlength=count), 1)[:, None]


def class_details(
    rows: list[TextExample],
    logits: Float[np.ndarray, "n c"],
    labels: Int[np.ndarray, "n"],
    names: tuple[str, ...],
) -> dict[str, Any]:
    """The confusion matrix (a row for each label), and the mistakes the model was surest of."""
    predicted = logits.argmax(-1)
    shares = np.asarray(jax.nn.softmax(logits, axis=-1)).max(-1)
    wrong = np.flatnonzero(predicted != labels)
    mistakes = [
        {
            "text": " / ".join(filter(None, (rows[i].text_a, rows[i].text_b))),
            "label": names[labels[i]],
            "prediction": names[predicted[i]],
            "probability": float(shares[i]),
        }
        for i in wrong[np.argsort(-shares[wrong], kind="stable")][:MISTAKES].tolist()
    ]
    counts = confusion_matrix(predicted, labels, len(names)).tolist()
    return {"confusion_matrix": {"labels": list(names), "counts": counts}, "mistakes": mistakes}


def write_predictions(
    path: Path,
    row_ids: Iterable[str],
    logits: Float[np.ndarray, "n c"],
    labels: Sequence[str] | None,
    names: Sequence[str] | None = None,
) -> None:
    """A TSV with a row for each example: index, prediction (class or score), and the probability of each class.

    Without an id the index is the example's number, from 0. ``names``: of the classes, for a last column "name".
    """
    with written(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(["index", "prediction", *(labels or ()), *(["name"] if names else ())])
        probabilities = np.asarray(jax.nn.softmax(logits, axis=-1))
        for number, (row_id, values) in enumerate(zip(row_ids, logits, strict=True)):
            index = row_id or number
            if labels is None:
                writer.writerow([index, f"{values[0]:.6f}"])
            else:
                shares = [f"{share:.6f}" for share in probabilities[number]]
                best = int(values.argmax())
                writer.writerow([index, labels[best], *shares, *([names[best]] if names else ())])
