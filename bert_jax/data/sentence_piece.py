"""SentencePiece models (as of ALBERT and KoBERT) as tokenizers with offsets into the text.

The library is always asked for whole texts: it breaks ties ("0" "00" or "00" "0") by sums rounded along the text,
so that only so are the ids those of the model's other users.
"""

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Bool, Int

from bert_jax.data.characters import lower_aligned, without_surrogates
from bert_jax.data.sentence_piece_model import CONTROL, UNKNOWN, parse_model
from bert_jax.data.tokenizer import DECOMPOSED, SPECIAL_NAMES, Encoding, Tokenizer, find_specials

MODEL_FILE = "spiece.model"
_SPACE = "▁"
_Char = tuple[str, int, int]


@dataclass(frozen=True)
class Preprocessing:
    """What is done to a text before the model's own normalisation, in this order.

    `remove_space`: strip, and one space for each run of white space. `convert_quotes`: `` and '' to ".
    `keep_accents=False`: NFKD, combining marks dropped. `lowercase`. And after it, `split_digit_comma`: a piece
    that ends in a digit and a comma is segmented again without the comma.
    ALBERT: all but keep_accents; KoBERT: remove_space, convert_quotes, keep_accents, split_digit_comma.
    """

    lowercase: bool = False
    remove_space: bool = True
    keep_accents: bool = True
    convert_quotes: bool = False
    split_digit_comma: bool = False


