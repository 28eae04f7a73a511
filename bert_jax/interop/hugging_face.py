"""Hugging Face directories <-> our config, parameters and labels: BERT, and ALBERT and RoBERTa as kinds of it.

Their tokenizer is read by ``bert_jax.data.tokenizer.load_tokenizer(directory)``. Neither PyTorch nor transformers is
needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.tokenizer import CONFIG_FILE, Tokenizer
from bert_jax.data.writing import write_json
from bert_jax.interop.imported import Imported
from bert_jax.interop.layouts import (
    HUGGING_FACE_ALBERT,
    HUGGING_FACE_BERT,
    HUGGING_FACE_ROBERTA,
    OF_LABELS,
    TASK_HEADS,
    Layout,
)
from bert_jax.interop.translate import Params, from_params, to_params
from bert_jax.interop.weight_files import SAFETENSORS, find_weights, read_weights, write_safetensors
from bert_jax.model.config import BertConfig

CONFIG = "config.json"
# By model_type; RoBERTa's kin have its parameters.
LAYOUTS = {
    "bert": HUGGING_FACE_BERT,
    "albert": HUGGING_FACE_ALBERT,
    "roberta": HUGGING_FACE_ROBERTA,
    "xlm-roberta": HUGGING_FACE_ROBERTA,
    "camembert": HUGGING_FACE_ROBERTA,
}
# The end of an architecture's name -> the task head it has; "classifier" with one output is a regressor.
HEADS = {
    "ForSequenceClassification": "classifier",
    "ForTokenClassification": "tagging_head",
    "ForMultipleChoice": "choice_head",
    "ForQuestionAnswering": "qa_head",
}
# Fields of ours that are not theirs; transformers' "dtype" is that of the file, ours that of the computation.
OURS_ALONE = ("attention_direction", "dtype", "scan_layers", "remat", "attention_implementation")
ALBERTS = ("embedding_size", "num_hidden_groups")
_INPUTS = ("input_ids", "token_type_ids", "attention_mask")
TOKENIZERS = {"wordpiece": "BertTokenizer", "sentencepiece": "AlbertTokenizer", "byte_bpe": "RobertaTokenizer"}
BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")


def is_hugging_face(directory: str | Path) -> bool:
    """Whether this is a model directory of transformers, of whatever architecture, with weights."""
    directory = Path(directory)
    if find_weights(directory) is None or not (directory / CONFIG).is_file():
        return False
    try:
        values = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return True  # and read_config says what is wrong with it
    return isinstance(values, dict) and ("model_type" in values or "architectures" in values)


def read_config(directory: str | Path) -> BertConfig:
    """The encoder's config. RoBERTa's unused first positions do not count in ``max_position_embeddings``.

    Raises:
        ValueError: not JSON, or a model that our encoder is not (another ``model_type``, relative positions, ...).
    """
    path = Path(directory) / CONFIG
    values = _read_values(path)
    kind = values.get("model_type", "bert")
    if not isinstance(kind, str) or kind not in LAYOUTS:
        raise ValueError(f"{path}: model_type={kind!r} is not supported; it must be one of {', '.join(LAYOUTS)}")
    without = {*OURS_ALONE, "model_type", *(() if kind == "albert" else ALBERTS)}
    ours = {key: value for key, value in values.items() if key not in without}
    try:
        if kind == "albert":
            ours = {"embedding_size": 128, "num_hidden_groups": 1} | ours  # transformers' defaults
        config = BertConfig.from_dict(ours)
        return config.replace(max_position_embeddings=config.max_position_embeddings - _position_offset(values))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def read(directory: str | Path, task_head: str | None = None) -> Imported:
    """Config, parameters at our paths (see ``Bert``), labels, and the names of tensors that have no place there.

    Embeddings and encoder always; pooler and heads where the file has them.

    Args:
        task_head: what the output layer is, see ``layouts.TASK_HEADS``; None: as the config's architecture says. An
            output layer of which neither tells is among the tensors without a place.

    Raises:
        ValueError: a tensor is missing or of another shape, the masked-LM decoder is not the word embedding, or the
            head is one that we do not have (several classes at once, several scores).
    """
    directory = Path(directory)
    config, path = read_config(directory), find_weights(directory)
    if path is None:
        raise FileNotFoundError(f"{directory} holds no weights; give a directory with {SAFETENSORS}")
    values = _read_values(directory / CONFIG)
    layout = LAYOUTS[values.get("model_type", "bert")]
    tensors = _plain(read_weights(path), layout, path)
    if layout is HUGGING_FACE_ROBERTA:
        tensors = _roberta_as_bert(tensors, _position_offset(values))
    head = task_head or _head_of(values)
    if head == "classifier" and getattr(tensors.get("classifier.bias"), "shape", None) == (1,):
        head = "regressor"
    try:
        params, unexpected = to_params(config, layout, tensors, head)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if layout is HUGGING_FACE_ROBERTA and "mlm_head" in params and config.hidden_act != "gelu":
        raise ValueError(f"{path}: RoBERTa's masked-LM head has gelu always, but hidden_act={config.hidden_act!r}")
    labels = None
    if head in OF_LABELS:
        labels = _labels(values, directory / CONFIG, len(params[head]["bias"]))
    return Imported(config, params, labels, unexpected)


def write(
    directory: str | Path, config: BertConfig, params: Params, tokenizer: Tokenizer, labels: Sequence[str] | None = None
) -> str:
    """Writes what ``transformers`` loads: config, ``model.safetensors``, tokenizer; returns the architecture's name.

    The config is written last, so that a half-written directory is not taken for a model.

    Raises:
        ValueError: a model that has no counterpart there (one-sided attention, a BiLSTM, two encoders).
    """
    directory = Path(directory)
    values, layout = _their_config(config, params, labels)
    tensors = from_params(config, layout, params)
    if len(params.keys() - {"embeddings", "encoder", "pooler"}):
        inner = ("embeddings.", "encoder.", "pooler.")
        tensors = {layout.prefix * name.startswith(inner) + name: value for name, value in tensors.items()}
    directory.mkdir(parents=True, exist_ok=True)
    write_safetensors(directory / SAFETENSORS, tensors, {"format": "pt"})
    _write_tokenizer(directory, tokenizer, config)
    write_json(directory / CONFIG, values | {"pad_token_id": tokenizer.pad_id})
    return values["architectures"][0]


def _read_values(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): copy it again") from None
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}; expected a JSON object")
    if not isinstance(names := values.get("architectures"), list | None):
        raise ValueError(f"{path}: architectures={names!r} must be a list of names")
    return values


def _labels(values: Mapping[str, Any], path: Path, outputs: int) -> tuple[str, ...] | None:
    if (problem := values.get("problem_type")) in ("multi_label_classification", "regression"):
        raise ValueError(
            f"{path}: problem_type={problem!r} with {outputs} outputs, but a classifier here gives one class; take the"
            " field out if the encoder is what you need"
        )
    names = values.get("id2label")
    if names is None:
        return None
    try:
        found = {int(number): str(name) for number, name in names.items()}
    except (ValueError, AttributeError):
        raise ValueError(f"{path}: id2label={names!r} must map numbers to names") from None
    if sorted(found) != list(range(outputs)):
        raise ValueError(
            f"{path}: id2label has {len(found)} names, the head {outputs} outputs; give 0 to {outputs - 1}"
        )
    if len(set(found.values())) < outputs:
        raise ValueError(f"{path}: id2label has a name twice; give each class its own")
    return tuple(found[number] for number in range(outputs))


def _position_offset(values: Mapping[str, Any]) -> int:
    """How many rows of the position table no token uses: RoBERTa counts from the id of padding, plus one."""
    roberta = LAYOUTS[values.get("model_type", "bert")] is HUGGING_FACE_ROBERTA
    return int(values.get("pad_token_id", 1)) + 1 if roberta else 0


def _head_of(values: Mapping[str, Any]) -> str | None:
    """The task head by the architecture's name; None where the config names none with such a head."""
    for architecture in values.get("architectures") or ():
        for ending, head in HEADS.items():
            if str(architecture).endswith(ending):
                return head
    return None


