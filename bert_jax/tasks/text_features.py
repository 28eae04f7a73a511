"""Features of lines of text, the use of the original's ``extract_features.py``; ``A ||| B`` is a pair.

The original cuts a line that is too long. Here a single text is read in overlapping windows instead, and each piece
takes its features from the window with most context for it; [CLS] comes from the first, [SEP] from the last. A pair is
cut by the original's rule, and counted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from bert_jax.data.packing import Examples
from bert_jax.data.sequences import Sequence as Input
from bert_jax.data.sequences import pair, single, truncate_pair
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import max_context, windows
from bert_jax.data.writing import written

PAIR = re.compile(r"(.*) \|\|\| (.*)")  # the last of several, as the original
DECIMALS = 6
TOKENS_A_COPY = 1 << 14


class TextInputs(NamedTuple):
    """Lines as windows for the encoder, and back.

    examples: one for each window. ids: of all lines' tokens, [CLS] and [SEP] among them. sources: the token of
    ``examples`` that has each one's features. bounds: where each line begins, and the end of the last.
    """

    examples: Examples
    ids: Int[np.ndarray, " tokens"]
    sources: Int[np.ndarray, " tokens"]
    bounds: Int[np.ndarray, " lines_and_1"]


def read_lines(lines: Iterable[str], tokenizer: Tokenizer, max_seq_length: int, problems: Problems) -> TextInputs:
    """The windows of lines of text; an empty line is [CLS] [SEP]."""
    if max_seq_length < 3:
        raise ValueError(f"max_seq_length={max_seq_length} leaves no room between [CLS] and [SEP]; give 3 or more")
    found: list[Input] = []
    ids, sources, lengths = [], [], []
    reached = 0  # tokens of the windows so far
    for number, line in enumerate(lines, 1):
        parts, chosen = _windows(line.strip(), tokenizer, max_seq_length, problems, f"line {number}")
        tokens = np.concatenate([part.ids for part in parts])
        ids.append(tokens[chosen])
        sources.append(reached + chosen)
        lengths.append(len(chosen))
        found += parts
        reached += len(tokens)
    empty = np.zeros(0, np.int64)
    return TextInputs(
        Examples.of(found),
        np.concatenate([empty.astype(np.int32), *ids]),
        np.concatenate([empty, *sources]),
        np.cumsum([0, *lengths]),
    )


def _windows(
    line: str, tokenizer: Tokenizer, max_seq_length: int, problems: Problems, place: str
) -> tuple[list[Input], Int[np.ndarray, " t"]]:
    """The windows of a line, and of each of its tokens where it stands among all of theirs."""
    match = PAIR.fullmatch(line)
    if match:
        a, b = (tokenizer.encode_ids(part) for part in match.groups())
        most = max_seq_length - 2 - tokenizer.pair_separators
        if len(a) + len(b) > most:
            problems.add("pair longer than max_seq_length, cut", place)
        parts = [pair(*truncate_pair(a, b, most), tokenizer)]
        return parts, np.arange(len(parts[0].ids))
    pieces, size = tokenizer.encode_ids(line), max_seq_length - 2
    starts = windows(len(pieces), size, (size + 1) // 2)
    ends = np.minimum(starts + size, len(pieces))
    parts = [single(pieces[start:end], tokenizer) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
    if len(parts) > 1:
        problems.add("line longer than max_seq_length, read in overlapping windows", place)
    lengths = ends - starts + 2
    firsts = np.cumsum(lengths) - lengths
    owners = max_context(starts, ends)
    inner = firsts[owners] + 1 + np.arange(len(pieces)) - starts[owners]
    return parts, np.concatenate([[0], inner, [lengths.sum() - 1]]).astype(np.int64)


def write_json_lines(
    path: Path,
    inputs: TextInputs,
    features: Float[np.ndarray, "window_tokens l d"],
    layers: Sequence[int],
    tokenizer: Tokenizer,
) -> None:
    """The original's layout, one line of JSON for each line of text; its key is ``linex_index``."""
    with written(path) as temporary, temporary.open("w", encoding="utf-8") as file:
        for line in range(len(inputs.bounds) - 1):
            tokens = slice(inputs.bounds[line], inputs.bounds[line + 1])
            values = np.asarray(features[inputs.sources[tokens]], np.float64).round(DECIMALS)
            entries = []
            for i, rows in zip(inputs.ids[tokens].tolist(), values.tolist(), strict=True):
                found = [{"index": layer, "values": row} for layer, row in zip(layers, rows, strict=True)]
                entries.append({"token": tokenizer.pieces[i], "layers": found})
            file.write(json.dumps({"linex_index": line, "features": entries}, ensure_ascii=False) + "\n")


def write_arrays(directory: Path, inputs: TextInputs, features: Float[np.ndarray, "window_tokens l d"]) -> None:
    """``features.npy`` [tokens, l, d], ``ids.npy`` [tokens] and ``bounds.npy`` [lines + 1]."""
    shape = (len(inputs.ids), *features.shape[1:])
    with written(directory / "features.npy") as temporary:
        out = np.lib.format.open_memmap(temporary, mode="w+", dtype=features.dtype, shape=shape)
        for first in range(0, len(inputs.ids), TOKENS_A_COPY):
            part = slice(first, first + TOKENS_A_COPY)
            out[part] = features[inputs.sources[part]]
        out.flush()
    for name, values in (("ids.npy", inputs.ids), ("bounds.npy", inputs.bounds)):
        with written(directory / name) as temporary, temporary.open("wb") as file:
            np.save(file, values)
