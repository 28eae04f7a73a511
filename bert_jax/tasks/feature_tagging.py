"""Feature-based tagging (the paper, section 5.3, Table 7's lower half): the encoder stays as it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Key

from bert_jax.data.columns import TaggedSentence
from bert_jax.data.sources import Files
from bert_jax.model.feature_tagger import FeatureTagger
from bert_jax.tasks.features import DTYPES, absolute_layers, data_fingerprint, stored_features
from bert_jax.tasks.fine_tuning import checked, fine_tuning_task, open_model
from bert_jax.tasks.tagging import (
    HEAD,
    build_dataset,
    open_tagged_text,
    read_any,
    selection_of,
    tag_figures,
    tag_outputs,
)
from bert_jax.tasks.task import Batch, Dataset, Params, Task

# Table 7's rows: which layers (None: all but the embeddings), and whether they are summed or concatenated.
FEATURES: dict[str, tuple[tuple[int, ...] | None, bool]] = {
    "embeddings": ((0,), False),
    "second_to_last": ((-2,), False),
    "last": ((-1,), False),
    "weighted_sum_last_four": ((-4, -3, -2, -1), True),
    "concat_last_four": ((-4, -3, -2, -1), False),
    "weighted_sum_all": (None, True),
}


def feature_tagging(
    *,
    seed: int,
    features_dir: str,
    features: str = "concat_last_four",
    stored_layers: tuple[int, ...] = (),
    features_dtype: str = "float32",
    bilstm_size: int = 768,
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
    encoder: Callable[[], Params] | None = None,
    labels: tuple[str, ...] | None = None,
) -> Task:
    """One tag for each word, from stored features; the other arguments are those of ``tagging``.

    Args:
        features_dir: where the features are, or will be written on first use: a folder for each split.
        features: a row of Table 7, a key of ``FEATURES``.
        stored_layers: what is written, so that several rows can share it; (): what ``features`` needs.
        features_dtype: "float32" or "float16", of the files.
        bilstm_size: units of the BiLSTM in each direction.
        encoder: reads the frozen parameters; the training loop gives it where ``init_from`` is set.

    Raises:
        ValueError, FileNotFoundError: as ``tagging``; features of another encoder or of other data.
    """
    if features not in FEATURES:
        raise ValueError(f"features={features!r} is unknown; take one of {', '.join(FEATURES)}")
    if encoder is None:
        raise ValueError("init_from is not set: give the workdir or Hugging Face directory whose features are taken")
    if not features_dir:
        raise ValueError("features_dir is not set: give a folder for the features, a few GB for BASE and CoNLL-2003")
    if features_dtype not in DTYPES:
        raise ValueError(f"features_dtype={features_dtype!r} is not one of {', '.join(DTYPES)}")
    text = open_tagged_text(
        data_dir, {"train": train, "dev": dev, "test": test}, format, labels, context, stride, join_words
    )
    config, found = open_model(model or {}, tokenizer)
    rows, summed = FEATURES[features]
    layers = absolute_layers(range(1, config.num_hidden_layers + 1) if rows is None else rows, config)
    store = partial(
        stored_features,
        encoder=cache(encoder),  # for all splits
        config=config,
        tokenizer=found,
        layers=stored_layers or layers,
        context=context,
        dtype=features_dtype,
        wanted=layers,
    )

    def build(name: str, split: str, sentences: list[TaggedSentence], max_seq_length: int) -> Dataset:
        dataset = build_dataset(text, found, name, sentences, max_seq_length, training=split == "train")
        examples = checked(dataset.examples, config)
        folder = split or f"file-{data_fingerprint(examples)[:12]}"
        values = store(Path(features_dir) / folder, examples, max_seq_length=max_seq_length)
        targets = {**examples.token_targets, "features": (values, 0.0)}
        return replace(dataset, examples=replace(examples, token_targets=targets))

    tagger = FeatureTagger(config, HEAD, len(text.labels), bilstm_size, weighted_sum=summed)
    return fine_tuning_task(
        name="features",
        config=config,
        init=partial(initial_parameters, tagger, len(layers)),
        forward=partial(forward, tagger),
        tokenizer=found,
        seed=seed,
        read_split=lambda split, length: build(split, split, text.read(split), length),
        read_file=lambda path, length: build(path.name, "", read_any(text, path), length),
        figures=tag_figures,
        outputs=tag_outputs,
        selection=selection_of(text),
        labels=text.labels,
    )


def initial_parameters(tagger: FeatureTagger, layers: int, key: Key[Array, ""]) -> Params:
    """Fresh parameters; the encoder's are none of them."""
    features = jnp.zeros((1, 1, layers, tagger.config.hidden_size))
    return tagger.init(key, features, jnp.ones((1, 1), jnp.int32))["params"]


def forward(tagger: FeatureTagger, params: Params, batch: Batch, dropout_key: Key[Array, ""] | None) -> Array:
    """The logits [r, t, c]."""
    logits: Any = tagger.apply({"params": params}, batch["features"], batch["sequence_ids"], dropout_key=dropout_key)
    return logits
