"""Pre-training examples: which two runs of tokens become sentences A and B, and with which label.

The rules are those of the original BERT (`create_pretraining_data.py`; Devlin et al. 2019, appendix A.2):
sentences of a document accumulate up to a target length, are split at a random sentence into A and B, and for
half of the pairs B is replaced by text of another document, the sentences so left over being used again. The
original walks through one document after the other; here all documents of a stretch of text advance together,
one chunk a round, in NumPy. Only positions are computed (`Instances`): tokens are gathered when a batch is
assembled.

Deviations, none of which changes a document of ordinary size:

- A document longer than 128 full rows is cut into equal parts, each with a target length of its own and, as a
  source of random text, the weight of a document; text of the same document is still no "other document".
- A sentence that does not fit into a row by itself, of which the original always throws all but the middle
  away, is cut into equal pieces of at most half a row.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Int, Integer

from bert_jax.data.keyed_random import below, binomial_half, coins, key_of, random_bits

PAIRS = ("nsp", "sop", "single")
FILLS = ("document", "across_documents")

PART_ROWS = 128
_TARGETS, _CHUNKS, _OTHER, _TRUNCATE_A, _TRUNCATE_B, _INSIDE = range(6)  # what a key is for


@dataclass(frozen=True)
class ExampleSettings:
    """How text becomes examples.

    max_seq_length: columns of a row, [CLS] and [SEP] included.
    pairs: "nsp", next sentence prediction: label 0 = B follows A, 1 = B is from another document. "sop",
      ALBERT's sentence order prediction: B follows A, or (label 1, half of the pairs) the two are swapped.
      "single": one segment, no B.
    short_seq_prob: share of the documents whose target length is uniform in [2, maximum], not the maximum.
    fill: "document", the original's: a chunk ends where its document ends, which leaves padding (fill 0.90 at
      128 columns, 0.59 at 512, for documents of 5 to 40 sentences). "across_documents", RoBERTa's
      FULL-SENTENCES: the chunk goes on into the next document, so that nearly all rows are full and the same
      text makes fewer rows. A segment may then span documents; a pair split exactly between two documents has
      label 1 under "nsp" (it is not a continuation) and a meaningless order under "sop"; and the target
      length is drawn for each chunk instead of each document, so that a tenth of the rows is short.
    separators: [SEP] between A and B, see `Tokenizer.pair_separators`.
    """

    max_seq_length: int = 128
    pairs: str = "nsp"
    short_seq_prob: float = 0.1
    fill: str = "document"
    separators: int = 1

    def __post_init__(self) -> None:
        least = 4 + self.separators
        if self.max_seq_length < least:
            raise ValueError(
                f"max_seq_length is {self.max_seq_length}; a pair with its [CLS] and [SEP] needs at least {least}"
            )
        if not 0 <= self.short_seq_prob <= 1:
            raise ValueError(f"short_seq_prob is {self.short_seq_prob}; it is a probability, from 0 to 1")
        if self.pairs not in PAIRS:
            raise ValueError(f"pairs is {self.pairs!r}; choose one of {', '.join(PAIRS)}")
        if self.fill not in FILLS:
            raise ValueError(f"fill is {self.fill!r}; choose one of {', '.join(FILLS)}")

    @property
    def max_num_tokens(self) -> int:
        """Tokens of A and B together, without [CLS] and [SEP]."""
        return self.max_seq_length - (2 if self.pairs == "single" else 2 + self.separators)


@runtime_checkable
class TextSource(Protocol):
    """What is needed of a corpus: token ids, token offsets of sentences, sentence offsets of documents."""

    @property
    def tokens(self) -> np.ndarray: ...
    @property
    def sentences(self) -> np.ndarray: ...
    @property
    def documents(self) -> np.ndarray: ...
    @property
    def vocab_size(self) -> int: ...
    def release_pages(self) -> None: ...


class Instances(NamedTuple):
    """Examples as positions in a text's tokens. Labels: 0 = B follows A, 1 = random or swapped."""

    a_start: Int[np.ndarray, " n"]
    a_length: Int[np.ndarray, " n"]
    b_start: Int[np.ndarray, " n"]
    b_length: Int[np.ndarray, " n"]
    labels: Int[np.ndarray, " n"]

    def take(self, index: Int[np.ndarray, " k"] | slice) -> "Instances":
        return Instances(*(field[index] for field in self))


@dataclass(frozen=True)
class Text:
    """Some stretches of a corpus, joined and in memory.

    sentences: offsets into `tokens`, one more than there are sentences.
    documents: the corpus's document of each sentence.
    parts: offsets into the sentences; a chunk never crosses from one part into the next.
    """

    tokens: Integer[np.ndarray, " n"]
    sentences: Int[np.ndarray, " s_plus_1"]
    documents: Int[np.ndarray, " s"]
    parts: Int[np.ndarray, " p_plus_1"]


