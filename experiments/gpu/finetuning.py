"""Fine-tuning and prediction of ``gpu_check``: ours packed, the peer padded batch by batch, both in bfloat16.

The parts are those of ``benchmark_finetuning``. What they read is made here, since the machine with the GPU need have
no data: an encoder of random weights and sentences of mixed lengths, as many pieces as words.
"""

from __future__ import annotations

import itertools
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bert_jax.data.wordpiece import WordPiece
from bert_jax.interop import hugging_face
from bert_jax.model.bert import BertForPreTraining
from bert_jax.model.config import BertConfig
from bert_jax.tasks.pretraining import initial_parameters
from experiments.benchmark_finetuning import Texts, measure_case, settings_of, texts_of_lengths, write_sentences
from experiments.benchmark_step import PEER_PACKAGES, SPECIAL_TOKENS, missing_packages
from experiments.gpu.plan import Plan

MAX_SEQ_LENGTH = 128
# Words of a sentence are log-normal, as those of MNLI and QQP are, roughly: 24 in the median, 5 % above 64.
MEDIAN_WORDS, SPREAD = 24, 0.6


def measure(plan: Plan, save: Callable[[dict[str, Any]], None]) -> None:
    """For each batch size ``benchmark_finetuning``'s figures of training and of prediction."""
    # Here only the encoder is made: the device is the workers'.
    jax.config.update("jax_platforms", "cpu")
    peer = not missing_packages(*PEER_PACKAGES)
    train, predicted = plan.finetuning_texts
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        encoder = folder / "encoder"
        write_encoder(encoder, plan)
        write_sentences(texts_of_lengths(sentence_lengths(train + predicted), encoder), predicted, folder)
        for batch_size in plan.finetuning_batches:
            case = Texts("mixed lengths", "SST-2", MAX_SEQ_LENGTH, batch_size, predicted)
            ours, theirs = settings_of(case, encoder, folder)
            # Scanned layers: ours compiles a program for each of two or three numbers of rows.
            ours["model"] = {"dtype": "bfloat16", "scan_layers": True}
            theirs |= {"device": plan.device, "dtype": "bfloat16"}
            found = measure_case(case, (ours, theirs), folder, plan.rounds, plan.finetuning_steps, peer)
            cases.append({"batch_size": batch_size, "found": found})
            save({"size": plan.finetuning_size, "cases": cases})


def write_encoder(directory: Path, plan: Plan) -> None:
    """A Hugging Face directory with random weights and a vocabulary of four-letter words."""
    config = BertConfig.of_size(plan.finetuning_size, vocab_size=plan.vocab_size)
    words = map("".join, itertools.product(string.ascii_lowercase, repeat=4))
    pieces = [*SPECIAL_TOKENS, *itertools.islice(words, plan.vocab_size - len(SPECIAL_TOKENS))]
    module = BertForPreTraining(config)
    params: Any = jax.device_get(jax.jit(lambda key: initial_parameters(module, key))(jax.random.key(0)))
    hugging_face.write(directory, config, params, WordPiece(pieces, lowercase=True))


def sentence_lengths(count: int) -> np.ndarray:
    """Words of so many sentences; with [CLS] and [SEP] they fit ``MAX_SEQ_LENGTH``."""
    drawn = np.random.default_rng(0).lognormal(np.log(MEDIAN_WORDS), SPREAD, count)
    return np.clip(np.round(drawn), 2, MAX_SEQ_LENGTH - 2).astype(int)
