"""What lies at a URL (``gs://``, ``s3://``, any that fsspec knows): listing, copying, streaming; errors in one line.

Nothing here keeps anything: `object_cache.py` has the local copies, which memory maps need.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

T = TypeVar("T")
# What tells one content of a file from the next; the first that a store has of each file, beside the size.
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "last_modified", "created")
_UNNAMED = ".being_put"
_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}
_REFUSED = re.compile("forbidden|access ?denied|credential|unauthorized", re.IGNORECASE)
ATTEMPTS, FIRST_WAIT_SECONDS = 5, 1.0


def is_url(path: str | Path) -> bool:
    """Whether it is a URL. ValueError for one that has been a `Path`, which makes `gs:/a` of `gs://a`."""
    if isinstance(path, Path) and path.parts and re.fullmatch(r"[a-z][a-z0-9+.-]+:", path.parts[0]):
        raise ValueError(f"{path} was a URL before it became a Path; give it as a string, with both slashes")
    return "://" in str(path)


def name_of(url: str) -> str:
    """The last part of a URL, as a name for a file or directory here."""
    return re.sub(r"[^\w.,=+-]", "_", url.rstrip("/").rsplit("/", 1)[-1]).lstrip(".") or "root"


class Store:
    """A directory (or one file, whose name is then "") at a URL. Names are relative to it, with slashes.

    Every method raises FileNotFoundError (nothing there), PermissionError, or OSError (anything else that the store
    says), in one line with the URL. ValueError: no file system for such a URL, with the package to install.
    """

    def __init__(self, url: str):
        self.url = url.rstrip("/")
        self.fs, self.root = _file_system(self.url)

    def files(self) -> dict[str, str]:
        """Name -> version of every file; {} where there is nothing."""
        with _in_one_line(self.url):
            self.fs.invalidate_cache()
            try:
                found = self.fs.find(self.root, detail=True)
            except FileNotFoundError:
                return {}
        files = {}
        for path, info in sorted(found.items()):
            name = path.rstrip("/")[len(self.root) :].lstrip("/")
            if ".." in PurePosixPath(name).parts:
                raise ValueError(f"{self.url} has a file named {name!r}, which would lie outside of a copy; rename it")
            if info["type"] == "file" and not path.endswith(("/", _UNNAMED)):
                version = next((str(info[key]) for key in _VERSIONS if info.get(key) is not None), "")
                files[name] = f"{info['size']} {version}"
        return files

    def get(self, names: Sequence[str], targets: Sequence[Path]) -> None:
        """Copies files here, several at once where the store can; their folders must exist."""
        with _in_one_line(self.url):
            self.fs.get([self._path(name) for name in names], [str(target) for target in targets])

    def put(self, sources: Sequence[Path], names: Sequence[str]) -> None:
        """Copies files there."""
        paths = [self._path(name) for name in names]
        with _in_one_line(self.url):
            # Object stores (all asynchronous in fsspec) have no directories, and would make a bucket of a typing error.
            for parent in {path.rsplit("/", 1)[0] for path in paths if not self.fs.async_impl}:
                self.fs.makedirs(parent, exist_ok=True)
            unnamed = [self._unnamed(path) for path in paths]
            self.fs.put([str(source) for source in sources], unnamed)
            for half, path in zip(unnamed, paths, strict=True):
                if half != path:
                    self.fs.mv(half, path)

    def read(self, name: str) -> bytes | None:
        """The content of a small file; None where it is not."""
        with _in_one_line(self.url):
            try:
                return self.fs.cat_file(self._path(name))
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """A small file, whole."""
        path = self._path(name)
        with _in_one_line(self.url):
            if not self.fs.async_impl:
                self.fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
            unnamed = self._unnamed(path)
            self.fs.pipe_file(unnamed, content)
            if unnamed != path:
                self.fs.mv(unnamed, path)

    def remove(self, name: str) -> None:
        """A file, or a folder with all that is in it; nothing where it is not."""
        with _in_one_line(self.url):
            self.fs.invalidate_cache()
            if self.fs.exists(self._path(name)):
                self.fs.rm(self._path(name), recursive=True)

    def below(self, name: str) -> Store:
        """Of a folder in it."""
        return Store(f"{self.url}/{name}")

    def _unnamed(self, path: str) -> str:
        """What a file is called until it is whole: object stores write one whole or not at all, but a directory
        (file://) shows what a kill has left of one."""
        return path + _UNNAMED if getattr(self.fs, "local_file", False) else path

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}" if name else self.root


