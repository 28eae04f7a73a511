"""The character rules of BERT's basic tokenizer: what is deleted, what separates, what stands alone.

Source: `tokenization.py` of google-research/bert (the rules since 2019-03-28), which asks Python's
`unicodedata`. So do we, but the tables are held at Unicode 15.1 for every Python: the few code points
that became relevant after the oldest table we meet (14.0, Python 3.11) are listed here, and the tokens of
a text do not depend on the interpreter. Code points that no table knows are kept, as letters.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

# What str.split() separates at, less the Cc characters \v \f \x1c-\x1f \x85, which BERT deletes.
CHUNK = re.compile("[^\t\n\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
# Where these occur, str.split() would separate and BERT does not.
DELETED_BUT_SPLIT = "\x0b\x0c\x1c\x1d\x1e\x1f\x85"

_ASCII_WORD = re.compile(r"[!-/:-@\[-`{-~]|[^ !-/:-@\[-`{-~]+")
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
# Assigned in Unicode 15.0 and 15.1, of a category that the rules look at.
_SINCE_14 = {
    "Mn": (
        (0x0ECE, 0x0ECE),
        (0x10EFD, 0x10EFF),
        (0x11241, 0x11241),
        (0x11F00, 0x11F01),
        (0x11F36, 0x11F3A),
        (0x11F40, 0x11F40),
        (0x11F42, 0x11F42),
        (0x13440, 0x13440),
        (0x13447, 0x13455),
        (0x1E08F, 0x1E08F),
        (0x1E4EC, 0x1E4EF),
    ),
    "Cf": ((0x13439, 0x1343F),),
    "Po": ((0x11B00, 0x11B09), (0x11F43, 0x11F4F)),
}
_LATER = {
    chr(code): category
    for category, ranges in _SINCE_14.items()
    for first, last in ranges
    for code in range(first, last + 1)
}


def category(char: str) -> str:
    """The general category of a character in Unicode 15.1."""
    return _LATER.get(char) or unicodedata.category(char)


def is_deleted(char: str) -> bool:
    """Code point 0, U+FFFD, and Cc and Cf but tab and line ends: taken out, words close up over them."""
    return char in "\x00\ufffd" or (char not in "\t\n\r" and category(char) in ("Cc", "Cf"))


def is_space(char: str) -> bool:
    """What separates words. U+2028 and U+2029 (Zl, Zp) do because the original uses str.split()."""
    return char in "\t\n\r" or category(char) in ("Zs", "Zl", "Zp")


def is_cjk(char: str) -> bool:
    """A Chinese character, a word of its own. Not Hangul, Hiragana or Katakana."""
    return any(first <= ord(char) <= last for first, last in _CJK)


def is_punctuation(char: str) -> bool:
    """ASCII marks and symbols, and Unicode P*. Not the symbols S* beyond ASCII (€, ×, emoji)."""
    return char in "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~" or category(char).startswith("P")


class AlignedWord(NamedTuple):
    """A word after normalisation; its i-th character came from text[starts[i]:ends[i]]."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]


class _PerCharacter(dict[str, str]):
    """What each character becomes, worked out when it is first met."""

    def __init__(self, rule: Callable[[str], str]) -> None:
        super().__init__()
        self._rule = rule

    def __missing__(self, char: str) -> str:
        self[char] = becomes = self._rule(char)
        return becomes


