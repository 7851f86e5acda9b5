"""Which rows are drawn: with probabilities, by a sum tree, and all of them in a random order, by a
numbered permutation.

A sum tree is a binary tree whose node holds the sum of its children, so that drawing costs
O(log n). It has 2·size numbers (size a power of two); leaf i is tree[size + i], the root tree[1].

A permutation is a function of its number and the place: item i of permutation number `count` is
found without the items before it, so that every engine and every thread gets the same order. It is
a Feistel network over the smallest even split of bits that holds n: each round one half is
exclusive-or-ed with a hash of the other, (a·x + b) ≫ (64 − bits) with a (odd) and b drawn for the
round; what falls beyond n goes through it again (Black & Rogaway, 2002, "Ciphers with arbitrary
finite domains"). Fewer than eight rounds, or fewer than 64 places, can be told from chance.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import (
    WORD,
    Purpose,
    bits_reference,
    draw_bits,
    draw_normal,
    fill_normal_reference,
    key,
)
from tenfold.ops.mlp import parameter_count


def make_tree(leaves: int) -> np.ndarray:
    """A tree for at least `leaves` leaves, all zero."""
    return np.zeros(2 * (1 << max(leaves - 1, 0).bit_length()), np.float64)


def tree_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for leaves, writes in ((1, 1), (5, 3), (64, 64), (1000, 32)):
        tree = make_tree(leaves)
        put_reference(tree, np.arange(leaves), rng.integers(0, 50, leaves).astype(np.float64))
        tree = put_reference(tree, np.array([0]), np.array([3.0]))
        yield tree, rng.integers(0, leaves, writes), rng.integers(0, 50, writes).astype(np.float64)


def put_reference(tree, leaf, value):
    """Writes leaves one after another (the last of equal indices wins) and sums every level
    anew."""
    size = tree.size // 2
    for i, v in zip(leaf, value, strict=True):
        tree[size + i] = v
    for node in range(size - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    return tree


@kernel
def put_one(tree, leaf, value):
    node = tree.size // 2 + leaf
    tree[node] = value
    while node > 1:
        node //= 2
        tree[node] = tree[2 * node] + tree[2 * node + 1]


@kernel
def sum_above(tree, leaf):
    """The sums above changed leaves, level by level: the sums of a level do not wait for one
    another."""
    half = tree.size // 2
    level = 1
    while half >> level > 0:
        for i in range(leaf.size):
            node = (half + leaf[i]) >> level
            tree[node] = tree[2 * node] + tree[2 * node + 1]
        level += 1


@pair(put_reference, tree_examples)
@kernel
def put(tree, leaf, value):
    """Sets leaves and the sums above them. Sums are formed anew from both children, so rounding
    does not accumulate."""
    for i in range(leaf.size):
        tree[tree.size // 2 + leaf[i]] = value[i]
    sum_above(tree, leaf)
    return tree


def find_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for tree, _, _ in tree_examples(rng, dtype):
        yield tree, rng.uniform(0, tree[1], 40)
        yield tree, np.array([0.0, tree[1] * 0.5, np.nextafter(tree[1], 0)])


def find_reference(tree, mass):
    """The leaf i with Σ_{j<i} p_j ≤ mass < Σ_{j≤i} p_j, by cumulative sums."""
    return np.searchsorted(np.cumsum(tree[tree.size // 2 :]), mass, side="right").astype(np.int64)


@kernel
def find_into(tree, mass, leaf):
    """All items go down the tree together, level by level, without a branch to guess. Overwrites
    `mass`."""
    half = tree.size // 2
    leaf[:] = 1
    level = 1
    while level < half:
        for i in range(leaf.size):
            node = 2 * leaf[i]
            # a subtree of zero mass is never entered, even where rounding would lead there
            right = (mass[i] >= tree[node]) & (tree[node + 1] > 0)
            mass[i] -= tree[node] if right else 0.0
            leaf[i] = node + right
        level *= 2
    for i in range(leaf.size):
        leaf[i] -= half


@pair(find_reference, find_examples)
@kernel
def find(tree, mass):
    out = np.empty(mass.size, np.int64)
    find_into(tree, mass.copy(), out)
    return out


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
    round_bits = bits_reference(stream, count * 2 * ROUNDS + np.arange(2 * ROUNDS)).tolist()

    def once(x: int) -> int:
        left, right = x >> lower, x & ((1 << lower) - 1)
        for r in range(ROUNDS):
            a, b = round_bits[2 * r] | 1, round_bits[2 * r + 1]
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
    round_bits = np.empty(2 * ROUNDS, np.uint64)
    for i in range(2 * ROUNDS):
        round_bits[i] = draw_bits(stream, count * 2 * ROUNDS + i)
    for r in range(ROUNDS):
        round_bits[2 * r] |= np.uint64(1)
    return round_bits


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
    round_bits = round_words(stream, count)
    for i in range(order.size):
        x = np.uint64(i)
        while True:
            left, right = x >> lower, x & fill
            for r in range(0, 2 * ROUNDS, 4):
                left ^= (round_bits[r] * right + round_bits[r + 1]) >> far_left
                right ^= (round_bits[r + 2] * left + round_bits[r + 3]) >> far_right
            x = (left << lower) | right
            if x < n:
                break
        order[i] = x
    return order


# noisy layers


def factor_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size in (1, 50):
        yield key(size, Purpose.NOISE_ACT), int(rng.integers(9)), np.zeros(size, dtype)


def fill_factors_reference(stream, count, out):
    """f(x) = sign(x)√|x| of standard normal numbers."""
    fill_normal_reference(stream, count * out.size, out)
    return np.sign(out) * np.sqrt(np.abs(out))


@pair(fill_factors_reference, factor_examples, rtol=1e-5, atol=1e-6)
@kernel
def fill_factors(stream, count, out):
    """The factors of noise vector number `count`."""
    for i in range(out.size):
        x = np.float32(draw_normal(stream, count * out.size + i))
        out[i] = np.sqrt(x) if x > 0 else -np.sqrt(-x)
    return out


def noisy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for sizes in ((1, 1), (4, 3), (3, 7, 5, 2)):
        plain = parameter_count(sizes)
        yield (
            rng.normal(size=2 * plain).astype(dtype),
            np.array(sizes),
            rng.normal(size=sum(i + o for i, o in pairwise(sizes))).astype(dtype),
            np.zeros(plain, dtype),
        )


def split_layers(flat, sizes, noise):
    """(weight, bias, their scales, factors of inputs and outputs) of each layer."""
    used = drawn = 0
    for i, o in pairwise(sizes.tolist()):
        count = (i + 1) * o
        weight, bias = flat[used : used + i * o].reshape(o, i), flat[used + i * o : used + count]
        scales = flat[used + count : used + 2 * count]
        yield (
            weight,
            bias,
            scales[: i * o].reshape(o, i),
            scales[i * o :],
            noise[drawn : drawn + i],
            noise[drawn + i : drawn + i + o],
        )
        used, drawn = used + 2 * count, drawn + i + o


def noisy_parameters_reference(flat, sizes, factors, out):
    """w_oi = μ_oi + σ_oi f(ε_o) f(ε_i), b_o = μ_o + σ_o f(ε_o)."""
    layers = []
    for weight, bias, by_weight, by_bias, into, outward in split_layers(flat, sizes, factors):
        layers += [(weight + by_weight * np.outer(outward, into)).ravel(), bias + by_bias * outward]
    return np.concatenate(layers)


@pair(noisy_parameters_reference, noisy_examples, rtol=1e-5, atol=1e-6)
@kernel
def noisy_parameters(flat, sizes, factors, out):
    """Into `out`: weights and biases under noise."""
    used = offset = drawn = 0
    for layer in range(sizes.size - 1):
        into, outward = sizes[layer], sizes[layer + 1]
        count, weights = (into + 1) * outward, into * outward
        below = factors[drawn : drawn + into]
        for o in range(outward):
            factor = factors[drawn + into + o]
            row, scale, start = used + o * into, used + count + o * into, offset + o * into
            # loops between views vectorise: six times as fast as by sums of indices
            mean, spread = flat[row : row + into], flat[scale : scale + into]
            noisy_row = out[start : start + into]
            for i in range(into):
                noisy_row[i] = mean[i] + spread[i] * (factor * below[i])
            out[offset + weights + o] = (
                flat[used + weights + o] + flat[used + count + weights + o] * factor
            )
        used, offset, drawn = used + 2 * count, offset + count, drawn + into + outward
    return out


def slope_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for flat, sizes, factors, out in noisy_examples(rng, dtype):
        yield rng.normal(size=out.size).astype(dtype), sizes, factors, np.ones_like(flat)


def noisy_gradient_reference(grad, sizes, factors, out):
    """By w: μ has that of w, σ that times the factors."""
    used, gradients = 0, []
    both = np.zeros_like(out)
    for *_, into, outward in split_layers(both, sizes, factors):
        i, o = len(into), len(outward)
        weight, bias = grad[used : used + i * o], grad[used + i * o : used + (i + 1) * o]
        used += (i + 1) * o
        gradients += [weight, bias, weight * np.outer(outward, into).ravel(), bias * outward]
    return np.concatenate(gradients)


@pair(noisy_gradient_reference, slope_examples, rtol=1e-5, atol=1e-6)
@kernel
def noisy_gradient(grad, sizes, factors, out):
    """Into `out`, all of whose numbers are overwritten: the gradient by means and scales."""
    used = offset = drawn = 0
    for layer in range(sizes.size - 1):
        into, outward = sizes[layer], sizes[layer + 1]
        count, weights = (into + 1) * outward, into * outward
        below = factors[drawn : drawn + into]
        for o in range(outward):
            factor = factors[drawn + into + o]
            row, scale, start = used + o * into, used + count + o * into, offset + o * into
            slopes = grad[start : start + into]
            by_mean, by_spread = out[row : row + into], out[scale : scale + into]
            for i in range(into):
                by_mean[i] = slopes[i]
                by_spread[i] = slopes[i] * (factor * below[i])
            slope = grad[offset + weights + o]
            out[used + weights + o] = slope
            out[used + count + weights + o] = slope * factor
        used, offset, drawn = used + 2 * count, offset + count, drawn + into + outward
    return out
