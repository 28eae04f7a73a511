"""Several points of a sweep at once, each a process with its share of the devices, and the table that shows them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from bert_jax.data.object_store import is_url

# Orders to end, which every process follows by saving what it has.
SIGNALS = (signal.SIGINT, signal.SIGTERM)
SECONDS_A_LOOK = 1.0


@dataclass
class Running:
    """A point under way."""

    name: str
    process: subprocess.Popen
    log: Path
    slot: int
    started: float = field(default_factory=time.monotonic)


def run_at_a_time(
    commands: Mapping[str, Sequence[str]],
    workdir: str | Path,
    at_a_time: int,
    figure: str,
    record: Callable[[str], float],
) -> dict[str, str]:
    """Runs the commands, after the interpreter's name, ``at_a_time`` at once; what they say goes to ``NAME.log``.

    Args:
        figure: that selects, for the table.
        record: keeps the result of a point that is finished, and gives its figure.

    Returns:
        The points that failed, and why.

    Raises:
        ValueError: a URL, or more processes than TPU chips.
        SystemExit: on SIGTERM or Ctrl-C, once every process has saved and ended.
    """
    if is_url(workdir):
        raise ValueError(
            f"--at_a_time needs a local --workdir, not {workdir}; use --list and start the commands yourself"
        )
    Path(workdir).mkdir(parents=True, exist_ok=True)
    board = Board(list(commands), Path(workdir), figure)
    waiting, running = list(commands), list[Running]()
    slots, stopping = list(range(at_a_time)), list[int]()
    before = {number: signal.signal(number, lambda received, _: stopping.append(received)) for number in SIGNALS}
    try:
        while running or (waiting and not stopping):
            while waiting and slots and not stopping:
                name = waiting.pop(0)
                running.append(start(name, commands[name], Path(workdir), slots.pop(0), at_a_time))
            if stopping:
                for one in running:
                    one.process.send_signal(signal.SIGTERM)
                board.say("stopping: every run saves first")
                for one in running:
                    one.process.wait()
            for one in [one for one in running if one.process.poll() is not None]:
                running.remove(one)
                slots.append(one.slot)
                board.ended(one, record)
            board.show(running)
            time.sleep(SECONDS_A_LOOK)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for one in running:
            one.process.terminate()
    if stopping:
        raise SystemExit(128 + stopping[0])
    return board.failed


def start(name: str, command: Sequence[str], workdir: Path, slot: int, slots: int) -> Running:
    """Starts a point on its share of the devices."""
    log = workdir / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)  # a value may have a slash
    with log.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, *command],
            stdout=stream,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **share(slot, slots)},
            start_new_session=True,  # Ctrl-C is for us, and we tell them
        )
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process.pid, cores[slot % len(cores) :: slots] or cores)
    return Running(name, process, log, slot)


def share(slot: int, slots: int) -> dict[str, str]:
    """The environment that shows a process its own GPUs or TPU chip; several share a GPU where there are too few.

    ValueError: more processes than TPU chips, which cannot be shared.
    """
    gpus = visible_gpus()
    if gpus:
        each = -(-slots // len(gpus))
        return {
            "CUDA_VISIBLE_DEVICES": ",".join(gpus[slot % len(gpus) :: slots]),
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / each:.2f}",
        }
    if chips := tpu_chips():
        if slots > chips:
            raise ValueError(f"--at_a_time={slots} on {chips} TPU chips, each of one process; take at most {chips}")
        one = {"TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1", "TPU_PROCESS_BOUNDS": "1,1,1"}
        return {"TPU_VISIBLE_CHIPS": str(slot), "TPU_VISIBLE_DEVICES": str(slot), **one}
    return {}


def tpu_chips() -> int:
    """How many the machine has; 0 without libtpu."""
    if importlib.util.find_spec("libtpu") is None:
        return 0
    return len([*Path("/dev").glob("accel[0-9]*")] or [*Path("/dev/vfio").glob("[0-9]*")])


def visible_gpus() -> list[str]:
    """The names by which ``CUDA_VISIBLE_DEVICES`` calls them; none where there is no driver."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        return [name for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",") if name.strip()]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True).stdout
    return [str(number) for number, _ in enumerate(filter(None, listed.splitlines()))]


