"""The character rules against a plain re-statement of the original's, over all code points."""

import functools
import hashlib
import importlib.util
import random
import sys
import unicodedata
from pathlib import Path

import pytest

# Loaded under another name: the checks of array shapes, of which these functions have none, cost 20 µs a call.
_FILE = Path(__file__).parents[2] / "bert_jax" / "data" / "characters.py"
_spec = importlib.util.spec_from_file_location("unchecked_characters", _FILE)
assert _spec is not None and _spec.loader is not None
characters = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(characters)
BasicRules, CHUNK = characters.BasicRules, characters.CHUNK

ASCII_MARKS = [chr(c) for c in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127))]


def reference_words(text: str, lowercase: bool) -> list[str]:
    """BERT's basic tokenizer, said step by step with the interpreter's own tables."""
    cleaned = ""
    for char in text:
        category = unicodedata.category(char)
        if char in "\t\n\r" or category == "Zs":
            cleaned += " "
        elif char not in "\x00\ufffd" and category not in ("Cc", "Cf"):
            cleaned += f" {char} " if is_cjk(char) else char
    words = []
    for word in cleaned.split():
        if lowercase:
            decomposed = unicodedata.normalize("NFD", word.lower())
            word = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
        spaced = ""
        for char in word:
            mark = char in ASCII_MARKS or unicodedata.category(char).startswith("P")
            spaced += f" {char} " if mark else char
        words += spaced.split()
    return words


def is_cjk(char: str) -> bool:
    code = ord(char)
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0x20000 <= code <= 0x2A6DF
        or 0x2A700 <= code <= 0x2CEAF
        or 0xF900 <= code <= 0xFAFF
        or 0x2F800 <= code <= 0x2FA1F
    )


@functools.cache
def code_points() -> list[str]:
    """All that the interpreter's table knows, and of the unknown ones a sample."""
    chars = map(chr, range(sys.maxunicode + 1))
    return [c for c in chars if unicodedata.category(c) != "Cn" or ord(c) % 997 == 0]


@functools.cache
def touched_code_points() -> list[str]:
    """Those that some rule may change or separate, and a sample of the others."""

    def touched(char: str) -> bool:
        category = unicodedata.category(char)
        if category[0] in "CZPMS":
            return category not in ("Cn", "Co", "Cs", "So")
        return char.lower() != char or unicodedata.normalize("NFD", char) != char

    return [char for char in code_points() if ord(char) % 97 == 0 or touched(char)]


@pytest.mark.parametrize("lowercase", [False, True])
def test_every_code_point_as_the_original(lowercase: bool) -> None:
    rules = BasicRules(lowercase=lowercase)
    for first in range(0, len(chars := code_points()), 1000):
        block = chars[first : first + 1000]
        text = " ".join(f"a{c}b {c}" for c in block)
        assert rules.words(text) == reference_words(text, lowercase), hex(ord(block[0]))


@pytest.mark.parametrize("lowercase", [False, True])
def test_same_words_on_every_python(lowercase: bool) -> None:
    # Python 3.13, whose own tables are Unicode 15.1, gives these too.
    rules = BasicRules(lowercase=lowercase)
    digest = hashlib.sha256()
    for first in [*range(0, 0x40000, 0x400), 0xE0000]:
        chars = map(chr, range(first, first + 0x400))
        digest.update("\n".join(rules.words(" ".join(f"a{c}b" for c in chars))).encode("utf-8", "surrogatepass"))
    expected = {
        False: "b4e23e05fa3383c730c216606952be0b05c41443ab445406dec233cf8008a4f2",
        True: "14cc8051696cf07e63643ddea2053d8fb8b48ccfecf504b7612e089a578cdc52",
    }
    assert digest.hexdigest() == expected[lowercase]


