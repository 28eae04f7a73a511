"""Tagged sentences -> windows that a model labels, and its labels back to one tag for each word.

The first piece of a word carries the word's label; other pieces and [CLS], [SEP] carry none. Every word is predicted
exactly once, however long its sentence: where windows overlap, in the one that has most context for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby, pairwise
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.chunk_memory import ChunkMemory
from bert_jax.data.columns import TaggedSentence
from bert_jax.data.sequences import Sequence as Input
from bert_jax.data.sequences import single
from bert_jax.data.tokenizer import Tokenizer
from bert_jax.data.windows import max_context, windows_at

UNKNOWN_LABEL = -1
CONTEXTS = ("sentence", "document")


class TaggedWindow(NamedTuple):
    """[CLS] pieces [SEP], and the ``n`` words that are predicted here, one or more.

    label_columns: of each word's first piece. labels: ids, `UNKNOWN_LABEL` where there is none to learn (a tag that
    the inventory lacks, text without tags). words: indices into all words of the data set, ascending.
    """

    sequence: Input
    label_columns: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]
    words: Int[np.ndarray, " n"]


@dataclass
class TaggingCounts:
    """What a data set holds, and what was done so that no word of it is lost.

    without_pieces: words that the tokenizer makes nothing of, which got [UNK]. split_sentences: longer than a window.
    unseen: words whose tag the inventory lacks; they count as wrong. inside_pieces: words (characters of a chunk) that
    begin within a piece and continue its prediction; inexact: those of them whose tag is another.
    places: for some counts the file:line of the first sentence concerned, where it came from a file.
    """

    sentences: int = 0
    words: int = 0
    pieces: int = 0
    without_pieces: int = 0
    split_sentences: int = 0
    unseen: int = 0
    inside_pieces: int = 0
    inexact: int = 0
    places: dict[str, str] = field(default_factory=dict, compare=False)

    def add(self, name: str, count: int, sentence: TaggedSentence) -> None:
        """Adds to the count of a name."""
        if count:
            setattr(self, name, getattr(self, name) + count)
            if sentence.file:
                self.places.setdefault(name, f"{sentence.file}:{sentence.line}")


@dataclass(frozen=True)
class TaggedData:
    """Windows of a data set, and what leads from their labels back to its words."""

    windows: list[TaggedWindow]
    labels: tuple[str, ...]
    sentence_words: Int[np.ndarray, " sentences_and_1"]  # where each sentence's words begin
    sources: Int[np.ndarray, " words"]  # the word whose prediction a word takes or continues: itself, as a rule
    counts: TaggingCounts


def label_inventory(sentences: Iterable[TaggedSentence]) -> tuple[str, ...]:
    """The tags of training data, O first and the others sorted; a label's id is its place."""
    found = {tag for sentence in sentences for tag in _tags(sentence)}
    if not found:
        raise ValueError("no tagged word in the training data: give a file with words and tags")
    return tuple(sorted(found, key=lambda tag: (tag != "O", tag)))


def tag_windows(
    sentences: Sequence[TaggedSentence],
    tokenizer: Tokenizer,
    labels: Sequence[str],
    *,
    max_length: int = 512,
    context: str = "sentence",
    stride: int | None = None,
    join_words: bool = True,
    allow_unseen: bool = False,
) -> TaggedData:
    """Windows of at most ``max_length`` tokens, [CLS] and [SEP] among them.

    context: "sentence" = each sentence alone; "document" = a window holds as many whole neighbouring sentences of one
    document as fit (the paper's maximal document context), in its order. Only a sentence longer than a window is cut.
    stride: where one window is not enough, the next begins about so many pieces later; None = half of what it holds.
    join_words: in text of characters, pieces may hold several; then a piece that ends in another tag than it begins
    with (a name and its particle) cannot be got right (`TaggingCounts.inexact`). False: each has pieces of its own.
    ValueError for a tag that ``labels`` lacks, unless ``allow_unseen``.
    """
    if context not in CONTEXTS:
        raise ValueError(f"context={context!r} is not one of {', '.join(CONTEXTS)}")
    if max_length < 3:
        raise ValueError(f"max_length={max_length} leaves no room for a word between [CLS] and [SEP]: give 3 or more")
    pieces, counts = _pieces(sentences, tokenizer, join_words)
    sources, ids = _label_ids(sentences, pieces, labels, allow_unseen, counts)
    sentence_words = np.cumsum([0, *(len(sentence.words) for sentence in sentences)])
    size = max_length - 2
    stride = (size + 1) // 2 if stride is None else stride
    for sentence, part in zip(sentences, pieces, strict=True):
        counts.add("split_sentences", int(len(part.ids) > size), sentence)
    windows: list[TaggedWindow] = []
    for first, last in _neighbours(sentences, context):
        words = np.arange(sentence_words[first], sentence_words[last])
        windows += _document(pieces[first:last], words, ids[words], tokenizer, size, stride)
    return TaggedData(windows, tuple(labels), sentence_words, sources, counts)


