"""shaky://: a store in memory that fails as a test says; ``clean_stores`` empties it and all of memory://."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from bert_jax.data import object_store


class Shaky(MemoryFileSystem):
    """shaky://: a store that fails where ``fails(operation, path)`` says so, with the error that it gives."""

    protocol = "shaky"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    fails: Any = None

    def _say(self, operation: str, path: str) -> None:
        error = type(self).fails and type(self).fails(operation, path)
        if error:
            raise error

    @classmethod
    def _strip_protocol(cls, path: Any) -> str:
        return MemoryFileSystem._strip_protocol(str(path).removeprefix("shaky://"))

    def get_file(self, rpath: str, lpath: str, **kwargs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._say("get", rpath)
        super().get_file(rpath, lpath, **kwargs)

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._say("put", rpath)
        super().put_file(lpath, rpath, **kwargs)

    def find(self, path: str, **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._say("find", path)
        return super().find(path, **kwargs)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        self._say("open", path)
        return super()._open(path, mode, **kwargs)


fsspec.register_implementation("shaky", Shaky, clobber=True)


@pytest.fixture
def clean_stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(object_store, "FIRST_WAIT_SECONDS", 0.0)
    yield
    Shaky.fails = None
    for kind in (Shaky, MemoryFileSystem):
        kind.store.clear()
        kind.pseudo_dirs[:] = [""]


def failing(operation: str, part: str, error: Exception) -> Any:
    """What fails, if it concerns the part of a path; once set to None again, nothing does."""
    return lambda done, path: error if done == operation and part in path else None
