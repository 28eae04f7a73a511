"""Masking for the masked language model, on the device: a pure function of (key, ids, word starts)."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

STRATEGIES = ("token", "whole_word", "ngram")


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """Which tokens are predicted, and what stands in their place (paper: section 3.1, A.1 and C.2, Table 8).

    `rate` of a row's tokens are predicted, at most `max_predictions`; of those a share `mask` becomes [MASK],
    `same` stays, `random` becomes a random token. `strategy`: "token" (the paper), "whole_word" (all pieces
    of a word or none: the original repository's later option), "ngram" (ALBERT: runs of up to `max_ngram`
    whole words, n with probability proportional to 1 / n). Raises ValueError for shares that do not add up to
    1.
    """

    rate: float = 0.15
    mask: float = 0.8
    same: float = 0.1
    random: float = 0.1
    strategy: str = "token"
    max_predictions: int = 20
    max_ngram: int = 3

    def __post_init__(self) -> None:
        if not 0.0 < self.rate <= 1.0:
            raise ValueError(f"masking rate={self.rate!r} must be above 0 and at most 1 (the paper: 0.15)")
        shares = (self.mask, self.same, self.random)
        if min(shares) < 0.0 or abs(sum(shares) - 1.0) > 1e-6:
            raise ValueError(f"masking shares mask, same, random = {shares} must be at least 0 and add up to 1")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"masking strategy={self.strategy!r} is not one of {', '.join(STRATEGIES)}")
        if self.max_predictions < 1 or self.max_ngram < 1:
            raise ValueError(
                f"max_predictions={self.max_predictions} and max_ngram={self.max_ngram} must be at least 1"
            )


class Masked(NamedTuple):
    """A masked batch. input_ids [r, t]; positions, targets [r, p] int32, ascending, 0 where unused; weights [r, p]."""

    input_ids: Int[Array, "r t"]
    positions: Int[Array, "r p"]
    targets: Int[Array, "r p"]
    weights: Float[Array, "r p"]


def mask_tokens(
    key: PRNGKeyArray,
    input_ids: Int[Array, "r t"],
    sequence_ids: Int[Array, "r t"],
    word_starts: Bool[Array, "v"],
    config: MaskingConfig,
    *,
    vocab_size: int,
    mask_id: int,
    special_ids: tuple[int, ...],
) -> Masked:
    """Chooses what to predict and replaces it, with static shapes, inside a compiled step.

    A row of n tokens (specials count, padding = sequence id 0 does not) gets min(max_predictions, max(1,
    round(n × rate))) predictions, rounded half to even like the original's Python, fewer where there are not
    that many candidates: padding and `special_ids` never are. The random token is uniform over the whole
    vocabulary, specials included. `word_starts` [vocab_size] tells the pieces that begin a word; it is not
    read by the strategy "token". Rows do not influence each other.
    """
    key_choice, key_action, key_token = jax.random.split(key, 3)
    occupied = sequence_ids > 0
    special = jnp.isin(input_ids, jnp.asarray(special_ids, input_ids.dtype))
    candidates = occupied & ~special
    budget = _prediction_counts(input_ids.shape[1], config)[occupied.sum(-1, dtype=jnp.int32)]
    if config.strategy == "token":
        chosen = _choose_tokens(key_choice, candidates, budget)
    else:
        starts = jnp.take(word_starts, input_ids, axis=0, mode="clip")
        max_words = config.max_ngram if config.strategy == "ngram" else 1
        chosen = _choose_spans(key_choice, candidates, starts, budget, max_words)

    action = jax.random.uniform(key_action, input_ids.shape, jnp.float32)
    random_ids = jax.random.randint(key_token, input_ids.shape, 0, vocab_size, input_ids.dtype)
    kept_or_random = jnp.where(action < config.mask + config.same, input_ids, random_ids)
    replacement = jnp.where(action < config.mask, jnp.asarray(mask_id, input_ids.dtype), kept_or_random)
    positions, weights = _positions(chosen, min(config.max_predictions, input_ids.shape[1]), config.max_predictions)
    targets = jnp.take_along_axis(input_ids, positions, axis=1) * weights.astype(input_ids.dtype)
    return Masked(jnp.where(chosen, replacement, input_ids), positions, targets, weights)


def _prediction_counts(length: int, config: MaskingConfig) -> Int[Array, "t1"]:
    """Number of predictions for a row of 0 … length tokens, in Python's doubles: 0.15 × 10 must round like there."""
    counts = [min(config.max_predictions, max(1, round(n * config.rate))) for n in range(length + 1)]
    return jnp.asarray(np.asarray(counts, np.int32))


def _choose_tokens(key: PRNGKeyArray, candidates: Bool[Array, "r t"], budget: Int[Array, "r"]) -> Bool[Array, "r t"]:
    """The first `budget` candidates of a random order of each row."""
    rank = _random_ranks(key, candidates)
    return candidates & (rank < budget[:, None])


def _random_ranks(key: PRNGKeyArray, candidates: Bool[Array, "r t"]) -> Int[Array, "r t"]:
    """Each candidate's place in a random order of its row's candidates; the others come after them."""
    noise = jax.random.bits(key, candidates.shape, jnp.uint32)
    # Two sort keys: no noise value has to be given up to mark the others.
    column = jax.lax.broadcasted_iota(jnp.int32, candidates.shape, 1)
    _, _, order = jax.lax.sort((~candidates, noise, column), dimension=1, num_keys=2)
    return jnp.argsort(order, axis=1).astype(jnp.int32)