def read_text(corpus: TextSource, spans: list[tuple[int, int]], settings: ExampleSettings) -> Text:
    """Reads the sentences [first, end) of each span into memory and cuts them into parts.

    Raises ValueError for a token id outside the vocabulary or a sentence without tokens.
    """
    pieces = [_read_span(corpus, first, end, settings) for first, end in spans]
    bases = np.cumsum([0] + [len(tokens) for tokens, _, _ in pieces])
    sentences = np.concatenate(
        [starts + base for (_, starts, _), base in zip(pieces, bases[:-1], strict=True)] + [bases[-1:]]
    )
    documents = np.concatenate([documents for _, _, documents in pieces])
    firsts = np.cumsum([0] + [len(starts) for _, starts, _ in pieces])[:-1]
    if settings.fill == "document":
        firsts = np.union1d(firsts, np.flatnonzero(np.diff(documents)) + 1)
    tokens = np.concatenate([tokens for tokens, _, _ in pieces])
    parts = _cut_into_parts(sentences, firsts, PART_ROWS * settings.max_num_tokens)
    return Text(tokens, sentences, documents, parts)


def make_instances(text: Text, settings: ExampleSettings, key: int) -> Instances:
    """One pass over the text: its examples, in no meaningful order (shuffle them)."""
    chunks = draw_chunks(text, settings, key)
    token = text.sentences
    a_start, split, end = token[chunks.start], token[chunks.split], token[chunks.end]
    labels = np.zeros(len(a_start), np.int64)
    if settings.pairs == "single":
        a, b = (a_start, end - a_start), (end, labels)
    elif settings.pairs == "nsp":
        a, b, labels = _next_sentence_pairs(text, chunks, key)
    else:
        single = chunks.end - chunks.start == 1
        inside = below(random_bits(key_of(key, _INSIDE), np.arange(len(a_start))), end - a_start - 1)
        split = np.where(single, np.minimum(a_start + 1 + inside, end), split)
        a, b, labels = _sentence_order_pairs(text, chunks, key, split)
    return _truncate(a, b, labels, settings.max_num_tokens, key)


class Chunks(NamedTuple):
    """Runs of sentences: [start, split) for A and [split, end) for B or, unused, for the next chunk.

    coin: B is random ("nsp") or swapped with A ("sop"). target: the length in tokens that was aimed at.
    """

    start: Int[np.ndarray, " n"]
    split: Int[np.ndarray, " n"]
    end: Int[np.ndarray, " n"]
    coin: Bool[np.ndarray, " n"]
    target: Int[np.ndarray, " n"]


def draw_chunks(text: Text, settings: ExampleSettings, key: int) -> Chunks:
    """Walks through all parts at once: each round takes the next chunk of every part that has text left."""
    part = np.arange(len(text.parts) - 1)
    position, limit = text.parts[:-1], text.parts[1:]
    target = _draw_targets(part, settings, key_of(key, _TARGETS))
    rounds = []
    while position.size:
        if settings.fill == "across_documents":
            target = _draw_targets(part, settings, key_of(key, _TARGETS, len(rounds)))
        bits = random_bits(key_of(key, _CHUNKS, len(rounds)), part)
        end = np.minimum(np.searchsorted(text.sentences, text.sentences[position] + target), limit)
        count = end - position
        split = position + 1 + below(bits, count - 1)
        coin = coins(bits)
        if settings.pairs == "nsp":
            coin |= count == 1
        rounds.append(Chunks(position, split, end, coin, target))
        position = np.where(coin, split, end) if settings.pairs == "nsp" else end
        left = position < limit
        if not left.all():
            part, position, limit, target = part[left], position[left], limit[left], target[left]
    return Chunks(*(np.concatenate(field) for field in zip(*rounds, strict=True)))


def _draw_targets(part: Int[np.ndarray, " n"], settings: ExampleSettings, key: int) -> Int[np.ndarray, " n"]:
    longest = settings.max_num_tokens
    is_short = (random_bits(key_of(key, 0), part) >> np.uint64(11)) < np.uint64(settings.short_seq_prob * 2**53)
    return np.where(is_short, 2 + below(random_bits(key_of(key, 1), part), np.full(len(part), longest - 1)), longest)


Segment = tuple[np.ndarray, np.ndarray]  # first token and length of each


def _next_sentence_pairs(text: Text, chunks: Chunks, key: int) -> tuple[Segment, Segment, np.ndarray]:
    token = text.sentences
    a_start, b_start, b_end = token[chunks.start], token[chunks.split], token[chunks.end]
    a_length = b_start - a_start
    random = np.flatnonzero(chunks.coin)
    room = chunks.target[random] - a_length[random]
    b_start[random], b_end[random] = _other_document(text, chunks.start[random], room, key)
    labels = chunks.coin.copy()
    following = np.flatnonzero(~chunks.coin)
    split = chunks.split[following]
    labels[following] = text.documents[split - 1] != text.documents[split]
    return (a_start, a_length), (b_start, b_end - b_start), labels.astype(np.int64)


