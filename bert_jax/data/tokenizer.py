"""What every tokenizer does: text -> ids of pieces, with the place in the text each came from.

`WordPiece`, `SentencePiece` and `ByteBPE` implement it. `encode` gives pieces and offsets, `encode_ids` and
`encode_batch` the same ids fast.
"""

import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from bert_jax.data.object_cache import local_copy

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# BERT's name -> how vocabularies write it: KoBERT as BERT, ALBERT <pad>, XLNet <cls> and <sep>, RoBERTa <s> and </s>.
SPECIAL_NAMES = {
    "[PAD]": ("[PAD]", "<pad>"),
    "[UNK]": ("[UNK]", "<unk>"),
    "[CLS]": ("[CLS]", "<cls>", "<s>"),
    "[SEP]": ("[SEP]", "<sep>", "</s>"),
    "[MASK]": ("[MASK]", "<mask>"),
}
CONFIG_FILE, LIBRARY_FILE = "tokenizer_config.json", "tokenizer.json"
FORMAT_VERSION = 1
# Above this share of [UNK] a corpus was most likely tokenized with a vocabulary of another language or case.
UNKNOWN_LIMIT = 0.3

# Hangul syllables and kana.
DECOMPOSED = re.compile("[\u3041-\u3096\u30a1-\u30fa\uac00-\ud7a3]")


@dataclass(slots=True)
class Encoding:
    """Pieces of a text, in order. `offsets` are (start, end) in characters of the text as it was given."""

    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    offsets: list[tuple[int, int]] = field(default_factory=list)

    def extend(self, other: "Encoding", shift: int) -> None:
        """Appends the pieces of a part of the text that starts at character `shift`."""
        self.ids += other.ids
        self.tokens += other.tokens
        self.offsets += [(start + shift, end + shift) for start, end in other.offsets]


