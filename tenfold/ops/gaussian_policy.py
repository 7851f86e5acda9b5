"""A policy over real numbers, plain or squashed into bounds, as a module and as compiled code that
acts. The equations are those of `gaussian`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.gaussian import (
    HALF_LOG_TAU,
    LOG_2,
    bounds,
    draw,
    draw_reference,
    entropy,
    kl,
    log_prob,
    log_prob_reference,
    squash,
    squash_reference,
    squashed_entropy,
    squashed_log_prob,
    squashed_log_prob_reference,
    tensors,
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


# acting: compiled, without torch and without an allocation


def act_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in ((1, 1), (5, 3), (33, 6)):
        mean, log_std, normal = (value.numpy() for value in tensors(rng, dtype, shape, 3))
        for squashed in (False, True):
            low, high = (bound.numpy() for bound in bounds(rng, dtype, shape[1]))
            yield (
                mean,
                0.5 * log_std,
                normal,
                low,
                high,
                squashed,
                *(np.zeros(shape, dtype) for _ in range(3)),
            )


def act_reference(mean, log_std, normal, low, high, squashed, raw, action, score):
    m, s, z, lowest, highest = (
        torch.from_numpy(value) for value in (mean, log_std, normal, low, high)
    )
    u = draw_reference(m, s, z)
    if not squashed:
        return u, u, log_prob_reference(m, s, u)
    return (
        u,
        squash_reference(u, lowest, highest),
        squashed_log_prob_reference(m, s, u, lowest, highest),
    )


@pair(act_reference, act_examples, rtol=2e-5, atol=5e-6)
@kernel
def act_numba(mean, log_std, normal, low, high, squashed, raw, action, score):
    """float32 [B, D]: writes the raw sample, the action and its log-probability per dimension, and
    returns them. `log_std` may have one row for all; without `squashed` the bounds [D] mean
    nothing."""
    half, one, two = np.float32(0.5), np.float32(1), np.float32(2)
    for b in range(mean.shape[0]):
        for d in range(mean.shape[1]):
            s = log_std[b % log_std.shape[0], d]
            u = mean[b, d] + np.exp(s) * normal[b, d]
            # of the rounded u, as whoever evaluates it again will find it
            z = (u - mean[b, d]) * np.exp(-s)
            logp = -half * z * z - s - np.float32(HALF_LOG_TAU)
            raw[b, d] = action[b, d] = u
            if squashed:
                width, size = high[d] - low[d], abs(u)
                tail = np.exp(-two * size)  # never a large exponent
                away = width * tail / (one + tail)  # from the nearer bound
                action[b, d] = max(high[d] - away, low[d]) if u > 0 else min(low[d] + away, high[d])
                logp -= np.log(width * half) + two * (np.float32(LOG_2) - size - np.log1p(tail))
            score[b, d] = logp
    return raw, action, score
