"""Gaussian policies with independent dimensions, plain or squashed into bounds by tanh.

Everything is per dimension, [..., D]; the joint log-probability, entropy or divergence is the sum
over the last dimension. A squashed policy draws a plain u ~ N(μ, σ²) and does a = low + (high −
low)·(1 + tanh u)/2. The raw u is what is stored and evaluated again: a itself has forgotten u where
tanh is flat. σ is given by its logarithm. The references are the definitions, in float64 where
their arithmetic would lose digits.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn.functional import softplus

from tenfold.core.pairs import Example, pair
from tenfold.core.random import RandomSource

HALF_LOG_TAU = 0.5 * math.log(2 * math.pi)
LOG_2 = math.log(2)
# of the quadrature: exact to 1e-6 at σ = 1, 1e-3 at 2.7, 5e-3 at 4.5 (the log-derivative bends
# within a length of 1)
NODES = 64
# for a number that is only reported: exact to 2e-6 at σ = 0.5, 1e-3 at 1, 1e-2 at 1.6
FEW_NODES = 8
EQUAL = {"rtol": 2e-5, "atol": 5e-6, "dtypes": ("float32", "float64")}
SHAPES = ((1, 1), (5, 3), (2, 3, 4), (64, 6))


def examples(*scales: float, bounded: bool = False) -> Example:
    """Inputs of every shape: a tensor of normal numbers times each scale; then bounds."""

    def yield_inputs(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
        for shape in SHAPES:
            arrays = [scale * rng.normal(size=shape) for scale in scales]
            if bounded:
                low = rng.normal(size=shape[-1])
                arrays += [low, low + rng.uniform(0.5, 3, shape[-1])]
            yield tuple(torch.from_numpy(value.astype(dtype)) for value in arrays)

    return yield_inputs


PLAIN, PAIRED, BOUNDED = examples(1, 0.5, 1), examples(1, 0.5, 1, 0.5), examples(2, bounded=True)


# the plain policy


def draw_reference(mean, log_std, normal):
    """u = μ + σ·z."""
    return torch.stack(
        [
            m + s.exp() * z
            for m, s, z in zip(mean.flatten(), log_std.flatten(), normal.flatten(), strict=True)
        ]
    ).view_as(mean)


@pair(draw_reference, PLAIN, gradients=(0, 1), **EQUAL)
def draw(mean: torch.Tensor, log_std: torch.Tensor, normal: torch.Tensor) -> torch.Tensor:
    """The raw sample u = μ + σ·z from given standard normal numbers; differentiable by μ and log
    σ."""
    return torch.addcmul(mean, log_std.exp(), normal)


def log_prob_reference(mean, log_std, raw):
    return Normal(mean, log_std.exp()).log_prob(raw)


@pair(log_prob_reference, PLAIN, gradients=(0, 1, 2), **EQUAL)
def log_prob(mean: torch.Tensor, log_std: torch.Tensor, raw: torch.Tensor) -> torch.Tensor:
    """log N(u; μ, σ²) = −½((u − μ)/σ)² − log σ − ½ log 2π."""
    return -0.5 * ((raw - mean) * (-log_std).exp()).square() - log_std - HALF_LOG_TAU


def entropy_reference(log_std):
    return Normal(torch.zeros_like(log_std), log_std.exp()).entropy()


@pair(entropy_reference, examples(1), gradients=(0,), **EQUAL)
def entropy(log_std: torch.Tensor) -> torch.Tensor:
    """½ log 2πe + log σ."""
    return log_std + (0.5 + HALF_LOG_TAU)


def kl_reference(old_mean, old_log_std, mean, log_std):
    return kl_divergence(Normal(old_mean, old_log_std.exp()), Normal(mean, log_std.exp()))


@pair(kl_reference, PAIRED, gradients=(0, 1, 2, 3), **EQUAL)
def kl(
    old_mean: torch.Tensor, old_log_std: torch.Tensor, mean: torch.Tensor, log_std: torch.Tensor
) -> torch.Tensor:
    """KL(old ‖ new) = log(σ′/σ) + (σ² + (μ − μ′)²)/2σ′² − ½. Of squashed policies too: both see the
    same change of variable."""
    narrow = (-log_std).exp()
    ratio, shift = (old_log_std - log_std), (old_mean - mean) * narrow
    return 0.5 * (torch.expm1(2 * ratio) + shift.square()) - ratio


# squashed into bounds


def squash_reference(raw, low, high):
    return low + (high - low) * (1 + raw.tanh()) / 2


@pair(squash_reference, BOUNDED, gradients=(0,), **EQUAL)
def squash(raw: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The action a = low + (high − low)·(1 + tanh u)/2; (1 + tanh u)/2 is σ(2u). `lerp` starts from
    the nearer bound, so rounding does not carry it over one."""
    return torch.lerp(low, high, torch.sigmoid(2 * raw))