def push(source: Path, store: Store, last: str = "", replacing: Sequence[str] = ()) -> None:
    """Copies what the directory (or file) ``source`` holds there.

    The file ``last`` marks it as whole: an old one is removed first, and the new one comes last. Interrupted anywhere,
    this leaves no mark, so that what a reader finds with it is whole. ``replacing``: folders ("": all) in which
    nothing else stays.
    """
    if source.is_file():
        return store.put([source], [""])
    names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    there = store.files() if last or replacing else {}
    if last in there:
        store.remove(last)
    for name in there.keys() - {last, *names}:
        if any(not folder or name.startswith(f"{folder}/") for folder in replacing):
            store.remove(name)
    rest = [name for name in names if name != last]
    if rest:
        store.put([source / name for name in rest], rest)
    if last:
        store.put([source / last], [last])


def with_patience(call: Callable[[], T], what: str) -> T:
    """``call``'s result; after an OSError again, ``ATTEMPTS`` times in all, with a wait that doubles."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return call()
        except OSError as error:
            if attempt == ATTEMPTS:
                raise
            if attempt == 1:
                print(f"{what} failed ({error}); trying again", file=sys.stderr)
            time.sleep(FIRST_WAIT_SECONDS * 2 ** (attempt - 1))
    raise AssertionError("the last attempt returns or raises")


def glob_urls(pattern: str) -> list[str]:
    """The URLs of the files that a pattern matches, sorted. FileNotFoundError where there is none."""
    fs, path = _file_system(pattern)
    with _in_one_line(pattern):
        fs.invalidate_cache()
        if fs.isfile(path):  # also names with [ or * in them
            return [pattern]
        found = [name for name, info in fs.glob(path, detail=True).items() if info["type"] == "file"]
    if not found:
        raise FileNotFoundError(f"--input {pattern!r} matches no file; quote the pattern and check the URL")
    return sorted(map(fs.unstrip_protocol, found))


def size_of(url: str) -> int:
    """Bytes of the file at a URL."""
    fs, path = _file_system(url)
    with _in_one_line(url):
        return int(fs.info(path)["size"])


def open_url(url: str) -> io.BufferedReader:
    """The file at a URL, to be read from its beginning; a piece at a time is held in memory.

    A store that fails is a RuntimeError, at once or later: what is damaged in a file is an OSError or EOFError.
    """
    return io.BufferedReader(_Streamed(url), 1 << 20)


class _Streamed(io.RawIOBase):
    def __init__(self, url: str):
        fs, path = _file_system(url)
        self.url = self.name = url
        self.mode = "rb"
        with self._failing():
            self.file = fs.open(path, "rb")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()

    def readinto(self, buffer: Any) -> int:
        with self._failing():
            data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed and hasattr(self, "file"):
            self.file.close()
        super().close()

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            with _in_one_line(self.url):
                yield
        except OSError as error:
            raise RuntimeError(f"cannot read {error}; start again when the store answers") from error


def _file_system(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs  # here: local paths, most runs, do without

    scheme = url.split("://", 1)[0].split("::")[-1]
    with _in_one_line(url):
        try:
            fs, root = url_to_fs(url)
        except ImportError as error:
            extra = _EXTRAS.get(scheme)
            remedy = f"pip install '.[{extra}]'" if extra else " ".join(str(error).split())
            raise ValueError(f"{url}: the package for {scheme}:// is not installed; {remedy}") from None
        except ValueError as error:
            raise ValueError(f"{url}: {' '.join(str(error).split())}; give gs://, s3:// or a local path") from None
    return fs, root.rstrip("/")


@contextmanager
def _in_one_line(url: str) -> Iterator[None]:
    try:
        yield
    except ValueError:
        raise
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{url}: not found ({_reason(error)}); check bucket and path") from error
    except Exception as error:  # each store has errors of its own
        reason = _reason(error)
        if isinstance(error, PermissionError) or _REFUSED.search(f"{type(error).__name__} {reason}"):
            raise PermissionError(f"{url}: no permission ({reason}); give this machine credentials that may") from error
        raise OSError(f"{url}: {type(error).__name__}: {reason}") from error


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
