"""The sum tree draws leaves in proportion to their mass; permutations by number hold every place
once, and none is likelier than another."""

import numpy as np
import pytest

from tenfold.core.random import Purpose, key
from tenfold.ops.sampling import find, make_tree, put, shuffle, split_bits

STREAM = key(0, Purpose.SHUFFLE)
MANY = 6000


def test_leaves_are_found_by_mass_worked_out_by_hand() -> None:
    tree = make_tree(5)  # eight leaves
    put(tree, np.arange(5), np.array([1.0, 0.0, 2.0, 0.5, 0.5]))
    assert tree[1] == 4.0
    assert find(tree, np.array([0.0, 0.99, 1.0, 2.99, 3.0, 3.49, 3.5, 3.99])).tolist() == [
        0,
        0,
        2,
        2,
        3,
        3,
        4,
        4,
    ]


def test_a_leaf_without_mass_is_never_found_even_past_the_end() -> None:
    tree = make_tree(4)
    put(tree, np.arange(4), np.array([0.0, 0.3, 0.0, 0.0]))
    assert find(tree, np.array([0.0, 0.1, 0.3, 5.0])).tolist() == [1, 1, 1, 1]


def test_draws_follow_the_priorities() -> None:
    rng = np.random.default_rng(0)
    priorities = rng.uniform(0, 2, 37)
    tree = make_tree(37)
    put(tree, np.arange(37), priorities)
    counts = np.bincount(find(tree, rng.uniform(0, tree[1], 200_000)), minlength=37)
    expected = priorities / priorities.sum() * 200_000
    assert ((counts - expected) ** 2 / expected).sum() == pytest.approx(36, abs=4.5 * np.sqrt(72))


def test_rounding_does_not_accumulate_over_a_million_writes() -> None:
    rng = np.random.default_rng(1)
    tree = make_tree(64)
    leaves, values = rng.integers(0, 64, 1_000_000), rng.uniform(0, 1e6, 1_000_000)
    put(tree, leaves, values)
    assert tree[1] == pytest.approx(tree[64:].sum(), rel=1e-14)


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