def decode(data: TaggedData, predictions: Iterable[np.ndarray]) -> list[list[str]]:
    """The tags of every sentence from what was predicted at the ``label_columns`` of every window, in their order:
    label ids [n] or logits [n c]. ValueError if a window lacks its predictions, or a word would get none or two."""
    chosen = np.full(len(data.sources), -1, np.int64)
    predictions = list(predictions)
    if len(predictions) != len(data.windows):
        raise ValueError(
            f"{len(data.windows)} windows but predictions for {len(predictions)}: give them for each window"
        )
    for number, (window, found) in enumerate(zip(data.windows, predictions, strict=True)):
        if len(found) != len(window.words):
            raise ValueError(
                f"window {number} has {len(window.words)} words but {len(found)} predictions: give those at its "
                "label_columns"
            )
        if (chosen[window.words] >= 0).any():
            raise ValueError(f"window {number} predicts words that another one did: give each window once")
        chosen[window.words] = found.argmax(-1) if found.ndim == 2 else found
    if (missing := int((chosen[data.sources] < 0).sum())) or chosen.max(initial=-1) >= len(data.labels):
        raise ValueError(
            f"{missing} words without a label, ids up to {chosen.max(initial=-1)}: give ids from 0 to "
            f"{len(data.labels) - 1} for every window"
        )
    names = [data.labels[i] for i in chosen[data.sources].tolist()]
    for word in np.flatnonzero(data.sources != np.arange(len(data.sources))).tolist():
        names[word] = _continued(names[word])
    return [names[first:last] for first, last in pairwise(data.sentence_words.tolist())]


class _Pieces(NamedTuple):
    """The pieces of one sentence, and which of them is each word's first (-1: the word begins within one)."""

    ids: Int[np.ndarray, " t"]
    firsts: Int[np.ndarray, " words"]


def _tags(sentence: TaggedSentence) -> tuple[str, ...]:
    return sentence.tags or ()


def _pieces(
    sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, join_words: bool
) -> tuple[list[_Pieces], TaggingCounts]:
    counts = TaggingCounts(len(sentences), sum(len(sentence.words) for sentence in sentences))
    plain = iter(_whole_words([s for s in sentences if s.spaces is None], tokenizer, counts))
    joined = (s for s in sentences if s.spaces is not None)
    chunks = iter(_joined_words(joined, tokenizer, counts) if join_words else _single_words(joined, tokenizer, counts))
    found = [next(plain if s.spaces is None else chunks) for s in sentences]
    counts.pieces = sum(len(part.ids) for part in found)
    return found, counts


def _whole_words(sentences: Sequence[TaggedSentence], tokenizer: Tokenizer, counts: TaggingCounts) -> Iterator[_Pieces]:
    """Each word by itself, all in one go."""
    ids, lengths = tokenizer.encode_words([word for sentence in sentences for word in sentence.words])
    empty = lengths == 0
    if empty.any():
        ends = np.cumsum([len(sentence.words) for sentence in sentences])
        first = sentences[int(np.searchsorted(ends, int(empty.argmax()), side="right"))]
        counts.add("without_pieces", int(empty.sum()), first)
    ids = np.insert(ids, (np.cumsum(lengths) - lengths)[empty], tokenizer.unk_id)
    starts = np.concatenate([[0], np.cumsum(np.maximum(lengths, 1))])
    for first, last in pairwise(accumulate((len(sentence.words) for sentence in sentences), initial=0)):
        yield _Pieces(ids[starts[first] : starts[last]], starts[first:last] - starts[first])


def _single_words(
    sentences: Iterable[TaggedSentence], tokenizer: Tokenizer, counts: TaggingCounts
) -> Iterator[_Pieces]:
    """Each character by itself, as what continues a word where no white space precedes it."""
    continuing = ChunkMemory(tokenizer.continuing_ids)
    beginning = ChunkMemory(lambda word: tokenizer.encode_words([word])[0].tolist())
    for sentence in sentences:
        ids: list[int] = []
        firsts: list[int] = []
        for word, space in zip(sentence.words, sentence.spaces or (), strict=True):
            own = (not space and continuing[word]) or beginning[word]
            counts.add("without_pieces", int(not own), sentence)
            firsts.append(len(ids))
            ids += own or [tokenizer.unk_id]
        yield _Pieces(np.array(ids, np.int32), np.array(firsts, np.int64))


def _joined_words(
    sentences: Iterable[TaggedSentence], tokenizer: Tokenizer, counts: TaggingCounts
) -> Iterator[_Pieces]:
    for sentence in sentences:
        yield _joined(sentence, sentence.spaces or (), tokenizer, counts)


