"""A directory that holds a model, whoever wrote it: the workdir of a run, a Hugging Face or a Google checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert_jax.data.tokenizer import Tokenizer
from bert_jax.interop import google, hugging_face
from bert_jax.interop.imported import Imported
from bert_jax.interop.translate import listed
from bert_jax.model.config import BertConfig
from bert_jax.tasks.task import Params
from bert_jax.training.checkpoint import read_params, write_params

CONFIG, MODEL_CONFIG, TOKENIZER = "config.json", "bert_config.json", "tokenizer"
RUN, HUGGING_FACE, GOOGLE = "run", "Hugging Face", "Google"


@dataclass(frozen=True)
class Source:
    """A model's directory; nothing large is read before ``read``.

    Attributes:
        directory, kind: where it is, and whose form it has: ``RUN``, ``HUGGING_FACE`` or ``GOOGLE``.
        config: of the encoder.
        tokenizer: where ``load_tokenizer`` finds its tokenizer.
        labels: names of the classes or tags, of a model with such a head.
        run: the whole config of a run; {} of others.
    """

    directory: Path
    kind: str
    config: BertConfig
    tokenizer: Path
    labels: tuple[str, ...] | None = None
    run: dict[str, Any] = field(default_factory=dict)

    def read(self, step: int | None = None, *, task_head: str | None = None, strict: bool = False) -> Model:
        """All parameters, at our paths, on the host.

        Args:
            step: the checkpoint of a run; None: the newest.
            task_head: what an output layer is whose name does not tell, see ``layouts.TASK_HEADS``.
            strict: whether tensors that have no place in our model are an error.

        Raises:
            ValueError: what cannot be read, or does not fit the config; with the file and what to do.
            FileNotFoundError: no such checkpoint.
        """
        if self.kind == RUN:
            params, meta = read_params(self.directory, step)
            return Model(params, meta, self.labels, [])
        if step is not None:
            raise ValueError(f"step={step}: {self.directory} is a {self.kind} directory, which has one checkpoint")
        found = _READERS[self.kind](self.directory, task_head)
        if strict and found.unexpected:
            raise ValueError(
                f"{self.directory}: tensors without a place in this model: {listed(found.unexpected)}; if they are not"
                " needed, allow unexpected ones"
            )
        return Model(found.params, {"step": 0, "figures": {}}, found.labels, found.unexpected)


@dataclass(frozen=True)
class Model:
    """What a ``Source`` holds: parameters, the checkpoint's step and figures, labels, names of tensors left over."""

    params: Params
    meta: dict[str, Any]
    labels: tuple[str, ...] | None
    unexpected: list[str]


def is_run(directory: str | Path) -> bool:
    """Whether a run has begun in this workdir."""
    return (Path(directory) / MODEL_CONFIG).is_file() and (Path(directory) / TOKENIZER).is_dir()


def open_source(path: str | Path) -> Source:
    """The model in a directory, recognised by its files.

    Raises:
        FileNotFoundError: it holds no model.
        ValueError: its config cannot be read, or is of a model that our encoder is not.
    """
    directory = Path(path)
    if is_run(directory):
        run = _read_run(directory / CONFIG)
        labels = run.get("labels")
        config = BertConfig.from_json(directory / MODEL_CONFIG)
        return Source(directory, RUN, config, directory / TOKENIZER, None if labels is None else tuple(labels), run)
    if hugging_face.is_hugging_face(directory):
        config, labels = hugging_face.read_config(directory), hugging_face.read_labels(directory)
        return Source(directory, HUGGING_FACE, config, directory, labels)
    if google.is_google(directory):
        return Source(directory, GOOGLE, google.read_config(directory), directory)
    raise FileNotFoundError(
        f"{str(path)!r} is neither the workdir of a run, nor a Hugging Face directory (config.json with"
        " model.safetensors, pytorch_model.bin or flax_model.msgpack), nor a Google one (bert_config.json with"
        " bert_model.ckpt.index); give one of the three"
    )


def save_model(
    directory: str | Path, config: BertConfig, tokenizer: Tokenizer, model: Model, about: dict[str, Any]
) -> None:
    """Writes a model as a workdir that ``open_source`` reads: to begin with (``init_from``), and for ``bert_jax.load``.

    ``about`` goes to ``config.json`` beside the labels. What says that the directory is a model comes last.
    """
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_params(directory, model.params, model.meta)
    labels = {} if model.labels is None else {"labels": list(model.labels)}
    (directory / CONFIG).write_text(json.dumps(about | labels, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    config.to_json(directory / MODEL_CONFIG)
    tokenizer.save(directory / TOKENIZER)


def _read_run(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): restore it from the run's recipe") from None


_READERS: dict[str, Callable[[str | Path, str | None], Imported]] = {
    HUGGING_FACE: hugging_face.read,
    GOOGLE: google.read,
}