def log_slope_reference(raw, low, high):
    return ((high - low) / 2 * (1 - raw.double().tanh() ** 2)).log().to(raw.dtype)


@pair(log_slope_reference, BOUNDED, gradients=(0,), **EQUAL)
def log_slope(raw: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """log|da/du| = log((high − low)/2) + 2·(log 2 − u − softplus(−2u)), which stays finite where 1
    − tanh²u rounds to 0."""
    return ((high - low) / 2).log() + 2 * (LOG_2 - raw - softplus(-2 * raw))


def squashed_log_prob_reference(mean, log_std, raw, low, high):
    """The density of a is that of u over |da/du|."""
    wide = [value.double() for value in (mean, log_std, raw, low, high)]
    density = Normal(wide[0], wide[1].exp()).log_prob(wide[2])
    return (density - ((wide[4] - wide[3]) / 2 * (1 - wide[2].tanh() ** 2)).log()).to(mean.dtype)


@pair(squashed_log_prob_reference, examples(1, 0.5, 1, bounded=True), gradients=(0, 1, 2), **EQUAL)
def squashed_log_prob(
    mean: torch.Tensor,
    log_std: torch.Tensor,
    raw: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
) -> torch.Tensor:
    """log π(a) of the action that the raw sample u becomes."""
    return log_prob(mean, log_std, raw) - log_slope(raw, low, high)


def squashed_entropy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Deviations up to e^0.6, for which the quadrature has nodes enough."""
    for mean, log_std, low, high in examples(1, 1, bounded=True)(rng, dtype):
        yield mean, 0.3 * log_std.clamp(-3, 2), low, high


def squashed_entropy_reference(mean, log_std, low, high):
    """−∫ p log p by the trapezoid rule over ten standard deviations to either side."""
    z = torch.linspace(-10, 10, 4001, dtype=torch.float64)
    m, s, wide_low, wide_high = (
        value.double()[..., None] for value in (mean, log_std, *torch.broadcast_tensors(low, high))
    )
    raw = m + s.exp() * z
    log_density = (
        Normal(m, s.exp()).log_prob(raw) - ((wide_high - wide_low) / 2).log() + 2 * raw.cosh().log()
    )
    return torch.trapezoid(-log_density * torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi), z).to(
        mean.dtype
    )


@pair(
    squashed_entropy_reference,
    squashed_entropy_examples,
    gradients=(0, 1),
    rtol=2e-5,
    atol=2e-5,
    dtypes=("float32", "float64"),
)
def squashed_entropy(
    mean: torch.Tensor,
    log_std: torch.Tensor,
    low: torch.Tensor,
    high: torch.Tensor,
    count: int = NODES,
) -> torch.Tensor:
    """The plain entropy + E[log|da/du|], which has no closed form: by Gauss and Hermite's
    quadrature with `count` nodes."""
    nodes, weights = quadrature(count, mean.dtype, mean.device)
    raw = mean[..., None] + log_std.exp()[..., None] * nodes
    expected = log_slope(raw, low[..., None], high[..., None]) @ weights
    return entropy(log_std) + expected


def quadrature(
    count: int, dtype: torch.dtype, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights of E[f(z)], z standard normal; constants, made once."""
    key = (count, dtype, device)
    if key not in QUADRATURES:
        nodes, weights = np.polynomial.hermite_e.hermegauss(count)
        QUADRATURES[key] = (
            torch.as_tensor(nodes, dtype=dtype, device=device),
            torch.as_tensor(weights / weights.sum(), dtype=dtype, device=device),
        )
    return QUADRATURES[key]


QUADRATURES: dict[tuple[int, torch.dtype, torch.device], tuple[torch.Tensor, torch.Tensor]] = {}


def policy_entropy(
    mean: torch.Tensor,
    log_std: torch.Tensor,
    bounds: tuple[torch.Tensor, torch.Tensor] | None,
    learned: bool,
) -> torch.Tensor:
    """Of a plain policy, or of one squashed into bounds; there, unless it is learned from, to what
    a report needs."""
    if bounds is None:
        return entropy(log_std)
    return (
        squashed_entropy(mean, log_std, *bounds)
        if learned
        else squashed_entropy(mean.detach(), log_std.detach(), *bounds, FEW_NODES)
    )


class Gaussian(nn.Module):
    """A policy over D real numbers: plain, or squashed into `low` … `high` when bounds are given.

    What is drawn, stored and evaluated is the raw sample; `action` is what the environment gets.
    Results are per dimension.
    """

    low: torch.Tensor | None
    high: torch.Tensor | None

    def __init__(self, low: Any = None, high: Any = None) -> None:
        super().__init__()
        if (low is None) != (high is None):
            raise ValueError(
                "a squashed policy needs both bounds, low and high; a plain one has none"
            )
        if low is not None:
            low, high = (
                torch.atleast_1d(torch.as_tensor(np.asarray(bound, np.float32)))
                for bound in (low, high)
            )
            if low.shape != high.shape or low.dim() != 1:
                raise ValueError(
                    f"bounds must be one number a dimension; they are {tuple(low.shape)} and "
                    f"{tuple(high.shape)}"
                )
            wrong = ~(low.isfinite() & high.isfinite() & (low < high))
            if wrong.any():
                d = int(wrong.nonzero()[0])
                raise ValueError(
                    f"bounds of dimension {d} must be finite, low < high; they are {low[d]:g} and "
                    f"{high[d]:g}"
                )
        self.register_buffer("low", low, persistent=False)
        self.register_buffer("high", high, persistent=False)

    def sample(
        self,
        mean: torch.Tensor,
        log_std: torch.Tensor,
        normal: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """The raw sample, from standard normal numbers like `mean` or torch's generator."""
        if normal is None:
            normal = torch.randn(
                mean.shape, generator=generator, dtype=mean.dtype, device=mean.device
            )
        return draw(mean, log_std, normal.to(mean.dtype))

    def action(self, raw: torch.Tensor) -> torch.Tensor:
        if self.low is None or self.high is None:
            return raw
        return squash(raw, self.low.to(raw.dtype), self.high.to(raw.dtype))

    def mode(self, mean: torch.Tensor) -> torch.Tensor:
        """The raw sample to act on without noise: μ. Squashed it is the median; the density's peak
        may lie at a bound."""
        return mean

    def log_prob(
        self, mean: torch.Tensor, log_std: torch.Tensor, raw: torch.Tensor
    ) -> torch.Tensor:
        if self.low is None or self.high is None:
            return log_prob(mean, log_std, raw)
        return squashed_log_prob(
            mean, log_std, raw, self.low.to(raw.dtype), self.high.to(raw.dtype)
        )

    def entropy(self, mean: torch.Tensor, log_std: torch.Tensor) -> torch.Tensor:
        if self.low is None or self.high is None:
            return entropy(log_std.expand_as(mean))
        return squashed_entropy(
            mean, log_std.expand_as(mean), self.low.to(mean.dtype), self.high.to(mean.dtype)
        )

    def kl(
        self,
        old_mean: torch.Tensor,
        old_log_std: torch.Tensor,
        mean: torch.Tensor,
        log_std: torch.Tensor,
    ) -> torch.Tensor:
        return kl(old_mean, old_log_std, mean, log_std)


def normal_sample(
    mean: torch.Tensor, log_std: torch.Tensor, draw: RandomSource | None
) -> torch.Tensor:
    """Numbers [B, D] around the means; without `draw` the means."""
    return mean if draw is None else mean + log_std.exp() * draw.normal(mean.shape[-1])


def normal_log_prob(
    mean: torch.Tensor, log_std: torch.Tensor, number: torch.Tensor
) -> torch.Tensor:
    """log N(x; μ, σ²), summed over the numbers [..., D]."""
    return log_prob(mean, log_std, number).sum(-1)


def normal_entropy(log_std: torch.Tensor) -> torch.Tensor:
    """½ log(2πe σ²), summed over the numbers [..., D]."""
    return entropy(log_std).sum(-1)
