"""Proportional sampling in O(log n): a binary tree whose node holds the sum of its children.

`tree` has 2·size numbers (size a power of two); leaf i is tree[size + i], the root tree[1].
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair


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