def _choose_spans(
    key: PRNGKeyArray,
    candidates: Bool[Array, "r t"],
    starts: Bool[Array, "r t"],
    budget: Int[Array, "r"],
    max_words: int,
) -> Bool[Array, "r t"]:
    """Runs of 1 … max_words whole words, taken in random order while they fit into the row's budget.

    As the original: a continuation piece belongs to the word before it (to the row's first word if there is
    none); a word that would exceed the budget is skipped and the next one tried. As ALBERT for longer runs: n
    is drawn with probability proportional to 1 / n, shortened until it fits, and skipped where it would
    overlap an earlier run.
    """
    length = candidates.shape[1]
    word = _word_indices(candidates, starts)
    member = (word[:, :, None] == jnp.arange(length, dtype=jnp.int32)) & candidates[:, :, None]
    sizes = member.sum(1, dtype=jnp.int32)
    key_order, key_length = jax.random.split(key)
    order = jnp.argsort(_random_ranks(key_order, sizes > 0), axis=1).astype(jnp.int32)
    words_left = (sizes > 0).sum(1, keepdims=True, dtype=jnp.int32) - jnp.arange(length, dtype=jnp.int32)
    drawn = _span_lengths(key_length, words_left, max_words)
    # pieces[n - 1]: the number of pieces in the n words from this one on.
    before = jnp.cumsum(sizes, axis=1, dtype=jnp.int32) - sizes
    ends = jnp.pad(before + sizes, ((0, 0), (0, max_words)), mode="edge")
    pieces = jnp.stack([ends[:, n : n + length] - before for n in range(max_words)])
    taken = _take_spans(order, sizes, drawn, pieces, budget)
    return candidates & jnp.take_along_axis(taken, jnp.maximum(word, 0), axis=1)


def _word_indices(candidates: Bool[Array, "r t"], starts: Bool[Array, "r t"]) -> Int[Array, "r t"]:
    """The number of each candidate's word within its row, from 0; -1 before the first."""
    is_first = candidates & (jnp.cumsum(candidates, axis=1, dtype=jnp.int32) == 1)
    return jnp.cumsum(is_first | (candidates & starts), axis=1, dtype=jnp.int32) - 1


def _span_lengths(key: PRNGKeyArray, words_left: Int[Array, "r t"], max_words: int) -> Int[Array, "r t"]:
    """n in 1 … min(max_words, words left) with probability proportional to 1 / n."""
    cumulative = np.cumsum(1.0 / np.arange(1, max_words + 1)).astype(np.float32)
    total = jnp.asarray(cumulative)[jnp.clip(words_left, 1, max_words) - 1]
    draw = jax.random.uniform(key, words_left.shape, jnp.float32) * total
    length = 1 + (draw[:, :, None] >= jnp.asarray(cumulative[:-1])).sum(-1, dtype=jnp.int32)
    return jnp.minimum(length, jnp.clip(words_left, 1, max_words))


def _take_spans(
    order: Int[Array, "r t"],
    sizes: Int[Array, "r t"],
    drawn: Int[Array, "r t"],
    pieces: Int[Array, "n r t"],
    budget: Int[Array, "r"],
) -> Bool[Array, "r t"]:
    """Which words are predicted: a loop over the words of all rows at once, since each choice depends on the last."""
    column = jnp.arange(order.shape[1], dtype=jnp.int32)[None]

    def step(carry: tuple[Array, Array], word: Array) -> tuple[tuple[Array, Array], None]:
        taken, count = carry
        at = word[:, None]
        span_pieces = jnp.take_along_axis(pieces, at[None], axis=2)[:, :, 0]
        length = jnp.take_along_axis(drawn, at, axis=1)[:, 0]
        n = jnp.arange(1, pieces.shape[0] + 1, dtype=jnp.int32)[:, None]
        allowed = (n <= length) & (count + span_pieces <= budget)
        length = jnp.where(allowed, n, 0).max(0)
        span = (column >= at) & (column < at + length[:, None])
        exists = jnp.take_along_axis(sizes, at, axis=1)[:, 0] > 0
        accepted = exists & ~(span & taken).any(1)
        taken = taken | (span & accepted[:, None])
        return (taken, jnp.where(taken, sizes, 0).sum(1, dtype=jnp.int32)), None

    start = (jnp.zeros(order.shape, bool), jnp.zeros(order.shape[0], jnp.int32))
    (taken, _), _ = jax.lax.scan(step, start, order.T)
    return taken


def _positions(
    chosen: Bool[Array, "r t"], slots: int, max_predictions: int
) -> tuple[Int[Array, "r p"], Float[Array, "r p"]]:
    """Columns of the chosen tokens in ascending order, padded with 0, and their weights 1, padded with 0."""
    length = chosen.shape[1]
    column = jax.lax.broadcasted_iota(jnp.int32, chosen.shape, 1)
    first = jnp.sort(jnp.where(chosen, column, length), axis=1)[:, :slots]
    first = jnp.pad(first, ((0, 0), (0, max_predictions - slots)), constant_values=length)
    used = first < length
    return jnp.where(used, first, 0), used.astype(jnp.float32)
