"""One JSON object a line to a worker process and back: workers take turns, and only the one that is asked works."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

Handler = Callable[..., dict[str, Any]]
# The first line of a worker: everything is loaded, nothing has run.
READY = {"ready": True}
OUT_OF_MEMORY = "out of memory"


class Worker:
    """A process of ``python -m module '<json settings>'``, started once; ``ask`` waits for its answer.

    What it writes to its standard error goes to ``log``, or to ours; ``environment`` is set on top of our own. Use it
    in a ``with`` statement.
    """

    def __init__(
        self,
        module: str,
        settings: dict[str, Any],
        log: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.module, self.log = module, log
        self._stderr = log.open("w", encoding="utf-8") if log else None
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=os.environ | dict(environment or {}),
            text=True,
        )
        self._read()

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a command.

        Raises:
            RuntimeError: the worker has died.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # told, with the exit status, where the answer is missing
        return self._read()

    def close(self) -> None:
        """Ends the worker, at once if it is at work."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._stderr is not None:
            self._stderr.close()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self.close()
            where = f"; see {self.log}" if self.log else " (its message is above)"
            raise RuntimeError(f"worker {self.module} ended with status {status}{where}")
        return json.loads(line)


class Channel:
    """The worker's end. Making it takes standard output away from everything else in this process."""

    def __init__(self) -> None:
        # A library that prints would break the protocol: what it prints goes to standard error.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def send(self, answer: dict[str, Any]) -> None:
        self._out.write(json.dumps(answer) + "\n")
        self._out.flush()

    def receive(self) -> dict[str, Any] | None:
        """The next command; None when there will be no more."""
        line = sys.stdin.readline()
        return json.loads(line) if line else None


def failures_told(handler: Handler) -> Handler:
    """The handler, which answers {"failed": why}, ``OUT_OF_MEMORY`` or the error's line, and goes on."""

    def answer(**arguments: Any) -> dict[str, Any]:
        try:
            return handler(**arguments)
        except Exception as error:  # compilers fail in many ways
            line = " ".join(str(error).split())[:300] or type(error).__name__
            spent = "RESOURCE_EXHAUSTED" in line or OUT_OF_MEMORY in line.lower()
            return {"failed": OUT_OF_MEMORY if spent else line}

    return answer


def serve(channel: Channel, handlers: dict[str, Handler]) -> None:
    """Says ready, then answers every command with its handler's result."""
    channel.send(READY)
    while (message := channel.receive()) is not None:
        channel.send(handlers[message.pop("command")](**message))
