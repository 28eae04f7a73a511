"""Learning a vocabulary from a stream of text: WordPiece, SentencePiece, byte-level BPE; the same one on every run.

Memory is bounded: WordPiece and BPE count words and forget the rarest when there are too many, SentencePiece keeps an
even sample of the sentences.
"""

import io
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import sentencepiece
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bert_jax.data.byte_bpe import ALPHABET, ROBERTA_SPECIALS, ByteBPE
from bert_jax.data.characters import CHUNK, BasicRules, without_surrogates
from bert_jax.data.sentence_piece import Preprocessing, SentencePiece
from bert_jax.data.tokenizer import SPECIALS, Tokenizer
from bert_jax.data.wordpiece import WordPiece

# Different words kept while counting: about 400 MB at the most.
MAX_WORDS = 3_000_000
# Words, counted as often as they occur, that the trainer is fed with; larger counts are scaled down to it.
MAX_TRAINING_WORDS = 20_000_000
# Longest sentence for SentencePiece's trainer, in bytes; longer ones are cut at white space.
_MAX_SENTENCE_BYTES = 16_384

_log = logging.getLogger(__name__)


def learn_wordpiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    lowercase: bool,
    limit_alphabet: int = 1000,
    min_frequency: int = 2,
) -> WordPiece:
    """Learns at most `vocab_size` pieces from texts of any length, with the original's own words.

    Ids start with [PAD] [UNK] [CLS] [SEP] [MASK], then the alphabet: the `limit_alphabet` most frequent
    characters; words with others become [UNK]. Pieces are merged by frequency (byte-pair encoding with the
    continuation prefix ##), as the `tokenizers` library does; Google never published its own learner.
    """
    counts = count_words(texts, lowercase=lowercase)
    if not counts:
        raise ValueError("the texts have 0 words to learn a vocabulary from: give text with letters in it")
    alphabet = _alphabet(counts, limit_alphabet)
    first = [*SPECIALS, *alphabet]
    if vocab_size < len(first):
        raise ValueError(
            f"vocab_size={vocab_size} is less than the {len(first)} special tokens and characters of the texts: "
            f"use at least {len(first)}"
        )
    letters = {piece for piece in alphabet if len(piece) == 1}
    known = {word: count for word, count in counts.items() if letters.issuperset(word)}
    pieces = _merge(known, first, vocab_size, min_frequency)
    tokenizer = WordPiece(pieces, lowercase=lowercase)
    _log.info("learned %d WordPiece pieces, unknown share %.4f", len(pieces), _word_unknowns(tokenizer, counts))
    return tokenizer


def learn_sentencepiece(
    texts: Iterable[str],
    vocab_size: int,
    *,
    lowercase: bool = False,
    model_type: str = "unigram",
    character_coverage: float = 0.9995,
    max_sentences: int = 2_000_000,
) -> SentencePiece:
    """Learns at most `vocab_size` pieces; fewer where the texts are too small for them.

    Of more than `max_sentences` lines an even sample of half to all of that number is used.
    """
    options = Preprocessing(lowercase=lowercase)
    sample = _even_sample(_sentences(texts, lowercase), max_sentences)
    if not sample:
        raise ValueError("the texts have 0 sentences to learn a vocabulary from: give text with letters in it")
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(sample),
            model_writer=model,
            vocab_size=vocab_size,
            model_type=model_type,
            character_coverage=character_coverage,
            hard_vocab_limit=False,
            max_sentence_length=4 * _MAX_SENTENCE_BYTES,
            num_threads=4,  # a constant: sums are rounded in the order of the threads
            pad_id=0,
            unk_id=1,
            bos_id=-1,
            eos_id=-1,
            pad_piece="[PAD]",
            unk_piece="[UNK]",
            control_symbols=["[CLS]", "[SEP]", "[MASK]"],
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"vocab_size={vocab_size} cannot be learned from {len(sample):,} sentences: give more text or another "
            f"vocab_size ({error})"
        ) from None
    tokenizer = SentencePiece(model.getvalue(), options)
    share = unknown_share(tokenizer, sample[:10_000])
    _log.info("learned %d SentencePiece pieces, unknown share %.4f", tokenizer.vocab_size, share)
    return tokenizer


def learn_byte_bpe(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = False, min_frequency: int = 2
) -> ByteBPE:
    """Learns at most `vocab_size` pieces of bytes, RoBERTa's kind; RoBERTa itself has 50,265.

    Ids start with <pad> <unk> <s> </s> <mask> and the 256 bytes, then come the merges by frequency. Every word counts
    as one after a space, as all but the first of a text are. ValueError for `lowercase`: bytes have no case.
    """
    if lowercase:
        raise ValueError("a byte-level BPE has case: leave lowercase out, or lower-case the text itself")
    first = [*ROBERTA_SPECIALS, *ALPHABET]
    if vocab_size < len(first):
        raise ValueError(
            f"vocab_size={vocab_size} is less than the {len(first)} special tokens and bytes: use at least {len(first)}"
        )
    split = pre_tokenizers.ByteLevel(add_prefix_space=True).pre_tokenize_str
    counts = _count(texts, str.split, lambda chunk: [word for word, _ in split(without_surrogates(chunk))], MAX_WORDS)
    if not counts:
        raise ValueError("the texts have 0 words to learn a vocabulary from: give text with letters in it")
    library = tokenizers.Tokenizer(models.BPE())
    options = {"vocab_size": vocab_size, "min_frequency": min_frequency, "show_progress": False}
    trainer = trainers.BpeTrainer(special_tokens=first, **options)
    model = json.loads(_train(library, trainer, counts).to_str())["model"]
    pieces = sorted(model["vocab"], key=model["vocab"].__getitem__)
    merges = [(a, b) for a, b in model["merges"]]
    _log.info("learned %d pieces of bytes", len(pieces))
    return ByteBPE(pieces, merges)