class SentencePiece(Tokenizer):
    """A SentencePiece model, given as its serialised bytes.

    Raises ValueError if the model has no piece for [PAD], [CLS], [SEP] or [MASK].
    """

    kind = "sentencepiece"

    def __init__(self, model: bytes, preprocessing: Preprocessing | None = None) -> None:
        self.preprocessing = preprocessing or Preprocessing()
        self.lowercase = self.preprocessing.lowercase
        self._serialized = model
        proto = parse_model(model)
        self.pieces = [piece.piece for piece in proto.pieces]
        # Where these occur, a piece may have to be split at its comma.
        commas = {
            i for i, piece in enumerate(self.pieces) if _ends_in_digit_comma(piece) or proto.pieces[i].type == UNKNOWN
        }
        self._comma_ids = commas if self.preprocessing.split_digit_comma else set()
        self._special_tokens = _specials(self.pieces, proto)
        # Special pieces become control pieces, which no text gives; in files they may be user-defined.
        for name, i in self._special_tokens.items():
            if name != "[UNK]":
                proto.pieces[i].type = CONTROL
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        proto.normalizer_spec.add_dummy_prefix = False
        self._joined = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())

    @property
    def special_tokens(self) -> dict[str, int]:
        return self._special_tokens

    def continuing_ids(self, word: str) -> list[int]:
        i = self._ids.get(word)
        return [] if i is None else [i]

    def decode(self, ids: Sequence[int]) -> str:
        parts: list[str] = []
        run: list[int] = []
        for i in [*ids, None]:
            if i is not None and i not in self.special_ids:
                run.append(int(i))
                continue
            parts += [self._processor.decode(run)] if run else []
            parts += [] if i is None else [self.pieces[i]]
            run = []
        return " ".join(parts)

    def word_starts(self) -> Bool[np.ndarray, " v"]:
        starts = np.array([piece.startswith(_SPACE) for piece in self.pieces], bool)
        starts[list(self.special_ids)] = True
        return starts

    def decomposes(self, text: str) -> bool:
        return not self.preprocessing.keep_accents and DECOMPOSED.search(text) is not None

    def encode_ids(self, text: str) -> list[int]:
        ids: list[int] = self._processor.encode(self._prepare_text(text))
        return self._encode_plain(text, joined=False).ids if not self._comma_ids.isdisjoint(ids) else ids

    def encode_batch(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        found = self._processor.encode([self._prepare_text(text) for text in texts], num_threads=1)
        if self._comma_ids:
            found = [
                ids if self._comma_ids.isdisjoint(ids) else self._encode_plain(text, joined=False).ids
                for ids, text in zip(found, texts, strict=True)
            ]
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        return np.fromiter(chain.from_iterable(found), np.int32, int(lengths.sum())), lengths

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {piece: i for i, piece in enumerate(self.pieces)}

    def _encode_plain(self, text: str, *, joined: bool) -> Encoding:
        return self._pieces(text, self._joined if joined else self._processor)

    def _pieces(self, text: str, processor: sentencepiece.SentencePieceProcessor) -> Encoding:
        chars = self._prepare(without_surrogates(text))
        prepared = "".join(char for char, _, _ in chars)
        found = processor.encode(prepared, return_type="offset_mapping")
        encoding = Encoding()
        for i, piece, (start, end) in zip(found["ids"], found["pieces"], found["offsets"], strict=True):
            span = _trim(prepared, start, end, empty=not piece.strip(_SPACE))
            for part_id, _, (s, e) in self._split_comma(i, piece, *span):
                encoding.ids.append(part_id)
                encoding.tokens.append(self.pieces[part_id])
                encoding.offsets.append(_source(chars, s, e, len(text)))
        return encoding

    def _split_comma(self, i: int, piece: str, start: int, end: int) -> Iterator[tuple[int, str, tuple[int, int]]]:
        if not (self.preprocessing.split_digit_comma and _ends_in_digit_comma(piece)):
            yield i, piece, (start, end)
            return
        parts = self._processor.encode(piece[:-1].replace(_SPACE, ""), return_type=str)
        if piece[0] != _SPACE and parts[0][0] == _SPACE:
            parts = parts[1:] if len(parts[0]) == 1 else [parts[0][1:], *parts[1:]]
        exact = len(piece.lstrip(_SPACE)) == end - start  # else normalisation changed the length: share the span
        first = start
        for part in [*parts, ","]:
            last = first + len(part.lstrip(_SPACE))
            yield self._processor.piece_to_id(part), part, (first, last) if exact else (start, end)
            first = last

    def _prepare(self, text: str) -> list[_Char]:
        """The text after preprocessing; each character with its (start, end) in `text`."""
        options = self.preprocessing
        chars = [(char, i, i + 1) for i, char in enumerate(text)]
        if options.remove_space:
            chars = _collapse_space(chars)
        if options.convert_quotes:
            chars = _convert_quotes(chars)
        if not options.keep_accents:
            chars = [(d, s, e) for c, s, e in chars for d in unicodedata.normalize("NFKD", c)]
            chars = [part for part in chars if not unicodedata.combining(part[0])]
        return lower_aligned(chars) if options.lowercase else chars

    def _prepare_text(self, text: str) -> str:
        """The text after preprocessing, alone."""
        options = self.preprocessing
        if not text.isascii():
            return "".join(char for char, _, _ in self._prepare(without_surrogates(text)))
        if options.remove_space:
            text = " ".join(text.split())
        if options.convert_quotes:
            text = text.replace("``", '"').replace("''", '"')
        return text.lower() if options.lowercase else text

    def _files(self) -> dict[str, bytes]:
        return {MODEL_FILE: self._serialized}

    def _config(self) -> dict[str, Any]:
        options = asdict(self.preprocessing)
        return {"do_lower_case": options.pop("lowercase"), **options}

    def __reduce__(self) -> tuple[Callable[..., "SentencePiece"], tuple[Any, ...]]:
        return SentencePiece, (self._serialized, self.preprocessing)


def from_file(path: Path, config: dict[str, Any]) -> SentencePiece:
    """Reads a `.model` with the options of a tokenizer configuration, ours or Hugging Face's."""
    options = asdict(Preprocessing())
    name = str(config.get("tokenizer_class", "")).lower()
    if "albert" in name or "xlnet" in name or "kobert" in name:
        options.update(convert_quotes=True, split_digit_comma=True)
        options.update(keep_accents="kobert" in name, lowercase="albert" in name)
    options["lowercase"] = config.get("do_lower_case", options["lowercase"])
    options.update({key: config[key] for key in options if key in config and key != "lowercase"})
    try:
        return SentencePiece(path.read_bytes(), Preprocessing(**options))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    except Exception as error:  # protobuf's DecodeError, which is not public API, or the library's RuntimeError
        raise ValueError(f"{path} is not a SentencePiece model: give the .model file ({error})") from None


def _specials(pieces: list[str], proto: Any) -> dict[str, int]:
    """By their names, but [UNK], which has a type of its own."""
    ids = {piece: i for i, piece in reversed(list(enumerate(pieces)))}
    unknown = next(i for i, piece in enumerate(proto.pieces) if piece.type == UNKNOWN)
    names = {name: written for name, written in SPECIAL_NAMES.items() if name != "[UNK]"}
    remedy = "train it with control_symbols=[CLS],[SEP],[MASK] and pad_piece=[PAD], or use learn_sentencepiece"
    return {"[UNK]": unknown} | find_specials(ids, names, remedy)


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _trim(text: str, start: int, end: int, *, empty: bool) -> tuple[int, int]:
    """The span of a piece in the prepared text, without the spaces that its ▁ stands for.

    The library gives no character to all but the last of several pieces from one character (ﬁ -> f, i): they
    get that character too.
    """
    while start < end and text[start] == " ":
        start += 1
    if start == end and not empty:
        end = min(start + 1, len(text))
    return start, end


def _source(chars: list[_Char], start: int, end: int, length: int) -> tuple[int, int]:
    """The span in the given text of a span in the prepared one."""
    if start < end:
        return chars[start][1], chars[end - 1][2]
    at = chars[start][1] if start < len(chars) else length
    return at, at


def _collapse_space(chars: list[_Char]) -> list[_Char]:
    kept: list[_Char] = []
    for char, start, end in chars:
        if not char.isspace():
            kept.append((char, start, end))
        elif kept and kept[-1][0] != " ":
            kept.append((" ", start, end))
    return kept[:-1] if kept and kept[-1][0] == " " else kept


def _convert_quotes(chars: list[_Char]) -> list[_Char]:
    kept: list[_Char] = []
    i = 0
    while i < len(chars):
        pair = "".join(char for char, _, _ in chars[i : i + 2])
        double = pair in ("``", "''")
        kept.append(('"', chars[i][1], chars[i + 1][2]) if double else chars[i])
        i += 1 + double
    return kept
