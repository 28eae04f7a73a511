"""Byte-level BPE, that of GPT-2 and RoBERTa: text -> UTF-8 bytes -> pieces, by the Rust `tokenizers` library.

Every text is made of the 256 bytes, so nothing is unknown and nothing is normalised. White space is part of the
pieces: "Ġthe" is " the" and begins a word, "the" goes on with one; "Ġ" stands for the byte 32, and the other bytes that
cannot be printed have letters of their own. Pieces are merged within the words of GPT-2's expression alone: letters,
digits or other characters, with or without a space before them.

That expression always parts a word from the single space after it, so that the ids of what stands between single
spaces are worked out once and remembered, within bounds as in `wordpiece.py`. A text with other white space goes to the
library whole.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Bool, Int
from tokenizers import decoders, models, pre_tokenizers

from bert_jax.data.characters import without_surrogates
from bert_jax.data.chunk_memory import ChunkMemory
from bert_jax.data.tokenizer import SPECIAL_NAMES, Encoding, Tokenizer, find_specials

VOCABULARY_FILE, MERGES_FILE = "vocab.json", "merges.txt"
# How RoBERTa writes [PAD], [UNK], [CLS], [SEP], [MASK]; the first of a vocabulary of ours.
ROBERTA_SPECIALS = ("<pad>", "<unk>", "<s>", "</s>", "<mask>")
ALPHABET = tuple(sorted(pre_tokenizers.ByteLevel.alphabet()))  # a letter for each byte
_MERGES_HEADER = "#version: 0.2"
_WHITE_SPACE = ("Ġ", "Ċ", "ĉ", "č")  # space, \n, \t, \r as letters
# What a `tokenizer.json` may say of its steps, and options of its model that must be off.
_STEPS = {
    "normalizer": (None,),
    "pre_tokenizer": ("ByteLevel",),
    "post_processor": (None, "ByteLevel", "RobertaProcessing"),
}
_OFF = ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback", "ignore_merges")

Merges = Sequence[tuple[str, str]]


class ByteBPE(Tokenizer):
    """Pieces, and in order which two of them are merged.

    `add_prefix_space`: the first word of a text is cut as any other, as if a space stood before it. RoBERTa's own is
    not. Between the texts of a pair stand two [SEP], as in RoBERTa.
    Raises ValueError if a special token or a byte has no piece, or a merge none for its result.
    """

    kind = "byte_bpe"
    lowercase = False
    pair_separators = 2

    def __init__(self, pieces: Sequence[str], merges: Merges, *, add_prefix_space: bool = True) -> None:
        self.pieces = list(pieces)
        self.merges = list(merges)
        self.add_prefix_space = add_prefix_space
        ids = {piece: i for i, piece in enumerate(self.pieces) if piece}  # an empty one fills a gap in the numbers
        self._special_tokens = find_specials(ids, SPECIAL_NAMES, "add it, or use learn_byte_bpe")
        needed = [*ALPHABET, *(a + b for a, b in self.merges)]
        if missing := [piece for piece in needed if piece not in ids]:
            raise ValueError(
                f"the vocabulary lacks {len(missing)} pieces of bytes or merges, {missing[0]!r} first: give the "
                f"{VOCABULARY_FILE} and {MERGES_FILE} that belong together"
            )
        model = models.BPE(ids, self.merges)
        # By whether a space is put in front.
        self._libraries = {spaced: _library(model, spaced) for spaced in (False, True)}
        self._decoder = decoders.ByteLevel()

    @property
    def special_tokens(self) -> dict[str, int]:
        return self._special_tokens

    def encode_ids(self, text: str) -> list[int]:
        return self.encode_batch([text])[0].tolist()

    def encode_batch(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        return self._batch(texts, self.add_prefix_space)

    def encode_words(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        return self._batch(texts, True)

    def continuing_ids(self, word: str) -> list[int]:
        return self._ids(word, False)

    def decode(self, ids: Sequence[int]) -> str:
        specials = set(self.special_ids)
        parts: list[str] = []
        for special, run in groupby(map(int, ids), specials.__contains__):
            pieces = [self.pieces[i] for i in run]
            parts += pieces if special else [self._decoder.decode(pieces).removeprefix(" ")]
        return " ".join(parts)

    def readable(self, i: int) -> str:
        piece = self.pieces[i]
        text = piece if i in self.special_ids else self._decoder.decode([piece])
        return piece if "\ufffd" in text else text  # a part of a character

    def word_starts(self) -> Bool[np.ndarray, " v"]:
        starts = np.array([piece.startswith(_WHITE_SPACE) for piece in self.pieces], bool)
        starts[list(self.special_ids)] = True
        return starts

    def decomposes(self, text: str) -> bool:
        return False

    def _encode_plain(self, text: str, *, joined: bool) -> Encoding:
        library = self._libraries[self.add_prefix_space and not joined]
        found = library.encode(without_surrogates(text), add_special_tokens=False)
        spans = [_span(text, token, *offsets) for token, offsets in zip(found.tokens, found.offsets, strict=True)]
        return Encoding(found.ids, found.tokens, spans)

    def _parts(self, text: str, special_tokens: bool) -> Iterator[tuple[str, int, int | None]]:
        """As RoBERTa has it, white space before [MASK] is the mask's."""
        parts = list(super()._parts(text, special_tokens))
        followers = [special for _, _, special in parts[1:]] + [None]
        for (part, start, special), follower in zip(parts, followers, strict=True):
            masked = follower is not None and follower == self.mask_id
            yield part.rstrip() if masked else part, start, special

    def _batch(self, texts: Iterable[str], spaced: bool) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        ids = bytearray()
        ends: list[int] = []
        for text in texts:
            ids += self._ids_as_bytes(text, spaced)
            ends.append(len(ids))
        lengths = np.diff(np.array(ends, np.int64), prepend=0) // 4
        return np.frombuffer(ids, np.int32), lengths

    def _ids_as_bytes(self, text: str, spaced: bool) -> bytes:
        words = text.split()
        if not words or text.removeprefix(" ") != " ".join(words):
            return _as_bytes(self._ids(text, spaced))
        chunks = [f" {word}" for word in words]
        chunks[0] = chunks[0] if spaced or text[0] == " " else words[0]
        return b"".join(map(self._memory.__getitem__, chunks))

    def _ids(self, text: str, spaced: bool) -> list[int]:
        return self._libraries[spaced].encode(without_surrogates(text), add_special_tokens=False).ids

    @cached_property
    def _memory(self) -> ChunkMemory[bytes]:
        return ChunkMemory(lambda chunk: _as_bytes(self._ids(chunk, False)))

    def _files(self) -> dict[str, bytes]:
        vocabulary = {piece: i for i, piece in enumerate(self.pieces) if piece}
        merges = [_MERGES_HEADER, *(f"{a} {b}" for a, b in self.merges)]
        return {
            VOCABULARY_FILE: json.dumps(vocabulary, ensure_ascii=False).encode(),
            MERGES_FILE: "".join(f"{line}\n" for line in merges).encode(),
        }

    def _config(self) -> dict[str, Any]:
        return {"tokenizer_class": "RobertaTokenizer", "add_prefix_space": self.add_prefix_space}

    def __reduce__(self) -> tuple[Callable[..., "ByteBPE"], tuple[Any, ...]]:
        return _rebuild, (self.pieces, self.merges, self.add_prefix_space)