def unknown_share(tokenizer: Tokenizer, texts: Iterable[str]) -> float:
    """Share of [UNK] among the tokens of texts, 0 without any."""
    unknown = total = 0
    for text in texts:
        ids, _ = tokenizer.encode_batch([text])
        unknown += int((ids == tokenizer.unk_id).sum())
        total += len(ids)
    return unknown / total if total else 0.0


def count_words(texts: Iterable[str], *, lowercase: bool, max_words: int = MAX_WORDS) -> Counter[str]:
    """How often each word of the basic tokenizer occurs.

    Whenever there are more than `max_words`, the rarest go, so counts of rare words are then too low.
    """
    return _count(texts, CHUNK.findall, BasicRules(lowercase=lowercase).words, max_words)


Split = Callable[[str], list[str]]


def _count(texts: Iterable[str], chunks_of: Split, words_of: Split, max_words: int) -> Counter[str]:
    """How often each word occurs in the chunks of texts; a chunk is split once for many occurrences."""
    words: Counter[str] = Counter()
    chunks: Counter[str] = Counter()
    for text in texts:
        chunks.update(chunks_of(text))
        if len(chunks) > max_words // 6:
            _move(chunks, words, words_of, max_words)
    _move(chunks, words, words_of, max_words)
    return words


def _move(chunks: Counter[str], words: Counter[str], words_of: Split, max_words: int) -> None:
    """Adds the words of counted chunks, empties the chunks, and drops the rarest words beyond the limit."""
    for chunk, count in chunks.items():
        for word in words_of(chunk):
            words[word] += count
    chunks.clear()
    rarest = 1
    while len(words) > max_words:
        for word in [word for word, count in words.items() if count <= rarest]:
            del words[word]
        rarest += 1


def _alphabet(counts: Counter[str], limit: int) -> list[str]:
    """The most frequent characters, ties by code point; then those that continue a word, with ##."""
    frequency: Counter[str] = Counter()
    inside: set[str] = set()
    for word, count in counts.items():
        for char in word:
            frequency[char] += count
        inside.update(word[1:])
    kept = sorted(sorted(frequency, key=lambda char: (-frequency[char], char))[:limit])
    return [*kept, *(f"##{char}" for char in kept if char in inside)]


def _merge(counts: dict[str, int], first: list[str], vocab_size: int, min_frequency: int) -> list[str]:
    """Pieces by the library's trainer. It numbers letters as it meets them in a hash table and breaks ties of
    frequency by number, so `first` fixes all those numbers."""
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        min_frequency=min_frequency,
        special_tokens=first,
        show_progress=False,
        continuing_subword_prefix="##",
    )
    vocabulary = _train(library, trainer, counts).get_vocab()
    return sorted(vocabulary, key=vocabulary.__getitem__)


def _train(library: tokenizers.Tokenizer, trainer: Any, counts: dict[str, int]) -> tokenizers.Tokenizer:
    """Trains on words without white space in them."""
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(_repeated(counts), trainer)
    return library


def _repeated(counts: dict[str, int]) -> Iterator[str]:
    """Each word as often as it was counted, or in proportion: the trainer counts words itself."""
    total = sum(counts.values())
    scale = min(1.0, MAX_TRAINING_WORDS / total) if total else 1.0
    for word, count in sorted(counts.items()):
        times = round(count * scale) if scale < 1 else count
        while times > 0:
            yield " ".join([word] * min(times, 1000))
            times -= 1000


def _word_unknowns(tokenizer: WordPiece, counts: Counter[str]) -> float:
    """Share of [UNK] among the tokens of counted words."""
    words = list(counts)
    ids, lengths = tokenizer.encode_batch(words)
    unknown = total = 0
    position = 0
    for word, length in zip(words, lengths.tolist(), strict=True):
        total += length * counts[word]
        unknown += counts[word] * int(ids[position] == tokenizer.unk_id)
        position += length
    return unknown / total


def _sentences(texts: Iterable[str], lowercase: bool) -> Iterator[str]:
    """Lines with something in them, the long ones cut at white space or, where there is none, anywhere."""
    size = _MAX_SENTENCE_BYTES // 4  # characters; four bytes at the most each
    for text in texts:
        for line in text.split("\n"):
            line = re.sub(r"\s+|\x00", " ", line.lower() if lowercase else line).strip()
            while len(line) > size:
                cut = line.rfind(" ", 1, size)
                cut = size if cut < 0 else cut
                yield line[:cut]
                line = line[cut:].lstrip()
            if line:
                yield line


def _even_sample(sentences: Iterable[str], limit: int) -> list[str]:
    """Every k-th sentence, k a power of two that grows so that no more than `limit` are kept."""
    kept: list[str] = []
    step = 1
    for i, sentence in enumerate(sentences):
        if i % step == 0:
            kept.append(sentence)
            if len(kept) > limit:
                kept = kept[::2]
                step *= 2
    return kept
