"""Every config, in each of its choices, is one that the loop accepts; every field is read."""

import re
from pathlib import Path
from typing import Any

import pytest
from ml_collections import ConfigDict

from bert_jax.model.config import BertConfig, released_sizes
from bert_jax.training.settings import plan, read_config
from configs import pretrain, quickstart

ROOT = Path(__file__).parents[1]


def accepted(config: ConfigDict, corpus: Path) -> Any:
    config.corpus = str(corpus)
    return read_config(config)


@pytest.mark.parametrize("size", released_sizes())
def test_pretrain_knows_every_released_size(size: str) -> None:
    sizes = {
        k: v
        for k, v in pretrain.get_config(f"size={size}").model.items()
        if k in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    }
    assert BertConfig(**sizes) == BertConfig.of_size(size)


@pytest.mark.parametrize(
    "choices",
    [
        "seq=128",
        "seq=512",
        "seq=two_phase",
        *(f"objective={name}" for name in ("mlm", "mlm_sop", "ltr", "rtl")),
        *(f"masking={name}" for name in ("100-0-0", "80-0-20", "80-20-0", "0-20-80", "0-0-100", "whole_word", "ngram")),
        "optimizer=lamb,size=large",
    ],
)
def test_pretrain_choices_are_accepted(choices: str, tiny_corpus: Path) -> None:
    settings, task = accepted(pretrain.get_config(choices), tiny_corpus)
    phases = plan(settings, task)
    assert sum(phase.train_steps for phase in phases) == (8601 if "lamb" in choices else 1_000_000)


def test_the_flags_of_the_readme_are_fields() -> None:
    fields = pretrain.get_config()
    for name in re.findall(r"--config\.([\w.]+)=", (ROOT / "README.md").read_text()):
        value = fields
        for part in name.split("."):
            assert part in value, name
            value = value[part] if isinstance(value, ConfigDict) else None


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"pretrain.py has no choice 'sise'; it has size, seq"):
        pretrain.get_config("sise=base")
    for choice in ("size=huge", "masking=80", "seq=short"):
        with pytest.raises(ValueError, match="malformed size, seq or masking"):
            pretrain.get_config(choice)


@pytest.mark.parametrize("steps", [1, 2, 5, 1200])
def test_quickstart_has_as_many_steps_as_asked(steps: int, tiny_corpus: Path) -> None:
    config = quickstart.get_config()
    config.phases = quickstart.phases(steps)
    settings, task = accepted(config, tiny_corpus)
    assert sum(phase.train_steps for phase in plan(settings, task)) == steps


def test_configs_are_short_and_say_how_to_run_them() -> None:
    for path in (ROOT / "configs").glob("[!_]*.py"):
        text = path.read_text()
        assert "python -m experiments." in text.split('"""')[1], path
        assert len(text.splitlines()) <= 60, path
