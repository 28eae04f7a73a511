"""WordPiece: the original's pieces, offsets into the text, and parity with independent implementations."""

import pickle
import random
from pathlib import Path

import numpy as np
import pytest

from bert_jax.data.tokenizer import Encoding, load_tokenizer
from bert_jax.data.wordpiece import WordPiece, read_vocabulary

# The vocabulary of the original's own test.
ORIGINAL = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un", "runn", "##ing", ","]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def small(*pieces: str, lowercase: bool = True, rules: str = "original") -> WordPiece:
    return WordPiece([*SPECIALS, *pieces], lowercase=lowercase, rules=rules)


@pytest.fixture(scope="module")
def uncased(shared_data: Path) -> WordPiece:
    tokenizer = load_tokenizer(shared_data / "vocab" / "bert-base-uncased-vocab.txt")
    assert isinstance(tokenizer, WordPiece) and tokenizer.lowercase
    return tokenizer


def greedy(words: list[str], vocabulary: dict[str, int]) -> list[str]:
    """The original's matching, restated."""
    pieces = []
    for word in words:
        found: list[str] = []
        start = 0
        while start < len(word) <= 200:
            ends = range(len(word), start, -1)
            prefix = "##" if start else ""
            end = next((e for e in ends if prefix + word[start:e] in vocabulary), None)
            if end is None:
                found = []
                break
            found.append(prefix + word[start:end])
            start = end
        pieces += found or ["[UNK]"]
    return pieces


def test_the_originals_own_test() -> None:
    tokenizer = WordPiece(ORIGINAL, lowercase=True)
    encoding = tokenizer.encode("UNwant\u00e9d,running")
    assert encoding.tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
    assert encoding.ids == [7, 4, 5, 10, 8, 9]
    assert encoding.offsets == [(0, 2), (2, 6), (6, 8), (8, 9), (9, 13), (13, 16)]
    assert tokenizer.encode("unwantedX running").tokens == ["[UNK]", "runn", "##ing"]
    assert tokenizer.encode("").ids == []


def test_longest_word_is_200_characters() -> None:
    tokenizer = small("a", "##a")
    assert len(tokenizer.encode("a" * 200).ids) == 200
    assert tokenizer.encode("a" * 201).tokens == ["[UNK]"]
    whole = small("a" * 201)
    assert whole.encode("a" * 201).tokens == ["[UNK]"]
    assert whole.encode_ids("a" * 201) == [whole.unk_id]
    library = small("a", "##a", rules="huggingface")
    assert len(library.encode("a" * 100).ids) == 100
    assert library.encode("a" * 101).tokens == ["[UNK]"]


@pytest.mark.parametrize(
    ("text", "tokens", "parts"),
    [
        ("İstanbul", ["istanbul"], ["İstanbul"]),
        ("cafe\u0301s x", ["cafe", "##s", "x"], ["cafe\u0301", "s", "x"]),
        ("a\u200bb", ["ab"], ["a\u200bb"]),
        ("\u200bx\u200b", ["x"], ["x"]),
        ("한국어", ["[UNK]"], ["한국어"]),
        ("한", ["\u1112", "##\u1161", "##\u11ab"], ["한", "한", "한"]),
        ("x漢x", ["x", "漢", "x"], ["x", "漢", "x"]),
        ("x\x0bx\x85x", ["x", "##x", "##x"], ["x", "x", "x"]),
        ("が", ["か"], ["が"]),
        ("\ud800x x", ["[UNK]", "x"], ["\ud800x", "x"]),
        ("x\u2028x", ["x", "x"], ["x", "x"]),
    ],
)
def test_offsets_into_the_text(text: str, tokens: list[str], parts: list[str]) -> None:
    pieces = ["istanbul", "cafe", "##s", "x", "##x", "ab", "漢", "か", "\u1112", "##\u1161", "##\u11ab"]
    encoding = small(*pieces).encode(text)
    assert encoding.tokens == tokens
    assert [text[start:end] for start, end in encoding.offsets] == parts


def test_special_tokens_when_asked() -> None:
    tokenizer = small("i", "like", "s", ".", "[", "mask", "]")
    encoding = tokenizer.encode("I like [MASK].", special_tokens=True)
    assert encoding.tokens == ["i", "like", "[MASK]", "."]
    assert encoding.ids.count(tokenizer.mask_id) == 1
    assert encoding.offsets == [(0, 1), (2, 6), (7, 13), (13, 14)]
    assert tokenizer.encode("[MASK]s", special_tokens=True).tokens == ["[MASK]", "s"]
    assert tokenizer.encode("[mask]", special_tokens=True).tokens == ["[", "mask", "]"]
    assert tokenizer.encode("[CLS][SEP] [PAD]", special_tokens=True).ids == [2, 3, 0]


