"""Tensors by another program's names <-> our parameter tree, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from bert_jax.interop.layouts import OF_VOCABULARY, OUTPUTS, POOLED, Layout, Parameter, parameters
from bert_jax.model.config import BertConfig

Params = dict[str, Any]


class Translated(NamedTuple):
    """Our nested dict of float32 arrays, and the names of tensors that have no place in it."""

    params: Params
    unexpected: list[str]


def to_params(
    config: BertConfig, layout: Layout, tensors: Mapping[str, np.ndarray], task_head: str | None = None
) -> Translated:
    """Our tree of the encoder and of every head that there is anything of.

    Args:
        tensors: by their plain names, without ``layout.prefix``. task_head: which of ``TASK_HEADS`` the output layer
            whose name several have in common is; None: none.

    Raises:
        ValueError: a tensor is missing, has another shape or numbers that are not finite, or a tied one differs.
    """
    for copy, name in layout.tied.items():
        if copy in tensors and not np.array_equal(tensors.get(name, tensors[copy]), tensors[copy]):
            raise ValueError(
                f"{copy} differs from {name}: this encoder's masked-LM head is tied; untied ones have no use"
            )
    if (layers := config.num_groups) > len(tensors):  # before they are all named
        raise ValueError(
            f"{len(tensors)} tensors but {layers:,} layers with their own by the config: they must belong together"
        )
    firsts = {name: tensors[copy] for copy, name in layout.tied.items() if copy in tensors}
    found = firsts | dict(tensors)
    wanted = parameters(config, _heads(config, layout, found, task_head))
    names = [layout.name(parameter.path) for parameter in wanted]
    if missing := [name for name in names if name not in found]:
        raise ValueError(f"missing {listed(missing)}; give the directory of a whole model that fits its config")
    values = {p.path: _ours(config, layout, p, name, found[name]) for p, name in zip(wanted, names, strict=True)}
    return Translated(nested(values), sorted(found.keys() - set(names) - layout.tied.keys()))


def from_params(config: BertConfig, layout: Layout, params: Params) -> dict[str, np.ndarray]:
    """Their tensors by their plain names; exactly what ``to_params`` reads.

    Raises:
        ValueError: a parameter that has no counterpart there.
    """
    found = {}
    for path, value in flat(params).items():
        array = np.asarray(value)
        if path in OF_VOCABULARY:
            array = array[: config.vocab_size]
        found[layout.name(path)] = np.ascontiguousarray(array.T if layout.is_transposed(path) else array)
    return found


def flat(params: Params) -> dict[str, Any]:
    """Path -> array, in the order of the tree."""
    return flatten_dict(params, sep="/")


def nested(values: Mapping[str, Any]) -> Params:
    """The nested dict of ``flat``'s arrays."""
    return unflatten_dict(values, sep="/")


def num_parameters(config: BertConfig, params: Params) -> int:
    """How many numbers, without the rows that only pad the vocabulary."""
    padding = config.padded_vocab_size - config.vocab_size
    values = flat(params)
    rows = sum(padding * int(np.prod(v.shape[1:])) for path, v in values.items() if path.endswith(OF_VOCABULARY))
    return sum(int(np.prod(value.shape)) for value in values.values()) - rows


def listed(names: Iterable[str], most: int = 8) -> str:
    """Some of the names, and how many more."""
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _heads(
    config: BertConfig, layout: Layout, tensors: Mapping[str, np.ndarray], task_head: str | None
) -> dict[str, int]:
    """Heads with any tensor -> number of outputs. ValueError: nothing of ``task_head`` is there."""
    heads = {}
    # What an output layer of question answering is called, nothing else is.
    for name in dict.fromkeys(("pooler", "mlm_head", "nsp_head", "qa_head", *filter(None, [task_head]))):
        names = _names(config, layout, name)
        if found := [one for one in names if one in tensors]:
            # A bias is [outputs], a kernel [outputs, d] there; anything else will not fit.
            heads[name] = OUTPUTS.get(name) or (*tensors[found[-1]].shape, 0)[0]
        elif name == task_head:
            raise ValueError(f"missing {listed(names)}, which a {name} has; give the directory of a whole model")
    if heads.keys() & POOLED:
        heads.setdefault("pooler", config.hidden_size)
    return heads


def _names(config: BertConfig, layout: Layout, head: str) -> list[str]:
    """Their names of a head's parameters; none where they have no such head."""
    own = [p.path for p in parameters(config, {head: 0}) if p.path.startswith(f"{head}/")]
    try:
        return [layout.name(path) for path in own]
    except ValueError:
        return []


def _ours(config: BertConfig, layout: Layout, parameter: Parameter, name: str, value: np.ndarray) -> np.ndarray:
    transposed = layout.is_transposed(parameter.path)
    shape = parameter.shape[::-1] if transposed else parameter.shape
    if value.shape != shape:
        hint = ""
        if parameter.path in OF_VOCABULARY and value.shape[1:] == shape[1:]:
            hint = f"; vocab_size={config.vocab_size} and the table must be of one vocabulary"
        raise ValueError(f"{name} is {value.shape} but {shape} by the config: they must belong together{hint}")
    if value.dtype.kind not in "fV":  # V: ml_dtypes' bfloat16
        raise ValueError(
            f"{name} is of {value.dtype}, expected floating point: take a checkpoint that is not quantized"
        )
    with np.errstate(over="ignore"):
        value = value.astype(np.float32)
    if not np.isfinite(value).all():
        raise ValueError(f"{name} has numbers that are not finite: copy the file again, or take another checkpoint")
    if transposed:
        return np.ascontiguousarray(value.T)
    if parameter.path in OF_VOCABULARY:
        value = np.pad(value, [(0, config.padded_vocab_size - len(value))] + [(0, 0)] * (value.ndim - 1))
    return value
