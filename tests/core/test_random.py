"""The generator: known values, independence of its streams, and the distributions it promises."""

import numpy as np
import torch

from tenfold.core.random import (
    Purpose,
    below,
    bits,
    fill_normal,
    fill_uniform,
    key,
    mix_reference,
    normal_torch,
    uniform,
    uniform_torch,
)

COUNTERS = np.arange(200_000)


def chi_square(counts: np.ndarray) -> float:
    """(χ² − k) / √(2k): about standard normal for uniform counts."""
    expected = counts.sum() / counts.size
    freedom = counts.size - 1
    return float((((counts - expected) ** 2 / expected).sum() - freedom) / np.sqrt(2 * freedom))


def test_the_finaliser_is_splitmix64s() -> None:
    # the published first outputs of SplitMix64 for seed 1234567 are mix(seed + i·G)
    golden, word = 0x9E3779B97F4A7C15, (1 << 64) - 1
    found = [mix_reference((1234567 + i * golden) & word) for i in (1, 2, 3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_a_draw_depends_on_every_part_of_its_address() -> None:
    base = bits(key(1, Purpose.REPLAY, 0), COUNTERS[:100])
    for other in (key(2, Purpose.REPLAY, 0), key(1, Purpose.COIN, 0), key(1, Purpose.REPLAY, 1)):
        assert not np.intersect1d(base, bits(other, COUNTERS)).size
    assert np.unique(bits(key(1, Purpose.REPLAY), COUNTERS)).size == COUNTERS.size


def test_uniform_numbers_fill_the_unit_interval_evenly() -> None:
    for seed in range(3):
        u = uniform(key(seed, Purpose.COIN), COUNTERS)
        assert u.min() >= 0 and u.max() < 1
        assert abs(chi_square(np.histogram(u, 100, (0, 1))[0])) < 4
        # pairs of successive draws, and every bit
        assert abs(chi_square(np.histogram2d(u[::2], u[1::2], 20, [(0, 1), (0, 1)])[0].ravel())) < 4
    words = bits(key(0, Purpose.COIN), COUNTERS)
    ones = np.array([((words >> np.uint64(b)) & np.uint64(1)).mean() for b in range(64)])
    assert np.abs(ones - 0.5).max() < 4.5 * 0.5 / np.sqrt(COUNTERS.size)


def test_neighbouring_streams_are_uncorrelated() -> None:
    limit = 4.5 / np.sqrt(COUNTERS.size)
    u = uniform(key(0, Purpose.COIN), COUNTERS)
    for other in (key(1, Purpose.COIN), key(0, Purpose.ACTION), key(0, Purpose.COIN, 1)):
        assert abs(np.corrcoef(u, uniform(other, COUNTERS))[0, 1]) < limit
    for lag in (1, 2, 64):
        assert abs(np.corrcoef(u[lag:], u[:-lag])[0, 1]) < limit


def test_normal_numbers_have_normal_moments() -> None:
    x = fill_normal(key(0, Purpose.NOISE_ACT), 0, np.empty(COUNTERS.size))
    root = np.sqrt(COUNTERS.size)
    assert abs(x.mean()) < 4.5 / root
    assert abs(x.var() - 1) < 4.5 * np.sqrt(2) / root
    assert abs((x**4).mean() - 3) < 4.5 * np.sqrt(96) / root
    assert abs((np.abs(x) < 1.959964).mean() - 0.95) < 4.5 * 0.218 / root


def test_whole_numbers_are_even_and_in_range() -> None:
    k = below(key(0, Purpose.ACTION), COUNTERS, 7)
    assert set(k) == set(range(7))
    assert abs(chi_square(np.bincount(k))) < 4


def test_numpy_numba_and_torch_draw_the_same() -> None:
    stream = key(5, Purpose.REPLAY, 2)
    expected = uniform(stream, 1000 + np.arange(64))
    assert np.array_equal(expected, fill_uniform(stream, 1000, np.empty(64)))
    assert np.array_equal(expected, uniform_torch(stream, torch.arange(1000, 1064)).numpy())
    assert np.allclose(
        fill_normal(stream, 7, np.empty(64)),
        normal_torch(stream, 7, 64).numpy(),
        rtol=1e-12,
        atol=1e-14,
    )