def _joined(sentence: TaggedSentence, spaces: Sequence[bool], tokenizer: Tokenizer, counts: TaggingCounts) -> _Pieces:
    """Words (characters) of which several may make one piece. An [UNK] for several becomes the pieces of each."""
    words = sentence.words
    texts = [" " * space + word for word, space in zip(words, spaces, strict=True)]
    ends = list(accumulate(map(len, texts)))
    starts = [end - len(word) for word, end in zip(words, ends, strict=True)]
    ids: list[int] = []
    firsts = [-1] * len(words)
    reached = 0  # the first word that no piece covers yet

    def cover(first: int, last: int, encode: bool = False) -> None:
        """Gives words that no piece covers their own pieces, or [UNK]."""
        for word in range(first, last):
            own = tokenizer.encode_ids(words[word]) if encode else []
            counts.add("without_pieces", int(not own), sentence)
            firsts[word] = len(ids)
            ids.extend(own or [tokenizer.unk_id])

    encoding = tokenizer.encode("".join(texts))
    for piece, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        word = min(bisect_right(ends, start), len(words) - 1)  # the white space before a word counts as its own
        last = max(bisect_left(starts, end), word + 1)
        if word > reached:
            cover(reached, word)
            reached = word
        if piece == tokenizer.unk_id and last - reached > 1:
            cover(reached, last, encode=True)
        else:
            firsts[word] = len(ids) if firsts[word] < 0 else firsts[word]
            ids.append(piece)
        reached = max(reached, last)
    cover(reached, len(words))
    return _Pieces(np.array(ids, np.int32), np.array(firsts, np.int64))


def _label_ids(
    sentences: Sequence[TaggedSentence],
    pieces: Sequence[_Pieces],
    labels: Sequence[str],
    allow_unseen: bool,
    counts: TaggingCounts,
) -> tuple[Int[np.ndarray, " words"], Int[np.ndarray, " words"]]:
    """(sources as of `TaggedData`, label ids) of all words."""
    known = {label: i for i, label in enumerate(labels)}
    sources: list[int] = []
    ids: list[int] = []
    for sentence, part in zip(sentences, pieces, strict=True):
        for i, tag in enumerate(_tags(sentence)):
            if tag not in known and not allow_unseen:
                raise ValueError(
                    f"{sentence.file}:{sentence.line}: tag {tag!r} of word {i + 1} ({sentence.words[i]!r}) of the "
                    "sentence that begins there is in no training sentence; correct it, or set allow_unseen to have "
                    "such words counted and scored as wrong"
                )
        own = [known.get(tag, UNKNOWN_LABEL) for tag in _tags(sentence)] or [UNKNOWN_LABEL] * len(sentence.words)
        counts.unseen += sum(tag not in known for tag in _tags(sentence))
        base = len(sources)
        of = np.maximum.accumulate(np.where(part.firsts >= 0, np.arange(len(own)), 0)).tolist()
        sources += [base + i for i in of]
        ids += own
        inside = [i for i, source in enumerate(of) if source != i]
        counts.inside_pieces += len(inside)
        if sentence.tags is not None and inside:
            inexact = sum(sentence.tags[i] != _continued(sentence.tags[of[i]]) for i in inside)
            counts.add("inexact", inexact, sentence)
    return np.array(sources, np.int64), np.array(ids, np.int32)


def _continued(tag: str) -> str:
    """The tag of what follows within a piece: an entity goes on."""
    return "I" + tag[1:] if tag[:2] in ("B-", "S-", "E-") else tag


def _neighbours(sentences: Sequence[TaggedSentence], context: str) -> Iterator[tuple[int, int]]:
    """(first, last) sentence, exclusive, of what windows may hold together."""
    first = 0
    keys = range(len(sentences)) if context == "sentence" else (s.document for s in sentences)
    for _, group in groupby(keys):
        last = first + sum(1 for _ in group)
        yield first, last
        first = last


def _document(
    pieces: Sequence[_Pieces],
    words: Int[np.ndarray, " words"],
    labels: Int[np.ndarray, " words"],
    tokenizer: Tokenizer,
    size: int,
    stride: int,
) -> Iterator[TaggedWindow]:
    """The windows of neighbouring sentences that predict a word."""
    offsets = list(accumulate((len(part.ids) for part in pieces), initial=0))
    ids = np.concatenate([part.ids for part in pieces])
    own = np.concatenate([part.firsts >= 0 for part in pieces])
    columns = np.concatenate([part.firsts + offset for part, offset in zip(pieces, offsets, strict=False)])
    columns, words, labels = columns[own], words[own], labels[own]
    bounds = list(offsets)
    for first, last in pairwise(offsets):
        if last - first > size:  # a sentence that is cut, at any piece
            bounds += range(first + 1, last)
    starts, ends = windows_at(sorted(bounds), size, stride)
    owners = max_context(starts, ends)[columns]
    for window, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        here = owners == window
        if here.any():
            sequence = single(ids[start:end].tolist(), tokenizer)
            yield TaggedWindow(sequence, (columns[here] - start + 1).astype(np.int32), labels[here], words[here])
