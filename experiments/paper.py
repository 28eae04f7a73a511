"""The paper's tables: of every cell of ours the command, its hours, the paper's figure and what was reached here.

    python -m experiments.paper --table 5                      # 1 to 8, figure5, or all
    python -m experiments.paper --table 5 --commands | sh -e   # reproduces it; started again, it goes on
    python -m experiments.paper --collect                      # keeps finished results in experiments/results/paper

A cell is filled from a results file alone: ``sweep.json`` of a fine-tuning, the folder of a pre-training, or what was
collected of them. The file must be of the config that the cell asks for, whole, and say code, data, hardware, versions
and every seed's figures; else it is refused with the reason. States: measured, scaled down, not run.

--data has the folders glue, squad, swag and conll2003 with the official files; --text is the pattern of the
pre-training's text. Hours of what was not run are estimates (``experiments/paper_tables/estimates.py``), and called so.

--scale small are the same tables at the size of a laptop, on the small sets that --data then names (17 books and
WikiText-2; STS-B; QNLI's, SQuAD's and HellaSwag's development sets, split anew; WNUT-17): nothing there is to be
subtracted from the paper's figures, but the order of the rows can be compared. 85 runs, about two hours on two CPU
cores by estimate; --plan says what takes how long, --collect also writes the figures of paper_small.md anew:

    python -m experiments.paper --scale small --data DIR --commands | sh -e
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from experiments.paper_tables import full, small
from experiments.paper_tables.page import page, plan
from experiments.paper_tables.results import Library
from experiments.paper_tables.run import Places, Run
from experiments.paper_tables.section import refresh
from experiments.program import end_with_the_reader

SCALES = {"paper": full.scale, "small": small.scale}
DEFAULTS = {
    "paper": (Places("runs/paper", "data", "text/*"), "experiments/results/paper"),
    "small": (Places("runs/paper_small", "data", ""), "experiments/results/paper_small"),
}


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    defaults, kept = DEFAULTS[args.scale]
    places = Places(args.runs or defaults.runs, args.data or defaults.data, args.text or defaults.text)
    scale = SCALES[args.scale](places)
    names = list(scale.tables) if args.table == "all" else [args.table]
    if args.table != "all" and args.table not in scale.tables:
        sys.exit(f"error: --table={args.table} is unknown; take one of {', '.join(scale.tables)}, all")
    library = Library(scale.runs, places.runs, args.results or kept)
    runs = scale.runs_of(names)
    if args.commands:
        print("\n".join(run.command(places) for run in runs))
    elif args.plan:
        print("\n".join(plan(runs, scale)))
    elif args.collect:
        collect(library, runs)
        section = library.kept.with_suffix(".md")  # what the small tables show, in words
        if scale.scaled_down and section.is_file():
            refresh(section, scale, Library(scale.runs, library.kept, library.kept))
    else:
        pages = [page(name, scale, library, places, markdown=args.markdown) for name in names]
        print("\n\n\n".join((*pages, f"Estimates: {scale.machine.about}.")))


def collect(library: Library, runs: Sequence[Run]) -> None:
    """Says what was copied and, on standard error, what was not and why; the exit code is 1 where a file is refused."""
    written = library.collect(run.name for run in runs if run.has_results)
    print(f"{len(written)} results -> {library.kept}")
    for line in library.unfinished.values():
        print(line, file=sys.stderr)
    if library.refused:
        sys.exit("\n".join(f"error: {reason}" for reason in library.refused.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--table", default="all", help="1 to 8, figure5, or all (default)")
    add("--scale", choices=tuple(SCALES), default="paper", help="the paper's size (default), or a laptop's")
    add("--runs", metavar="DIR", help="where the runs are (default runs/paper, runs/paper_small)")
    add("--results", metavar="DIR", help="where results are kept (default experiments/results/paper, .../paper_small)")
    add("--data", metavar="DIR", help="folder of the data sets (default data)")
    add("--text", metavar="PATTERN", help="text to pre-train on, at the paper's size (default text/*)")
    add("--markdown", action="store_true", help="tables in Markdown")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--commands", action="store_true", help="only the commands, in order, for a shell")
    only.add_argument("--plan", action="store_true", help="only the runs and their estimated times")
    only.add_argument("--collect", action="store_true", help="copy finished results to --results")
    return parser


if __name__ == "__main__":
    end_with_the_reader()
    main()
