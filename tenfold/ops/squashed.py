"""Draws of a Gaussian policy that is squashed into −1 … 1 by tanh, with exact log-probability; and
the soft values of a categorical one (Haarnoja et al., 2018; Christodoulou, 2019)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.distributions import Categorical
from torch.nn.functional import softplus

from tenfold.core.pairs import pair
from tenfold.ops.gaussian import EQUAL, HALF_LOG_TAU, LOG_2, PLAIN, squashed_log_prob_reference


def draw_squashed_reference(mean, log_std, normal):
    """a = tanh(μ + σ·z), log π(a) = Σ log N(u; μ, σ²) − Σ log(1 − tanh²u)."""
    raw = mean + log_std.exp() * normal
    one = torch.ones_like(mean[0])
    return raw.tanh(), squashed_log_prob_reference(mean, log_std, raw, -one, one).sum(-1)


@pair(draw_squashed_reference, PLAIN, gradients=(0, 1), **EQUAL)
def draw_squashed(
    mean: torch.Tensor, log_std: torch.Tensor, normal: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The action tanh(u), u = μ + σ·z, of given standard normal numbers, and its log-probability.

    log(1 − tanh²u) = 2·(log 2 − u − softplus(−2u)), which stays finite where 1 − tanh²u rounds to
    0; and (u − μ)/σ is z itself."""
    raw = torch.addcmul(mean, log_std.exp(), normal)
    slope = 2 * (LOG_2 - raw - softplus(-2 * raw))
    log_p = -0.5 * normal.square() - log_std - HALF_LOG_TAU - slope
    return raw.tanh(), log_p.sum(-1)


def soft_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for batch, options, alpha in ((1, 1, 0.5), (5, 3, 0.2), (64, 7, 1.3)):
        logits, values = rng.normal(size=(2, batch, options)).astype(dtype)
        given = torch.tensor(alpha, dtype=getattr(torch, dtype))
        yield 2 * torch.from_numpy(logits), torch.from_numpy(values), given


def soft_value_reference(logits, values, alpha):
    """Item by item: V = E[Q] + α·H."""
    found = []
    for row, q in zip(logits, values, strict=True):
        policy = Categorical(logits=row)
        found.append((policy.probs * q).sum() + alpha * policy.entropy())
    return torch.stack(found), torch.stack([Categorical(logits=row).entropy() for row in logits])


@pair(
    soft_value_reference,
    soft_examples,
    gradients=(0,),
    rtol=1e-5,
    atol=2e-6,
    dtypes=("float32", "float64"),
)
def soft_value(
    logits: torch.Tensor, values: torch.Tensor, alpha: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(Σ_a π(a)·(Q(a) − α·log π(a)) [B], the policy's entropy [B]) of logits and values [B, A]."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    entropy = -(p * log_p).sum(-1)
    return (p * values).sum(-1) + alpha * entropy, entropy