def _plain(tensors: Mapping[str, np.ndarray], layout: Layout, path: Path) -> dict[str, np.ndarray]:
    """By names without the prefix that models with a head give their encoder; LayerNorm's as called today."""
    found: dict[str, np.ndarray] = {}
    for name, value in tensors.items():
        plain = name.removeprefix("module.").removeprefix(layout.prefix)
        plain = plain.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
        if plain in found:
            raise ValueError(f"{path} has {plain} twice, once as {name}: write the model again")
        if plain not in BUFFERS:
            found[plain] = value
    return found


def _roberta_as_bert(tensors: dict[str, np.ndarray], offset: int) -> dict[str, np.ndarray]:
    """Position rows from the first that a token uses; a classification head's tanh layer is BERT's pooler.

    The pooler of its own that some of these checkpoints carry has no part in them, in transformers neither.
    """
    renamed = {"classifier.dense.": "pooler.dense.", "classifier.out_proj.": "classifier."}
    own = any(name.startswith("classifier.dense.") for name in tensors)
    found = {}
    for name, value in tensors.items():
        if own and name.startswith("pooler."):
            continue
        for theirs, berts in renamed.items():
            name = berts + name.removeprefix(theirs) if name.startswith(theirs) else name
        found[name] = value[offset:] if name == "embeddings.position_embeddings.weight" and value.ndim else value
    return found


