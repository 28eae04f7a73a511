"""Running text -> sentences, by rules."""

from __future__ import annotations

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  (Rust, untyped)


def split_sentences(paragraph: str, language: str = "en") -> list[str]:
    """The sentences of one paragraph (no line breaks in it), without the white space around them.

    `language` (ISO 639-1) chooses the abbreviations that do not end a sentence; the marks of every script end
    one, so a wrong language costs little.
    """
    return [sentence for part in segment(language, paragraph) if (sentence := part.strip())]
