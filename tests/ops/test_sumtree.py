"""The sum tree draws leaves in proportion to their mass."""

import numpy as np
import pytest

from tenfold.ops.sumtree import find, make_tree, put


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
