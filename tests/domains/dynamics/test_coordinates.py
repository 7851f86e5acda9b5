"""Learned states and fields in true coordinates."""

import numpy as np
import pytest

from tenfold.domains.dynamics.coordinates import align, field_error, identity


def test_an_affine_map_is_found_and_carries_the_field_with_it() -> None:
    """x = A z + b: dz/dt = −z is dx/dt = −(x − b) there, whatever A."""
    rng = np.random.default_rng(0)
    z, matrix, offset = (
        rng.normal(size=(50, 2)),
        np.array([[2.0, 1.0], [0.0, -3.0]]),
        np.array([1.0, 4.0]),
    )
    found = align(z, z @ matrix.T + offset)
    assert (
        np.allclose(found.matrix, matrix)
        and np.allclose(found.offset, offset)
        and found.r2 == pytest.approx(1)
    )
    x = rng.normal(size=(7, 2))
    assert np.allclose(found.to_true(found.to_learned(x)), x)
    assert np.allclose(-found.to_learned(x) @ found.matrix.T, offset - x)


def test_spaces_of_different_size_and_noise() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    wide = np.concatenate((x, rng.normal(size=(400, 1))), 1)  # one learned number means nothing
    assert np.allclose(align(wide, x).matrix, [[1, 0, 0], [0, 1, 0]], atol=1e-12)
    found = align(wide, x)
    assert np.allclose(2 * found.to_learned(x) @ found.matrix.T, 2 * x)
    noisy = align(x + rng.normal(size=x.shape), x)
    assert 0.4 < noisy.r2 < 0.6  # signal and noise of equal size
    assert identity(2).to_true(x) is not x and np.array_equal(identity(2).to_true(x), x)


def test_field_error_by_hand() -> None:
    true = np.array([[3.0, 4.0], [0.0, 5.0]])
    assert field_error(true, true) == 0 and field_error(0 * true, true) == 1
    found = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert field_error(found, true) == pytest.approx(np.sqrt(25 / 50))
    assert field_error(found, true, np.array([3.0, 1.0])) == pytest.approx(np.sqrt(25 / 100))


def test_states_that_err_do_not_shrink_the_map() -> None:
    """A fit from them would be too small by the share of their variance that is error, here a
    half."""
    rng = np.random.default_rng(5)
    x, matrix = rng.normal(size=(20_000, 2)), np.array([[2.0, 0.5], [-1.0, 1.0]])
    found = align(
        x @ np.linalg.inv(matrix).T + 0.3 + rng.normal(size=x.shape) @ np.linalg.inv(matrix).T, x
    )
    assert found.matrix == pytest.approx(matrix, abs=0.1) and found.r2 == pytest.approx(
        0.5, abs=0.02
    )
    flat = align(np.stack((x[:, 0], x[:, 0]), 1), x)  # one dimension is lost: nothing to invert
    assert np.abs(flat.matrix).max() < 10
