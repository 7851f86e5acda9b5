"""What the encoder does not read of an observation: channels that are held out from it for good,
and values dropped in a gradient step.

Coordinated dropout (Keshtkaran and Pandarinath, 2019): in every gradient step a random share of the
values is dropped from what the encoder reads, the rest is scaled up by 1 / (1 − share), and the
likelihood counts the dropped values alone. No value then has a way to its own reconstruction, so
that copying noise, which a large encoder of counts learns soon, earns nothing. The likelihood is
divided by the share, to weigh as all values would.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.core.random import fill_uniform

if TYPE_CHECKING:
    from tenfold.domains.dynamics.latent import LatentNetwork

LEAST_MEAN = 1e-3  # of a neuron's counts, whose logarithm is to be taken


def held_out_channels(channels: int, share: float) -> np.ndarray:
    """Which of the channels the encoder never reads, [Y]: that share of them, evenly spread, but
    never all, and where a share is asked for not none."""
    count = min(max(round(share * channels), 1), channels - 1) if share else 0
    found = np.zeros(channels, np.bool_)
    if count > 0:
        found[((np.arange(count) + 0.5) * channels / count).astype(np.int64)] = True
    return found


def draw_kept(
    network: "LatentNetwork", streams: Sequence[np.uint64], update: int, y: torch.Tensor
) -> torch.Tensor | None:
    """Which values of y [M, B, T, Y] the encoder reads in a gradient step, by (seed, step): all but
    about the share that is dropped; None where nothing ever is."""
    share = network.config.coordinated_dropout
    if not share:
        return None
    size = y[0].numel()
    drawn = [fill_uniform(stream, update * size, np.empty(size)) for stream in streams]
    return torch.from_numpy(np.stack(drawn) >= share).view(y.shape).to(y.device)


def scaled_up(
    y: torch.Tensor, kept: torch.Tensor, gone: torch.Tensor | None, share: float
) -> torch.Tensor:
    """What the encoder reads [M, T, B, Y]: dropped values are 0 and the others as much larger, but
    those that were not observed anyway (`gone`)."""
    scaled = y * kept / (1 - share)
    return scaled if gone is None else torch.where(gone, y, scaled)


def likelihood(
    network: "LatentNetwork", y: torch.Tensor, z: torch.Tensor, kept: torch.Tensor | None
) -> torch.Tensor:
    """log p(y | z) of sequences, mean over samples and batch, [M]: y [M, T, B, Y], z [M, T, S, B,
    D]; of all values, or where some were dropped of these alone, weighed as all."""
    if kept is None:
        return network.decoder.log_likelihood(y.unsqueeze(2), z).mean((2, 3)).sum(1)
    dropped = torch.where(kept, torch.nan, y).unsqueeze(2)
    found = network.decoder.log_likelihood(dropped, z).mean((2, 3)).sum(1)
    return found / network.config.coordinated_dropout


@torch.no_grad()
def start_at_rates(network: "LatentNetwork", mean: np.ndarray) -> None:
    """An untrained decoder of counts says their means [M, Y] at the state 0: left to gradients, the
    state moves away to say so, and nothing is learned of it meanwhile."""
    if not network.decoder.layers:
        return
    last: Any = network.decoder.layers[-1]
    rate = np.maximum(mean, LEAST_MEAN)
    start = np.log(rate) if network.decoder.kind == "loglinear" else np.log(np.expm1(rate))
    last.bias.copy_(torch.from_numpy(start))