@pytest.mark.parametrize("lowercase", [False, True])
def test_aligned_words_are_the_words_for_every_code_point(lowercase: bool) -> None:
    rules = BasicRules(lowercase=lowercase)
    for first in range(0, len(chars := touched_code_points()), 1000):
        text = " ".join(f"a{c}b" for c in chars[first : first + 1000])
        aligned = rules.aligned_words(text)
        assert [word.text for word in aligned] == rules.words(text)
        assert all(len(word.text) == len(word.starts) == len(word.ends) for word in aligned)


def test_chunks_are_separated_where_words_are() -> None:
    rules = BasicRules(lowercase=False)
    for char in touched_code_points():
        chunks = CHUNK.findall(f"a{char}b")
        assert [word for chunk in chunks for word in rules.words(chunk)] == rules.words(f"a{char}b"), hex(ord(char))


@pytest.mark.parametrize(
    ("text", "cased", "uncased"),
    [
        ("a\u200bb", ["ab"], ["ab"]),
        ("a\u00adb", ["ab"], ["ab"]),
        ("a\u0085b", ["ab"], ["ab"]),
        ("x\ufffdy", ["xy"], ["xy"]),
        ("\ue000x", ["\ue000x"], ["\ue000x"]),
        ("🥱 glad😊", ["🥱", "glad😊"], ["🥱", "glad😊"]),
        ("a\u00a0b\u3000c\u2028d", ["a", "b", "c", "d"], ["a", "b", "c", "d"]),
        ("ah博推zz", ["ah", "博", "推", "zz"], ["ah", "博", "推", "zz"]),
        ("カタカナ漢字", ["カタカナ", "漢", "字"], ["カタカナ", "漢", "字"]),
        ("가 ㅋㅋ が", ["가", "ㅋㅋ", "が"], ["\u1100\u1161", "ㅋㅋ", "か"]),
        ("naïve Café", ["naïve", "Café"], ["naive", "cafe"]),
        ("İstanbul ẞ ﬁ", ["İstanbul", "ẞ", "ﬁ"], ["istanbul", "ß", "ﬁ"]),
        ("don't $1,000.00", ["don", "'", "t", "$", "1", ",", "000", ".", "00"], None),
        ("5,000원 €×", ["5", ",", "000원", "€×"], ["5", ",", "000\u110b\u116f\u11ab", "€×"]),
        ("[MASK] it", ["[", "MASK", "]", "it"], ["[", "mask", "]", "it"]),
        ("ΑΣ ΑΣΑ", ["ΑΣ", "ΑΣΑ"], ["ας", "ασα"]),
    ],
)
def test_words(text: str, cased: list[str], uncased: list[str] | None) -> None:
    assert BasicRules(lowercase=False).words(text) == cased
    assert BasicRules(lowercase=True).words(text) == (cased if uncased is None else uncased)


def test_options_apart_from_lowercase() -> None:
    assert BasicRules(lowercase=True, strip_accents=False).words("Café 漢字") == ["café", "漢", "字"]
    assert BasicRules(lowercase=True, split_cjk=False).words("Café 漢字") == ["cafe", "漢字"]


@pytest.mark.parametrize("lowercase", [False, True])
def test_random_text(lowercase: bool) -> None:
    rules = BasicRules(lowercase=lowercase)
    random_text = random.Random(0)
    alphabet = list("aZ ,.'Σé가が漢\u0301\u0327\u302e\u1dce\u200b\x0b\x85\u2028İﬁ\u1fef\u037e\U0001d15e😊\ud800")
    for _ in range(2000):
        text = "".join(random_text.choices(alphabet, k=12))
        assert rules.words(text) == reference_words(text, lowercase), ascii(text)
        aligned = rules.aligned_words(text)
        assert [word.text for word in aligned] == rules.words(text), ascii(text)
        for word in aligned:
            for char, start, end in zip(*word, strict=True):
                origin = text[start:end]
                if lowercase:
                    origin = unicodedata.normalize("NFD", origin.lower())
                assert char in origin or char in "σς", (ascii(text), char)
