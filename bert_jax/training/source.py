"""A directory that holds a model, whoever wrote it: the workdir of a run, a Hugging Face or a Google checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert_jax.data.tokenizer import CONFIG_FILE, Tokenizer
from bert_jax.data.writing import write_json
from bert_jax.interop import google, hugging_face
from bert_jax.interop.imported import Imported
from bert_jax.interop.layouts import TASK_HEADS, parameters
from bert_jax.interop.translate import flat, listed
from bert_jax.model.config import BertConfig
from bert_jax.tasks.task import Params
from bert_jax.training.checkpoint import read_params, write_params
from bert_jax.training.stored_run import local_run

CONFIG, MODEL_CONFIG, TOKENIZER = "config.json", "bert_config.json", "tokenizer"
ENCODER, TABLE = {"embeddings", "encoder"}, "embeddings/word/embedding"
# ``save_model`` writes it last: with it, a directory is a model.
LAST_WRITTEN = f"{TOKENIZER}/{CONFIG_FILE}"
REMEDY = ": they must belong together; restore it from the run's recipe"
RUN, HUGGING_FACE, GOOGLE = "run", "Hugging Face", "Google"


@dataclass(frozen=True)
class Source:
    """A model's directory; nothing large is read before ``read``.

    Attributes:
        directory, kind: where it is, and whose form it has: ``RUN``, ``HUGGING_FACE`` or ``GOOGLE``.
        config: of the encoder.
        tokenizer: where ``load_tokenizer`` finds its tokenizer.
        run: what ``config.json`` of a workdir holds: the config of a run, or where an imported model came from; {} of
            others.
    """

    directory: Path
    kind: str
    config: BertConfig
    tokenizer: Path
    run: dict[str, Any] = field(default_factory=dict)

    @property
    def trained_here(self) -> bool:
        """Whether ``run`` says how the model was trained, which that of another program does not."""
        return "batch_size" in self.run

    def read(self, step: int | None = None, *, task_head: str | None = None, strict: bool = True) -> Model:
        """All parameters, at our paths, on the host.

        Args:
            step: the checkpoint of a run; None: the newest.
            task_head: what an output layer is whose name does not tell, see ``layouts.TASK_HEADS``.
            strict: whether tensors that have no place in our model are an error.

        Raises:
            ValueError: what cannot be read, or does not fit the config; with the file and what to do.
            FileNotFoundError: no such checkpoint.
        """
        if task_head is not None and (task_head not in TASK_HEADS or self.kind == RUN):
            known = "a run knows its own" if self.kind == RUN else f"take one of {', '.join(TASK_HEADS)}"
            raise ValueError(f"task_head={task_head!r} is no choice for {self.directory}; {known}")
        if self.kind == RUN:
            params, meta = read_params(self.directory, step)
            _check_encoder(self.directory / MODEL_CONFIG, self.config, params)
            labels = self.run.get("labels")
            return Model(params, meta, None if labels is None else tuple(labels), [])
        if step is not None:
            raise ValueError(f"step={step}: {self.directory} is a {self.kind} directory, which has one checkpoint")
        found = _READERS[self.kind](self.directory, task_head)
        if strict and found.unexpected:
            raise ValueError(
                f"{self.directory}: tensors without a place in this model: {listed(found.unexpected)}; say what an"
                " output layer is (task_head), or allow unexpected ones (strict=False, --allow_unexpected)"
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
    return all((Path(directory) / name).is_file() for name in (MODEL_CONFIG, LAST_WRITTEN))


def open_source(path: str | Path, step: int | None = None) -> Source:
    """The model in a directory, recognised by its files; of a URL in its local copy, with that checkpoint of a run.

    Raises:
        FileNotFoundError: it holds no model.
        ValueError: its config cannot be read, or is of a model that our encoder is not.
    """
    directory = local_run(path, step)
    if is_run(directory):
        config, run = _read_config(directory / MODEL_CONFIG), read_run_config(directory)
        return Source(directory, RUN, config, directory / TOKENIZER, run)
    if hugging_face.is_hugging_face(directory):
        return Source(directory, HUGGING_FACE, hugging_face.read_config(directory), directory)
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
    write_json(directory / CONFIG, about | labels)
    config.to_json(directory / MODEL_CONFIG)
    tokenizer.save(directory / TOKENIZER)


def read_run_config(workdir: str | Path) -> dict[str, Any]:
    """What ``config.json`` of a workdir holds; {} where there is none."""
    path = Path(workdir) / CONFIG
    if not path.is_file():
        return {}
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): restore it from the run's recipe") from None
    if not isinstance(run, dict) or not isinstance(run.get("labels"), list | None):
        raise ValueError(f"{path} is no JSON object, or its labels are no list: restore it from the run's recipe")
    return run


def _read_config(path: Path) -> BertConfig:
    try:
        return BertConfig.from_json(path)
    except (ValueError, TypeError, RecursionError) as error:
        message = str(error)
        raise ValueError(message if str(path) in message else f"{path}: {message}") from None


def _check_encoder(path: Path, config: BertConfig, params: Params) -> None:
    """ValueError where an encoder's parameters are not those of its config; a head on features has none."""
    if not params.keys() >= ENCODER:
        return
    groups, own = config.num_groups, len(params["encoder"])
    if groups != own:  # before they are all named
        raise ValueError(f"{path}: {groups:,} layers with their own parameters by it, but there are {own}{REMEDY}")
    found = {name: value for name, value in flat(params).items() if name.split("/")[0] in ENCODER}
    wanted = {one.path: one.shape for one in parameters(config, {})}
    wanted[TABLE] = (config.padded_vocab_size, *wanted[TABLE][1:])
    for name in [*wanted, *(found.keys() - wanted.keys())]:
        shapes = np.shape(found[name]) if name in found else None, wanted.get(name)
        if shapes[0] != shapes[1]:
            raise ValueError(f"{path}: {name} is {shapes[0] or 'missing'} but {shapes[1] or 'not there'} by it{REMEDY}")


_READERS: dict[str, Callable[[str | Path, str | None], Imported]] = {
    HUGGING_FACE: hugging_face.read,
    GOOGLE: google.read,
}
