"""Pre-training: masked LM with next sentence or sentence order prediction, masked LM alone, or left-to-right LM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from bert_jax.data.batches import PretrainingBatches, evaluation_batches
from bert_jax.data.corpus import Corpus, read_info
from bert_jax.data.examples import ExampleSettings
from bert_jax.data.tokenizer import load_tokenizer
from bert_jax.model.bert import BertForPreTraining, check_batch
from bert_jax.model.config import BertConfig
from bert_jax.tasks.cross_entropy import cross_entropy
from bert_jax.tasks.masking import Masked, MaskingConfig, mask_tokens
from bert_jax.tasks.task import Batch, Evaluation, Figures, Params, Stream, Task

# objective: (pairs of the example pipeline, direction of attention)
OBJECTIVES = {
    "mlm_nsp": ("nsp", "bidirectional"),
    "mlm_sop": ("sop", "bidirectional"),
    "mlm": ("single", "bidirectional"),
    "ltr": ("single", "left_to_right"),
    "rtl": ("single", "right_to_left"),
}


def pretraining(
    *,
    model: dict[str, Any],
    seed: int,
    corpus: str,
    objective: str = "mlm_nsp",
    masking: dict[str, Any] | None = None,
    short_seq_prob: float = 0.1,
    fill: str = "document",
    eval_examples: int | None = None,
    unigram_bias: bool = False,
) -> Task:
    """The pre-training task over a corpus directory (``experiments.build_corpus``).

    Args:
        model: fields of ``BertConfig``; ``vocab_size`` is the corpus tokenizer's when left out.
        seed: of the data order, the pairs and the held-out masks.
        corpus: directory with ``train`` and ``held_out`` documents, token ids and the tokenizer.
        objective: "mlm_nsp" (the paper), "mlm_sop" (ALBERT), "mlm" (Table 5's No NSP), "ltr" and "rtl" (a language
            model that predicts every token from one side; Table 5's LTR & No NSP).
        masking: fields of ``MaskingConfig``.
        short_seq_prob: share of documents whose examples are made short, as the original.
        fill: "document" or "across_documents", see ``ExampleSettings``.
        eval_examples: at most so many held-out examples an evaluation; None takes all.
        unigram_bias: begin with the corpus's log unigram probabilities as the output bias, not with zeros as the
            original: a short run need not learn them first.

    Raises:
        ValueError: an unknown objective, or a model whose vocabulary is not the corpus's.
    """
    if objective not in OBJECTIVES:
        raise ValueError(f"objective={objective!r} is unknown; take one of {', '.join(OBJECTIVES)}")
    if eval_examples is not None and eval_examples < 1:
        raise ValueError(f"eval_examples={eval_examples} must be at least 1; leave it out to take all")
    pairs, direction = OBJECTIVES[objective]
    train = Corpus.open(corpus)
    tokenizer = load_tokenizer(f"{corpus}/tokenizer")
    config = BertConfig.from_dict({"vocab_size": train.vocab_size, "attention_direction": direction} | model)
    if config.vocab_size != train.vocab_size:
        raise ValueError(
            f"model.vocab_size={config.vocab_size} but the corpus {corpus} has {train.vocab_size} pieces;"
            " leave model.vocab_size out"
        )
    rules = {"short_seq_prob": short_seq_prob, "fill": fill, "separators": tokenizer.pair_separators}
    settings = partial(ExampleSettings, pairs=pairs, **rules)
    specials = np.zeros(config.padded_vocab_size, bool)
    specials[list(tokenizer.special_ids)] = True

    def stream(seed: int, batch_size: int, max_seq_length: int, row_multiple: int) -> Stream:
        if batch_size % row_multiple:
            raise ValueError(
                f"batch of {batch_size} rows does not divide over data x fsdp devices x accumulation steps ="
                f" {row_multiple}; make it a multiple of {row_multiple}"
            )
        batches = PretrainingBatches(train, tokenizer, settings(max_seq_length=max_seq_length), seed, batch_size)
        check_batch(batches.batch(0), config)
        return batches

    def evaluation(seed: int, split: str, batch_size: int, max_seq_length: int, row_multiple: int) -> Evaluation:
        text = Corpus.open(corpus, "held_out" if split == "dev" else split)
        if text.num_documents == 0:
            return Evaluation(())
        shape = settings(max_seq_length=max_seq_length)
        rows = -(-batch_size // row_multiple) * row_multiple
        return Evaluation(evaluation_batches(text, tokenizer, shape, seed, rows, max_examples=eval_examples))

    if direction == "bidirectional":
        prepare = masked_language_model(masking or {}, config, tokenizer)
    else:
        prepare = one_sided_language_model(direction, jnp.asarray(specials))
    module = BertForPreTraining(config, next_sentence=pairs != "single")
    log_unigram = jnp.asarray(log_unigram_probabilities(train.unigrams, config.padded_vocab_size))

    def seeded(seed: int) -> Task:
        return replace(task, stream=partial(stream, seed), evaluation=partial(evaluation, seed))

    task = Task(
        name="pretraining",
        model=config,
        tokenizer=tokenizer,
        seeded=seeded,
        data_hash=lambda _: read_info(corpus)["content_sha256"],
        init=lambda key: initial_parameters(module, key, log_unigram if unigram_bias else None),
        stream=partial(stream, seed),
        evaluation=partial(evaluation, seed),
        prepare=prepare,
        forward=partial(forward, module),
        figures=partial(figures, log_unigram),
        outputs=lambda logits, batch: {},
        objective=("mlm_loss", "nsp_loss") if module.next_sentence else ("mlm_loss",),
        summary=lambda means: means | {"perplexity": float(np.exp(means["mlm_loss"]))},
        selection=("mlm_loss", "min"),
        eval_split="held_out",
    )
    return task


def initial_parameters(
    module: BertForPreTraining, key: Key[Array, ""], output_bias: Float[Array, "v"] | None = None
) -> Params:
    """Fresh parameters, if given with this bias of the masked-LM logits; traceable."""
    token = jnp.zeros((1, 1), jnp.int32)  # one token is enough to know every shape
    params: Any = module.init(key, token, token, token + 1, token, token, token)["params"]
    if output_bias is None:
        return params
    return params | {"mlm_head": params["mlm_head"] | {"bias": output_bias}}


def masked_language_model(
    masking: dict[str, Any], config: BertConfig, tokenizer: Any
) -> Callable[[Key[Array, ""], Batch], Batch]:
    """``prepare`` of the masked LM: corrupts the inputs and adds positions, targets and weights.

    ``max_predictions`` left out is the most that a row can have: 19 of 128 tokens, 77 of 512.
    """
    word_starts = jnp.asarray(tokenizer.word_starts())
    rate = MaskingConfig(**masking).rate  # also refuses bad fields before anything runs

    def prepare(key: Key[Array, ""], batch: Batch) -> Batch:
        most = max(1, round(batch["input_ids"].shape[1] * rate))
        masked = mask_tokens(
            key,
            batch["input_ids"],
            batch["sequence_ids"],
            word_starts,
            MaskingConfig(**({"max_predictions": most, **masking})),
            vocab_size=config.vocab_size,
            mask_id=tokenizer.mask_id,
            special_ids=tokenizer.special_ids,
        )
        return with_targets(batch, masked)

    return prepare


def one_sided_language_model(direction: str, special: Bool[Array, "v"]) -> Callable[[Key[Array, ""], Batch], Batch]:
    """``prepare`` of a language model: from every column the next (or previous) token of its own sequence.

    Special tokens are not predicted, so that the loss is over the same tokens as the masked LM's.
    """
    shift = 1 if direction == "left_to_right" else -1

    def prepare(_key: Key[Array, ""], batch: Batch) -> Batch:
        ids, sequences = batch["input_ids"], batch["sequence_ids"]
        columns = jnp.arange(ids.shape[1])
        targets, target_sequences = jnp.roll(ids, -shift, axis=1), jnp.roll(sequences, -shift, axis=1)
        inside = (columns + shift >= 0) & (columns + shift < ids.shape[1])
        predicted = inside & (sequences > 0) & (sequences == target_sequences) & ~special[targets]
        positions = jnp.broadcast_to(columns.astype(jnp.int32), ids.shape)
        return with_targets(batch, Masked(ids, positions, targets, predicted.astype(jnp.float32)))

    return prepare


def with_targets(batch: Batch, masked: Masked) -> Batch:
    """The batch with corrupted inputs and what is to be predicted (``[r, p]`` each)."""
    return batch | {
        "input_ids": masked.input_ids,
        "masked_positions": masked.positions,
        "masked_targets": masked.targets,
        "masked_weights": masked.weights,
    }


def forward(module: BertForPreTraining, params: Params, batch: Batch, dropout_key: Key[Array, ""] | None) -> Any:
    """Masked-LM logits [r, p, v], and next-sentence logits [r, m, 2] or None."""
    return module.apply(
        {"params": params},
        batch["input_ids"],
        batch["segment_ids"],
        batch["sequence_ids"],
        batch["position_ids"],
        batch["masked_positions"],
        batch["example_columns"],
        dropout_key=dropout_key,
    )


def figures(log_unigram: Float[Array, "v"], logits: Any, batch: Batch) -> Figures:
    """Losses (nats) and accuracies of masked LM and next sentence prediction, and the unigram model's loss.

    The paper's loss is the mean masked-LM likelihood plus the mean next-sentence likelihood (appendix A.2).
    """
    mlm_logits, nsp_logits = logits
    targets, weights = batch["masked_targets"], batch["masked_weights"]
    result = cross_entropy(mlm_logits, targets, weights, "mlm_")
    result["unigram_loss"] = (-jnp.sum(weights * log_unigram[targets]), jnp.sum(weights))
    if nsp_logits is not None:
        labels, example_weights = batch["next_sentence_labels"], batch["example_weights"]
        result |= cross_entropy(nsp_logits, labels, example_weights, "nsp_")
    return result


def predicted_pieces(logits: Any, batch: Batch) -> dict[str, Array]:
    """Of every place to predict, [r, p] each: ``positions``, the right ``pieces``, ``weights`` (0: no place), and
    whether the likeliest piece is ``right``."""
    mlm_logits, _ = logits
    pieces = batch["masked_targets"]
    return {
        "positions": batch["masked_positions"],
        "pieces": pieces,
        "weights": batch["masked_weights"],
        "right": jnp.argmax(mlm_logits, axis=-1) == pieces,
    }


def log_unigram_probabilities(counts: Int[np.ndarray, "v"], size: int) -> Float[np.ndarray, "size"]:
    """log p of every piece by its share of the training tokens, one added to each count; padding rows get 0."""
    smoothed = counts.astype(np.float64) + 1.0
    result = np.zeros(size, np.float32)
    result[: len(counts)] = np.log(smoothed / smoothed.sum())
    return result