@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("rules", ["original", "huggingface"])
def test_no_text_gives_special_ids(lowercase: bool, rules: str) -> None:
    tokenizer = small("[", "]", "mask", "MASK", "it", lowercase=lowercase, rules=rules)
    middle = "mask" if lowercase else "MASK"
    assert tokenizer.encode("[MASK] it").tokens == ["[", middle, "]", "it"]
    forbidden = set(tokenizer.special_ids) - {tokenizer.unk_id}
    for name in SPECIALS:
        for text in (name, f"a{name}b", " ".join(name), f"[{name}]", name.replace("[", "[\u200b"), f"\u200b{name}"):
            assert not forbidden & set(tokenizer.encode(text).ids)
            assert not forbidden & set(tokenizer.encode_ids(text))
            assert not forbidden & set(tokenizer.encode_batch([text])[0].tolist())


TABLE = [  # text, pieces with the released uncased vocabulary, whether it warns
    ("한국어", ["ᄒ", "##ᅡ", "##ᆫ", "##ᄀ", "##ᅮ", "##ᆨ", "##ᄋ", "##ᅥ"], True),
    ("ㅋㅋ", ["[UNK]"], False),
    ("が", ["か"], True),
    ("glad😊", ["[UNK]"], False),
    ("🥱", ["[UNK]"], False),
    ("a\u200bb", ["ab"], False),
    ("[MASK]", ["[", "mask", "]"], False),
    ("naïve Café", ["naive", "cafe"], False),
    ("$1,000.00", ["$", "1", ",", "000", ".", "00"], False),
]


@pytest.mark.parametrize(("text", "tokens", "decomposed"), TABLE)
def test_released_vocabulary(uncased: WordPiece, text: str, tokens: list[str], decomposed: bool) -> None:
    assert uncased.encode(text).tokens == tokens
    assert uncased.decomposes(text) == decomposed


def test_cased_text_is_left_alone() -> None:
    tokenizer = small("한국어", "が", "ㅋㅋ", "ab", "cafe\u0301", lowercase=False)
    assert tokenizer.encode("한국어 が ㅋㅋ a\u200bb cafe\u0301").tokens == ["한국어", "が", "ㅋㅋ", "ab", "cafe\u0301"]
    assert not tokenizer.decomposes("한국어 が")


def random_texts(count: int) -> list[str]:
    source = random.Random(1)
    common = [*"aZ ,.'-[]MASK", "[MASK]", " the ", "ing", "\n"]
    strange = list("Σé가が漢\u0301\u0327\u302e\u200b\x00\x0b\x1c\x85\u2028\u3000İﬁ\u1fef\u037e😊\ud800\ufffd\ue000")
    texts = ["".join(source.choices([*common, *strange], k=source.randrange(20))) for _ in range(count)]
    anything = [chr(source.randrange(0x110000)) for _ in range(count)]
    return texts + [f"a{char}b{char} {char}" for char in anything]


@pytest.mark.parametrize("rules", ["original", "huggingface"])
@pytest.mark.parametrize("lowercase", [False, True])
def test_properties_of_random_text(lowercase: bool, rules: str) -> None:
    letters = [*"aAzZsSmMkKiI,.'-[]éσς가が漢", "the", "ing"]
    tokenizer = small(*letters, *(f"##{x}" for x in letters), lowercase=lowercase, rules=rules)
    texts = random_texts(400)
    ids, lengths = tokenizer.encode_batch(texts)
    assert ids.dtype == np.int32 and lengths.dtype == np.int64
    parts = np.split(ids, np.cumsum(lengths)[:-1])
    for text, part in zip(texts, parts, strict=True):
        encoding = tokenizer.encode(text)
        assert encoding.ids == tokenizer.encode_ids(text) == part.tolist(), ascii(text)
        check_encoding(tokenizer, text, encoding)


def check_encoding(tokenizer: WordPiece, text: str, encoding: Encoding) -> None:
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets)
    assert encoding.tokens == [tokenizer.pieces[i] for i in encoding.ids]
    for (start, end), token in zip(encoding.offsets, encoding.tokens, strict=True):
        assert 0 <= start < end <= len(text), ascii(text)
        if token != "[UNK]" and tokenizer.rules == "original":
            alone = "".join(tokenizer.words(text[start:end])).replace("σ", "ς")
            assert token.removeprefix("##").replace("σ", "ς") in alone, (ascii(text), token)
    for (start, end), (next_start, next_end) in zip(encoding.offsets, encoding.offsets[1:], strict=False):
        assert start <= next_start and end <= next_end, ascii(text)


