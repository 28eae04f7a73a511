"""Local copies of what lies at URLs, since corpora are memory-mapped and checkpoints need a directory.

    $XDG_CACHE_HOME or ~/.cache / bert_jax / objects / NAME-HASH of the URL /
        NAME/         the copy: every file appears in it whole, by renaming
        index.json    of each file its version there and its state here, when both were the same
        fetching      lock: of several processes of a machine one fetches, the others wait
        lock          lock: a run works in the copy, or something is written that goes to the URL

A copy may be deleted whenever nobody uses it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from bert_jax.data.locks import locked, waited_for
from bert_jax.data.object_store import Store, is_url, name_of, push, with_patience
from bert_jax.data.writing import write_json

_AT_ONCE = 32  # files; after so many the index is written, so that an interrupted fetch goes on there
Check = Callable[[str, Path], None]
Index = dict[str, tuple[str, str]]


def cache_directory() -> Path:
    """Where all copies are."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert_jax" / "objects"


class Copy:
    """The local copy of what a URL holds; ``key`` tells several of one URL apart.

    Attributes: ``store``, ``entry`` (the folder of copy, index and locks), ``directory`` (the copy itself).
    """

    def __init__(self, url: str, key: str = ""):
        self.store = Store(url)
        digest = hashlib.sha256(f"{self.store.url}\n{key}".encode()).hexdigest()
        name = name_of(self.store.url)
        self.entry = cache_directory() / f"{name}-{digest[:16]}"
        self.directory = self.entry / name
        self.entry.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def fetching(self) -> Iterator[None]:
        """What changes the copy or its index happens in here, one process at a time."""
        with waited_for(self.entry / "fetching"):
            yield

    def index(self) -> Index | None:
        """Of the files that were the same here and there: (version there, state here); None before the first time."""
        try:
            found = json.loads((self.entry / "index.json").read_text(encoding="utf-8"))
            return {name: (version, state) for name, (version, state) in found.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return None

    def note(self, same: Index, gone: Iterable[str] = ()) -> None:
        """Writes into the index that these files are the same here and there, and that those are not."""
        index = (self.index() or {}) | same
        for name in gone:
            index.pop(name, None)
        write_json(self.entry / "index.json", index)

    def state(self, name: str) -> str:
        """What changes with a file here: size and time; "" where it is not."""
        try:
            found = self.path(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            return ""
        return f"{found.st_size} {found.st_mtime_ns}"

    def files(self) -> list[str]:
        """Names of the files that are here, also while some come and go."""
        found = [Path(folder, name) for folder, _, names in os.walk(self.directory) for name in names]
        return sorted(path.relative_to(self.directory).as_posix() for path in found)

    def fetch(self, versions: Mapping[str, str], check: Check | None = None) -> list[str]:
        """Copies the files that are not here, unchanged, in these versions, in this order; their names.

        ``check(name, file)`` raises where a file is not what it should be; it does not get into the copy then.
        """
        index = self.index() or {}
        wanted = [name for name in versions if index.get(name) != (versions[name], self.state(name))]
        incoming = self.entry / "incoming"  # not in the copy: a killed process leaves nothing there that is half
        for start in range(0, len(wanted), _AT_ONCE):
            names = wanted[start : start + _AT_ONCE]
            shutil.rmtree(incoming, ignore_errors=True)
            incoming.mkdir()
            files = [incoming / str(number) for number in range(len(names))]
            self.store.get(names, files)
            for name, file in zip(names, files, strict=True):
                if check is not None:
                    check(name, file)
                self.path(name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(file, self.path(name))
            self.note({name: (versions[name], self.state(name)) for name in names})
        shutil.rmtree(incoming, ignore_errors=True)
        return wanted

    def drop(self, names: Iterable[str]) -> None:
        """Removes files here, and the folders that they leave empty."""
        names = list(names)
        for name in names:
            self.path(name).unlink(missing_ok=True)
            for folder in self.path(name).parents:
                if folder == self.directory or not folder.is_dir() or any(folder.iterdir()):
                    break
                folder.rmdir()
        self.note({}, gone=names)

    def path(self, name: str) -> Path:
        """Of a file here; of the copy itself for "" (a URL of one file)."""
        return self.directory / name if name else self.directory


def local_copy(path: str | Path) -> Path:
    """A path as it is; of a URL a local copy of the directory or file there, fetched as far as it has changed.

    Raises:
        FileNotFoundError: nothing is at the URL.
    """
    if not is_url(path):
        return Path(path)
    copy = Copy(str(path))
    versions = copy.store.files()
    if not versions:
        raise FileNotFoundError(f"{path}: nothing is there; check bucket and path")
    with copy.fetching():
        if set(versions) == {""} and copy.directory.is_dir():  # a directory before
            shutil.rmtree(copy.directory)
        copy.drop((copy.index() or {}).keys() - versions.keys())
        copy.fetch(versions)
    return copy.directory


@contextmanager
def local_output(output: str | Path, last: str = "", replacing: Sequence[str] = ()) -> Iterator[Path]:
    """Where to write what belongs at ``output``: there, or for a URL here; it is pushed when the block ends.

    ``last`` and ``replacing`` as in ``push``. Where pushing fails for good, what was written stays here, and the error
    says where.
    """
    if not is_url(output):
        yield Path(output)
        return
    copy = Copy(str(output), "output")
    with locked(copy.entry):
        _remove(copy.directory)  # of a time that was interrupted
        try:
            yield copy.directory
        except BaseException:
            _remove(copy.directory)
            raise
        try:
            with_patience(lambda: push(copy.directory, copy.store, last, replacing), f"pushing {output}")
        except OSError as error:
            raise OSError(f"{error}; what was written is whole in {copy.directory}: copy it from there") from error
        _remove(copy.directory)


def check_nothing_at(url: str) -> None:
    """ValueError where something is at the URL."""
    if Store(url).files():
        raise ValueError(f"{url} exists; give another --output or delete it")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
