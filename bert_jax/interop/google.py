"""Directories as Google released them <-> our config and parameters: ``bert_config.json``, ``bert_model.ckpt.*``.

BERT's and ALBERT's of TensorFlow 1. Their vocabulary is read by ``bert_jax.data.tokenizer.load_tokenizer(directory)``.
TensorFlow is not needed.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import write_json
from bert_jax.interop.imported import Imported
from bert_jax.interop.layouts import GOOGLE_ALBERT, GOOGLE_BERT
from bert_jax.interop.tensor_bundle import read_entries, read_tensors, write_tensors
from bert_jax.interop.translate import Params, from_params, to_params
from bert_jax.model.config import BertConfig

BERT_CONFIG, ALBERT_CONFIG = "bert_config.json", "albert_config.json"
# What ALBERT's code means by "gelu". BERT's had meant erf, with which its first models were trained, until February
# 2019, and the tanh form since; here, as in transformers, a BERT's "gelu" is erf.
TANH_GELU = "gelu_new"
PREFIX = "bert_model.ckpt"
INDEX = ".index"
# What training leaves in a checkpoint besides the model.
TRAINING = re.compile(
    r"global_step|.*/(adam_[mv]|lamb_[mv])(_\d+)?|.*/(Adam|Lamb)\w*|(beta[12]_power|signal_early_stopping/.*)"
)
# Of BERT's own config; the rest of ours has no meaning there.
FIELDS = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
    "initializer_range",
)
# The original's layer norm, which its config does not name.
LAYER_NORM_EPS = 1e-12


def is_google(directory: str | Path) -> bool:
    """Whether this is a directory with a config and a checkpoint of Google's BERT or ALBERT."""
    directory = Path(directory)
    return _config_file(directory) is not None and any(directory.glob(f"*{INDEX}"))


def read_config(directory: str | Path) -> BertConfig:
    """The encoder's config.

    Raises:
        ValueError: not JSON, or a model that our encoder is not.
        FileNotFoundError: no config.
    """
    path = _config_file(Path(directory))
    if path is None:
        raise FileNotFoundError(f"{directory} holds neither {BERT_CONFIG} nor {ALBERT_CONFIG}")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if path.name == ALBERT_CONFIG and values.get("hidden_act") == "gelu":
            values["hidden_act"] = TANH_GELU
        return BertConfig.from_dict(values)
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path}: {error}") from None


def read(directory: str | Path, task_head: str | None = None) -> Imported:
    """Config and parameters at our paths; optimizer slots are passed over, other tensors without a place named.

    Args:
        task_head: what ``output_weights`` is, see ``layouts.TASK_HEADS``; None: of a classifier or, with one output,
            a regressor. The checkpoint does not say.

    Raises:
        ValueError: a tensor is missing, damaged or of another shape, or there are several checkpoints.
    """
    directory = Path(directory)
    config, prefix = read_config(directory), _find_prefix(directory)
    entries = {name: entry for name, entry in read_entries(prefix).items() if not TRAINING.fullmatch(name)}
    if task_head is None and "output_weights" in entries:
        task_head = "regressor" if entries["output_weights"].shape[:1] == (1,) else "classifier"
    layout = GOOGLE_BERT if config.embedding_size is None else GOOGLE_ALBERT
    try:
        params, unexpected = to_params(config, layout, read_tensors(prefix, entries), task_head)
    except ValueError as error:
        raise ValueError(f"{prefix}: {error}" if str(prefix) not in str(error) else str(error)) from None
    return Imported(config, params, None, unexpected)


def write(directory: str | Path, config: BertConfig, params: Params, tokenizer: Tokenizer) -> str:
    """Writes config, ``bert_model.ckpt.*`` and vocabulary as Google released them; returns the config's name.

    Raises:
        ValueError: a model that has no counterpart there (one-sided attention, a BiLSTM, two encoders).
    """
    directory = Path(directory)
    albert = config.embedding_size is not None
    if tokenizer.kind == "byte_bpe":
        raise ValueError("a byte-level BPE has no counterpart in Google's BERT; give --format huggingface")
    if config.attention_direction != "bidirectional":
        raise ValueError(f"attention_direction={config.attention_direction!r} has no counterpart in Google's BERT")
    if config.layers_a_group > 1 and not albert:
        raise ValueError("shared layers without embedding_size have no counterpart: ALBERT always has one")
    if config.layer_norm_eps != LAYER_NORM_EPS:
        raise ValueError(
            f"layer_norm_eps={config.layer_norm_eps} has no counterpart: Google's is {LAYER_NORM_EPS} always"
        )
    tensors = from_params(config, GOOGLE_ALBERT if albert else GOOGLE_BERT, params)
    values: dict[str, Any] = {name: getattr(config, name) for name in FIELDS}
    values["hidden_act"] = _their_activation(config.hidden_act, albert)
    if albert:
        values |= {"embedding_size": config.embedding_size, "num_hidden_groups": config.num_groups}
        values["inner_group_num"] = 1
    directory.mkdir(parents=True, exist_ok=True)
    write_tensors(directory / PREFIX, tensors)
    tokenizer.save(directory)
    name = ALBERT_CONFIG if albert else BERT_CONFIG
    write_json(directory / name, values)
    return name


def _their_activation(name: str, albert: bool) -> str:
    """ValueError for a form of GELU that "gelu" does not mean there."""
    tanh = name in ("gelu_new", "gelu_tanh", "gelu_pytorch_tanh")
    if name != "relu" and tanh != albert:
        form = "ALBERT's gelu is the tanh form" if albert else "a BERT's gelu is read as the erf form"
        raise ValueError(f"hidden_act={name!r} has no counterpart in Google's config: {form}")
    return "gelu" if tanh else name


def _config_file(directory: Path) -> Path | None:
    return next((directory / name for name in (ALBERT_CONFIG, BERT_CONFIG) if (directory / name).is_file()), None)


def _find_prefix(directory: Path) -> Path:
    found = sorted(directory.glob(f"*{INDEX}"))
    if not found:
        raise FileNotFoundError(f"{directory} holds no checkpoint (*{INDEX})")
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise ValueError(f"{directory} holds {len(found)} checkpoints ({names}); leave the one to read")
    return found[0].with_suffix("")
