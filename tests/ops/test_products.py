"""Small products, and what is new around them; the pairs hold every kernel to its reference, at
both lengths of vectors."""

import numpy as np
import pytest

from tenfold.ops.activations import RELU
from tenfold.ops.adam import adam_numba
from tenfold.ops.mlp import mlp_forward, parameter_count
from tenfold.ops.products import FEATURES, LARGE, TILED, WIDE, product_by_blas, product_by_tiles
from tenfold.ops.tiles import LANES, columns_of


def test_tiles_are_two_vectors_one_or_a_short_one() -> None:
    assert columns_of(16) == (32, 16, 8) and columns_of(8) == (16, 8)
    assert (16 if "avx512f" in FEATURES else LANES) == WIDE


@pytest.mark.parametrize("wide", [8, 16])
def test_a_sum_by_hand_with_a_unit_that_never_fires(wide: int) -> None:
    a, b = np.ones((3, 2), np.float32), np.ones((2, 9), np.float32)
    a[1] = -5
    found = product_by_tiles(wide, a, b, np.array([1, 1, 0.5], np.float32), np.float32(0), False)
    assert found.tolist() == [[3.0] * 9, [0.0] * 9, [2.5] * 9]


@pytest.mark.parametrize("wide", [8, 16])
def test_an_item_of_a_batch_does_not_depend_on_the_others(wide: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (
        rng.normal(size=(40, 50)).astype(np.float32),
        rng.normal(size=(50, 41)).astype(np.float32),
    )
    start, none = np.zeros(1, np.float32), np.float32(-np.inf)
    whole = product_by_tiles(wide, a, b, start, none, False)
    for first in (0, 7, 33):
        alone = product_by_tiles(
            wide, a[3:20], np.ascontiguousarray(b[:, first : first + 8]), start, none, False
        )
        assert np.array_equal(alone, whole[3:20, first : first + 8])


def test_a_network_larger_than_tiles_are_for_is_right() -> None:
    """Its second product is left to BLAS."""
    sizes, rows = np.array([3, TILED + 9, 5]), 16
    rng = np.random.default_rng(0)
    flat, x = (
        rng.normal(size=parameter_count(sizes)).astype(np.float32),
        rng.normal(size=(3, rows)).astype(np.float32),
    )
    found = mlp_forward(flat, sizes, RELU, x, np.zeros(rows * int(sizes[1:].sum()), np.float32))
    first = 3 * sizes[1]
    h = np.maximum(flat[:first].reshape(-1, 3) @ x + flat[first : first + sizes[1], None], 0)
    last = flat[first + sizes[1] :]
    assert np.allclose(found, last[:-5].reshape(5, -1) @ h + last[-5:, None], atol=1e-3)


def test_weights_that_are_not_finite_show() -> None:
    a, b = np.full((2, 8), np.nan, np.float32), np.ones((8, 8), np.float32)
    for found in (
        product_by_tiles(WIDE, a, b, np.zeros(2, np.float32), np.float32(0), False),
        product_by_blas(a, b, np.zeros(2, np.float32), np.float32(0), False),
    ):
        assert np.isnan(found).all()


def test_moments_too_small_for_the_processor_to_be_quick_become_zero_and_nan_stays() -> None:
    flat, mean, square = (np.full(3, value, np.float32) for value in (1, 1.2e-38, 1.1755e-38))
    adam_numba(flat, np.array([0, 1, np.nan], np.float32), mean, square, 5, 1e-3, 1e-8, 0.0)
    assert mean[0] == 0 and square[0] == 0 and flat[0] == 1
    assert mean[1] == pytest.approx(0.1) and np.isnan([flat[2], mean[2], square[2]]).all()


def test_where_numbers_are_multiplied_and_added_at_once_small_products_are_not_blas() -> None:
    assert (LARGE > 64 * 64 * 512) == bool({"fma", "neon"} & FEATURES)
