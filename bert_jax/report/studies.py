"""Runs that can be compared: those of one task and one data set, grouped into settings: configs without the seed."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from bert_jax.report.elements import leaves
from bert_jax.report.folder import Entry
from bert_jax.report.run import is_number

RATE = "optimizer.learning_rate"
# Runs that agree in these have figures that can be compared.
SAME = ("task", "masking", "corpus", "data_dir", "data", "format", "version", "rules", "train", "dev", "test")
# What tells no settings apart: the seed, the labels (a run adds those of its data), and what is not about learning.
NOT_COMPARED = ("seed", "labels", "log_every_steps", "eval_every_steps", "checkpoint_every_steps", "keep_last")
COLOURS = 8  # of the style sheet: s0 to s7
# Of figures that are the score itself the name is shown.
METRICS = ("accuracy", "f1", "matthews", "pearson", "spearman", "macro_f1", "exact_match")

Values = dict[str, str]


@dataclass(frozen=True)
class Statistics:
    """Of the figure of several runs; the deviation with n - 1, None of a single run."""

    n: int
    mean: float
    deviation: float | None
    median: float
    best: float
    degenerate: int


@dataclass(frozen=True)
class Setting:
    """Runs of one config but for the seed.

    Attributes:
        parts: of each field in which the study's settings differ what it says: ``learning_rate=5e-05``.
        entries: its runs.
        kind: its colour in the style sheet; "rest" of those that are drawn pale.
    """

    parts: Values
    entries: tuple[Entry, ...]
    kind: str = "rest"

    @property
    def name(self) -> str:
        """What sets it apart."""
        first, *others = self.entries
        return ", ".join(self.parts.values()) or ("all runs" if others else first.path)

    @property
    def learning_rate(self) -> float | None:
        """Where the study's settings differ in it."""
        optimizer = self.entries[0].run.config.get("optimizer")
        rate = optimizer.get("learning_rate") if RATE in self.parts and isinstance(optimizer, dict) else None
        return float(rate) if is_number(rate) and rate > 0 else None

    @property
    def name_without_rate(self) -> str:
        """What sets it apart but for the learning rate; "" if nothing does."""
        return ", ".join(part for name, part in self.parts.items() if name != RATE)

    @property
    def counted(self) -> tuple[Entry, ...]:
        """The runs that statistics and curves are of: those that are not known to be unfinished; if all are, all."""
        return tuple(entry for entry in self.entries if entry.finished is not False) or self.entries

    @property
    def complete(self) -> bool:
        """Whether statistics are of finished runs."""
        return any(entry.finished is not False for entry in self.entries)


@dataclass(frozen=True)
class Study:
    """Settings that are compared with each other, by ``figure``, of which more is better if ``mode`` is "max".

    ``figure`` is None where nothing was evaluated.
    """

    title: str
    settings: tuple[Setting, ...]
    figure: str | None
    mode: str

    @property
    def entries(self) -> list[Entry]:
        return [entry for setting in self.settings for entry in setting.entries]

    def value(self, entry: Entry) -> float | None:
        """The figure of a run's last evaluation, if it is a number."""
        value = entry.run.last_evaluation.get(self.figure) if self.figure else None
        return value if value is not None and math.isfinite(value) else None

    def statistics(self, setting: Setting) -> Statistics | None:
        """None: no run of it was evaluated."""
        found = [(entry, value) for entry in setting.counted if (value := self.value(entry)) is not None]
        values = [value for _, value in found]
        if not values:
            return None
        return Statistics(
            n=len(values),
            mean=statistics.fmean(values),
            deviation=statistics.stdev(values) if len(values) > 1 else None,
            median=statistics.median(values),
            best=(max if self.mode == "max" else min)(values),
            degenerate=sum(bool(entry.run.last_evaluation.get("degenerate")) for entry, _ in found),
        )

    def ranked(self) -> list[Setting]:
        """The settings that have finished runs with the figure, best median first; if none has, those without."""
        found = [(setting, own) for setting in self.settings if (own := self.statistics(setting)) is not None]
        found = [pair for pair in found if pair[0].complete] or found
        return [s for s, _ in sorted(found, key=lambda pair: pair[1].median, reverse=self.mode == "max")]


