"""A policy over real numbers, plain or squashed into bounds, as a module of the equations in
`gaussian`."""

from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.ops.gaussian import (
    draw,
    entropy,
    kl,
    log_prob,
    squash,
    squashed_entropy,
    squashed_log_prob,
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
