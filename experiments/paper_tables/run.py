"""A run of one of the programs, as plain data: its command, and the config that its results must be of."""

from __future__ import annotations

import importlib
import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.sweep_points import Point, common, points_of

ROOT = Path(__file__).parents[2]
TRAIN, SWEEP = "train", "sweep"  # the programs that take a config
RESULT = "result.json"  # what a finished training leaves (training/result.py, which would take JAX along)


@dataclass(frozen=True)
class Places:
    """Where things lie: folders of runs and of data, the files of text for pre-training (a pattern)."""

    runs: str
    data: str
    text: str


@dataclass(frozen=True)
class Run:
    """A command that leaves something in the folder ``name`` below the folder of runs.

    Attributes:
        program: a module of ``experiments``.
        recipe: of ``TRAIN`` and ``SWEEP``: a file of ``configs`` and its choices, ``glue.py:task=mrpc``.
        changes: to fields of its config, by their paths.
        arguments: of the program besides these.
        makes: what it leaves, where another program does not itself see that all is there.
        after: names of the runs that must be finished before; the first is what a fine-tuning begins with.
        learns_from: name of the data set of a fine-tuning, for estimates.
    """

    name: str
    program: str
    recipe: str = ""
    changes: Mapping[str, Any] = field(default_factory=dict)
    arguments: tuple[str, ...] = ()
    makes: str = ""
    after: tuple[str, ...] = ()
    learns_from: str = ""

    @property
    def has_results(self) -> bool:
        return self.program in (TRAIN, SWEEP)

    def command(self, places: Places) -> str:
        """One line for a shell; run again, it goes on, or does nothing where all is there."""
        words = ["python", "-m", f"experiments.{self.program}"]
        if self.recipe:
            words += ["--config", f"configs/{self.recipe}"]
            words += [f"--config.{name}={value}" for name, value in self.changes.items()]
            words += ["--workdir", f"{places.runs}/{self.name}"]
        line = shlex.join([*words, *self.arguments])
        # A finished training would evaluate once more.
        makes = f"{places.runs}/{self.name}/{RESULT}" if self.program == TRAIN else self.makes
        return f"test -e {shlex.quote(makes)} || {line}" if makes else line

    def config(self) -> ConfigDict:
        """ValueError, KeyError, TypeError: the recipe has no such choice or field, or it is of another type."""
        module, _, choices = self.recipe.partition(".py")
        config = importlib.import_module(f"configs.{module}").get_config(choices.removeprefix(":"))
        config.lock()
        config.update_from_flattened_dict(dict(self.changes))
        return config

    def points(self) -> list[Point]:
        """Of a sweep, what its file says; another run is one point that sets nothing."""
        return points_of(str(ROOT / "configs" / self.recipe)) if self.program == SWEEP else [{}]

    def wanted(self) -> dict[str, Any]:
        """The config as results keep it: JSON, without what the points set."""
        return json.loads(json.dumps(common(self.config(), self.points())))


def in_order(names: Iterable[str], runs: Mapping[str, Run]) -> list[Run]:
    """These runs and all that they need, each once and after what it needs."""
    found: dict[str, Run] = {}

    def add(name: str) -> None:
        if name not in found:
            for before in runs[name].after:
                add(before)
            found[name] = runs[name]

    for name in names:
        add(name)
    return list(found.values())