class Board:
    """The live table: redrawn on a terminal; elsewhere a line for each change."""

    def __init__(self, names: Sequence[str], workdir: Path, figure: str) -> None:
        self.workdir, self.figure = workdir, figure
        self.state = dict.fromkeys(names, "waiting")
        self.scores: dict[str, float] = {}
        self.failed: dict[str, str] = {}
        self.started, self.lines = time.monotonic(), 0
        self.terminal = sys.stdout.isatty()

    def ended(self, one: Running, record: Callable[[str], float]) -> None:
        """Notes how a process ended; a result that cannot be kept counts as a failure."""
        self.clear()
        status = one.process.returncode
        if status == 0:
            try:
                self.scores[one.name] = record(one.name)
                self.state[one.name] = "finished"
                return
            except ValueError as error:
                reason = str(error)
        else:
            text = one.log.read_text(encoding="utf-8", errors="replace").strip()
            reason = f"{text.splitlines()[-1] if text else f'ended with {status}'} ({one.log})"
        self.state[one.name] = "stopped" if status in (128 + signal.SIGTERM, -signal.SIGTERM) else "failed"
        if self.state[one.name] == "failed":
            self.failed[one.name] = reason
        self.say(f"{one.name}: {self.state[one.name]}: {reason}")

    def show(self, running: Sequence[Running]) -> None:
        """Every point's state; of those under way the step, the last score and the time left."""
        begun = [one for one in running if self.state[one.name] == "waiting"]
        self.state |= {one.name: "running" for one in begun}
        if not self.terminal:
            for one in begun:
                self.say(f"{one.name}: running, see {one.log}")
            return
        self.clear()
        rows = self.rows(running)
        print("\n".join(rows), flush=True)
        self.lines = len(rows)

    def rows(self, running: Sequence[Running]) -> list[str]:
        """The lines of the table."""
        under_way = {one.name: progress(one, self.figure, self.workdir) for one in running}
        width = max(map(len, self.state))
        head = f"{'point':{width}}  {'state':18}{self.figure:>12}{'left':>10}"
        rows = [head]
        for name, state in self.state.items():
            found = under_way.get(name, Progress(state, self.scores.get(name), None))
            score = "" if found.score is None else f"{found.score:.4f}"
            time_left = "" if found.seconds is None else tqdm.format_interval(found.seconds)
            rows.append(f"{name:{width}}  {found.state:18}{score:>12}{time_left:>10}")
        height, wide = shutil.get_terminal_size()[::-1]
        if len(rows) > height - 3:  # those under way, and how many there are of the others
            rows = [head, *(row for row, name in zip(rows[1:], self.state, strict=True) if name in under_way)]
        return [row[: wide - 1] for row in [*rows, self.summary()]]

    def summary(self) -> str:
        """How many points there are of each state, and how long the rest will take."""
        states = list(self.state.values())
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(("finished", *states))]
        done, open_points = len(self.scores), states.count("running") + states.count("waiting")
        if done and open_points:
            seconds = (time.monotonic() - self.started) / done * open_points
            counts.append(f"about {tqdm.format_interval(seconds)} left")
        return ", ".join(counts)

    def say(self, text: str) -> None:
        """A line that stays."""
        self.clear()
        print(text, flush=True)

    def clear(self) -> None:
        """Takes the table off the screen."""
        if self.lines:
            print(f"\033[{self.lines}F\033[J", end="", flush=True)
            self.lines = 0


@dataclass(frozen=True)
class Progress:
    """What a point under way has got to."""

    state: str
    score: float | None
    seconds: float | None


def progress(one: Running, figure: str, workdir: Path) -> Progress:
    """Read from the run's ``metrics.jsonl``."""
    from bert_jax.training.metric_log import read_metrics

    lines = read_metrics(workdir / one.name)
    if not lines:
        return Progress("starting", None, None)
    step, total = lines[-1]["step"], lines[-1]["total_steps"]
    scores = [line[f"eval/{figure}"] for line in lines if f"eval/{figure}" in line]
    seconds = (time.monotonic() - one.started) / max(step, 1) * (total - step)
    return Progress(f"step {step:,} of {total:,}", scores[-1] if scores else None, seconds)
