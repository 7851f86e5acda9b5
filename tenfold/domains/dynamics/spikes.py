"""How well spike counts are foretold, in bits per spike (Pillow et al., 2008; as the Neural Latents
Benchmark of 2021 counts them):

    bits = Σ [log p(n | rate) − log p(n | mean rate of the neuron)] / (Σ n · log 2)        p Poisson

0 is as good as knowing every neuron's mean rate in the counts that are judged. Two kinds have no
count on both sides: of neurons that the encoder never reads (co-bps, co-smoothing), and of steps
that come after what was read (fp-bps, forward prediction).
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.special import xlogy

from tenfold.domains.dynamics.forecast import forecasts
from tenfold.domains.dynamics.gap_metrics import forecasts_over_gaps
from tenfold.domains.dynamics.latent import LatentNetwork

LEAST_RATE = 1e-9  # a rate of 0 would make one spike infinitely unlikely


def bits_per_spike(rates: Any, counts: Any) -> float:
    """Of counts [..., neurons] under rates of the same shape: expected counts in a bin, not spikes
    in a second. Counts that are NaN were not observed and do not count. 0 where there is no
    spike."""
    rate, count = np.asarray(rates, np.float64), np.asarray(counts, np.float64)
    if rate.shape != count.shape or not count.ndim:
        raise ValueError(
            f"Rates {rate.shape} and counts {count.shape} do not fit: give both as [..., neurons]."
        )
    seen = ~np.isnan(count)
    if (count[seen] < 0).any() or not np.isfinite(count[seen]).all():
        raise ValueError("Counts must be 0 or more.")
    if not np.isfinite(rate[seen]).all() or (rate[seen] < 0).any():
        raise ValueError("Rates must be finite and 0 or more where there is a count.")
    n, rows = np.where(seen, count, 0.0), tuple(range(count.ndim - 1))
    mean = n.sum(rows) / np.maximum(seen.sum(rows), 1)
    spikes = n.sum()
    if not spikes:
        return 0.0
    # log n! is on both sides
    model, null = (
        np.where(seen, xlogy(n, own) - own, 0.0).sum()
        for own in (np.where(seen, np.maximum(rate, LEAST_RATE), 1.0), mean)
    )
    return float((model - null) / (spikes * np.log(2)))


def read_rates(network: LatentNetwork, y: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """Expected counts [M, B, T, Y] at the moments of y [M, B, T, Y] that the encoder reads: the
    mean over posterior states, drawn by `normal` [M, T, S, B, D]."""
    mean, variance, _ = network.posterior(y.transpose(1, 2))
    z = mean.unsqueeze(2) + variance.sqrt().unsqueeze(2) * normal
    rates = network.decode(z.flatten(1, 3)).view(*z.shape[:-1], -1).mean(2)
    return rates.transpose(1, 2)


@torch.no_grad()
def spike_metrics(
    network: LatentNetwork,
    y: torch.Tensor,
    a: torch.Tensor,
    normal: torch.Tensor,
    steps: int,
    sessions: tuple[int, ...] = (),
) -> dict[str, np.ndarray]:
    """Of counts y [M, B, T, Y] under actions a [M, B, T, A]: fp-bps 1 … steps ahead [M, steps], of
    each session [M, sessions] where there are several, and co-bps [M] where neurons are held
    out."""
    foretell = forecasts_over_gaps if network.config.missing else forecasts
    ahead = foretell(network, y, a[:, :, :-1], steps).cpu().double().numpy()  # [M, B, S, K, Y]
    later = y[:, :, 1:].unfold(2, steps, 1).movedim(-1, 3).cpu().double().numpy()
    later, ahead = (part[:, :, : min(ahead.shape[2], later.shape[2])] for part in (later, ahead))
    found = {
        "fp_bps": np.array(
            [
                [bits(rate[:, :, k], seen[:, :, k]) for k in range(steps)]
                for rate, seen in zip(ahead, later, strict=True)
            ]
        )
    }
    if sessions:
        ends = np.cumsum((0, *sessions))
        found["session_bps"] = np.array(
            [
                [bits(rate[..., start:end], seen[..., start:end]) for start, end in pairwise(ends)]
                for rate, seen in zip(ahead, later, strict=True)
            ]
        )
    hidden = network.held_out.cpu().numpy()
    if hidden.any():
        rates, counts = (
            part[..., hidden].cpu().double().numpy() for part in (read_rates(network, y, normal), y)
        )
        found["co_bps"] = np.array([bits(*own) for own in zip(rates, counts, strict=True)])
    return found


def bits(rates: np.ndarray, counts: np.ndarray) -> float:
    """`bits_per_spike`, of a model that may have run away: then it is as bad as can be said."""
    return bits_per_spike(np.nan_to_num(rates, nan=1e9, posinf=1e9), counts)