def is_byte_bpe(path: Path) -> bool:
    """Whether a file is its vocabulary: a `vocab.json`, or a `tokenizer.json` whose model has merges."""
    if path.suffix != ".json":
        return False
    content = _read_json(path)
    return "merges" in content["model"] if isinstance(content.get("model"), dict) else path.name == VOCABULARY_FILE


def from_file(path: Path, config: dict[str, Any]) -> ByteBPE:
    """Reads a `vocab.json` with the `merges.txt` beside it, or a `tokenizer.json`, with the options of a configuration.

    Raises ValueError for one of other rules than RoBERTa's, FileNotFoundError for missing merges.
    """
    if config.get("do_lower_case"):
        raise ValueError(f"{path} is a byte-level BPE, which has case: leave lowercase out, or lower-case the text")
    content = _read_json(path)
    if isinstance(content.get("model"), dict):
        vocabulary, merges, spaced = _read_library_json(content, path)
    else:
        vocabulary, merges, spaced = content, _read_merges(path.with_name(MERGES_FILE)), False
    if not vocabulary or not all(isinstance(i, int) and i >= 0 for i in vocabulary.values()):
        raise ValueError(f"{path} does not map pieces to numbers: give RoBERTa's {VOCABULARY_FILE}")
    pieces = [""] * (max(vocabulary.values()) + 1)
    for piece, i in vocabulary.items():
        pieces[i] = piece
    try:
        return ByteBPE(pieces, merges, add_prefix_space=bool(config.get("add_prefix_space", spaced)))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): copy it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds a {type(content).__name__}: expected a JSON object")
    return content


