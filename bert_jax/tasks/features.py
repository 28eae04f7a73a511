"""Frozen features: the outputs of an encoder's layers for every token, computed once, packed, and kept on disk.

A directory holds ``features.npy`` [tokens, l, d] (``numpy.load(..., mmap_mode="r")`` reads it) in the order of the
examples' tokens, and ``features.json``, which says whose features they are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from jaxtyping import Array, Float

from bert_jax.data.packing import Examples, Unpacked, packed_batches
from bert_jax.data.prefetch import one_behind
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.writing import write_json, written
from bert_jax.model.bert import Bert
from bert_jax.model.config import BertConfig
from bert_jax.tasks.fine_tuning import tokens_a_batch
from bert_jax.tasks.task import Batch, Params

FEATURES, INFO = "features.npy", "features.json"
FORMAT_VERSION = 1
DTYPES = ("float32", "float16")
ENCODER = ("embeddings", "encoder")
INPUTS = ("input_ids", "segment_ids", "sequence_ids", "position_ids")


def absolute_layers(layers: Sequence[int], config: BertConfig) -> tuple[int, ...]:
    """Layers counted from 0, the output of the embeddings, to l; -1 is the last. ValueError for one that is not."""
    top = config.num_hidden_layers
    if bad := [layer for layer in layers if not -top - 1 <= layer <= top]:
        raise ValueError(f"layer {bad[0]} is not one of 0 (embeddings) to {top}, or {-top - 1} to -1 (the last)")
    return tuple(layer % (top + 1) for layer in layers)


@partial(jax.jit, static_argnames=("config", "layers"))
def layer_outputs(params: Params, batch: Batch, config: BertConfig, layers: tuple[int, ...]) -> Float[Array, "r t l d"]:
    """The outputs of ``layers`` (absolute), without dropout, in float32."""
    states: Any = Bert(config).apply({"params": params}, *(batch[name] for name in INPUTS), all_hidden_states=True)
    return jnp.stack([states.hidden_states[layer] for layer in layers], axis=2).astype(jnp.float32)


def compute(
    path: Path,
    examples: Examples,
    params: Params,
    config: BertConfig,
    layers: tuple[int, ...],
    *,
    pad_id: int,
    max_seq_length: int,
    dtype: str = "float32",
) -> np.ndarray:
    """Writes the features of all tokens, whole or not at all, and gives them back [tokens, l, d] as a memory map.

    Computes batch by batch, rows over all local devices.

    Args:
        params: of the encoder; more than it needs does no harm.
        layers: absolute.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is not one of {', '.join(DTYPES)}")
    devices = jax.local_devices()
    # A mesh of its own: a run's may be of another shape.
    mesh = jax.make_mesh((len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices)
    whole, rows = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    shape = (len(examples.ids), len(layers), config.hidden_size)
    with written(path) as temporary, jax.set_mesh(mesh):
        unpacked = Unpacked(examples)
        stored = np.lib.format.open_memmap(temporary, mode="w+", dtype=dtype, shape=shape)
        unpacked.arrays["features"] = stored  # written straight to the file
        frozen = jax.device_put({name: params[name] for name in ENCODER}, whole)
        running = (
            (batch, layer_outputs(frozen, jax.device_put({n: batch[n] for n in INPUTS}, rows), config, layers))
            for batch in packed_batches(
                examples,
                pad_id=pad_id,
                max_seq_length=max_seq_length,
                tokens_a_batch=tokens_a_batch(),
                row_multiple=len(devices),
            )
        )
        for batch, values in one_behind(running):
            unpacked.add(batch, {"features": np.asarray(values)})
        stored.flush()
    return np.load(path, mmap_mode="r")


def stored_features(
    directory: Path,
    examples: Examples,
    encoder: Callable[[], Params],
    config: BertConfig,
    tokenizer: Tokenizer,
    layers: Sequence[int],
    *,
    max_seq_length: int,
    context: str,
    dtype: str = "float32",
    wanted: Sequence[int] | None = None,
) -> np.ndarray:
    """The features of ``examples`` from ``directory``, computed and written there the first time.

    Args:
        layers: which are stored. wanted: which are given back, in ascending order and next to each other; all.

    Raises:
        ValueError: the directory holds features of another encoder or of other data, or not all layers wanted.
    """
    params = encoder()
    info = {
        "format_version": FORMAT_VERSION,
        "model": fingerprint({name: params[name] for name in ENCODER}),
        "tokenizer": tokenizer.fingerprint(),
        "data": data_fingerprint(examples),
        "tokens": len(examples.ids),
        "hidden_size": config.hidden_size,
        "max_seq_length": max_seq_length,
        "context": context,
        "dtype": dtype,
    }
    numbers = sorted(set(absolute_layers(layers, config)))
    asked = sorted(absolute_layers(layers if wanted is None else wanted, config))
    if missing := set(asked) - set(numbers):
        raise ValueError(f"stored_layers={tuple(layers)} lacks layer {min(missing)}, which is wanted; add it")
    if not len(examples):
        return np.zeros((0, len(asked), config.hidden_size), dtype)
    if (directory / INFO).is_file():
        numbers = _check(directory, info, asked)
        values = _load(directory, (info["tokens"], len(numbers), info["hidden_size"]))
    elif jax.process_count() > 1:
        raise ValueError(f"{directory} holds no features: write them first, on one host (experiments.extract_features)")
    else:
        options: dict[str, Any] = {"pad_id": tokenizer.pad_id, "max_seq_length": max_seq_length, "dtype": dtype}
        values = compute(directory / FEATURES, examples, params, config, tuple(numbers), **options)
        write_info(directory, info | {"layers": numbers})
    first = numbers.index(asked[0])
    if numbers[first : first + len(asked)] != asked:
        raise ValueError(f"{directory} holds layers {numbers}, not {asked}; {_REMEDY}")
    return np.asarray(values)[:, first : first + len(asked)]


_REMEDY = "give another features_dir, or delete it to write it anew"


def _check(directory: Path, info: dict[str, Any], layers: list[int]) -> list[int]:
    """The layers that are stored. ValueError where they are not the features of ``info``."""
    try:
        found = json.loads((directory / INFO).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{directory / INFO} is damaged ({' '.join(str(error).split())}); {_REMEDY}") from None
    if not isinstance(found, dict) or not isinstance(found.get("layers"), list):
        raise ValueError(f"{directory / INFO} does not say whose features it has; {_REMEDY}")
    for name, value in info.items():
        if found.get(name) != value:
            difference = f"{name}: {found.get(name)!r}, not {value!r}"
            raise ValueError(f"{directory} holds other features ({difference}); {_REMEDY}")
    if missing := [layer for layer in layers if layer not in found["layers"]]:
        raise ValueError(f"{directory} holds layers {found['layers']}, not {missing[0]}; {_REMEDY}")
    return found["layers"]


def _load(directory: Path, shape: tuple[int, int, int]) -> np.ndarray:
    """The features of a shape [tokens, l, d] as a memory map. ValueError where the file is missing or damaged."""
    path = directory / FEATURES
    try:
        values = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise ValueError(f"{path} is missing though {INFO} is there; {_REMEDY}") from None
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is damaged ({' '.join(str(error).split())}); {_REMEDY}") from None
    if values.shape != shape:
        raise ValueError(f"{path} has the shape {values.shape}, not {shape}; {_REMEDY}")
    return values


def write_info(directory: Path, info: dict[str, Any]) -> None:
    """Last, for a directory without it is not finished."""
    write_json(directory / INFO, info)


def fingerprint(params: Params) -> str:
    """SHA-256 of the parameters' paths and values."""
    digest = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        digest.update(f"{jax.tree_util.keystr(path)} {np.shape(leaf)}".encode())
        digest.update(np.ascontiguousarray(leaf, np.float32).data)
    return digest.hexdigest()


def data_fingerprint(examples: Examples) -> str:
    """SHA-256 of all token ids, segments and bounds."""
    digest = hashlib.sha256()
    for values in (examples.ids, examples.segment_ids, examples.bounds):
        digest.update(np.ascontiguousarray(values, np.int64).data)
    return digest.hexdigest()