@pytest.mark.parametrize(
    "file", ["squad/xquad/xquad.en.json", "squad/xquad/xquad.de.json", "squad/xquad/xquad.zh.json"]
)
def test_greedy_matching_on_real_text(uncased: WordPiece, shared_data: Path, file: str) -> None:
    text = (shared_data / file).read_text(encoding="utf-8")[:100_000]
    vocabulary = {piece: i for i, piece in enumerate(uncased.pieces)}
    expected = greedy(uncased.words(text), vocabulary)
    assert [uncased.pieces[i] for i in uncased.encode_ids(text)] == expected


def test_same_ids_as_the_library_alone(uncased: WordPiece, shared_data: Path) -> None:
    from tokenizers import BertWordPieceTokenizer

    library = BertWordPieceTokenizer(vocab=vocabulary_of(uncased), lowercase=True)
    huggingface = WordPiece(uncased.pieces, lowercase=True, rules="huggingface")
    for file in ("corpora/gutenberg/carroll-alice.txt", "corpora/wikitext-2/valid.raw.txt"):
        lines = (shared_data / file).read_text(encoding="utf-8").split("\n")[:2000]
        expected = [i for found in library.encode_batch(lines, add_special_tokens=False) for i in found.ids]
        assert uncased.encode_batch(lines)[0].tolist() == expected
        assert huggingface.encode_batch(lines)[0].tolist() == expected


def test_parity_with_transformers(uncased: WordPiece, shared_data: Path, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    uncased.save(tmp_path)
    peer = transformers.BertTokenizerFast.from_pretrained(str(tmp_path))
    text = (shared_data / "squad/xquad/xquad.de.json").read_text(encoding="utf-8")[:20_000]
    found = peer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    encoding = uncased.encode(text)
    assert encoding.ids == found["input_ids"]
    assert encoding.offsets == [tuple(span) for span in found["offset_mapping"]]


def vocabulary_of(tokenizer: WordPiece) -> dict[str, int]:
    return {piece: i for i, piece in enumerate(tokenizer.pieces)}


def test_memory_is_bounded_and_changes_nothing() -> None:
    tokenizer = small("a", "##b", "##c", "##d")
    source = random.Random(2)
    texts = [" ".join("a" + "".join(source.choices("bcd", k=8)) for _ in range(200)) for _ in range(20)]
    expected = [WordPiece(tokenizer.pieces, lowercase=True).encode(text).ids for text in texts]
    tokenizer._memory._max_entries = 50
    for _ in range(2):
        assert [tokenizer.encode_ids(text) for text in texts] == expected
    assert len(tokenizer._memory) <= 50 and len(tokenizer._memory._older) <= 50


def test_long_chunks_are_not_remembered() -> None:
    tokenizer = small("a", "##a")
    tokenizer.encode_ids("a" * 49 + " " + "a" * 48)
    assert list(tokenizer._memory) == ["a" * 48]


def test_word_starts_and_decode() -> None:
    tokenizer = small("un", "##want", "##ed", ",")
    assert tokenizer.word_starts().tolist() == [True] * 6 + [False, False, True]
    assert tokenizer.decode(tokenizer.encode("unwanted , un").ids) == "unwanted , un"


def test_pickle_keeps_ids_and_drops_memory(uncased: WordPiece) -> None:
    uncased.encode_ids("Some words to remember.")
    copy = pickle.loads(pickle.dumps(uncased))
    assert "_memory" not in copy.__dict__
    assert copy.fingerprint() == uncased.fingerprint()
    assert copy.encode_ids("Some words to remember.") == uncased.encode_ids("Some words to remember.")


def test_vocabulary_file(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_bytes("[PAD]\n[UNK]\n\na \nb\na\nx\u2028y\n".encode())
    assert read_vocabulary(file) == ["[PAD]", "[UNK]", "", "a", "b", "a", "x\u2028y"]
    tokenizer = WordPiece(read_vocabulary(file), lowercase=True)
    assert tokenizer.encode("a b").ids == [5, 4]
    assert tokenizer.vocab_size == 7


def test_errors_name_value_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no \[UNK\]"):
        WordPiece(["a"], lowercase=True)
    with pytest.raises(ValueError, match=r"no \[MASK\].*learn"):
        _ = WordPiece(ORIGINAL, lowercase=True).mask_id
    with pytest.raises(ValueError, match=r"rules='bert'.*original"):
        WordPiece(ORIGINAL, lowercase=True, rules="bert")
    file = tmp_path / "vocab.txt"
    file.write_bytes(b"[UNK]\n\xff\n")
    with pytest.raises(ValueError, match=r"not UTF-8 at byte 6"):
        load_tokenizer(file)
