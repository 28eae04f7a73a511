"""Takes over a checkpoint: python -m experiments.import_checkpoint --source bert-base-uncased --output models/base

--source is a Hugging Face directory (config.json with model.safetensors, sharded or not, pytorch_model.bin or
flax_model.msgpack), one of Google's (bert_config.json with bert_model.ckpt.*), or a workdir of ours; which, its files
tell. --output is then what ``init_from`` and ``bert_jax.load`` take. Both take --source as it is, too.

--verify runs the same tokens through an independent implementation (PyTorch; extra "peers") that reads --source by
itself, and prints the largest difference of each layer's output and of each head's.
"""

from __future__ import annotations

import sys

from absl import flags

from experiments.program import run_program

_SOURCE = flags.DEFINE_string("source", None, "directory of the checkpoint, or its URL", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "directory to write, or its URL; it must not exist", required=True)
_STEP = flags.DEFINE_integer("step", None, "which checkpoint of a workdir; the default: the newest")
_HEAD = flags.DEFINE_string(
    "task_head",
    None,
    "what the output layer is, where files do not tell: classifier, regressor, choice_head, tagging_head, qa_head",
)
_UNEXPECTED = flags.DEFINE_bool("allow_unexpected", False, "leave out tensors that have no place in this model")
_VERIFY = flags.DEFINE_bool("verify", False, "compare with an independent forward pass")


def main() -> None:
    """Prints what was read; with --verify, the differences. A difference beyond rounding is an error."""
    from bert_jax.data.object_cache import local_output
    from bert_jax.data.tokenizer import load_tokenizer
    from bert_jax.training.source import LAST_WRITTEN, open_source, save_model
    from experiments.checkpoint_report import check_new, load_report

    source, output = open_source(_SOURCE.value, _STEP.value), _OUTPUT.value
    check_new(output)
    model = source.read(_STEP.value, task_head=_HEAD.value, strict=not _UNEXPECTED.value)
    tokenizer = load_tokenizer(source.tokenizer)
    print(load_report(source, model, tokenizer))
    if _VERIFY.value:
        from experiments.verify_checkpoint import verify

        print(verify(source, model, tokenizer))
    # Not the task: this is a model, and no run that could go on.
    about = {name: value for name, value in source.run.items() if name != "task"}
    with local_output(output, LAST_WRITTEN) as place:
        save_model(place, source.config, tokenizer, model, about | {"imported_from": _SOURCE.value})
    print(f"written to {output}", file=sys.stderr)


if __name__ == "__main__":
    run_program(main)
