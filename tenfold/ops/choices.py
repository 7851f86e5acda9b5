"""One choice among several, for algorithms of one's own: drawing it, and its log-probability."""

from typing import Protocol

import torch

from tenfold.ops.gaussian import entropy, log_prob
from tenfold.ops.returns import gae


class Source(Protocol):
    """Random numbers by address, as an algorithm's `act` is given them."""

    def uniform(self, size: int = 1) -> torch.Tensor: ...
    def normal(self, size: int = 1) -> torch.Tensor: ...


def categorical_sample(logits: torch.Tensor, draw: Source | None) -> torch.Tensor:
    """Options [B] drawn with softmax probabilities of logits [B, n]; without `draw` the most
    probable ones."""
    if draw is None:
        return logits.argmax(-1)
    cumulative = logits.softmax(-1).cumsum(-1)
    found = (cumulative > draw.uniform() * cumulative[:, -1:]).to(torch.uint8)
    return found.argmax(-1)


def categorical_log_prob(logits: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """log π(a) for options [...] under logits [..., n]."""
    return logits.log_softmax(-1).gather(-1, action[..., None])[..., 0]


def normal_sample(mean: torch.Tensor, log_std: torch.Tensor, draw: Source | None) -> torch.Tensor:
    """Numbers [B, D] around the means; without `draw` the means."""
    return mean if draw is None else mean + log_std.exp() * draw.normal(mean.shape[-1])


def discounted_return(reward: torch.Tensor, gamma: float, boundary: torch.Tensor) -> torch.Tensor:
    """G_t = r_t + γ·(1 − boundary_t)·G_{t+1}, all [T, B]: the advantage of a value that is 0
    everywhere, with λ = 1."""
    nothing = torch.zeros_like(reward)
    return gae(reward, torch.full_like(reward, gamma), nothing, nothing, boundary, 1.0)


def categorical_entropy(logits: torch.Tensor) -> torch.Tensor:
    """−Σ π log π for logits [..., n]."""
    log_prob = logits.log_softmax(-1)
    return -(log_prob.exp() * log_prob).sum(-1)


def normal_log_prob(
    mean: torch.Tensor, log_std: torch.Tensor, number: torch.Tensor
) -> torch.Tensor:
    """log N(x; μ, σ²), summed over the numbers [..., D]."""
    return log_prob(mean, log_std, number).sum(-1)


def normal_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """½ log(2πe σ²), summed over the numbers [..., D]."""
    return entropy(log_std).sum(-1)
