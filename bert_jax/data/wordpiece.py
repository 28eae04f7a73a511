"""WordPiece: words -> pieces, greedy longest match first, by the Rust `tokenizers` library.

`rules="original"` are those of `tokenization.py` of google-research/bert: the words are ours (`characters.py`),
the matching is the library's, and a word of more than 200 characters is [UNK]. `rules="huggingface"` are the
library's own BERT normaliser and pre-tokeniser: control means any category C* of its tables (so private-use
characters go too), lower-casing knows no final sigma, and a word of more than 100 characters is [UNK].

No rule looks beyond one white-space chunk, so the ids of a chunk are worked out once and remembered. Memory is
bounded: at most 2 × 131,072 chunks and 2 × 65,536 words of at most 48 characters, about 70 MB for English and
250 MB at the very worst; and 2 × 32,768 chunks with offsets (40 MB) where `encode` is used.
"""

import json
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Bool, Int
from tokenizers import models, normalizers, pre_tokenizers

from bert_jax.data.characters import CHUNK, DELETED_BUT_SPLIT, AlignedWord, BasicRules
from bert_jax.data.chunk_memory import ChunkMemory
from bert_jax.data.tokenizer import DECOMPOSED, SPECIALS, Encoding, Tokenizer

LONGEST_WORD = {"original": 200, "huggingface": 100}
_BLOCK = 512  # texts


