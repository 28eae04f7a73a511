"""Gives a checkpoint away: python -m experiments.export_checkpoint --source runs/mrpc --output out --format huggingface

--source is a workdir, or any directory that import_checkpoint takes. --format is huggingface (config.json,
model.safetensors and tokenizer, as ``transformers`` loads), google (bert_config.json, bert_model.ckpt.* and vocab.txt,
as the original loads) or stablehlo (a program and its weights, which need none of our code: see
``bert_jax/interop/stablehlo.py``).
"""

from __future__ import annotations

from absl import flags

from experiments.program import run_program

FORMATS = ("huggingface", "google", "stablehlo")
_SOURCE = flags.DEFINE_string("source", None, "directory of the checkpoint, or its URL", required=True)
_OUTPUT = flags.DEFINE_string("output", None, "directory to write, or its URL; it must not exist", required=True)
_FORMAT = flags.DEFINE_enum("format", None, FORMATS, "what to write", required=True)
_STEP = flags.DEFINE_integer("step", None, "which checkpoint of a workdir; the default: the newest")
_HEAD = flags.DEFINE_string("task_head", None, "what the output layer is, where the files do not tell")
_UNEXPECTED = flags.DEFINE_bool("allow_unexpected", False, "leave out tensors that have no place in this model")


def main() -> None:
    """Prints what was read and what was written."""
    from bert_jax.data.object_cache import local_output
    from bert_jax.data.tokenizer import load_tokenizer
    from bert_jax.interop import google, hugging_face, stablehlo
    from bert_jax.training.source import open_source
    from experiments.checkpoint_report import check_new, load_report

    source, output = open_source(_SOURCE.value, _STEP.value), _OUTPUT.value
    check_new(output)
    model = source.read(_STEP.value, task_head=_HEAD.value, strict=not _UNEXPECTED.value)
    tokenizer = load_tokenizer(source.tokenizer)
    print(load_report(source, model, tokenizer))
    with local_output(output) as place:
        given = place, source.config, model.params, tokenizer
        if _FORMAT.value == "huggingface":
            written = hugging_face.write(*given, model.labels)
        elif _FORMAT.value == "google":
            written = google.write(*given)
            if model.labels:
                print("labels: left out, Google's format has no place for them")
        else:
            written = stablehlo.write(*given, model.labels, bilstm_size=source.run.get("bilstm_size") or 0)
    print(f"{output}: {written}")


if __name__ == "__main__":
    run_program(main)
