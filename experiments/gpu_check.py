"""One prepared measurement on a GPU, under 8 minutes: correct in bfloat16, how fast, of what peak, beside PyTorch.

    bash experiments/gpu_check.sh                                    # finds or makes the environment, then this program
    python -m experiments.gpu_check --results experiments/results
    python -m experiments.gpu_check --results experiments/results --only settings,layers   # adds these to the page
    python -m experiments.gpu_check --dry_run --results /tmp/dry     # tiny sizes on the CPU: does everything run?

Every part (``gpu.plan.PARTS``) is a process of its own with its own time; what is slow is ended, what fails is said,
and the rest goes on. ``gpu.json`` and ``gpu.md`` in --results are written anew after each part. The whole takes
at most --total_seconds, without the making of the environment. Compiled programs are not kept from run to run, so
that the seconds to compile are true.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.gpu.page import write_page
from experiments.gpu.plan import Part, parts_of, plan_of
from experiments.machine import card, versions

TOTAL_SECONDS = 470.0
DRY_RUN_TOTAL_SECONDS = 1800.0
# With less than this a part would only start and be ended.
LEAST_SECONDS = 10.0
# JAX takes memory as it needs it, up to nearly all, and not three quarters at once: PyTorch is on the same card.
MEMORY = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XLA_CLIENT_MEM_FRACTION": "0.92"}
# Programs compiled earlier; the old name of the fraction, which JAX refuses beside the new one.
LEFT_OUT = ("JAX_COMPILATION_CACHE_DIR", "XLA_PYTHON_CLIENT_MEM_FRACTION")

RunPart = Callable[[Part, float], dict[str, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    args = _parser().parse_args(arguments)
    # Ended from outside, it must not leave the part at work: that has a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("gpu_check: ended from outside"))
    try:
        check(args)
    except (ValueError, OSError) as error:
        sys.exit(f"gpu_check: {' '.join(str(error).split())}")


def check(args: argparse.Namespace) -> dict[str, Any]:
    """The whole run; what is written to ``gpu.json``.

    Raises:
        ValueError: no GPU where one is needed, an unknown part, or no results directory for a real run.
    """
    plan = plan_of(args.dry_run)
    parts = parts_of(plan, args.only)
    found = card()
    if not args.dry_run and found is None:
        raise ValueError("nvidia-smi finds no GPU here; --dry_run runs everything in small on the CPU")
    if not args.dry_run and not args.results:
        raise ValueError("give --results DIR, experiments/results say")
    results = Path(args.results or tempfile.mkdtemp(prefix="gpu_check_"))
    settings = {"dry_run": args.dry_run, "card": found, "versions": versions(), "plan": json_of(plan)}
    whole = {"settings": settings, "parts": earlier_parts(results, settings)}
    total = args.total_seconds or (DRY_RUN_TOTAL_SECONDS if args.dry_run else TOTAL_SECONDS)
    with tempfile.TemporaryDirectory() as scratch:

        def run(part: Part, seconds: float) -> dict[str, Any]:
            return run_part(part, seconds, Path(scratch), args.dry_run)

        run_parts(parts, total, whole, lambda: write_page(whole, results), run)
    print(f"\n{write_page(whole, results)}\nwritten to {results}/gpu.md and gpu.json", flush=True)
    return whole


def run_parts(
    parts: Sequence[Part], total_seconds: float, whole: dict[str, Any], save: Callable[[], Any], run: RunPart
) -> None:
    """Runs the parts in order, each within its own time and what is left of the whole, and saves after each.

    Raises:
        ValueError: the first part has found that JAX runs on a CPU in what should be a run on a GPU.
    """
    end = time.monotonic() + total_seconds
    for part in parts:
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            entry = {"state": f"not run: {max(left, 0.0):.0f} s of {total_seconds:.0f} s were left", "figures": {}}
        else:
            print(f"{part.title} (at most {min(part.seconds, left):.0f} s) ...", flush=True)
            entry = run(part, min(part.seconds, left))
        # A figure of an earlier run is worth more than the word that there was no time for it.
        if entry["figures"] or part.name not in whole["parts"]:
            whole["parts"][part.name] = entry | {"date": datetime.date.today().isoformat()}
        print(f"  {entry['state']}", flush=True)
        save()
        platform = entry["figures"].get("machine", {}).get("platform", "gpu")
        if platform != "gpu" and not whole["settings"]["dry_run"]:
            raise ValueError(f"JAX runs on the {platform}: install jax[cuda12] or jax[cuda13], as the driver asks")


def run_part(part: Part, seconds: float, scratch: Path, dry_run: bool, module: str = "experiments.gpu.parts") -> Any:
    """{"state": how it ended, "seconds", "figures": what it wrote until then}.

    The part and all that it has started are ended when its time is over.
    """
    output, log = scratch / f"{part.name}.json", scratch / f"{part.name}.log"
    command = [sys.executable, "-m", module, part.name, "--output", str(output), *["--dry_run"] * dry_run]
    start = time.monotonic()
    with log.open("w", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, stdout=stream, stderr=stream, env=environment(scratch, dry_run), start_new_session=True
        )
        try:
            status = process.wait(timeout=seconds)
            state = "done" if status == 0 else f"failed with status {status}: {last_line(log)}"
        except subprocess.TimeoutExpired:
            state = f"cut after {seconds:.0f} s"
        finally:
            end_group(process)
    figures = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {}
    return {"state": state, "seconds": time.monotonic() - start, "figures": figures}


def environment(scratch: Path, dry_run: bool) -> dict[str, str]:
    """A part's: no programs of either side kept from earlier runs, memory as it is needed, and one platform:
    where the GPU cannot be used, JAX would go on without a word on the CPU."""
    values = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    caches = {f"{name}_CACHE_DIR": str(scratch / name) for name in ("TORCHINDUCTOR", "TRITON")}
    return values | MEMORY | caches | {"JAX_PLATFORMS": "cpu" if dry_run else "cuda"}


def end_group(process: subprocess.Popen[Any]) -> None:
    """Ends a process that leads its own session, with all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it wrote nothing"


def earlier_parts(results: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The parts in --results of a run with the same card, packages and plan; none otherwise."""
    path = results / "gpu.json"
    if not path.exists():
        return {}
    earlier = json.loads(path.read_text(encoding="utf-8"))
    if earlier["settings"] != settings:
        print(f"{path} is of another card, other packages or another plan: it begins anew", flush=True)
        return {}
    return earlier["parts"]


def json_of(plan: Any) -> Any:
    """The plan as JSON gives it back, to be compared with one that was read; named tuples are lists there."""
    return json.loads(json.dumps(plan))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu_check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--results", metavar="DIR", help="where gpu.md and gpu.json go; a dry run makes a temporary one")
    add("--dry_run", action="store_true", help="tiny sizes, a step or two, on the CPU")
    add("--only", metavar="PARTS", help="comma-separated: machine, correctness, large-128, ... (gpu.plan.PARTS)")
    add("--total_seconds", type=float, help=f"for all parts together (default {TOTAL_SECONDS:.0f}, of a dry run more)")
    return parser


if __name__ == "__main__":
    main()
