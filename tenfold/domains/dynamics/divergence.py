"""The divergence of Gaussians that are given by their variances."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.distributions import Normal, kl_divergence

from tenfold.core.pairs import pair
from tenfold.ops.gaussian import EQUAL, PAIRED


def variance_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for mean, log_std, new_mean, new_log_std in PAIRED(rng, dtype):
        yield mean, log_std.exp(), new_mean, new_log_std.exp()


def kl_variance_reference(mean, variance, new_mean, new_variance):
    return kl_divergence(Normal(mean, variance.sqrt()), Normal(new_mean, new_variance.sqrt()))


@pair(kl_variance_reference, variance_examples, gradients=(0, 1, 2, 3), **EQUAL)
def kl_variance(
    mean: torch.Tensor, variance: torch.Tensor, new_mean: torch.Tensor, new_variance: torch.Tensor
) -> torch.Tensor:
    """KL(N(μ, v) ‖ N(μ′, v′)) = ½ (log(v′/v) + (v + (μ − μ′)²)/v′ − 1). All broadcast."""
    return 0.5 * (
        (new_variance / variance).log() + (variance + (mean - new_mean).square()) / new_variance - 1
    )
