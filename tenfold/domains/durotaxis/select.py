"""The k smallest nodes by (x, id), where nodes lie in the order of their ids: a partial selection
in place of a sort.

Marks the very nodes that a stable sort by x would put first, in expected O(N): a quickselect on a
copy of the values finds the k-th smallest x; all below it are in, and of those equal to it the
first ones.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair


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
    """The k-th smallest (from 0) of values[:size], which are put in another order."""
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
    """Into marked[:size]; `values` is room to work in, of at least this size."""
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
