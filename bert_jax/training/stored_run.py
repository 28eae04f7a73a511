"""Runs and models at URLs: fetched into the local cache, worked on there, and pushed while a run goes on.

What says that a checkpoint at a URL is whole is its ``SHA256SUMS``, which goes there last. ``pushed_by.json`` says
which process pushes: where it is another's than the local copy remembers, that process has gone on meanwhile, and the
copy becomes what is at the URL. Where it is the copy's own, the copy may be ahead, after a crash, and is kept.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import jax

from bert_jax.data.locks import locked
from bert_jax.data.object_cache import Copy
from bert_jax.data.object_store import Store, is_url
from bert_jax.training.checkpoint import DAMAGED
from bert_jax.training.checkpoint import DIRECTORY as CHECKPOINTS
from bert_jax.training.checksums import SUMS, find_damage
from bert_jax.training.pusher import OWNER, Pusher, whole_steps

# What nobody reads from here; a run adds to it.
NOT_FETCHED = (OWNER, DAMAGED, "tensorboard/", "profile/", "debug_step_")
READ = ("params", "meta", "metrics")  # of a checkpoint, by everything but the run itself
FILES_ONLY = "files"  # tells the copies of ``local_files`` from those of runs


@contextmanager
def working_copy(workdir: str | Path) -> Iterator[Path]:
    """The directory to run in: ``workdir``, or of a URL the local copy, which is pushed while this is open.

    Raises:
        ValueError: a URL for several processes, or another run uses the copy.
        OSError: at the end, what could not be pushed; training goes on meanwhile.
    """
    if not is_url(workdir):
        yield Path(workdir)
        return
    if jax.process_count() > 1:
        raise ValueError(
            f"{workdir} cannot be the workdir of {jax.process_count()} processes, which need one directory that all"
            " share; mount it (gcsfuse, mountpoint-s3) and give the path"
        )
    copy = Copy(str(workdir))
    with ExitStack() as stack:
        with copy.fetching():
            stack.enter_context(locked(copy.entry))
            versions = copy.store.files()
            ours = _make_level(copy, versions)
            steps = _newer(copy, whole_steps(versions)) if ours else whole_steps(versions)
            _fetch_small(copy, versions, ours)
            _fetch_steps(copy, versions, steps)
        with Pusher(copy, ours):
            yield copy.directory


def local_run(path: str | Path, step: int | None = None, *, every: bool = False) -> Path:
    """A path as it is; of a URL the local copy of the run or model there, to read from.

    Of its checkpoints only the newest that is whole is fetched, or ``step``, or with ``every`` all; and of those only
    what readers need. Where a run of this machine pushes to the URL, its own directory.

    Raises:
        FileNotFoundError: nothing is at the URL.
        ValueError: no checkpoint there is as it was written, or none is of ``step``.
    """
    if not is_url(path):
        return Path(path)
    copy = Copy(str(path))
    with copy.fetching():
        try:
            with locked(copy.entry):
                pass
        except ValueError:
            return copy.directory  # the run that goes on there is ahead of the URL
        versions = copy.store.files()
        if not versions:
            raise FileNotFoundError(f"{path}: nothing is there; check bucket and path")
        ours = _make_level(copy, versions)
        _fetch_small(copy, versions, ours)
        steps = whole_steps(versions)
        if step is not None and steps:
            if step not in steps:
                raise ValueError(f"step={step}: {path} has the checkpoints {', '.join(map(str, steps))}; give one")
            steps = [step]
        _fetch_steps(copy, versions, _newer(copy, steps) if ours else steps, reading=True, enough=None if every else 1)
    return copy.directory


def holds(path: str | Path, names: Sequence[str]) -> bool:
    """Whether a directory, or what is at a URL, has one of these files."""
    if not is_url(path):
        return any((Path(path) / name).is_file() for name in names)
    return not Store(str(path)).files().keys().isdisjoint(names)


def local_files(path: str | Path, names: Sequence[str]) -> Path:
    """A path as it is; of a URL a local copy of the files of these names, at any depth, and of nothing else there.

    Raises:
        FileNotFoundError: no such file is there.
    """
    if not is_url(path):
        return Path(path)
    copy = Copy(str(path), FILES_ONLY)
    with copy.fetching():
        versions = copy.store.files()
        wanted = {name: version for name, version in versions.items() if name.rsplit("/", 1)[-1] in names}
        if not wanted:
            raise FileNotFoundError(f"{path}: no {' or '.join(names[:2])} is there; check bucket and path")
        copy.drop(name for name in copy.files() if name not in wanted)
        copy.fetch(wanted)
    return copy.directory


def push_file(workdir: str | Path, name: str, key: str = "") -> None:
    """Copies a file in ``local_run(workdir)`` to the URL that ``workdir`` is, if it is one.

    ``key``: ``FILES_ONLY`` for a file in ``local_files``.
    """
    if is_url(workdir):
        copy = Copy(str(workdir), key)
        with copy.fetching():
            state = copy.state(name)
            copy.store.put([copy.path(name)], [name])
            copy.note({name: (copy.store.files()[name], state)})


def _make_level(copy: Copy, versions: Mapping[str, str]) -> bool:
    """Removes from the copy what is no longer at the URL; whether the rest of it is at least as new as the URL.

    It is not where another process has pushed since: then what was never pushed from here goes, too, checkpoints only
    out of the way.
    """
    index, mine = copy.index(), copy.entry / OWNER
    known = {name: version for name, (version, _) in (index or {}).items()}
    ours = mine.is_file() and mine.read_bytes() == copy.store.read(OWNER)
    if not ours and index is not None:  # nor has anybody else
        ours = _without_skipped(known) == _without_skipped(versions)
    stale = [name for name in copy.files() if name not in versions and (name in known or not ours)]
    lost = [step for step in whole_steps(stale) if f"{CHECKPOINTS}/{step}/{SUMS}" not in known]
    if lost:
        aside = next(
            path for number in itertools.count(1) if not (path := copy.entry / f"superseded_{number}").exists()
        )
        copy.directory.rename(aside)
        copy.note({}, gone=known)
        print(
            f"{copy.store.url} was gone on with elsewhere, or deleted: checkpoint {', '.join(map(str, lost))} of this"
            f" machine, which never got there, is set aside in {aside}",
            file=sys.stderr,
        )
    copy.drop(stale)
    return ours


def _fetch_small(copy: Copy, versions: Mapping[str, str], ours: bool) -> None:
    """Everything but checkpoints; only what is missing where the copy is at least as new."""
    small = [name for name in _without_skipped(versions) if not name.startswith(f"{CHECKPOINTS}/")]
    copy.fetch({name: versions[name] for name in small if not (ours and copy.state(name))})


def _fetch_steps(
    copy: Copy, versions: Mapping[str, str], steps: list[int], *, reading: bool = False, enough: int | None = None
) -> None:
    """The checkpoints of these steps, newest first, until ``enough`` are as they were written (None: all of them).

    One that is not is said, and not kept. ValueError where none is.
    """
    found, damage = 0, ""
    for step in steps:
        folder = f"{CHECKPOINTS}/{step}/"
        names = [name for name in versions if name.startswith(folder) and name != folder + SUMS]
        if reading:
            names = [name for name in names if name.split("/")[2] in READ or name.count("/") == 2]
        changed = copy.fetch({name: versions[name] for name in names})
        changed += copy.fetch({folder + SUMS: versions[folder + SUMS]})
        bad = find_damage(copy.path(folder), READ if reading else ("",)) if changed else None
        if bad is None:
            found += 1
        else:
            damage = f"{copy.store.url}/{folder[:-1]}: {bad}"
            copy.drop(name for name in copy.files() if name.startswith(folder))
            print(f"{damage}; passed over", file=sys.stderr)
        if found == enough:
            return
    if steps and not found:
        raise ValueError(f"{damage}, and no older one to use is whole; copy it again, or delete it")


def _newer(copy: Copy, steps: list[int]) -> list[int]:
    """Those after the newest whole checkpoint that is here: older ones were removed on purpose."""
    here = whole_steps(copy.files())
    return [step for step in steps if not here or step > here[0]]


def _without_skipped(versions: Mapping[str, str]) -> dict[str, str]:
    return {name: version for name, version in versions.items() if not name.startswith(NOT_FETCHED)}
