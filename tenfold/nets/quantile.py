"""Implicit quantiles (Dabney et al., 2018, IQN): how a fraction τ of the return's distribution
enters the network.

    Z_τ(s, a) = head(ψ(s) ⊙ φ(τ)),     φ(τ) = ReLU(W c(τ) + b),     c_i(τ) = cos(π i τ),  i = 0 … n
    − 1

The network asks for the τ-quantile instead of giving N fixed ones: it learns at fractions drawn
anew each time.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.ops.qlearning import tensor


def cosine_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, n in (((1, 1), 1), ((5, 3), 4), ((2, 3, 4), 64)):
        yield torch.from_numpy(rng.random(lead).astype(dtype)), n


def cosines_reference(fractions, n):
    rows = [
        [math.cos(math.pi * i * float(fraction)) for i in range(n)]
        for fraction in fractions.flatten()
    ]
    return torch.tensor(rows, dtype=fractions.dtype).view(*fractions.shape[:-2], -1, n)


@pair(cosines_reference, cosine_examples, rtol=1e-5, atol=2e-5, dtypes=("float32", "float64"))
def cosines(fractions: torch.Tensor, n: int) -> torch.Tensor:
    """cos(π i τ) for i = 0 … n − 1, a row for each fraction: [..., B, N] -> [..., B·N, n]."""
    frequency = math.pi * torch.arange(n, dtype=fractions.dtype, device=fractions.device)
    return torch.cos(fractions[..., None] * frequency).flatten(-3, -2)


def join_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, b, n, f in (((), 1, 1, 1), ((), 4, 3, 5), ((2,), 3, 4, 6)):
        for items in (b, 1):
            yield tensor(rng, dtype, *lead, b, f), tensor(rng, dtype, *lead, items * n, f), n


def join_reference(features, sums, n):
    if features.dim() > 2:
        return torch.stack(
            [join_reference(*member, n) for member in zip(features, sums, strict=True)]
        )
    # of an item's rows among the sums
    first = [0 if len(sums) == n else b * n for b in range(len(features))]
    return torch.stack(
        [
            features[b] * sums[first[b] + i].clamp(min=0)
            for b in range(len(features))
            for i in range(n)
        ]
    )


@pair(
    join_reference,
    join_examples,
    dtypes=("float32", "float64"),
    gradients=(0, 1),
    rtol=1e-6,
    atol=1e-6,
)
def join(features: torch.Tensor, sums: torch.Tensor, n: int) -> torch.Tensor:
    """ψ ⊙ ReLU(sums) for every item and fraction: features [..., B, F], sums of the embedding's
    layer [..., B·N, F], or [..., N, F] where all items share the fractions -> [..., B·N, F]."""
    embedded = torch.relu(sums).unflatten(-2, (-1, n))
    return (features[..., None, :] * embedded).flatten(-3, -2)
