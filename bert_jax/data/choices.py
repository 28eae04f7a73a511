"""Multiple choice: a context and endings of which one is right, as in SWAG and HellaSwag.

Each ending makes one sequence with the context (the paper, section 4.4): the context is sentence A, the ending
sentence B. SWAG's endings continue a started phrase; `start` says on which side that goes. The paper does not say.
"""

from __future__ import annotations

from collections.abc import Sequence as List
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Int

from bert_jax.data.sequences import Sequence
from bert_jax.data.tables import EMPTY_TEXT, read_objects, read_rows, read_text
from bert_jax.data.text_examples import assemble, encode_texts
from bert_jax.data.text_files import Problems
from bert_jax.data.tokenizer import Tokenizer

Start = Literal["context", "ending"]


@dataclass(frozen=True, slots=True)
class ChoiceExample:
    """`label`: the place of the right ending, from 0, or None. `source` and `line`: where it was read."""

    context: str
    endings: tuple[str, ...]
    label: int | None = None
    row_id: str = ""
    source: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.source else f"row {self.row_id or '(without id)'}"


def read_swag(
    path: str | Path, problems: Problems, *, labelled: bool = True, start: Start = "context"
) -> list[ChoiceExample]:
    """SWAG's CSV. `labelled` False for the test file, which has no labels.

    start "context": A = sent1 and the started phrase (the file's `startphrase`), B = the ending;
    "ending": A = sent1, B = the started phrase (sent2) and the ending, as in PyTorch's well-known port.
    """
    _check_start(start)
    names = ["fold-ind", "startphrase", "sent1", "sent2", *(f"ending{i}" for i in range(4))]
    examples = []
    for line, cells in read_rows(path, names + ["label"] * labelled, problems, table_format="csv"):
        place = f"{path}:{line}"
        values = _complete(cells, place)
        row_id, phrase, first, second, *endings = values[:8]
        label = choice_label(values[8], 0, 4, place) if labelled else None
        if start == "ending":
            phrase, endings = first, [f"{second} {ending}".strip() for ending in endings]
        examples.append(ChoiceExample(phrase, tuple(endings), label, row_id, str(path), line))
    return checked(examples, path, problems)


def read_hellaswag(path: str | Path, problems: Problems, *, start: Start = "context") -> list[ChoiceExample]:
    """HellaSwag's JSON lines, or its text form: for each item a line each of context, label and four endings.

    The context begins with the name of the activity, "Roof shingle removal: A man is ...", in both. `start` "ending"
    puts the started phrase (`ctx_b`) in front of the endings; the text form does not tell it apart from the context.
    """
    _check_start(start)
    if any(suffix in (".jsonl", ".json") for suffix in Path(path).suffixes):
        examples = _read_json_lines(path, start)
    elif start == "ending":
        raise ValueError(f"{path}: the text form has no started phrase apart: give the JSON lines, or start='context'")
    else:
        examples = _read_six_lines(path)
    return checked(examples, path, problems)


def to_choice_sequences(
    examples: List[ChoiceExample], tokenizer: Tokenizer, max_seq_length: int, problems: Problems | None = None
) -> list[tuple[Sequence, ...]]:
    """For each example a [CLS] context [SEP] ending [SEP] for each ending, in order.

    A pair that is too long loses tokens as in classification; `problems` counts the pairs (`TRUNCATED`).
    """
    counts = [len(example.endings) for example in examples]
    contexts = encode_texts([example.context for example in examples], tokenizer)
    endings = encode_texts([ending for example in examples for ending in example.endings], tokenizer)
    places = [example.place for example in examples for _ in example.endings]
    repeated = contexts.take(np.repeat(np.arange(len(examples)), counts))
    sequences = iter(assemble(repeated, endings, tokenizer, max_seq_length, places, problems))
    return [tuple(next(sequences) for _ in range(count)) for count in counts]


def choice_ids(examples: List[ChoiceExample]) -> Int[np.ndarray, " n"]:
    """The labels (int32). ValueError for an example without one."""
    for example in examples:
        if example.label is None:
            raise ValueError(f"{example.place}: no label: fill it in, or use the row for prediction only")
    return np.fromiter((example.label for example in examples), np.int32, len(examples))


def checked(examples: list[ChoiceExample], path: str | Path, problems: Problems) -> list[ChoiceExample]:
    """The examples; counts empty texts. ValueError for none."""
    if not examples:
        raise ValueError(f"{path} has no rows: give a file with examples")
    for example in examples:
        for text in (example.context, *example.endings):
            if not text.strip():
                problems.add(EMPTY_TEXT, example.place)
    return examples


def choice_label(cell: Any, first: int, count: int, place: str) -> int:
    """The place of the right ending, from 0, of a label that counts from `first`."""
    text = str(cell).strip()
    if not text.isdecimal() or not 0 <= int(text) - first < count:
        raise ValueError(f"{place}: label {text!r} is not one of {first} to {first + count - 1}: correct it")
    return int(text) - first


def _check_start(start: str) -> None:
    if start not in ("context", "ending"):
        raise ValueError(f"start={start!r} is not one of context, ending")


def _complete(cells: List[str | None], place: str) -> list[str]:
    values = [cell for cell in cells if cell is not None]
    if len(values) < len(cells):
        raise ValueError(f"{place}: the row has {len(values)} of {len(cells)} cells: complete it or remove it")
    return values


def _read_json_lines(path: str | Path, start: Start) -> list[ChoiceExample]:
    examples = []
    for line, item in read_objects(path):
        place = f"{path}:{line}"
        endings = item.get("endings")
        keys = ("ctx",) if start == "context" else ("ctx_a", "ctx_b")
        for key in keys:
            if not isinstance(item.get(key), str):
                raise ValueError(f"{place}: no text in {key!r}: give HellaSwag's own keys")
        if not isinstance(endings, list) or len(endings) < 2 or not all(isinstance(e, str) for e in endings):
            raise ValueError(f"{place}: 'endings' is no list of texts: give HellaSwag's own keys")
        context = item[keys[0]]
        if start == "ending":
            endings = [f"{item['ctx_b']} {ending}".strip() for ending in endings]
        if item.get("activity_label"):
            context = f"{item['activity_label']}: {context}"
        given = item.get("label")
        label = None if given in (None, "") else choice_label(given, 0, len(endings), place)
        examples.append(ChoiceExample(context, tuple(endings), label, str(item.get("ind", line - 1)), str(path), line))
    return examples


def _read_six_lines(path: str | Path) -> list[ChoiceExample]:
    lines = [line.removesuffix("\r") for line in read_text(path).removesuffix("\n").split("\n")]
    if len(lines) % 6:
        raise ValueError(
            f"{path} has {len(lines):,} lines, not six for each item (context, label, four endings): "
            f"the last item begins in line {len(lines) // 6 * 6 + 1:,}"
        )
    return [
        ChoiceExample(
            lines[i],
            tuple(lines[i + 2 : i + 6]),
            choice_label(lines[i + 1], 0, 4, f"{path}:{i + 2}"),
            str(i // 6),
            str(path),
            i + 1,
        )
        for i in range(0, len(lines), 6)
    ]
