"""Random numbers that are a pure function of (key, counter), so that any one of them can be drawn without the
others.

The bits are SplitMix64 (Steele, Lea, Flood 2014: a Weyl sequence through a 64-bit mixer), in plain integer
arithmetic: unlike `numpy.random.Generator`'s methods they cannot change with the NumPy version, and a run may
be continued under another one.
"""

import numpy as np
from jaxtyping import Bool, Int, UInt64

_MASK = (1 << 64) - 1
_STRIDE = 0x9E3779B97F4A7C15
_MULTIPLIERS = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
# Above this many fair coins the normal law is used: its distance from the binomial is then below 1e-4.
_MAX_COINS = 4096


def key_of(*parts: int) -> int:
    """One 64-bit key from any integers; another order or number of parts gives another key."""
    key = len(parts)
    for part in parts:
        key = _mix_integer((key + (part & _MASK) + _STRIDE) & _MASK)
    return key


def random_bits(key: int, counters: Int[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """64 random bits for each counter."""
    x = counters.astype(np.uint64)
    x *= np.uint64(_STRIDE)
    x += np.uint64(key)
    x ^= x >> np.uint64(30)
    x *= np.uint64(_MULTIPLIERS[0])
    x ^= x >> np.uint64(27)
    x *= np.uint64(_MULTIPLIERS[1])
    x ^= x >> np.uint64(31)
    return x


def below(bits: UInt64[np.ndarray, " n"], limits: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Uniform integers in [0, limit), from the upper half of the bits (limit < 2^32; a limit of 0 gives
    0)."""
    return (((bits >> np.uint64(32)) * limits.astype(np.uint64)) >> np.uint64(32)).astype(np.int64)


def coins(bits: UInt64[np.ndarray, " n"]) -> Bool[np.ndarray, " n"]:
    """Fair coins, from the lowest bit (independent of `below` on the same bits)."""
    return (bits & np.uint64(1)).astype(bool)


def permutation(key: int, size: int) -> Int[np.ndarray, " size"]:
    """A uniformly random order of range(size)."""
    return np.argsort(random_bits(key, np.arange(size)))


def binomial_half(key: int, trials: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    """Heads in `trials` throws of a fair coin, by counting random bits; exact up to 4,096 throws."""
    words = (np.minimum(trials, _MAX_COINS) + 63) >> 6
    owner = np.repeat(np.arange(len(trials)), words)
    first_word = np.cumsum(words) - words
    bits = random_bits(key_of(key, 0), np.arange(len(owner)))
    left_over = trials[owner] - 64 * (np.arange(len(owner)) - first_word[owner])
    unused = np.clip(64 - left_over, 0, 63).astype(np.uint64)
    heads = np.bincount(owner, np.bitwise_count(bits >> unused), minlength=len(trials)).astype(np.int64)
    many = np.flatnonzero(trials > _MAX_COINS)
    if many.size:
        heads[many] = _normal_heads(key_of(key, 1), trials[many])
    return heads


def _normal_heads(key: int, trials: Int[np.ndarray, " n"]) -> Int[np.ndarray, " n"]:
    index = np.arange(len(trials))
    radius = (random_bits(key_of(key, 0), index) >> np.uint64(11)).astype(np.float64) + 0.5
    angle = (random_bits(key_of(key, 1), index) >> np.uint64(11)).astype(np.float64)
    normal = np.sqrt(-2 * np.log(radius / 2**53)) * np.cos(2 * np.pi * angle / 2**53)  # Box-Muller
    return np.clip(np.rint(trials / 2 + normal * np.sqrt(trials) / 2), 0, trials).astype(np.int64)


def _mix_integer(x: int) -> int:
    x = ((x ^ (x >> 30)) * _MULTIPLIERS[0]) & _MASK
    x = ((x ^ (x >> 27)) * _MULTIPLIERS[1]) & _MASK
    return x ^ (x >> 31)
