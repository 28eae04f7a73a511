"""Writes frozen features of an encoder, for lines of text or for a tagging data set.

    python -m experiments.extract_features --workdir runs/base --input lines.txt --output features.jsonl
    python -m experiments.extract_features --config configs/features.py:data=wnut17 --config.data_dir=WNUT17 \\
        --config.init_from=runs/base --config.features_dir=features

Text: one example a line, " ||| " between the two of a pair. An --output that ends in .jsonl gets the original's JSON
lines; any other is a folder of binary arrays, a third of the size: features.npy [tokens, l, d], ids.npy, bounds.npy
(where each line begins) and features.json. --workdir is a run or a Hugging Face directory. Layer 0 is the output of the
embeddings; the original's is the first layer, its negative numbers are the same.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from absl import flags
from ml_collections import config_flags

from bert_jax.data.object_store import is_url
from experiments.program import run_program

_CONFIG = config_flags.DEFINE_config_file("config", None, "configs/features.py[:key=value,...]", lock_config=True)
_WORKDIR = flags.DEFINE_string("workdir", None, "a run, or a Hugging Face directory")
_INPUT = flags.DEFINE_string("input", None, "a file of text, one example a line")
_OUTPUT = flags.DEFINE_string("output", None, "a .jsonl file, or a folder for binary arrays")
_LAYERS = flags.DEFINE_list("layers", ["-1", "-2", "-3", "-4"], "-1 is the last, 0 the output of the embeddings")
_LENGTH = flags.DEFINE_integer("max_seq_length", 128, "longer lines are read in overlapping windows")
_DTYPE = flags.DEFINE_string("dtype", "float32", "of the binary arrays: float32 or float16")


def main() -> None:
    """Says what was written."""
    if _CONFIG.value is not None:
        extract_data_set()
    elif is_url(_INPUT.value or "") or is_url(_OUTPUT.value or ""):
        raise ValueError(f"--input {_INPUT.value}, --output {_OUTPUT.value}: texts and features are local; give paths")
    elif _WORKDIR.value and _INPUT.value and _OUTPUT.value:
        extract_text(_WORKDIR.value, Path(_INPUT.value), Path(_OUTPUT.value))
    else:
        raise ValueError("give --workdir, --input and --output, or --config configs/features.py")


def extract_data_set() -> None:
    """The features of every split that the config names."""
    from bert_jax.training.settings import read_config

    config = _CONFIG.value
    settings, task = read_config(config)
    if task.name != "features":
        raise ValueError(f"config.task={task.name!r} takes no features; give configs/features.py")
    for split in ("train", "dev", "test"):
        if config[split]:
            task.evaluation(split, settings.batch_size, settings.max_seq_length, 1)
            print(f"{Path(config.features_dir) / split / 'features.npy'}")


def extract_text(source: str, path: Path, output: Path) -> None:
    """The features of lines of text."""
    from bert_jax.data.tables import read_text
    from bert_jax.data.text_files import Problems
    from bert_jax.data.tokenizer import load_tokenizer
    from bert_jax.data.writing import check_output
    from bert_jax.tasks import features, text_features
    from bert_jax.tasks.fine_tuning import checked, report_problems
    from bert_jax.training.init_from import read_encoder
    from bert_jax.training.source import open_source

    opened = open_source(source)
    config = opened.config
    layers = layers_of(_LAYERS.value)
    absolute = features.absolute_layers(layers, config)
    binary = output.suffix != ".jsonl"
    check_output(output, folder=binary)
    text = read_text(path)
    if not text:
        raise ValueError(f"{path} is empty: give a file of text, one example a line")
    lines = text.removesuffix("\n").split("\n")
    (output if binary else output.parent).mkdir(parents=True, exist_ok=True)
    tokenizer, problems = load_tokenizer(opened.tokenizer), Problems()
    inputs = text_features.read_lines(lines, tokenizer, _LENGTH.value, problems)
    report_problems(str(path), problems)
    dtype = _DTYPE.value if binary else "float32"
    params = read_encoder(source)
    with tempfile.TemporaryDirectory(dir=output if binary else output.parent) as folder:
        examples = checked(inputs.examples, config)
        values = features.compute(
            *(Path(folder) / "features.npy", examples, params, config, absolute),
            pad_id=tokenizer.pad_id,
            max_seq_length=_LENGTH.value,
            dtype=dtype,
        )
        if binary:
            text_features.write_arrays(output, inputs, values)
            found = {"model": features.fingerprint(params), "tokenizer": tokenizer.fingerprint(), "layers": layers}
            features.write_info(output, found | {"lines": len(lines), "max_seq_length": _LENGTH.value})
        else:
            text_features.write_json_lines(output, inputs, values, layers, tokenizer)
    print(f"{len(lines):,} lines, {len(inputs.ids):,} tokens: {output}", file=sys.stderr)


def layers_of(given: list[str]) -> list[int]:
    """The numbers of --layers. ValueError for none, and for one that is no whole number."""
    if not given:
        raise ValueError("--layers is empty: give numbers of layers, -1,-2 say")
    for layer in given:
        if not re.fullmatch(r"[+-]?[0-9]+", layer.strip()):
            raise ValueError(f"--layers has {layer!r}, which is no whole number: give numbers of layers, -1,-2 say")
    return [int(layer) for layer in given]


if __name__ == "__main__":
    run_program(main)