class Tokenizer(ABC):
    """Text -> ids of pieces. `pieces[id]` is the piece as its file writes it (ALBERT's [PAD] is <pad>).

    Text of users never gives a special id other than [UNK], whatever it contains, unless `encode` is asked to
    read special tokens. [CLS] and [SEP] around a sequence are the business of whoever builds examples, who puts
    `pair_separators` [SEP] between the two texts of a pair.
    """

    kind: str
    lowercase: bool
    pieces: list[str]
    pair_separators: int = 1

    @abstractmethod
    def _encode_plain(self, text: str, *, joined: bool) -> Encoding:
        """Encodes text without special tokens; `joined`: it follows a special token with no space between."""

    @abstractmethod
    def encode_ids(self, text: str) -> list[int]:
        """`encode(text).ids`, fast."""

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        """The ids (int32) of texts one after the other, how many (int64) each text has; the fastest way."""

    def encode_words(self, texts: Sequence[str]) -> tuple[Int[np.ndarray, " ids"], Int[np.ndarray, " texts"]]:
        """`encode_batch` of words or sentences taken out of a text: each as where a space stands before it."""
        return self.encode_batch(texts)

    @abstractmethod
    def continuing_ids(self, word: str) -> list[int]:
        """The ids of what goes on with the word before it; none where the vocabulary cannot say so."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Text for reading. It is not the text encoded: cut that by offsets instead."""

    def readable(self, i: int) -> str:
        """A piece for people to read."""
        return self.pieces[i]

    @abstractmethod
    def word_starts(self) -> Bool[np.ndarray, " v"]:
        """True for pieces that begin a word, and for special tokens."""

    @abstractmethod
    def decomposes(self, text: str) -> bool:
        """Whether the text has Hangul or kana that normalisation would take apart, as uncased BERT does."""

    @abstractmethod
    def _files(self) -> dict[str, bytes]:
        """File name -> content, without the configuration."""

    @abstractmethod
    def _config(self) -> dict[str, Any]:
        """The options that rebuild the tokenizer from its files."""

    @property
    @abstractmethod
    def special_tokens(self) -> dict[str, int]:
        """[PAD], [UNK], [CLS], [SEP], [MASK] -> id, those the vocabulary has."""

    def encode(self, text: str, *, special_tokens: bool = False) -> Encoding:
        """Pieces and offsets. With `special_tokens`, [MASK] and the others in the text become their id."""
        encoding = Encoding()
        for part, start, special in self._parts(text, special_tokens):
            if special is not None:
                encoding.extend(Encoding([special], [self.pieces[special]], [(0, len(part))]), start)
            elif part:
                joined = start > 0 and not part[0].isspace()
                encoding.extend(self._encode_plain(part, joined=joined), start)
        return encoding

    def save(self, directory: str | os.PathLike[str]) -> None:
        """Writes the directory that `load_tokenizer` reads; the configuration last, each file in one step."""
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        config = {"format_version": FORMAT_VERSION, "kind": self.kind, **self._config()}
        text = json.dumps(config, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        for name, content in {**self._files(), CONFIG_FILE: text.encode()}.items():
            temporary = target / f".{name}.{os.getpid()}"
            temporary.write_bytes(content)
            temporary.replace(target / name)

    def fingerprint(self) -> str:
        """SHA-256 (hex) of everything that decides the ids."""
        digest = hashlib.sha256(json.dumps([self.kind, self._config()], sort_keys=True).encode())
        for name, content in sorted(self._files().items()):
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    @property
    def vocab_size(self) -> int:
        return len(self.pieces)

    @property
    def pad_id(self) -> int:
        return self._special("[PAD]")

    @property
    def unk_id(self) -> int:
        return self._special("[UNK]")

    @property
    def cls_id(self) -> int:
        return self._special("[CLS]")

    @property
    def sep_id(self) -> int:
        return self._special("[SEP]")

    @property
    def mask_id(self) -> int:
        return self._special("[MASK]")

    @property
    def special_ids(self) -> tuple[int, ...]:
        """Ids of the special tokens that the vocabulary has, in rising order."""
        return tuple(sorted(self.special_tokens.values()))

    def _special(self, name: str) -> int:
        try:
            return self.special_tokens[name]
        except KeyError:
            raise ValueError(
                f"the vocabulary of {self.vocab_size:,} pieces has no {name}: add the piece, or learn a "
                "vocabulary with bert_jax.data.vocabulary, which has all five special tokens"
            ) from None

    def _special_names(self) -> dict[str, int]:
        """How special tokens are written in a text -> id: BERT's name, and the file's."""
        return {self.pieces[i]: i for i in self.special_ids} | self.special_tokens

    def _parts(self, text: str, special_tokens: bool) -> Iterator[tuple[str, int, int | None]]:
        """(part, its start, its id if it is a special token) in order."""
        if not special_tokens:
            yield text, 0, None
            return
        names = self._special_names()
        last = 0
        for match in re.finditer("|".join(map(re.escape, names)) or "(?!)", text):
            yield text[last : match.start()], last, None
            yield match.group(), match.start(), names[match.group()]
            last = match.end()
        yield text[last:], last, None


def find_specials(ids: Mapping[str, int], names: Mapping[str, Sequence[str]], remedy: str) -> dict[str, int]:
    """BERT's names of special tokens -> id, by how they may be written. ValueError for one that is not there."""
    found: dict[str, int] = {}
    for name, written in names.items():
        present = [ids[w] for w in written if w in ids]
        if not present:
            raise ValueError(f"there is no piece for {name} (looked for {', '.join(written)}): {remedy}")
        found[name] = present[0]
    return found


def unknown_warning(unknown: int, total: int) -> str | None:
    """A sentence if more than 30 % of the tokens of a corpus are [UNK]."""
    if total == 0 or unknown / total <= UNKNOWN_LIMIT:
        return None
    return (
        f"{unknown / total:.0%} of {total:,} tokens are [UNK] (limit {UNKNOWN_LIMIT:.0%}): the vocabulary does "
        "not fit the text; check language and lowercase, or learn a vocabulary from this text"
    )


def load_tokenizer(
    path: str | os.PathLike[str],
    *,
    lowercase: bool | None = None,
    rules: str | None = None,
    check_case: bool = True,
) -> Tokenizer:
    """Reads a tokenizer directory (ours or Hugging Face's), a `vocab.txt`, a SentencePiece `.model`, or the
    `vocab.json` or `tokenizer.json` of a byte-level BPE; also at a URL.

    `lowercase` None: as the directory says; for a bare vocabulary, True unless pieces with upper-case letters
    are more than one in a hundred. `rules` None: as the directory says, else "original". A `lowercase` that
    contradicts the vocabulary is a ValueError unless `check_case` is False.
    """
    path = local_copy(path if isinstance(path, str) else Path(path))
    if not path.exists():
        raise FileNotFoundError(f"no tokenizer at {path}: give a tokenizer directory, a vocab.txt or a .model file")
    config: dict[str, Any] = {}
    library: Path | None = None
    if path.is_dir():
        config = _read_config(path)
        library = path / LIBRARY_FILE if (path / LIBRARY_FILE).exists() else None
        path = _vocabulary_file(path)
    if lowercase is not None:
        config["do_lower_case"] = lowercase
    if rules is not None:
        config["rules"] = rules
    if path.suffix in (".model", ".spm"):
        from bert_jax.data import sentence_piece

        return sentence_piece.from_file(path, config)
    if path.suffix == ".json":
        from bert_jax.data import byte_bpe

        if byte_bpe.is_byte_bpe(path):
            return byte_bpe.from_file(path, config)
    from bert_jax.data import wordpiece

    if library is not None and path != library and "do_lower_case" not in config:
        wordpiece.read_library_json(library, config)
    return wordpiece.from_file(path, config, check_case=check_case)


def _read_config(directory: Path) -> dict[str, Any]:
    file = directory / CONFIG_FILE
    if not file.exists():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not JSON ({error}): write the tokenizer again with save()") from None
    if not isinstance(config, dict) or not isinstance(config.get("format_version", FORMAT_VERSION), int):
        raise ValueError(f"{file} is no tokenizer configuration: write the tokenizer again with save()")
    version = config.get("format_version", FORMAT_VERSION)
    if version > FORMAT_VERSION:
        raise ValueError(f"{file} has format_version {version}, this program reads {FORMAT_VERSION}: update bert_jax")
    return config


def _vocabulary_file(directory: Path) -> Path:
    for pattern in ("vocab.txt", "*.model", LIBRARY_FILE, "vocab.json"):
        found = sorted(directory.glob(pattern))
        if pattern == "vocab.txt" and found and any(directory.glob("*.model")) and not _is_wordpiece(found[0]):
            continue  # KoBERT comes with a list of its SentencePiece model's pieces
        if len(found) > 1:
            raise ValueError(f"{directory} has {len(found)} {pattern} files: name the one to load")
        if found:
            return found[0]
    raise FileNotFoundError(
        f"{directory} has no vocab.txt, .model, tokenizer.json or vocab.json: give a tokenizer directory"
    )


def _is_wordpiece(vocabulary: Path) -> bool:
    return re.search(rb"(?m)^##", vocabulary.read_bytes()) is not None