class WordPiece(Tokenizer):
    """A WordPiece vocabulary and the rules that cut text for it.

    `pieces[id]`; of a piece given twice the later id is used. `strip_accents` None: as `lowercase`.
    Raises ValueError if the vocabulary has no [UNK].
    """

    kind = "wordpiece"

    def __init__(
        self,
        pieces: Sequence[str],
        *,
        lowercase: bool,
        rules: str = "original",
        strip_accents: bool | None = None,
        split_cjk: bool = True,
    ) -> None:
        if rules not in LONGEST_WORD:
            raise ValueError(f"rules={rules!r} is unknown: choose one of {', '.join(LONGEST_WORD)}")
        self.pieces = list(pieces)
        self.lowercase = lowercase
        self.rules = rules
        self.strip_accents = lowercase if strip_accents is None else strip_accents
        self.split_cjk = split_cjk
        self._ids = {piece: i for i, piece in enumerate(self.pieces)}
        self._special_tokens = {name: self._ids[name] for name in SPECIALS if name in self._ids}
        self._bytes = [np.int32(i).tobytes() for i in range(len(self.pieces))]
        # A word that is a piece is its own longest match.
        longest = LONGEST_WORD[rules]
        self._whole = {piece: self._bytes[i] for piece, i in self._ids.items() if len(piece) <= longest}
        self._unk = self.unk_id  # raises where there is none
        self._model = models.WordPiece(self._ids, unk_token="[UNK]", max_input_chars_per_word=longest)
        self._basic = BasicRules(lowercase=lowercase, strip_accents=self.strip_accents, split_cjk=split_cjk)

    @property
    def special_tokens(self) -> dict[str, int]:
        return self._special_tokens

    def words(self, text: str) -> list[str]:
        """The words that pieces are matched in, with the original's rules whatever `rules` is."""
        return self._basic.words(text)

    def encode_ids(self, text: str) -> list[int]:
        """`encode(text).ids`, fast."""
        return np.frombuffer(self._ids_as_bytes(text), np.int32).tolist()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        """The ids (int32) of texts one after the other, how many (int64) each text has; the fastest way."""
        get = self._memory.__getitem__
        ids = bytearray()
        ends: list[int] = []
        for first in range(0, len(texts), _BLOCK):
            block = texts[first : first + _BLOCK]
            chunks_of = str.split if _splits_cleanly("".join(block)) else _chunks_of
            for text in block:
                ids += b"".join(map(get, chunks_of(text)))
                ends.append(len(ids))
        lengths = np.diff(np.array(ends, np.int64), prepend=0) // 4
        return np.frombuffer(ids, np.int32), lengths

    def continuing_ids(self, word: str) -> list[int]:
        i = self._ids.get(f"##{word}")
        return [] if i is None else [i]

    def decode(self, ids: Sequence[int]) -> str:
        text = " ".join(self.pieces[i] for i in ids)
        return text.replace(" ##", "")

    def word_starts(self) -> Bool[np.ndarray, " v"]:
        return np.array([not piece.startswith("##") for piece in self.pieces], bool)

    def decomposes(self, text: str) -> bool:
        return self.strip_accents and DECOMPOSED.search(text) is not None

    def _encode_plain(self, text: str, *, joined: bool) -> Encoding:
        encoding = Encoding()
        ids, tokens, offsets = encoding.ids, encoding.tokens, encoding.offsets
        get = self._encodings.__getitem__
        for match in CHUNK.finditer(text):
            shift = match.start()
            found = get(match[0])
            ids += found.ids
            tokens += found.tokens
            offsets += [(start + shift, end + shift) for start, end in found.offsets]
        return encoding

    @cached_property
    def _memory(self) -> ChunkMemory[bytes]:
        return ChunkMemory(self._chunk_ids)

    def _ids_as_bytes(self, text: str) -> bytes:
        return b"".join(map(self._memory.__getitem__, _chunks_of(text)))

    def _chunk_ids(self, chunk: str) -> bytes:
        if self.rules == "huggingface":
            return np.array(self._library.encode(_without_surrogates(chunk)).ids, np.int32).tobytes()
        if chunk.isalnum() and chunk.isascii():
            return self._word(chunk.lower() if self.lowercase else chunk)
        return b"".join(map(self._word, self._basic.words(chunk)))

    def _word(self, word: str) -> bytes:
        return self._whole.get(word) or self._word_ids[word]

    def _match(self, word: str) -> bytes:
        """The ids of a word that is no piece."""
        try:
            return b"".join([self._bytes[token.id] for token in self._model.tokenize(word)])
        except UnicodeEncodeError:  # a lone surrogate: in no vocabulary, since no UTF-8 file can hold it
            return self._bytes[self._unk]

    def _chunk_encoding(self, chunk: str) -> Encoding:
        if self.rules == "huggingface":
            found = self._library.encode(_without_surrogates(chunk))
            return Encoding(found.ids, found.tokens, found.offsets)
        encoding = Encoding()
        for word in self._basic.aligned_words(chunk):
            ids = np.frombuffer(self._word(word.text), np.int32).tolist()
            tokens = [self.pieces[i] for i in ids]
            encoding.extend(Encoding(ids, tokens, _offsets(word, tokens)), 0)
        return encoding

    @cached_property
    def _word_ids(self) -> ChunkMemory[bytes]:
        return ChunkMemory(self._match, max_entries=65_536)

    @cached_property
    def _encodings(self) -> ChunkMemory[Encoding]:
        return ChunkMemory(self._chunk_encoding, max_entries=32_768)

    @cached_property
    def _library(self) -> tokenizers.Tokenizer:
        """The library's own tokenizer. It knows no added tokens, so no text is special to it."""
        library = tokenizers.Tokenizer(self._model)
        library.normalizer = normalizers.BertNormalizer(
            clean_text=True,
            handle_chinese_chars=self.split_cjk,
            strip_accents=self.strip_accents,
            lowercase=self.lowercase,
        )
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return library

    def _files(self) -> dict[str, bytes]:
        return {"vocab.txt": "".join(f"{piece}\n" for piece in self.pieces).encode()}

    def _config(self) -> dict[str, Any]:
        return {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": self.lowercase,
            "strip_accents": self.strip_accents,
            "tokenize_chinese_chars": self.split_cjk,
            "rules": self.rules,
        }

    def __reduce__(self) -> tuple[Callable[..., "WordPiece"], tuple[Any, ...]]:
        return _rebuild, (self.pieces, self.lowercase, self.rules, self.strip_accents, self.split_cjk)