def _sentence_order_pairs(
    text: Text, chunks: Chunks, key: int, split: Int[np.ndarray, " n"]
) -> tuple[Segment, Segment, np.ndarray]:
    """`split` is in tokens. A chunk of one token has no second half: B is random, label 1, as in ALBERT."""
    a_start, b_start, b_end = text.sentences[chunks.start], split.copy(), text.sentences[chunks.end]
    a_length = split - a_start
    lonely = np.flatnonzero(b_start == b_end)
    room = chunks.target[lonely] - a_length[lonely]
    b_start[lonely], b_end[lonely] = _other_document(text, chunks.start[lonely], room, key)
    swap = chunks.coin.copy()
    swap[lonely] = False
    b_length = b_end - b_start
    first = (np.where(swap, b_start, a_start), np.where(swap, b_length, a_length))
    second = (np.where(swap, a_start, b_start), np.where(swap, a_length, b_length))
    labels = swap.astype(np.int64)
    labels[lonely] = 1
    return first, second, labels


def _other_document(
    text: Text, own: Int[np.ndarray, " n"], room: Int[np.ndarray, " n"], key: int
) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
    """First and end token of B: whole sentences of a random part, from a random one on, until `room` is full.

    Like the original, up to ten draws to find another document than that of the sentences `own`.
    """
    first = np.zeros_like(own)
    end = np.zeros_like(own)
    todo = np.arange(len(own))
    for attempt in range(10):
        bits = random_bits(key_of(key, _OTHER, attempt, 0), todo)
        part = below(bits, np.full(len(todo), len(text.parts) - 1))
        bits = random_bits(key_of(key, _OTHER, attempt, 1), todo)
        first[todo] = text.parts[part] + below(bits, text.parts[part + 1] - text.parts[part])
        end[todo] = text.parts[part + 1]
        todo = todo[text.documents[first[todo]] == text.documents[own[todo]]]
        if not todo.size:
            break
    filled = np.searchsorted(text.sentences, text.sentences[first] + room)
    end = np.minimum(np.maximum(filled, first + 1), end)
    return text.sentences[first], text.sentences[end]


def _truncate(a: Segment, b: Segment, labels: np.ndarray, limit: int, key: int) -> Instances:
    """Drops tokens one by one from the longer segment (ties: B), each from its front or back at random.

    How many tokens a segment loses is settled by the lengths; how many of them at the front is binomial.
    """
    (a_start, a_length), (b_start, b_length) = a, b
    a_kept = np.minimum(a_length, np.maximum(limit - b_length, limit - limit // 2))
    b_kept = np.minimum(b_length, np.maximum(limit - a_length, limit // 2))
    a_start = a_start + binomial_half(key_of(key, _TRUNCATE_A), a_length - a_kept)
    b_start = b_start + binomial_half(key_of(key, _TRUNCATE_B), b_length - b_kept)
    return Instances(a_start, a_kept, b_start, b_kept, labels)


def _read_span(
    corpus: TextSource, first: int, end: int, settings: ExampleSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, first token of each sentence (relative), and the corpus's document of each sentence."""
    offsets = np.array(corpus.sentences[first : end + 1])
    tokens = np.array(corpus.tokens[offsets[0] : offsets[-1]])
    offsets -= offsets[0]
    lengths = np.diff(offsets)
    if lengths.min() < 1:
        raise ValueError(f"sentence {first + lengths.argmin()} of the corpus has no tokens; build the corpus again")
    if tokens.max() >= corpus.vocab_size:
        raise ValueError(
            f"the corpus holds token id {tokens.max()}, its vocabulary ends at {corpus.vocab_size - 1};"
            " build the corpus again with this tokenizer"
        )
    borders = np.asarray(corpus.documents)
    low = np.searchsorted(borders, first, side="right") - 1
    high = np.searchsorted(borders, end)
    inside = np.clip(borders[low : high + 1], first, end)
    documents = np.repeat(np.arange(low, high), np.diff(inside))
    return tokens, *_cut_long_sentences(offsets[:-1], lengths, documents, settings.max_num_tokens)


def _cut_long_sentences(
    starts: np.ndarray, lengths: np.ndarray, documents: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    if lengths.max() <= limit:
        return starts, documents
    half = (limit + 1) // 2
    pieces = np.where(lengths > limit, -(-lengths // half), 1)
    owner = np.repeat(np.arange(len(starts)), pieces)
    number = np.arange(len(owner)) - (np.cumsum(pieces) - pieces)[owner]
    return starts[owner] + number * lengths[owner] // pieces[owner], documents[owner]


def _cut_into_parts(
    sentences: Int[np.ndarray, " s_plus_1"], firsts: Int[np.ndarray, " u"], size: int
) -> Int[np.ndarray, " p_plus_1"]:
    """Cuts the stretches that begin at the sentences `firsts` into equal parts of about `size` tokens at most."""
    start = sentences[firsts]
    length = np.diff(np.append(start, sentences[-1]))
    pieces = -(-length // size)
    owner = np.repeat(np.arange(len(start)), pieces)
    number = np.arange(len(owner)) - (np.cumsum(pieces) - pieces)[owner]
    cuts = np.searchsorted(sentences, start[owner] + number * length[owner] // pieces[owner])
    return np.append(np.unique(cuts), len(sentences) - 1)
