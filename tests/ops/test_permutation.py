"""Permutations by number: every place once, and none likelier than another."""

import numpy as np
import pytest

from tenfold.core.random import Purpose, key
from tenfold.ops.permutation import shuffle, split_bits

STREAM = key(0, Purpose.SHUFFLE)
MANY = 6000


def orders(size: int) -> np.ndarray:
    return np.stack([shuffle(STREAM, n, np.zeros(size, np.int64)).copy() for n in range(MANY)])


@pytest.mark.parametrize("size", [1, 2, 5, 13, 64, 65, 1000, 4096])
def test_every_row_has_one_place(size: int) -> None:
    order = shuffle(STREAM, 7, np.zeros(size, np.int64))
    assert np.array_equal(np.sort(order), np.arange(size))


def test_halves_hold_the_places() -> None:
    assert [split_bits(n) for n in (1, 64, 65, 2**17)] == [(3, 3), (3, 3), (4, 3), (9, 8)]


def test_numbers_and_streams_give_other_orders() -> None:
    first = shuffle(STREAM, 0, np.zeros(100, np.int64)).copy()
    assert not np.array_equal(first, shuffle(STREAM, 1, np.zeros(100, np.int64)))
    other = key(1, Purpose.SHUFFLE)
    assert not np.array_equal(first, shuffle(other, 0, np.zeros(100, np.int64)))


@pytest.mark.parametrize("size", [5, 13, 100])
def test_rows_and_neighbours_are_where_chance_puts_them(size: int) -> None:
    """χ² within five standard deviations: of which row comes to each place, of which pair begins,
    and of the distance between neighbours."""
    found = orders(size)

    def excess(counts: np.ndarray, freedom: int) -> float:
        expected = counts.sum() / counts.size
        chi = ((counts - expected) ** 2 / expected).sum()
        return (chi - freedom) / np.sqrt(2 * freedom)

    places = np.stack([np.bincount(column, minlength=size) for column in found.T])
    assert abs(excess(places, (size - 1) ** 2)) < 5
    pairs = np.bincount(found[:, 0] * size + found[:, 1], minlength=size * size)
    apart = pairs.reshape(size, size)[~np.eye(size, dtype=bool)]
    assert abs(excess(apart, apart.size - 1)) < 5
    steps = np.bincount((np.diff(found, axis=1) % size).ravel(), minlength=size)[1:]
    assert abs(excess(steps, size - 2)) < 5
