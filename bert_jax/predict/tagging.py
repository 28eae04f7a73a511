"""Tags of words, one each however long the sentence, and the entities that they mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Float

from bert_jax.data.columns import LEGAL_TAG, TaggedSentence
from bert_jax.data.packing import Examples
from bert_jax.data.tagging import TaggedData, decode, tag_windows
from bert_jax.predict.classification import softmax
from bert_jax.predict.engine import Engine
from bert_jax.predict.heads import HeadLogits
from bert_jax.predict.records import Entity, Tagging
from bert_jax.predict.texts import Limit, as_list, shortened
from bert_jax.tasks.entities import spans
from bert_jax.tasks.tagging import column_format


def read_sentences(sentences: Any, *, characters: bool) -> tuple[list[TaggedSentence], bool]:
    """The sentences, and whether it was one alone: a string, or a tuple of words.

    Args:
        characters: whether the tags are of characters: those of a string are its words then.

    Raises:
        ValueError: what is no sentence, or a list that may be the words of one or sentences of one word.
    """
    alone = isinstance(sentences, (str, tuple))
    given = [sentences] if alone else as_list(sentences, "no sentence; give a string, words as [[...]], or a list")
    if not alone and len(given) > 1 and all(isinstance(s, str) and len(s.split()) == 1 for s in given):
        raise ValueError(
            f"[{shortened(given[0])}, …] may be one sentence or {len(given)} of one word: give words as [[...]], or"
            " sentences of one word as [[word], ...]"
        )
    return [_sentence(one, number, characters) for number, one in enumerate(given)], alone


def tag(
    engine: Engine,
    call: HeadLogits,
    sentences: Sequence[TaggedSentence],
    labels: Sequence[str],
    run: Mapping[str, Any],
    limit: Limit,
) -> list[Tagging]:
    """The tags of sentences, each for itself; ``run`` has the options that the model was trained with."""
    data = tag_windows(
        sentences,
        engine.tokenizer,
        labels,
        max_length=limit.tokens,
        stride=run.get("stride"),
        join_words=run.get("join_words", True),
    )
    examples = Examples.of([window.sequence for window in data.windows])
    logits = engine.run(call, examples).get("logits", np.zeros((0, len(labels)), np.float32))
    places = [start + window.label_columns for start, window in zip(examples.bounds, data.windows, strict=False)]
    probabilities = [softmax(logits[columns]) for columns in places]
    tags = decode(data, probabilities)
    shares = _shares(data, probabilities)
    entities = all(LEGAL_TAG.fullmatch(label) for label in labels)
    return [
        Tagging(list(sentence.words), own, numbers, entities_of(sentence, own) if entities else [])
        for sentence, own, numbers in zip(sentences, tags, shares, strict=True)
    ]


def entities_of(sentence: TaggedSentence, tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence."""
    spaces = sentence.spaces or (True,) * len(sentence.words)
    texts = [" " * space + word for space, word in zip(spaces, sentence.words, strict=True)]
    return [Entity("".join(texts[start:end]).strip(), kind, start, end) for start, end, kind in spans(tags)]


def of_characters(run: Mapping[str, Any]) -> bool:
    """Whether a run's words are single characters (KLUE-NER)."""
    given = run.get("format")
    return given is not None and column_format(given).characters


def _sentence(given: Any, number: int, characters: bool) -> TaggedSentence:
    if isinstance(given, str) and characters:
        spaces = [i == 0 or given[i - 1].isspace() for i in range(len(given))]
        kept = [i for i, character in enumerate(given) if not character.isspace()]
        return TaggedSentence(tuple(given[i] for i in kept), None, spaces=tuple(spaces[i] for i in kept))
    words = given.split() if isinstance(given, str) else as_list(given, f"no sentence (number {number}); give words")
    if bad := [word for word in words if not isinstance(word, str)]:
        raise ValueError(f"sentence {number} has the word {shortened(bad[0])}; give words as strings")
    return TaggedSentence(tuple(words), None)


def _shares(data: TaggedData, probabilities: Sequence[Float[np.ndarray, "_ c"]]) -> list[list[float]]:
    """The probability of each word's tag, by sentence."""
    best = np.zeros(len(data.sources))
    for window, found in zip(data.windows, probabilities, strict=True):
        best[window.words] = found.max(-1)
    best = best[data.sources]
    return [best[first:last].tolist() for first, last in pairwise(data.sentence_words.tolist())]
