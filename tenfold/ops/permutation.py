"""Permutations by number: where place i of permutation number `count` comes from, without the
places before it, so that every engine and every thread finds the same order.

A Feistel network over the smallest even split of bits that holds n: each round one half is
exclusive-or-ed with a hash of the other, (a·x + b) ≫ (64 − bits) with a (odd) and b drawn for the
round; what falls beyond n goes through it again (Black & Rogaway, 2002, "Ciphers with arbitrary
finite domains"). Fewer than eight rounds, or fewer than 64 places, can be told from chance.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import WORD, Purpose, bits_reference, draw_bits, key

ROUNDS, LEAST_BITS = 8, 6


def split_bits(n: int) -> tuple[int, int]:
    """Bits of the upper and the lower half of a place."""
    bits = max((n - 1).bit_length(), LEAST_BITS)
    return bits - bits // 2, bits // 2


def shuffle_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size in (1, 2, 7, 64, 65, 300):
        yield key(int(rng.integers(99)), Purpose.SHUFFLE), 3, np.zeros(size, np.int64)


def shuffle_reference(stream, count, order):
    """Place by place, in Python integers."""
    n = len(order)
    upper, lower = split_bits(n)
    words = bits_reference(stream, count * 2 * ROUNDS + np.arange(2 * ROUNDS)).tolist()

    def once(x: int) -> int:
        left, right = x >> lower, x & ((1 << lower) - 1)
        for r in range(ROUNDS):
            a, b = words[2 * r] | 1, words[2 * r + 1]
            if r % 2 == 0:
                left ^= ((a * right + b) & WORD) >> (64 - upper)
            else:
                right ^= ((a * left + b) & WORD) >> (64 - lower)
        return left << lower | right

    for i in range(n):
        x = once(i)
        while x >= n:
            x = once(x)
        order[i] = x
    return order


@kernel
def round_words(stream, count):
    """a and b of each round, of permutation number `count`."""
    words = np.empty(2 * ROUNDS, np.uint64)
    for i in range(2 * ROUNDS):
        words[i] = draw_bits(stream, count * 2 * ROUNDS + i)
    for r in range(ROUNDS):
        words[2 * r] |= np.uint64(1)
    return words


@pair(shuffle_reference, shuffle_examples)
@kernel
def shuffle(stream, count, order):
    """Permutation number `count` of 0 … n − 1, into `order`."""
    n, bits = np.uint64(order.size), LEAST_BITS
    while (1 << bits) < order.size:
        bits += 1
    lower = np.uint64(bits // 2)
    fill, far_left, far_right = (
        (np.uint64(1) << lower) - np.uint64(1),
        np.uint64(64 - (bits - bits // 2)),
        np.uint64(64 - bits // 2),
    )
    words = round_words(stream, count)
    for i in range(order.size):
        x = np.uint64(i)
        while True:
            left, right = x >> lower, x & fill
            for r in range(0, 2 * ROUNDS, 4):
                left ^= (words[r] * right + words[r + 1]) >> far_left
                right ^= (words[r + 2] * left + words[r + 3]) >> far_right
            x = (left << lower) | right
            if x < n:
                break
        order[i] = x
    return order