class BasicRules:
    """Text -> words: clean, space out CJK, split, [lower-case, strip accents], split at punctuation.

    `strip_accents` (NFD, then Mn dropped, not composed again) goes with `lowercase` in the original, and so
    by default; `split_cjk=False` leaves runs of Chinese characters whole.
    """

    def __init__(self, *, lowercase: bool, strip_accents: bool | None = None, split_cjk: bool = True) -> None:
        self.lowercase = lowercase
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self._clean = _PerCharacter(self._clean_rule)
        self._split = _PerCharacter(self._split_rule)

    def __reduce__(self) -> tuple[Callable[..., "BasicRules"], tuple[bool, bool, bool]]:
        return _rebuild, (self.lowercase, self.strip_accents, self.split_cjk)

    def words(self, text: str) -> list[str]:
        """The words of a text, in order."""
        if text.isascii() and text.isprintable():
            return _ASCII_WORD.findall(text.lower() if self.lowercase else text)
        text = "".join(map(self._clean.__getitem__, text))
        if self.lowercase:
            text = text.lower()
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)
        return "".join(map(self._split.__getitem__, text)).split()

    def aligned_words(self, text: str) -> list[AlignedWord]:
        """The same words, each character with the part of `text` it came from.

        A stripped accent belongs to the character before it, so that text[start:end] keeps it.
        """
        if text.isascii() and text.isprintable():
            found = _ASCII_WORD.finditer(text.lower() if self.lowercase else text)
            return [AlignedWord(w[0], range(w.start(), w.end()), range(w.start() + 1, w.end() + 1)) for w in found]
        chars = self._clean_aligned(text)
        if self.lowercase:
            chars = lower_aligned(chars)
        if self.strip_accents:
            chars = _decompose_aligned(chars)
        return _split_aligned((part, s, e) for c, s, e in chars for part in self._split[c])

    def _clean_rule(self, char: str) -> str:
        if is_deleted(char):
            return ""
        if is_space(char):
            return " "
        if self.split_cjk and is_cjk(char):
            return f" {char} "
        # Accents go before lower() and NFD as well as after: neither looks past them at anything that stays,
        # and the interpreter's own tables need not know the newest of them.
        return "" if self.strip_accents and category(char) == "Mn" else char

    def _split_rule(self, char: str) -> str:
        if self.strip_accents and category(char) == "Mn":
            return ""
        return f" {char} " if is_punctuation(char) else char

    def _clean_aligned(self, text: str) -> "list[_Char]":
        chars: list[_Char] = []
        for i, char in enumerate(text):
            cleaned = self._clean[char]
            if not cleaned and chars and not is_deleted(char) and chars[-1][0] != " ":
                chars[-1] = (*chars[-1][:2], i + 1)  # an accent
            chars.extend((part, i, i + 1) for part in cleaned)
        return chars


_Char = tuple[str, int, int]


def _rebuild(lowercase: bool, strip_accents: bool, split_cjk: bool) -> BasicRules:
    return BasicRules(lowercase=lowercase, strip_accents=strip_accents, split_cjk=split_cjk)


def without_surrogates(text: str) -> str:
    """Lone surrogates, which UTF-8 cannot carry, as U+FFFD: an unknown character of the same length."""
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def lower_aligned(chars: list[_Char]) -> list[_Char]:
    """Lower-cases the whole, for a final sigma looks at its neighbours; no other character does."""
    lowered = iter("".join(char for char, _, _ in chars).lower())
    return [(next(lowered), s, e) for char, s, e in chars for _ in char.lower()]


def _decompose_aligned(chars: list[_Char]) -> list[_Char]:
    """NFD of each character without Mn, then the canonical order (stable) of the other combining marks."""
    parts = [(p, s, e) for c, s, e in chars for p in unicodedata.normalize("NFD", c)]
    parts = [part for part in parts if part[0] < "\u0300" or category(part[0]) != "Mn"]
    first = 0
    for i in range(len(parts) + 1):
        if i == len(parts) or not unicodedata.combining(parts[i][0]):
            if i - first > 1:
                parts[first:i] = sorted(parts[first:i], key=lambda part: unicodedata.combining(part[0]))
            first = i + 1
    return parts


def _split_aligned(chars: Iterable[_Char]) -> list[AlignedWord]:
    words: list[list[_Char]] = []
    inside = False
    for part in chars:
        if part[0] == " ":
            inside = False
        elif inside:
            words[-1].append(part)
        else:
            words.append([part])
            inside = True
    return [AlignedWord("".join(c for c, _, _ in w), [s for _, s, _ in w], [e for _, _, e in w]) for w in words]