def studies(entries: Iterable[Entry]) -> list[Study]:
    """The runs that can be compared with each other, together; the largest study first."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        config = entry.run.config
        predicts = config.get("objective") if config.get("objective") in ("ltr", "rtl") else "masked"
        key = json.dumps([predicts, *(config.get(name) for name in SAME)], sort_keys=True)
        groups.setdefault(key, []).append(entry)
    return [study(group) for group in sorted(groups.values(), key=len, reverse=True)]


def study(entries: Sequence[Entry]) -> Study:
    """One of runs with the same task and data."""
    selections = Counter(entry.selection for entry in entries if entry.selection is not None)
    figure, mode = selections.most_common(1)[0][0] if selections else (None, "max")
    evaluations = [entry.run.last_evaluation for entry in entries]
    if figure == "score":  # of one metric, the score is that
        given = [one for one in evaluations if "score" in one]
        figure = next((name for name in METRICS if all(one.get(name) == one["score"] for one in given)), figure)
    found = Study(title_of(entries[0]), tuple(settings_of(entries)), figure, mode)
    return replace(found, settings=coloured(found))


def title_of(entry: Entry) -> str:
    """Task and data in a few words."""
    config = entry.run.config
    data = config["data"] if isinstance(config.get("data"), dict) else {}
    last = os.path.basename(str(config.get("corpus") or config.get("data_dir") or "").rstrip("/"))
    named = [config.get("format"), data.get("name"), data.get("source"), last]
    name = next((one for one in named if isinstance(one, str) and one.strip("./") and one != "table"), "")
    version = config.get("version")
    return " ".join(filter(None, (entry.run.task.capitalize(), version and str(version), name and f"on {name}")))


def coloured(study: Study) -> tuple[Setting, ...]:
    """The settings with their colours, in order from one end of the palette to the other.

    Of more settings than there are colours the best have one.
    """
    best = [setting.name for setting in study.ranked() or study.settings][:COLOURS]
    names = [setting.name for setting in study.settings if setting.name in best or len(study.settings) <= COLOURS]
    kinds = {name: colour(place, len(names)) for place, name in enumerate(names)}
    return tuple(replace(setting, kind=kinds.get(setting.name, "rest")) for setting in study.settings)


def colour(place: int, count: int) -> str:
    """Of one of ``count`` things in order, as far apart in the palette as can be."""
    return f"s{math.ceil(place * (COLOURS - 1) / (count - 1) - 0.5) if count > 1 else 2}"


def settings_of(entries: Sequence[Entry]) -> list[Setting]:
    """The settings, in the order of the values that differ."""
    configs = [flat(entry) for entry in entries]
    names = list(dict.fromkeys(name for config in configs for name in config))
    differing = [name for name in names if len({config.get(name, "None") for config in configs}) > 1]
    shown = dict(zip(differing, shortened(differing), strict=True))
    texts = {name: without_common_folder([config.get(name, "None") for config in configs]) for name in differing}
    groups: dict[tuple[str, ...], list[Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault(tuple(texts[name][number] for name in differing), []).append(entry)
    parts = {key: [f"{shown[name]}={text}" for name, text in zip(differing, key, strict=True)] for key in groups}
    return [
        Setting(dict(zip(differing, parts[key], strict=True)), tuple(groups[key]))
        for key in sorted(groups, key=lambda key: list(map(order, key)))
    ]


def flat(entry: Entry) -> Values:
    """The config but for ``NOT_COMPARED``, dotted name -> text; a run without one is told by its folder."""
    values = dict(leaves(entry.run.config)) if entry.run.config else {"folder": entry.path}
    return {name: value for name, value in values.items() if name not in NOT_COMPARED}


def shortened(names: Sequence[str]) -> list[str]:
    """The last part of dotted names where it tells them apart."""
    last = [name.rsplit(".", 1)[-1] for name in names]
    return [short if last.count(short) == 1 else name for name, short in zip(names, last, strict=True)]


def without_common_folder(texts: Sequence[str]) -> list[str]:
    """Paths without the folders that all of them have."""
    common = os.path.commonprefix([text for text in texts if text != "None"])
    common = common[: common.rfind("/") + 1]
    return [text.removeprefix(common) for text in texts]


def order(text: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        return False, float(text), ""
    except ValueError:
        return True, 0.0, text