def _their_config(config: BertConfig, params: Params, labels: Sequence[str] | None) -> tuple[dict[str, Any], Layout]:
    """``config.json``, and how its architecture calls the parameters."""
    if config.attention_direction != "bidirectional":
        raise ValueError(
            f"attention_direction={config.attention_direction!r} has no counterpart among transformers' BERT encoders"
        )
    albert = any(getattr(config, name) is not None for name in ALBERTS)
    if albert and config.embedding_size is None:
        raise ValueError(
            "shared layers without embedding_size have no counterpart: transformers' ALBERT always has one"
        )
    activation = "gelu_new" if config.hidden_act in ("gelu_tanh", "gelu_pytorch_tanh") else config.hidden_act
    fields = [name for name in config.__dataclass_fields__ if name not in OURS_ALONE + ALBERTS]
    values = {name: getattr(config, name) for name in fields} | {"hidden_act": activation}
    if albert:
        values |= {"embedding_size": config.embedding_width, "inner_group_num": 1}
        values |= {"num_hidden_groups": config.num_groups}
    head = next((name for name in TASK_HEADS if name in params), None)
    if head is not None:
        names = labels or [f"LABEL_{i}" for i in range(len(params[head]["bias"]))]
        values |= {"id2label": {str(i): name for i, name in enumerate(names)}}
        values |= {"label2id": {name: i for i, name in enumerate(names)}}
    if head == "regressor":
        values["problem_type"] = "regression"
    kind = "albert" if albert else "bert"
    architecture = ("Albert" if albert else "Bert") + _architecture(params, head)
    return {"architectures": [architecture], "model_type": kind} | values, LAYOUTS[kind]


def _architecture(params: Params, head: str | None) -> str:
    if head is not None:
        endings = {name: ending for ending, name in HEADS.items()}
        return endings["classifier" if head == "regressor" else head]
    pretraining = {("mlm_head", "nsp_head"): "ForPreTraining", ("mlm_head",): "ForMaskedLM"}
    present = tuple(name for name in ("mlm_head", "nsp_head") if name in params)
    return {**pretraining, ("nsp_head",): "ForNextSentencePrediction"}.get(present, "Model")


def _write_tokenizer(directory: Path, tokenizer: Tokenizer, model: BertConfig) -> None:
    """Our tokenizer directory, with what transformers wants to know besides."""
    tokenizer.save(directory)
    config = json.loads((directory / CONFIG_FILE).read_text(encoding="utf-8"))
    names = {f"{name[1:-1].lower()}_token": tokenizer.pieces[i] for name, i in tokenizer.special_tokens.items()}
    kind = {"tokenizer_class": TOKENIZERS[tokenizer.kind]}
    inputs = ["input_ids", "attention_mask"] if model.type_vocab_size == 1 else [*_INPUTS]
    more = {"model_max_length": model.max_position_embeddings, "model_input_names": inputs}
    write_json(directory / CONFIG_FILE, config | kind | names | more)
