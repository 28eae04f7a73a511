"""How every program with absl flags starts and fails: one line on standard error and a non-zero exit code."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

from absl import app


def run_program(main: Callable[[], None]) -> None:
    """Parses flags and runs ``main``; what is wrong with the user's input is said in one line, without a traceback.

    Set ``BERT_JAX_TRACEBACK=1`` to see the traceback after all.
    """

    def guarded(arguments: list[str]) -> None:
        if len(arguments) > 1:
            fail(f"unknown argument {arguments[1]!r}; see --help")
        # Orbax tells of every file at the level INFO and of every wait at WARNING.
        logging.getLogger("absl").setLevel(logging.ERROR)
        if os.environ.get("BERT_JAX_TRACEBACK"):
            return main()
        try:
            main()
        except (ValueError, OSError, FloatingPointError) as error:
            fail(" ".join(str(error).split()))

    app.run(guarded)


def fail(reason: str) -> None:
    """Ends the program with exit code 1."""
    print(f"error: {reason}", file=sys.stderr)
    sys.exit(1)
