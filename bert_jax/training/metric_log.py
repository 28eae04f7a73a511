"""What a run reports: ``metrics.jsonl``, TensorBoard event files, and the bar or the lines a person watches."""

from __future__ import annotations

import json
import math
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
from tqdm import tqdm

from bert_jax.data.writing import write_json, written
from bert_jax.training.step import Means

FILE, DETAILS = "metrics.jsonl", "evaluation.json"
# The host may run so many steps ahead of the device; more would only hold memory.
STEPS_AHEAD = 2
SECONDS_BETWEEN_LINES = 20.0


class MetricLog:
    """Collects the figures of every step on the device and writes their means every ``every`` steps.

    One JSON object a line with ``step``, ``total_steps`` (of the whole run) and either training figures (``loss``,
    ``learning_rate``, ``tokens_per_second`` of real tokens, ``data_wait`` as a share of the time, ``compilations``,
    ...) or evaluation figures (``eval/...``); the figures as TensorBoard scalars, too. Lines of later steps than
    ``start``, from before an interruption, are dropped: they will be written anew. Only process 0 writes.

    Args:
        member: of several runs in one program, this one's place in their stacked figures; the first shows the bar.
    """

    def __init__(
        self,
        workdir: str | Path,
        objective: tuple[str, ...],
        start: int,
        total: int,
        every: int,
        *,
        member: int | None = None,
    ) -> None:
        self.workdir, self.objective, self.total, self.every = Path(workdir), objective, total, every
        self.member = member
        self.writer = _Writer(workdir, start, total) if jax.process_index() == 0 else None
        self.progress = _Progress(start, total, shown=not member)
        self.compilations, self.spikes = _CompilationCounter(), _Spikes()
        self._restart(start, 0.0)

    def __enter__(self) -> MetricLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.close()
        self.compilations.close()
        if self.writer is not None:
            self.writer.close()

    def train(self, step: int, figures: dict[str, Any], tokens: int, wait_seconds: float) -> None:
        """Notes a dispatched step; waits for the device only where a line is due.

        Raises:
            FloatingPointError: the mean loss since the last line is not finite.
        """
        self.pending.append(figures)
        self.tokens += tokens
        if len(self.pending) > STEPS_AHEAD:
            jax.block_until_ready(self.pending[-1 - STEPS_AHEAD])
        self.progress.update(step)
        if step % self.every == 0 or step == self.total:
            self._line(step, wait_seconds)
            self._restart(step, wait_seconds)

    def check(self) -> None:
        """Waits for the steps since the last line. FloatingPointError: a loss or a gradient that is not finite."""
        self._means()

    def _means(self) -> dict[str, float]:
        """The means over the steps since the last line, their loss first."""
        values = self._ratios(self.pending)
        if values and not _finite(values):  # the sum is of float64, so one of the steps is to blame
            each = ((step, self._ratios([one])) for step, one in enumerate(self.pending, self.since + 1))
            step, bad = next(pair for pair in each if not _finite(pair[1]))
            raise FloatingPointError(
                f"{self.workdir}: loss {bad['loss']}, gradient norm {bad['gradient_norm']} in step {step}:"
                f" --debug_step={step} looks into it, --config.skip_nonfinite=True leaves such steps out; or lower"
                " optimizer.learning_rate or lengthen the warm-up, and start again: the last checkpoint is intact"
            )
        return values

    def _ratios(self, figures: list[dict[str, Any]]) -> dict[str, float]:
        means = Means(self.member)
        means.add(figures)
        values = means.ratios()
        return {"loss": sum(values[name] for name in self.objective), **values} if values else {}

    def evaluation(self, step: int, result: dict[str, float], details: dict[str, Any]) -> None:
        """Writes the figures of an evaluation, and its details into ``evaluation.json``; none write nothing."""
        if details and self.writer is not None:
            write_json(self.workdir / DETAILS, {"step": step, **details})
        if not result:
            self._tell(f"step {step:,}: nothing is held out to evaluate on")
        if result and self.writer is not None:
            self.writer.write(step, {f"eval/{name}": value for name, value in result.items()})
            shown = "  ".join(f"{name} {value:.3f}" for name, value in result.items())
            self._tell(f"step {step:,} held out: {shown}")

    def say(self, text: str) -> None:
        """A line above the bar."""
        if self.writer is not None:
            tqdm.write(text, file=sys.stderr)

    def _tell(self, text: str) -> None:
        """Says it with the run's name, where it is one of several."""
        self.say(text if self.member is None else f"{self.workdir.name}: {text}")

    @contextmanager
    def pause(self) -> Iterator[None]:
        """What happens inside does not count as training time."""
        jax.block_until_ready(self.pending[-1:])
        began = time.monotonic()
        yield
        self.paused += time.monotonic() - began

    def _restart(self, step: int, wait_seconds: float) -> None:
        self.pending: list[dict[str, Any]] = []
        self.since, self.started, self.waited = step, time.monotonic(), wait_seconds
        self.tokens, self.paused = 0, 0.0

    def _line(self, step: int, wait_seconds: float) -> None:
        means = self._means()
        seconds = max(time.monotonic() - self.started - self.paused, 1e-9)
        values = {
            **means,
            "tokens_per_second": self.tokens / seconds,
            "steps_per_second": (step - self.since) / seconds,
            "data_wait": max(0.0, wait_seconds - self.waited) / seconds,
            "compilations": self.compilations.count,
        }
        if self.writer is not None:
            self.writer.write(step, values)
            self.progress.show(step, values)
            if usual := self.spikes.above(values["loss"]):
                self._tell(f"step {step:,}: loss {values['loss']:.3f} is far above the {usual:.3f} of the lines before")


