"""What the fine-tuning tasks share: packed batches, the model with a head, whole-set scores."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from bert_jax.data.packing import Examples, PackedBatches, packed_batches
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer, load_tokenizer, unknown_warning
from bert_jax.model.config import BertConfig
from bert_jax.model.fine_tuning import BertWithHead
from bert_jax.tasks.task import Batch, Dataset, Evaluation, Figures, Params, Stream, Task

ReadSplit = Callable[[str, int], Dataset]


def open_model(model: dict[str, Any], tokenizer: str) -> tuple[BertConfig, Tokenizer]:
    """The encoder's configuration and its tokenizer.

    Raises:
        ValueError: they do not belong together, or nothing says where to begin.
    """
    if not tokenizer:
        raise ValueError(
            "init_from is not set: give a run's workdir or a Hugging Face directory to fine-tune, or tokenizer= and"
            " model= to train an encoder from scratch"
        )
    found = load_tokenizer(tokenizer)
    config = BertConfig.from_dict({"vocab_size": found.vocab_size} | model)
    if config.vocab_size < found.vocab_size:  # some publish tables with rows to spare
        raise ValueError(
            f"model.vocab_size={config.vocab_size} but the tokenizer {tokenizer} has {found.vocab_size} pieces; give"
            " the tokenizer that the model was trained with"
        )
    return config, found


def fine_tuning_task(
    *,
    name: str,
    config: BertConfig,
    init: Callable[[Key[Array, ""]], Params],
    forward: Callable[[Params, Batch, Key[Array, ""] | None], Array],
    tokenizer: Tokenizer,
    seed: int,
    read_split: ReadSplit,
    read_file: Callable[[Path, int], Dataset],
    figures: Callable[[Any, Batch], Figures],
    outputs: Callable[[Any, Batch], dict[str, Array]],
    selection: tuple[str, str],
    eval_split: str = "dev",
    labels: tuple[str, ...] | None = None,
) -> Task:
    """The ``Task`` of a data set that is read into memory and packed.

    Args:
        config: of the encoder. init, forward: see ``Task``; of an encoder with a head, ``of_head`` gives all three.
        read_split: (split, max_seq_length) -> the data set; read once.
        figures, outputs: of the logits and the batch, see ``Task``; the figure "loss" is the objective.
    """

    def fitting(name: str, dataset: Dataset) -> Dataset:
        examples = checked(dataset.examples, config)
        warning = unknown_warning(int((examples.ids == tokenizer.unk_id).sum()), len(examples.ids))
        if warning and jax.process_index() == 0:
            print(f"{name}: {warning}", file=sys.stderr)
        return replace(dataset, examples=examples)

    @cache
    def read(split: str, max_seq_length: int) -> Dataset:
        return fitting(split, read_split(split, max_seq_length))

    def stream(seed: int, batch_size: int, max_seq_length: int, row_multiple: int) -> Stream:
        return PackedBatches(
            read("train", max_seq_length).examples,
            pad_id=tokenizer.pad_id,
            seed=seed,
            batch_size=batch_size,
            max_seq_length=max_seq_length,
            row_multiple=row_multiple,
        )

    def evaluation(split: str, _batch_size: int, max_seq_length: int, row_multiple: int) -> Evaluation:
        return whole_pass(read(split, max_seq_length), tokenizer, max_seq_length, row_multiple)

    def seeded(seed: int) -> Task:
        return replace(task, stream=partial(stream, seed))

    def data_hash(max_seq_length: int) -> str:
        hashes = [read(split, max_seq_length).examples.sha256() for split in ("train", eval_split)]
        return hashlib.sha256("".join(hashes).encode()).hexdigest()

    task = Task(
        name=name,
        model=config,
        tokenizer=tokenizer,
        seeded=seeded,
        data_hash=data_hash,
        init=init,
        stream=partial(stream, seed),
        evaluation=evaluation,
        prepare=lambda key, batch: batch,
        forward=forward,
        figures=figures,
        outputs=outputs,
        objective=("loss",),
        summary=lambda means: means,
        selection=selection,
        eval_split=eval_split,
        read_file=lambda path, max_seq_length: fitting(path.name, read_file(path, max_seq_length)),
        labels=labels,
    )
    return task


def whole_pass(dataset: Dataset, tokenizer: Tokenizer, max_seq_length: int, row_multiple: int) -> Evaluation:
    """Every example of a data set once, packed, in batches of one shape."""
    batches = packed_batches(
        dataset.examples,
        pad_id=tokenizer.pad_id,
        max_seq_length=max_seq_length,
        tokens_a_batch=tokens_a_batch(),
        row_multiple=row_multiple,
    )
    return Evaluation(batches, dataset)


def tokens_a_batch() -> int:
    """Tokens of a batch without gradients, for each device.

    On a CPU few enough that a layer's activations stay in its cache (six layers of 384: up to a quarter faster than
    4,096 tokens, within noise in some rounds); elsewhere enough to hide the host's part, which is not measured.
    """
    return 1024 if jax.default_backend() == "cpu" else 8192


def of_head(module: BertWithHead) -> dict[str, Any]:
    """The model's part of a task: ``config``, ``init`` and ``forward``."""
    return {
        "config": module.config,
        "init": partial(initial_parameters, module),
        "forward": partial(forward, module),
    }