def from_file(path: Path, config: dict[str, Any], *, check_case: bool = True) -> WordPiece:
    """Reads a `vocab.txt` or `tokenizer.json` with the options of a tokenizer configuration."""
    pieces = read_library_json(path, config) if path.suffix == ".json" else read_vocabulary(path)
    if "[UNK]" not in pieces:
        raise ValueError(f"{path} has no [UNK]: every WordPiece vocabulary needs the line [UNK]")
    lowercase = config.get("do_lower_case")
    if lowercase is None:
        lowercase = not is_cased(pieces)
    elif check_case:
        check_lowercase(pieces, lowercase, path)
    return WordPiece(
        pieces,
        lowercase=lowercase,
        rules=config.get("rules", "original"),
        strip_accents=config.get("strip_accents"),
        split_cjk=config.get("tokenize_chinese_chars", True),
    )


def read_vocabulary(path: Path) -> list[str]:
    """One piece a line, stripped; the id is the line's number, and a blank line takes one too."""
    try:
        lines = path.read_bytes().decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 at byte {error.start}: give the vocabulary in UTF-8") from None
    if lines[-1] == "":
        lines.pop()
    return [line.strip() for line in lines]


def read_library_json(path: Path, config: dict[str, Any]) -> list[str]:
    """The vocabulary of a `tokenizer.json`; its normaliser's options fill what `config` lacks."""
    content = json.loads(path.read_text(encoding="utf-8"))
    model = content.get("model", {})
    if not isinstance(model.get("vocab"), dict) or not any(piece.startswith("##") for piece in model["vocab"]):
        raise ValueError(f"{path} is not a WordPiece model: give a vocab.txt, or the .model of a SentencePiece one")
    normalizer = content.get("normalizer") or {}
    for ours, theirs in (
        ("do_lower_case", "lowercase"),
        ("strip_accents", "strip_accents"),
        ("tokenize_chinese_chars", "handle_chinese_chars"),
    ):
        if theirs in normalizer:
            config.setdefault(ours, normalizer[theirs])
    pieces = [""] * (max(model["vocab"].values()) + 1)
    for piece, i in model["vocab"].items():
        pieces[i] = piece
    return pieces


def is_cased(pieces: Sequence[str]) -> bool:
    """Whether more than one in a hundred pieces with letters has an upper-case one."""
    upper, letters = _count_letters(pieces)
    return upper > 0.01 * letters


def check_lowercase(pieces: Sequence[str], lowercase: bool, path: Path) -> None:
    """Refuses a casing that contradicts a vocabulary of a thousand pieces or more with cased letters."""
    upper, letters = _count_letters(pieces)
    if letters < 1000 or lowercase != is_cased(pieces):
        return
    raise ValueError(
        f"lowercase={lowercase} contradicts {path}, where {upper:,} of {letters:,} pieces have upper-case "
        f"letters: use lowercase={not lowercase}, or check_case=False if this is meant"
    )


def _count_letters(pieces: Sequence[str]) -> tuple[int, int]:
    """(pieces with an upper-case letter, pieces with a letter that has case), without [special] ones."""
    plain = [piece for piece in pieces if not (piece.startswith("[") and piece.endswith("]"))]
    letters = sum(piece.lower() != piece or piece.upper() != piece for piece in plain)
    return sum(piece != piece.lower() for piece in plain), letters


def _offsets(word: AlignedWord, tokens: list[str]) -> list[tuple[int, int]]:
    """Where the pieces of a word came from; [UNK] stands for the whole word."""
    if len(tokens) == 1:
        return [(min(word.starts), max(word.ends))]
    offsets = []
    first = begin = 0
    for token in tokens:
        last = first + len(token) - 2 * token.startswith("##")
        begin = max(begin, min(word.starts[first:last]))  # marks in canonical order may stand before their source
        offsets.append((begin, max(word.ends[:last])))
        first = last
    return offsets


def _without_surrogates(text: str) -> str:
    """Lone surrogates, which UTF-8 cannot carry, as U+FFFD, which the library deletes."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _rebuild(pieces: list[str], lowercase: bool, rules: str, strip_accents: bool, split_cjk: bool) -> WordPiece:
    return WordPiece(pieces, lowercase=lowercase, rules=rules, strip_accents=strip_accents, split_cjk=split_cjk)


def _chunks_of(text: str) -> list[str]:
    return text.split() if _splits_cleanly(text) else CHUNK.findall(text)


def _splits_cleanly(text: str) -> bool:
    """Whether str.split() finds BERT's own chunks."""
    return not any(char in text for char in DELETED_BUT_SPLIT)
