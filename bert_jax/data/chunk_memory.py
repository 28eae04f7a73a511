"""Remembering what was worked out for a piece of text, within bounds."""

from collections.abc import Callable
from typing import Generic, TypeVar

_Value = TypeVar("_Value")


class ChunkMemory(dict[str, _Value], Generic[_Value]):
    """`memory[chunk]` = compute(chunk), remembered for short chunks in two generations of bounded size.

    When the younger is full it becomes the older, and what is met again moves over: memory stays bounded,
    frequent chunks stay known, and a new subject or language in the corpus does not cost speed for good.
    """

    def __init__(
        self, compute: Callable[[str], _Value], *, max_entries: int = 131_072, max_characters: int = 48
    ) -> None:
        super().__init__()
        self.compute = compute
        self._older: dict[str, _Value] = {}
        self._max_entries = max_entries
        self._max_characters = max_characters

    def __missing__(self, chunk: str) -> _Value:
        value = self._older.get(chunk)
        if value is None:
            value = self.compute(chunk)
        if len(chunk) <= self._max_characters:
            if len(self) >= self._max_entries:
                self._older = dict(self)
                self.clear()
            self[chunk] = value
        return value