def initial_parameters(module: BertWithHead, key: Key[Array, ""]) -> Params:
    """Fresh parameters of every part; traceable."""
    token = jnp.zeros((1, 1), jnp.int32)  # one token is enough to know every shape
    params: Params = module.init(key, token, token, token + 1, token, token, token)["params"]
    return params


def forward(module: BertWithHead, params: Params, batch: Batch, dropout_key: Key[Array, ""] | None) -> Array:
    """The logits."""
    logits: Any = module.apply(
        {"params": params},
        batch["input_ids"],
        batch["segment_ids"],
        batch["sequence_ids"],
        batch["position_ids"],
        batch["example_columns"],
        batch["last_columns"],
        dropout_key=dropout_key,
    )
    return logits


def checked(examples: Examples, config: BertConfig) -> Examples:
    """The examples; of a model with one segment (RoBERTa's) all tokens are in it, the second of a pair too.

    ValueError for ids or lengths that the compiled step would silently clamp.
    """
    if config.type_vocab_size == 1:
        examples = replace(examples, segment_ids=np.zeros_like(examples.segment_ids))
    longest = int(np.diff(examples.bounds).max(initial=0))
    if longest > config.max_position_embeddings:
        raise ValueError(
            f"a sequence has {longest} tokens, the model max_position_embeddings={config.max_position_embeddings};"
            f" set max_seq_length to {config.max_position_embeddings} or less"
        )
    if int(examples.ids.max(initial=0)) >= config.vocab_size:
        raise ValueError(
            f"a token has id {int(examples.ids.max())}, the model vocab_size={config.vocab_size}; the tokenizer and the"
            " model must belong together"
        )
    if int(examples.segment_ids.max(initial=0)) >= config.type_vocab_size:
        raise ValueError(
            f"a token is of segment {int(examples.segment_ids.max())}, the model has"
            f" type_vocab_size={config.type_vocab_size}; give each token one of its segments"
        )
    return examples


def warn_of_taken_apart(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Says once on standard error that an uncased tokenizer meets Hangul or kana."""
    if jax.process_index() == 0 and any(map(tokenizer.decomposes, texts)):
        _say_once(
            "the training text has Hangul or kana, which this uncased tokenizer takes apart into Jamo and base letters"
            " (as the original BERT does); fine-tune a model with a cased vocabulary"
        )


@cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr)


def report_problems(what: str, problems: Problems) -> None:
    """Says on standard error what was skipped, cut or repaired while reading."""
    if jax.process_index() == 0:
        for reason, entry in problems.as_dict().items():
            print(f"{what}: {entry['count']:,} x {reason} (first: {entry['first']})", file=sys.stderr)