def _finite(values: dict[str, float]) -> bool:
    return math.isfinite(values["loss"] + values["gradient_norm"])


def read_metrics(workdir: str | Path) -> list[dict[str, Any]]:
    """The lines of ``workdir/metrics.jsonl``; a last line that a kill cut short is left out.

    Raises:
        ValueError: a line that is none of ours.
    """
    path = Path(workdir) / FILE
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(path.read_text().splitlines() if path.exists() else (), 1):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            break
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise ValueError(f"{path} is damaged: line {number} has no step; remove it")
        lines.append(line)
    return lines


class _Writer:
    def __init__(self, workdir: str | Path, start: int, total: int) -> None:
        # Here, since it takes PyTorch along where that is installed: seconds that only what trains should spend.
        from tensorboardX import SummaryWriter

        self.total = total
        path = Path(workdir) / FILE
        kept = [line for line in read_metrics(workdir) if line["step"] <= start]
        with written(path) as temporary:
            temporary.write_text("".join(json.dumps(line) + "\n" for line in kept))
        self.file = path.open("a")
        self.events = SummaryWriter(str(Path(workdir) / "tensorboard"), purge_step=start + 1, flush_secs=10)

    def write(self, step: int, values: dict[str, float]) -> None:
        """One line, on disk at once."""
        told = {"step": step, "total_steps": self.total, "time": round(time.time(), 3)}
        self.file.write(json.dumps(told | values) + "\n")
        self.file.flush()
        for name, value in values.items():
            self.events.add_scalar(name if "/" in name else f"train/{name}", value, step)

    def close(self) -> None:
        self.file.close()
        self.events.close()


class _Progress:
    """A bar on a terminal or in a notebook, a line now and then anywhere else (log files, clusters)."""

    def __init__(self, start: int, total: int, *, shown: bool = True) -> None:
        self.start, self.total, self.started, self.last_line = start, total, time.monotonic(), -math.inf
        self.shown = shown
        wanted = shown and jax.process_index() == 0 and (sys.stderr.isatty() or "ipykernel" in sys.modules)
        self.bar = tqdm(total=total, initial=start, unit="step", dynamic_ncols=True, smoothing=0.05) if wanted else None

    def update(self, step: int) -> None:
        if self.bar is not None:
            self.bar.update(step - self.bar.n)

    def show(self, step: int, values: dict[str, float]) -> None:
        text = (
            f"loss {values['loss']:.3f}  {values['tokens_per_second']:,.0f} tokens/s"
            f"  data wait {values['data_wait']:.1%}  compiled {values['compilations']:.0f}"
        )
        now = time.monotonic()
        if self.bar is not None:
            self.bar.set_postfix_str(text, refresh=False)
        elif self.shown and (now - self.last_line >= SECONDS_BETWEEN_LINES or step == self.total):
            self.last_line = now
            left = (now - self.started) / max(step - self.start, 1) * (self.total - step)
            print(f"step {step:,}/{self.total:,}  {text}  ETA {tqdm.format_interval(left)}", file=sys.stderr)

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class _Spikes:
    """Tells a loss that stands out from those of the last lines."""

    LINES, FEWEST = 50, 10
    # Median absolute deviations; 6 of a normal law's are 4 standard deviations. And no less than a share of the loss.
    DEVIATIONS, SHARE = 6.0, 0.1

    def __init__(self) -> None:
        self.losses: deque[float] = deque(maxlen=self.LINES)

    def above(self, loss: float) -> float | None:
        """The usual loss, where this one is far above it; every loss is remembered."""
        known = list(self.losses)
        self.losses.append(loss)
        if len(known) < self.FEWEST:
            return None
        usual = statistics.median(known)
        deviation = statistics.median(abs(other - usual) for other in known)
        return usual if loss > usual + max(self.DEVIATIONS * deviation, self.SHARE * usual) else None


class _CompilationCounter:
    """Counts compilations of the two steps while it is open; more than one a phase and kind means ragged shapes."""

    EVENT = "/jax/core/compile/backend_compile_duration"
    STEPS = ("jit(train_step)", "jit(grid_step)", "jit(eval_step)")

    def __init__(self) -> None:
        self.count = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)

    def _listen(self, event: str, duration_secs: float, **kwargs: Any) -> None:
        self.count += event == self.EVENT and kwargs.get("fun_name") in self.STEPS

    def close(self) -> None:
        jax.monitoring.unregister_event_duration_listener(self._listen)
