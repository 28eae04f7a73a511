"""In which order the examples of a corpus are served, for ever and without a stored order: index -> example.

The unit of reading is a *block*: the sentences of about a million tokens, found by binary search in the
memory-mapped offsets, so that opening a corpus costs one search a block whatever its size. Each epoch
permutes the blocks; *groups* of up to eight of them are read and made into examples together and shuffled. A
corpus of up to eight blocks is therefore shuffled as a whole; a larger one like by a shuffle buffer that
holds a random eight million tokens.

How many examples a block gives varies a little from epoch to epoch, since the pairs are drawn anew. So that
an epoch is a fixed range of indices each block has a fixed number of *slots*: half a per cent less than a
trial pass gave, over every block where there are up to 32, otherwise estimated from 32 of them. Where a group
gives more examples than it has slots, a random part is left out in that epoch; where it gives fewer, the rest
comes from a second, independent pass over the same text.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from bert_jax.data.examples import (
    ExampleSettings,
    Instances,
    Text,
    TextSource,
    draw_chunks,
    make_instances,
    read_text,
)
from bert_jax.data.keyed_random import key_of, permutation

BLOCK_TOKENS = 1 << 20
BLOCKS_PER_GROUP = 8
TRIAL_BLOCKS = 32
_SPARE = 200  # one slot in so many is left out, so that a second pass, which costs as much as the first, is rare
_BLOCK_ORDER, _PASS, _SERVED, _TRIAL = range(4)  # what a key is for


@dataclass(frozen=True)
class Blocks:
    """borders: first sentence of each block, and the end; slots: examples of each block in every epoch."""

    borders: Int[np.ndarray, " b_plus_1"]
    slots: Int[np.ndarray, " b"]

    def spans(self, blocks: Int[np.ndarray, " g"]) -> list[tuple[int, int]]:
        """The sentences [first, end) of each of the blocks."""
        return [(int(self.borders[block]), int(self.borders[block + 1])) for block in blocks]


class Run(NamedTuple):
    """Neighbouring indices that lie in one group: `slots` of that group."""

    epoch: int
    group: int
    slots: Int[np.ndarray, " n"]


class Group(NamedTuple):
    """Text in memory and the examples served from it in one epoch: one for each slot."""

    text: Text
    instances: Instances


class Plan(NamedTuple):
    """An epoch: the blocks of each group, and the place in the epoch where each group ends."""

    groups: list[Int[np.ndarray, " g"]]
    ends: Int[np.ndarray, " groups"]


class Order:
    """Where each index is found: index = epoch * num_examples + place in the epoch."""

    def __init__(self, blocks: Blocks, seed: int) -> None:
        self.blocks = blocks
        self.seed = seed
        self.num_examples = int(blocks.slots.sum())
        self.plan = lru_cache(maxsize=2)(self._make_plan)

    def locate(self, indices: Int[np.ndarray, " n"]) -> list[Run]:
        """Splits increasing indices into runs within one group."""
        runs = []
        epochs, places = np.divmod(indices, self.num_examples)
        for epoch in np.unique(epochs).tolist():
            inside = places[epochs == epoch]
            ends = self.plan(epoch).ends
            groups = np.searchsorted(ends, inside, side="right")
            for group in np.unique(groups).tolist():
                begin = ends[group - 1] if group else 0
                runs.append(Run(epoch, group, inside[groups == group] - begin))
        return runs

    def make_group(self, corpus: TextSource, settings: ExampleSettings, epoch: int, group: int) -> Group:
        """Reads a group's text and draws its examples for the epoch, in the order of its slots."""
        blocks = self.plan(epoch).groups[group]
        text = read_text(corpus, self.blocks.spans(blocks), settings)
        corpus.release_pages()
        missing = int(self.blocks.slots[blocks].sum())
        passes: list[Instances] = []
        while missing > 0:
            key = key_of(self.seed, _PASS, epoch, group, len(passes))
            instances = make_instances(text, settings, key)
            served = permutation(key_of(key, _SERVED), len(instances.labels))[:missing]
            passes.append(instances.take(served))
            missing -= len(served)
        joined = Instances(*(np.concatenate(field) for field in zip(*passes, strict=True)))
        if len(passes) > 1:  # spread the second pass over the slots
            joined = joined.take(permutation(key_of(self.seed, _SERVED, epoch, group), len(joined.labels)))
        return Group(text, joined)

    def _make_plan(self, epoch: int) -> Plan:
        size = len(self.blocks.slots)
        shuffled = permutation(key_of(self.seed, _BLOCK_ORDER, epoch), size)
        groups = np.array_split(shuffled, -(-size // BLOCKS_PER_GROUP))
        return Plan(groups, np.cumsum([self.blocks.slots[group].sum() for group in groups]))


def find_order(corpus: TextSource, settings: ExampleSettings, seed: int) -> Order:
    """Finds the blocks of a corpus and their numbers of slots. Raises ValueError for an empty corpus."""
    if len(corpus.documents) < 2 or len(corpus.tokens) == 0:
        raise ValueError("the corpus has 0 documents; give it text, or a larger share of it (held_out)")
    borders = find_borders(corpus)
    return Order(Blocks(borders, _count_slots(corpus, borders, settings)), seed)


def find_borders(corpus: TextSource) -> Int[np.ndarray, " b_plus_1"]:
    """First sentence of each block, and the number of sentences.

    A border inside a document moves to the nearer end of the document where that is within half a block, so that
    only documents longer than a block are cut.
    """
    sentences, documents = np.asarray(corpus.sentences), np.asarray(corpus.documents)
    marks = np.arange(BLOCK_TOKENS, len(corpus.tokens), BLOCK_TOKENS, dtype=np.int64)
    borders = [np.zeros(1, np.int64)]
    for some in np.split(marks, range(256, len(marks), 256)):
        border = np.searchsorted(sentences, some)
        document = np.searchsorted(documents, border, side="right") - 1
        begin, end = documents[document], documents[np.minimum(document + 1, len(documents) - 1)]
        nearer = np.where(some - sentences[begin] <= sentences[end] - some, begin, end)
        near = np.abs(sentences[nearer] - some) <= BLOCK_TOKENS // 2
        borders.append(np.where(near, nearer, border))
        corpus.release_pages()  # a search touches pages all over the file
    borders.append(np.full(1, len(sentences) - 1, np.int64))
    return np.unique(np.concatenate(borders))


def _count_slots(
    corpus: TextSource, borders: Int[np.ndarray, " b_plus_1"], settings: ExampleSettings
) -> Int[np.ndarray, " b"]:
    size = len(borders) - 1
    tokens = np.diff(_gather(corpus, np.asarray(corpus.sentences), borders))
    trials = np.unique(np.linspace(0, size - 1, min(size, TRIAL_BLOCKS)).round().astype(np.int64))
    counts = np.concatenate(
        [
            _count_chunks(corpus, borders, some, settings)
            for some in np.split(trials, range(BLOCKS_PER_GROUP, len(trials), BLOCKS_PER_GROUP))
        ]
    )
    if len(trials) == size:
        return counts - counts // _SPARE
    documents = np.diff(np.searchsorted(np.asarray(corpus.documents), borders))
    corpus.release_pages()
    features = np.stack([tokens, documents], axis=1).astype(np.float64)
    weights = np.linalg.lstsq(features[trials], counts.astype(np.float64), rcond=None)[0]
    estimate = np.rint(features @ weights).astype(np.int64)
    # A line through blocks of many kinds may go astray: never below half a block of nothing but full chunks.
    return np.maximum(estimate - estimate // _SPARE, np.maximum(1, tokens // (2 * settings.max_num_tokens)))


def _count_chunks(
    corpus: TextSource,
    borders: Int[np.ndarray, " b_plus_1"],
    blocks: Int[np.ndarray, " g"],
    settings: ExampleSettings,
) -> Int[np.ndarray, " g"]:
    """Chunks that a trial pass finds in each of the blocks."""
    spans = [(int(borders[block]), int(borders[block + 1])) for block in blocks]
    text = read_text(corpus, spans, settings)
    ends = np.cumsum([corpus.sentences[end] - corpus.sentences[first] for first, end in spans])
    corpus.release_pages()
    chunks = draw_chunks(text, settings, key_of(_TRIAL, int(blocks[0])))
    owner = np.searchsorted(ends, text.sentences[chunks.start], side="right")
    return np.bincount(owner, minlength=len(spans))


def _gather(corpus: TextSource, array: Int[np.ndarray, " k"], index: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    parts = []
    for some in np.split(index, range(256, len(index), 256)):
        parts.append(array[some])
        corpus.release_pages()
    return np.concatenate(parts)
