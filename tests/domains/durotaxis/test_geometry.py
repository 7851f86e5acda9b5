"""The k smallest by (x, place)."""

import numpy as np

from tenfold.domains.durotaxis.geometry import k_smallest, k_smallest_reference


def test_ties_are_broken_by_place_worked_out_by_hand() -> None:
    x = np.array([2.0, 1.0, 1.0, 1.0, 0.5])
    assert k_smallest(x, 3).tolist() == [False, True, True, False, True]
    assert k_smallest(x, 0).tolist() == [False] * 5
    assert k_smallest(x, 5).tolist() == [True] * 5
    assert k_smallest(x[:0], 0).tolist() == []


def test_the_same_nodes_as_a_stable_sort_for_every_k() -> None:
    rng = np.random.default_rng(0)
    for size in (1, 3, 17, 40):
        for _ in range(20):
            x = rng.integers(size, size=size) * 0.5
            for k in range(size + 1):
                np.testing.assert_array_equal(k_smallest(x, k), k_smallest_reference(x, k))