def _read_merges(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing: a byte-level BPE is its {VOCABULARY_FILE} and its {MERGES_FILE}")
    lines = path.read_text(encoding="utf-8").split("\n")
    return [_merge(line, path) for line in lines if line and not line.startswith("#version")]


def _merge(line: str | list[str], path: Path) -> tuple[str, str]:
    parts = line.split(" ") if isinstance(line, str) else line
    if len(parts) != 2 or not all(parts):
        raise ValueError(f"{path}: the merge {line!r} is not two pieces: copy the file again")
    return parts[0], parts[1]


def _read_library_json(content: dict[str, Any], path: Path) -> tuple[dict[str, int], list[tuple[str, str]], bool]:
    """(vocabulary, merges, add_prefix_space) of a `tokenizer.json`. ValueError for other rules than RoBERTa's."""
    model = content["model"]
    steps = {name: content.get(name) or {} for name in _STEPS}
    wrong = [f"{name} {step.get('type')}" for name, step in steps.items() if step.get("type") not in _STEPS[name]]
    wrong += [f"{name}={model[name]!r}" for name in _OFF if model.get(name)]
    if not steps["pre_tokenizer"].get("use_regex", True):
        wrong.append("use_regex=False")
    if wrong:
        raise ValueError(f"{path} is no BPE by RoBERTa's rules ({', '.join(wrong)}): take a model whose tokenizer is")
    added = {token["content"]: token["id"] for token in content.get("added_tokens") or ()}
    merges = [_merge(merge, path) for merge in model["merges"]]
    return model.get("vocab", {}) | added, merges, bool(steps["pre_tokenizer"].get("add_prefix_space", False))


def _library(model: models.BPE, spaced: bool) -> tokenizers.Tokenizer:
    """The library's own tokenizer. It knows no added tokens, so no text is special to it."""
    library = tokenizers.Tokenizer(model)
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    return library


def _span(text: str, piece: str, start: int, end: int) -> tuple[int, int]:
    """The span of a piece without the spaces at its ends; of a piece of spaces, where they end."""
    if piece == _WHITE_SPACE[0] and text[start] != " ":  # the space that was put in front
        return start, start
    while start < end and text[start] == " ":
        start += 1
    while start < end and text[end - 1] == " ":
        end -= 1
    return start, end


def _as_bytes(ids: list[int]) -> bytes:
    return np.array(ids, np.int32).tobytes()


def _rebuild(pieces: list[str], merges: list[tuple[str, str]], add_prefix_space: bool) -> ByteBPE:
    return ByteBPE(pieces, merges, add_prefix_space=add_prefix_space)
