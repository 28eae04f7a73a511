"""The original's way to make sentence pairs, one document, chunk and token at a time: slow, and plain to read.

Written from the description in the design's notes, independently of `bert_jax.data.examples`, to compare with.
"""

import random
from collections import deque
from typing import NamedTuple


class Pair(NamedTuple):
    a: list[int]
    b: list[int]
    label: int


def make_pairs(documents: list[list[list[int]]], max_seq_length: int, seed: int, short: float = 0.1) -> list[Pair]:
    """One pass over documents of sentences of token ids."""
    generator = random.Random(seed)
    pairs = []
    for number in range(len(documents)):
        pairs += _pairs_of_document(documents, number, max_seq_length - 3, generator, short)
    return pairs


def _pairs_of_document(
    documents: list[list[list[int]]], number: int, longest: int, generator: random.Random, short: float
) -> list[Pair]:
    target = generator.randint(2, longest) if generator.random() < short else longest
    document = documents[number]
    pairs, place = [], 0
    while place < len(document):
        chunk: list[list[int]] = []
        while place < len(document) and sum(map(len, chunk)) < target:
            chunk.append(document[place])
            place += 1
        split = generator.randint(1, len(chunk) - 1) if len(chunk) > 1 else 1
        a = [token for sentence in chunk[:split] for token in sentence]
        if len(chunk) == 1 or generator.random() < 0.5:
            b, label = _random_text(documents, number, target - len(a), generator), 1
            place -= len(chunk) - split
        else:
            b, label = [token for sentence in chunk[split:] for token in sentence], 0
        pairs.append(Pair(*_truncated(a, b, longest, generator), label))
    return pairs


def _random_text(documents: list[list[list[int]]], own: int, room: int, generator: random.Random) -> list[int]:
    for _ in range(10):
        other = generator.randrange(len(documents))
        if other != own:
            break
    document = documents[other]
    tokens: list[int] = []
    for sentence in document[generator.randrange(len(document)) :]:
        tokens += sentence
        if len(tokens) >= room:
            break
    return tokens


def _truncated(a: list[int], b: list[int], longest: int, generator: random.Random) -> tuple[list[int], list[int]]:
    first, second = deque(a), deque(b)
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        if generator.random() < 0.5:
            longer.popleft()
        else:
            longer.pop()
    return list(first), list(second)
