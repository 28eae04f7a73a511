"""Multiple choice (the paper, section 4.4): SWAG, HellaSwag, and COPA and HellaSwag of KoBEST.

Each ending makes a sequence with the context; one vector, the head's kernel, gives each sequence a score, and the
softmax is over the endings of an example.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from bert_jax.data.choice_data import ChoiceData, open_choice_data
from bert_jax.data.choices import ChoiceExample, Start, choice_ids, to_choice_sequences
from bert_jax.data.packing import Examples
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.tasks.classification import write_predictions
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.fine_tuning import fine_tuning_task, of_head, open_model, report_problems, warn_of_taken_apart
from bert_jax.tasks.scores import scores
from bert_jax.tasks.task import Batch, Dataset, Figures, Outputs, Task

HEAD = "choice_head"


def choice(
    *,
    seed: int,
    data: dict[str, Any],
    data_dir: str = "",
    start: Start = "context",
    model: dict[str, Any] | None = None,
    tokenizer: str = "",
    bilstm_size: int = 0,
    concatenated: bool = False,
) -> Task:
    """The right one of several endings.

    Args:
        data: ``source`` ("swag", "hellaswag" or "korean") and the arguments of ``data/choice_data.py``'s function
            for it: other names of the files train, dev, test; the name of the Korean task.
        data_dir: folder of the files.
        start: the side that a started phrase goes to, see ``data/choices.py``; the paper does not say.
        model, tokenizer: the encoder's, taken from ``init_from`` where that is set.
        bilstm_size, concatenated: see ``BertWithHead``.

    Raises:
        ValueError, FileNotFoundError: data that do not fit, said with file, row and remedy.
    """
    source = open_choice_data(data_dir=data_dir, start=start, **data)
    config, found = open_model(model or {}, tokenizer)
    module = BertWithHead(config, HEAD, 1, False, bilstm_size=bilstm_size, concatenated=concatenated)

    def read_split(split: str, max_seq_length: int) -> Dataset:
        problems = Problems()
        rows = source.read(split, problems)
        return build_dataset(source, found, split, rows, max_seq_length, problems, training=split == "train")

    def read_file(path: Path, max_seq_length: int) -> Dataset:
        problems = Problems()
        rows = source.read_file(path, problems)
        return build_dataset(source, found, path.name, rows, max_seq_length, problems, training=False)

    return fine_tuning_task(
        name="choice",
        **of_head(module),
        tokenizer=found,
        seed=seed,
        read_split=read_split,
        read_file=read_file,
        figures=choice_figures,
        outputs=lambda logits, batch: {"logits": by_choice(logits, batch)},
        selection=("score", "max"),
    )


def build_dataset(
    source: ChoiceData,
    tokenizer: Tokenizer,
    name: str,
    rows: list[ChoiceExample],
    max_seq_length: int,
    problems: Problems,
    *,
    training: bool,
) -> Dataset:
    """The packed form: an example's endings lie side by side in one row. Without labels the set has no scores.

    ``name`` is what messages call it.

    Raises:
        ValueError: examples of different numbers of endings, a missing label in training or in part of a file.
    """
    group = same_number_of_endings(rows)
    labelled = bool(rows) and all(row.label is not None for row in rows)
    if labelled or training or any(row.label is not None for row in rows):
        labels = choice_ids(rows)
    else:
        labels = np.zeros(len(rows), np.int32)
    sequences = [one for many in to_choice_sequences(rows, tokenizer, max_seq_length, problems) for one in many]
    report_problems(name, problems)
    if training:
        warn_of_taken_apart(tokenizer, (text for row in rows for text in (row.context, *row.endings)))
    examples = Examples.of(sequences, group=group, targets={"labels": labels})

    def score_all(outputs: Outputs) -> dict[str, float]:
        return scores(source.metrics, outputs["logits"].argmax(-1), labels) if labelled else {}

    def write(outputs: Outputs, path: Path, _figures: Mapping[str, float]) -> None:
        write_predictions(path, [row.row_id for row in rows], outputs["logits"], [str(i) for i in range(group)])

    return Dataset(examples, score_all, write)


def same_number_of_endings(rows: list[ChoiceExample]) -> int:
    """How many endings every example has; 1 where there is no example. ValueError: not all have as many."""
    count = len(rows[0].endings) if rows else 1
    for row in rows:
        if len(row.endings) != count:
            raise ValueError(
                f"{row.place}: {len(row.endings)} endings, but {count} in the rows before: give every example as many"
            )
    return count


def by_choice(logits: Float[Array, "r s 1"], batch: Batch) -> Float[Array, "r m g"]:
    """The scores of an example's g sequences beside each other; s = m * g."""
    rows, slots = batch["labels"].shape
    return logits.reshape(rows, slots, -1)


def choice_figures(logits: Float[Array, "r s 1"], batch: Batch) -> Figures:
    """Cross-entropy over the endings (nats) and accuracy."""
    return cross_entropy(by_choice(logits, batch), batch["labels"], batch["example_weights"])
