"""Bits per spike, neurons and values hidden from the encoder, and sessions that share dynamics."""

import math

import numpy as np
import pytest

import tenfold as ten
from tenfold.domains.dynamics.coordinated import held_out_channels
from tenfold.domains.dynamics.spikes import bits_per_spike

# bits per spike


def test_bits_per_spike_by_hand() -> None:
    """Counts 0, 2, 0, 2 of one neuron have mean 1. Rates ½, 2, ½, 2 give them
    2·(−½) + 2·(2·log 2 − 2) = 4·log 2 − 5, the mean 2·(−1) + 2·(−1) = −4: of 4 spikes each is told
    (4·log 2 − 1) / (4·log 2) bits better."""
    counts, rates = np.array([[0], [2], [0], [2]]), np.array([[0.5], [2], [0.5], [2]])
    wanted = (4 * math.log(2) - 1) / (4 * math.log(2))
    assert ten.bits_per_spike(rates, counts) == pytest.approx(wanted, rel=1e-12)
    assert ten.bits_per_spike(np.ones((4, 1)), counts) == 0  # every neuron's mean rate
    # a second neuron, told by its mean rate, adds two spikes and no bits
    both = ten.bits_per_spike(
        np.concatenate((rates, np.full((4, 1), 0.5)), 1), np.c_[counts, [1, 0, 1, 0]]
    )
    assert both == pytest.approx(wanted * 4 / 6, rel=1e-12)


def test_bits_per_spike_is_the_poisson_likelihoods_of_scipy() -> None:
    from scipy.stats import poisson

    rng = np.random.default_rng(0)
    rates = rng.uniform(0.1, 3, (2, 30, 5))
    counts = rng.poisson(rates).astype(float)
    null = np.broadcast_to(counts.mean((0, 1)), counts.shape)
    better = poisson.logpmf(counts, rates).sum() - poisson.logpmf(counts, null).sum()
    wanted = better / counts.sum() / np.log(2)
    assert bits_per_spike(rates, counts) == pytest.approx(wanted, rel=1e-10)
    # what was not observed does not count, whatever the rate there
    gaps = counts.copy()
    gaps[1, 20:, 2], rates[1, 20:, 2] = np.nan, np.nan
    seen = ~np.isnan(gaps[..., 2])
    parts = [(rates[..., k], counts[..., k]) for k in (0, 1, 3, 4)] + [
        (rates[seen, 2], gaps[seen, 2])
    ]
    sums = [poisson.logpmf(n, r).sum() - poisson.logpmf(n, n.mean()).sum() for r, n in parts]
    wanted = sum(sums) / np.nansum(gaps) / np.log(2)
    assert bits_per_spike(rates, gaps) == pytest.approx(wanted, rel=1e-10)


def test_bits_per_spike_of_silence_and_of_rates_that_are_none() -> None:
    assert bits_per_spike(np.ones((4, 2)), np.zeros((4, 2))) == 0
    assert np.isfinite(bits_per_spike(np.zeros((4, 1)), np.ones((4, 1))))
    for rates, counts, words in (
        (np.ones((4, 2)), np.ones((4, 3)), r"Rates \(4, 2\) and counts \(4, 3\) do not fit"),
        (np.ones(2), np.array([1, -1]), "Counts must be 0 or more"),
        (np.array([1, np.nan]), np.ones(2), "Rates must be finite"),
    ):
        with pytest.raises(ValueError, match=words):
            bits_per_spike(rates, counts)


@pytest.mark.parametrize(
    ("channels", "share", "hidden"),
    [(8, 0.25, [2, 6]), (5, 0.2, [2]), (4, 0.0, []), (3, 0.01, [1]), (2, 0.99, [1]), (1, 0.5, [])],
)
def test_neurons_held_out_are_spread_evenly_and_never_all(
    channels: int, share: float, hidden: list[int]
) -> None:
    assert np.flatnonzero(held_out_channels(channels, share)).tolist() == hidden
