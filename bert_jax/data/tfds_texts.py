"""Texts of a prepared TFDS data set, without TensorFlow. Nothing is downloaded unless asked for.

`tfds:NAME[/CONFIG][:VERSION][:SPLIT]` or `tfds:/DIRECTORY[:SPLIT]`; the split (default train) may be a slice
such as `train[:10%]`. The set must have been prepared with file_format="array_record", the one format that
reads back whole without TensorFlow: tfrecord needs it, and parquet loses rows.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_jax.data.text_files import UNDECODABLE, Problems


def read_tfds(
    name: str, text_field: str, block_bytes: int, problems: Problems
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """(number of the first record, texts), about `block_bytes` at a time. ValueError, FileNotFoundError."""
    builder, split = _open(name)
    source = builder.as_data_source(split=split)
    expected = builder.info.splits[split].num_examples
    if len(source) != expected:
        raise ValueError(f"{name} has {len(source)} rows on disk, its description says {expected}; prepare it again")
    if text_field not in builder.info.features:
        raise ValueError(f"{name} has no field {text_field!r}; choose from {', '.join(builder.info.features)}")
    texts: list[str] = []
    first, size = 0, 0
    for number in range(expected):
        text = decoded(source[number][text_field], f"{name}:{number}", problems)
        texts.append(text)
        size += len(text)
        if size >= block_bytes:
            yield first, tuple(texts)
            texts, first, size = [], number + 1, 0
    if texts:
        yield first, tuple(texts)


def tfds_size(name: str) -> int:
    """The bytes of the split on disk."""
    builder, split = _open(name)
    return builder.info.splits[split].num_bytes or 0


def open_set(name: str, allow_download: bool = False) -> tuple[Any, str]:
    """The builder and the split of a set.

    Where it is not prepared: FileNotFoundError, or with `allow_download` it is downloaded and prepared.
    """
    try:
        return _open(name)
    except FileNotFoundError:
        if not allow_download:
            raise
    import tensorflow_datasets as tfds

    where = name.removeprefix("tfds:").rsplit(":", 1)[0]
    print(f"TFDS downloads {where}; without a network stop it and give the official files as data_dir", file=sys.stderr)
    try:
        tfds.builder(where, file_format="array_record").download_and_prepare()
    except Exception as error:  # of TFDS, of the network, of the disk
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"TFDS could not download {where} ({reason}): give its official files as data_dir") from None
    return _open(name)


def decoded(value: Any, place: str, problems: Problems) -> str:
    """Text for what TFDS gives; bytes that are not UTF-8 are dropped and counted."""
    if not isinstance(value, bytes):
        return str(value)
    text = value.decode("utf-8", "ignore")
    if lost := len(value) - len(text.encode("utf-8")):
        problems.add(UNDECODABLE, place, lost)
    return text


def _open(name: str) -> tuple[Any, str]:
    where, split = _parse(name)
    import tensorflow_datasets as tfds
    import tensorflow_datasets.question_answering
    import tensorflow_datasets.text  # without TensorFlow, these register their sets only when imported

    try:
        is_directory = "/" in where and Path(where).is_dir()
        builder = tfds.builder_from_directory(where) if is_directory else tfds.builder(where)
    except Exception as error:  # TFDS raises its own classes, KeyError, AssertionError ...
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"tfds:{where} is not known to TFDS or not readable: {reason}") from None
    if not builder.info.splits:
        raise FileNotFoundError(
            f"tfds:{where} is not prepared in {builder.data_dir}; set TFDS_DATA_DIR to where it is, "
            "or prepare it with file_format='array_record'"
        )
    file_format = getattr(builder.info.file_format, "value", "unknown")
    if file_format != "array_record":
        raise ValueError(
            f"tfds:{where} is prepared as {file_format}, which cannot be read without "
            "TensorFlow; prepare it with file_format='array_record'"
        )
    try:
        builder.info.splits[split]
    except (KeyError, ValueError):
        raise ValueError(f"tfds:{where} has no split {split!r}; choose from {', '.join(builder.info.splits)}") from None
    return builder, split


def _parse(name: str) -> tuple[str, str]:
    """`tfds:a/b:1.0.0:train` -> ("a/b:1.0.0", "train")."""
    match = re.fullmatch(r"(.+?)(?::([A-Za-z_][\w+%:\[\]-]*))?", name.removeprefix("tfds:"))
    if match is None:
        raise ValueError(f"{name!r} is not tfds:NAME[:SPLIT]")
    return match[1], match[2] or "train"
