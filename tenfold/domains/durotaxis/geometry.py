"""The shape of a colony: its convex hull, its tree, its k left-most nodes. Compiled, each with a
reference."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

# the hull


@kernel
def cross_product(x, y, a, b, c):
    """Positive where the path from a over b to c turns left."""
    return (x[b] - x[a]) * (y[c] - y[a]) - (y[b] - y[a]) * (x[c] - x[a])


@kernel
def find_hull(x, y, n, order, hull):
    """Writes the corners of the convex hull, counter-clockwise, into hull; returns their number.
    Andrew's monotone chain over nodes sorted by (x, y, id)."""
    for j in range(n):
        slot = j
        while slot > 0 and (
            x[order[slot - 1]] > x[j] or (x[order[slot - 1]] == x[j] and y[order[slot - 1]] > y[j])
        ):
            order[slot] = order[slot - 1]
            slot -= 1
        order[slot] = j
    size, least = 0, 2
    for k in range(2 * n - 1):  # to the right along the lower side, back along the upper one
        if k == n:
            least = size + 1
        j = order[k] if k < n else order[2 * n - 2 - k]
        while size >= least and cross_product(x, y, hull[size - 2], hull[size - 1], j) <= 0:
            size -= 1
        hull[size] = j
        size += 1
    return size - 1 if n > 1 else n


def hull_reference(nodes: list[Any]) -> list[int]:
    """Indices of the corners of the convex hull, counter-clockwise."""
    order = sorted(range(len(nodes)), key=lambda j: (nodes[j].x, nodes[j].y, j))
    if len(order) < 3:
        return order

    def half(order: list[int]) -> list[int]:
        corners: list[int] = []
        for c in order:
            while len(corners) >= 2:
                a, b = nodes[corners[-2]], nodes[corners[-1]]
                if (b.x - a.x) * (nodes[c].y - a.y) - (b.y - a.y) * (nodes[c].x - a.x) > 0:
                    break
                corners.pop()
            corners.append(c)
        return corners

    return half(order)[:-1] + half(order[::-1])[:-1]


# the tree


@kernel
def sum_hops(n, up, size, total):
    """Writes the number of edges from each node to all others together into total. Parents lie
    before their children, except the root: a backward pass counts the descendants of each node, a
    forward pass goes down the tree."""
    root = depths = 0
    for j in range(n):
        size[j] = 1
    for j in range(n - 1, -1, -1):
        if up[j] < 0:
            root = j
        else:
            size[up[j]] += size[j]
            depths += size[j]
    total[root] = depths
    for j in range(n):
        if j != root:
            total[j] = total[up[j]] + n - 2 * size[j]


def hops_reference(start: int, up: list[int], children: list[list[int]]) -> list[int]:
    """Numbers of edges from one node to each other, breadth first."""
    hops, queue = {start: 0}, [start]
    for j in queue:
        for other in (*children[j], *([up[j]] if up[j] >= 0 else [])):
            if other not in hops:
                hops[other] = hops[j] + 1
                queue.append(other)
    return list(hops.values())


@kernel
def truncate_tree(n, up):
    """Makes the first n nodes one tree: those whose ancestors are cut off attach to the first that
    has none."""
    root = -1
    for j in range(n):
        if not 0 <= up[j] < n:  # parents lie before their children, all but the root
            up[j] = root
            root = j if root < 0 else root


# the k smallest nodes


def k_smallest_reference(x: np.ndarray, k: int) -> np.ndarray:
    """The k nodes that come first in a stable sort by x, as booleans [N]."""
    marked = np.zeros(len(x), np.bool_)
    marked[np.argsort(x, kind="stable")[:k]] = True
    return marked


def random_nodes(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size in (0, 1, 2, 7, 50, 100, 1000):
        rising = np.arange(size) * 1.0
        for x in (
            rng.normal(size=size),
            rng.integers(4, size=size) * 1.0,
            np.zeros(size),
            rising,
            -rising,
        ):
            for k in {0, size // 3, size // 2, size - 1, size} if size else {0}:
                yield x.astype(dtype), k


@kernel
def select_value(values, size, k):
    """The k-th smallest (from 0) of values[:size]; reorders them."""
    low, high = 0, size - 1
    while low < high:
        a, b, c = values[low], values[(low + high) >> 1], values[high]
        pivot = max(min(a, b), min(max(a, b), c))  # the median of three
        i, j = low, high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while values[j] > pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k <= j:
            high = j
        elif k >= i:
            low = i
        else:
            return values[k]
    return values[k]


@kernel
def mark_smallest(x, size, k, marked, values):
    """Marks the k smallest in marked[:size]; `values` is working memory of at least this size."""
    if k <= 0 or k >= size:
        for j in range(size):
            marked[j] = k > 0
        return
    for j in range(size):
        values[j] = x[j]
    limit = select_value(values, size, k - 1)
    count = 0
    for j in range(size):
        marked[j] = x[j] <= limit
        count += marked[j]
    j = size
    while count > k:  # of those equal to the limit the last are too many
        j -= 1
        if x[j] == limit:
            marked[j] = False
            count -= 1


@pair(k_smallest_reference, random_nodes, dtypes=("float64", "float32"))
def k_smallest(x: np.ndarray, k: int) -> np.ndarray:
    """`mark_smallest` with fresh arrays."""
    marked = np.zeros(len(x), np.bool_)
    mark_smallest(x, len(x), k, marked, np.empty_like(x))
    return marked
