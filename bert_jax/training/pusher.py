"""Pushes a run's local directory to its URL, in the background; training never waits for it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Collection, Mapping
from pathlib import Path

from bert_jax.data.locks import LOCK
from bert_jax.data.object_cache import Copy
from bert_jax.data.object_store import push, with_patience
from bert_jax.training.checkpoint import DAMAGED
from bert_jax.training.checkpoint import DIRECTORY as CHECKPOINTS
from bert_jax.training.checksums import SUMS

OWNER = "pushed_by.json"
# Looks for new checkpoints so often, and pushes the other files that have changed, metrics above all, so often.
SECONDS, OTHERS_SECONDS, LONGEST_WAIT_SECONDS = 3.0, 60.0, 300.0
_NOT_PUSHED = (CHECKPOINTS, DAMAGED, LOCK)


class TakenOver(Exception):
    """Another process pushes to the URL."""


class Pusher:
    """While open, a thread pushes finished checkpoints and changed files; at the end everything, before it closes.

    What fails is said once and tried again, with longer and longer waits; if it still fails at the end, that is raised.
    ``ours``: whether the URL's ``pushed_by.json`` is this copy's, see ``stored_run``.
    """

    def __init__(self, copy: Copy, ours: bool) -> None:
        self.copy, self.others_at, self.said = copy, 0.0, False
        self.stopping = threading.Event()
        self.before = copy.store.read(OWNER)  # who pushed when this began
        mine = copy.entry / OWNER
        about = {"id": uuid.uuid4().hex, "process": f"process {os.getpid()} on {platform.node()}", "time": time.time()}
        self.mine = mine.read_bytes() if ours and mine.is_file() else json.dumps(about).encode()
        self.claimed = self.before == self.mine
        self.thread = threading.Thread(target=self._loop, name="pusher", daemon=True)

    def __enter__(self) -> Pusher:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.stopping.set()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            return  # the second Ctrl-C: at once
        self.thread.join()
        try:
            with_patience(lambda: self.push(everything=True), f"pushing to {self.copy.store.url}")
        except (OSError, TakenOver) as error:
            text = f"{error}; what is not there is in {self.copy.directory}, and the same command here pushes it"
            if isinstance(error, TakenOver):
                text = f"{error}; what it has not is in {self.copy.directory}"
            if kind is None or issubclass(kind, SystemExit):
                raise OSError(text) from None
            print(text, file=sys.stderr)  # what ended the run is raised

    def _loop(self) -> None:
        wait = SECONDS
        while not self.stopping.wait(wait):
            try:
                self.push()
            except TakenOver as error:
                print(f"{error}; nothing more is pushed", file=sys.stderr)
                return
            except Exception as error:  # whatever it is, training goes on
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                if not self.said:
                    text = f"{error}; training goes on, and pushing is tried again until it works"
                    print(text, file=sys.stderr)
                self.said = True
            else:
                wait, self.said = SECONDS, False

    def push(self, everything: bool = False) -> None:
        """Pushes what is new: the files first, so that a checkpoint never comes without its metrics."""
        here, index = self.copy.files(), self.copy.index() or {}
        steps = [step for step in whole_steps(here) if f"{CHECKPOINTS}/{step}/{SUMS}" not in index]
        changed: dict[str, str] = {}
        if everything or steps or time.monotonic() >= self.others_at:
            files = self._files(here)
            changed = {name: state for name, state in files.items() if name not in index or index[name][1] != state}
            self.others_at = time.monotonic() + OTHERS_SECONDS
        if changed or steps:
            self._claim()
        if changed:
            self._push_files(changed)
        for step in steps:  # newest first
            self._push_step(step)
        if steps or (everything and self.claimed):
            self._remove_old()

    def _files(self, here: Collection[str]) -> dict[str, str]:
        """Name -> state of the files that are pushed beside the checkpoints."""
        found = {}
        for name in here:
            parts = name.split("/")
            if parts[0] not in _NOT_PUSHED and not any(part.startswith(".") or part.endswith(".tmp") for part in parts):
                found[name] = self.copy.state(name)
        return {name: state for name, state in found.items() if state}  # others were renamed meanwhile

    def _push_files(self, changed: dict[str, str]) -> None:
        with _Snapshot(self.copy.entry) as snapshot:  # a file that grows while it is sent is refused by some stores
            for name in list(changed):
                (snapshot / name).parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(self.copy.path(name), snapshot / name)
                except FileNotFoundError:
                    del changed[name]
            self.copy.store.put([snapshot / name for name in changed], list(changed))
        self._note(changed)

    def _push_step(self, step: int) -> None:
        """A finished checkpoint, its sums last. One that ``keep_last`` removes meanwhile is left out."""
        with _Snapshot(self.copy.entry) as snapshot:
            try:
                shutil.copytree(self.copy.path(f"{CHECKPOINTS}/{step}"), snapshot / str(step), copy_function=_link)
                lines = (snapshot / str(step) / SUMS).read_text(encoding="utf-8").splitlines()
            except OSError:
                if self.copy.path(f"{CHECKPOINTS}/{step}").is_dir():
                    raise
                return
            if not all((snapshot / str(step) / line.split("  ", 1)[1]).is_file() for line in lines):
                return
            push(snapshot / str(step), self.copy.store.below(f"{CHECKPOINTS}/{step}"), SUMS, replacing=("",))
            names = [path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()]
        self._note({f"{CHECKPOINTS}/{name}": self.copy.state(f"{CHECKPOINTS}/{name}") for name in names})

    def _remove_old(self) -> None:
        """Removes checkpoints there that are no longer here, once the newest here is whole there."""
        folder, there = self.copy.directory / CHECKPOINTS, self.copy.store.files()
        here = {path.name for path in folder.iterdir() if path.name.isdecimal()} if folder.is_dir() else set()
        newest = max(map(int, here), default=-1)
        if newest not in whole_steps(there):
            return
        names = {name.split("/")[1] for name in there if name.startswith(f"{CHECKPOINTS}/")}
        gone = [name for name in names - here if name.isdecimal() and int(name) < newest]
        for name in gone:
            self.copy.store.remove(f"{CHECKPOINTS}/{name}/{SUMS}")  # first: what is left is no checkpoint
            self.copy.store.remove(f"{CHECKPOINTS}/{name}")
        index = self.copy.index() or {}
        self._note({}, [name for name in index if name.startswith(CHECKPOINTS) and name.split("/")[1] in gone])

    def _claim(self) -> None:
        """Writes that this process pushes. TakenOver: another does, or the run was deleted, since this began."""
        there = self.copy.store.read(OWNER)
        if there != (self.mine if self.claimed else self.before):
            other = json.loads(there)["process"] if there else "somebody, who has deleted it"
            raise TakenOver(f"{self.copy.store.url} has been taken over by {other}")
        if not self.claimed:
            self.copy.store.write(OWNER, self.mine)
            (self.copy.entry / OWNER).write_bytes(self.mine)
            self.claimed = True

    def _note(self, states: Mapping[str, str], gone: Collection[str] = ()) -> None:
        there = self.copy.store.files() if states else {}
        with self.copy.fetching():
            self.copy.note({name: (there[name], state) for name, state in states.items() if name in there}, gone)


def whole_steps(names: Collection[str]) -> list[int]:
    """The steps of the checkpoints among these files that have their sums, newest first."""
    found = [name.split("/") for name in names if name.startswith(f"{CHECKPOINTS}/") and name.endswith(f"/{SUMS}")]
    return sorted((int(parts[1]) for parts in found if len(parts) == 3 and parts[1].isdecimal()), reverse=True)


class _Snapshot:
    """A folder beside the copy, gone at the end: what is in it stays as it is while it is sent."""

    def __init__(self, entry: Path) -> None:
        self.folder = entry / "pushing"

    def __enter__(self) -> Path:
        shutil.rmtree(self.folder, ignore_errors=True)  # of a process that was killed
        self.folder.mkdir()
        return self.folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def _link(source: str, target: str) -> None:
    """Checkpoints' files never change, so that a second name keeps one from being removed."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
