"""How every program with absl flags starts and fails: one line on standard error and a non-zero exit code."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from absl import app, flags, logging

# XLA on CPU takes its buffers from malloc anew for every step, and glibc gives large ones back to the system at once:
# tens of thousands of page faults a step. Kept and in huge pages, a step of a small model takes a quarter less time.
MALLOC_TUNABLES = (
    "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:glibc.malloc.arena_max=1"
)


def run_program(main: Callable[[], None]) -> None:
    """Parses flags and runs ``main``; what is wrong with the user's input is said in one line, without a traceback.

    Set ``BERT_JAX_TRACEBACK=1`` to see the traceback after all.
    """

    def guarded(arguments: list[str]) -> None:
        if len(arguments) > 1:
            fail(f"unknown argument {arguments[1]!r}; see --help")
        # Orbax tells of every file at the level INFO, of every wait at WARNING, and at ERROR what it raises anyway.
        logging.set_verbosity(logging.FATAL)
        if os.environ.get("BERT_JAX_TRACEBACK"):
            return main()
        try:
            main()
        except (ValueError, OSError, FloatingPointError) as error:
            fail(" ".join(str(error).split()))
        except RuntimeError as error:  # JAX's, where a process of several is gone
            if not _one_of_several():
                raise
            reason = " ".join(str(error).split())[:200]
            fail(
                f"another process of this run has ended ({reason}); start all again, to go on from the last checkpoint"
            )

    keep_compilations()
    keep_memory_in_huge_pages()
    app.run(guarded, flags_parser=_parse_flags)


def _parse_flags(arguments: list[str]) -> list[str]:
    try:
        return flags.FLAGS(arguments)
    except AttributeError as error:  # around a KeyError, its name and what it may have meant in quotes of its own
        name, *hint = re.split(r"(?:\\n|\n)", str(error).replace("\\'", "'").strip("\"'"))
        fail(f"the config has no field {'; '.join((name.strip(chr(39)), *hint)).replace('Did', 'did')}")
    except (flags.Error, KeyError, TypeError, ValueError, OSError) as error:
        # A config file's own error comes inside a traceback: its last line says what is wrong.
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        fail(lines[-1].removeprefix("ValueError: ") if lines else type(error).__name__)


def keep_compilations() -> None:
    """Lets runs find what an earlier one compiled: the next seed of a small fine-tuning begins at once.

    ``JAX_COMPILATION_CACHE_DIR`` says where else than in the user's cache folder.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(home / "bert_jax"))
    # JAX would keep only what took a second; a run has dozens of small programs, which take seconds together.
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")


def keep_memory_in_huge_pages() -> None:
    """Starts this process over with ``MALLOC_TUNABLES``: glibc reads them only at the start.

    Other systems, and an environment that has set ``GLIBC_TUNABLES`` itself, are left alone.
    """
    if sys.platform == "linux" and "GLIBC_TUNABLES" not in os.environ:
        os.environ["GLIBC_TUNABLES"] = MALLOC_TUNABLES
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def end_with_the_reader() -> None:
    """Ends quietly, as other programs, where what reads our output has enough of it: ``head``."""
    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def fail(reason: str) -> NoReturn:
    """Ends the program with exit code 1; at once where it is one of several, which JAX would have it wait for."""
    print(f"error: {reason}", file=sys.stderr, flush=True)
    if _one_of_several():
        time.sleep(2)  # the others may be about to find the same
        os._exit(1)
    sys.exit(1)


def _one_of_several() -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and jax.distributed.is_initialized()
