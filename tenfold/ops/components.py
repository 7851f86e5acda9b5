"""Rewards in named components: one value and one advantage for each, in one call.

The estimate is linear in rewards and values, so the components' advantages, weighted like their
rewards, add up to the advantage of the total under the weighted sum of their values.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.returns import gae_reference
from tenfold.ops.rollouts import episode_edges


def component_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for t, b, c in ((1, 1, 1), (1, 3, 4), (17, 5, 11), (64, 8, 3)):
        reward, value, next_value = (rng.normal(size=(t, b, c)).astype(dtype) for _ in range(3))
        terminated, truncated, skipped = rng.random((3, t, b)) < 0.15
        discount, boundary, _ = (
            edge.astype(dtype) for edge in episode_edges(terminated, truncated, skipped, 0.97)
        )
        for lam in (0.0, 0.95, 1.0):
            yield (
                reward,
                discount,
                value,
                next_value,
                boundary,
                rng.normal(size=(b, c)).astype(dtype),
                lam,
                np.zeros((t, b, c), dtype),
            )


def gae_components_reference(reward, discount, value, next_value, boundary, last_value, lam, out):
    """GAE of one component after another. Within an episode the next value is that of the next
    row."""
    follow = np.concatenate([value[1:], last_value[None]])
    next_value[:] = np.where(boundary[..., None] > 0, next_value, follow)
    for c in range(reward.shape[-1]):
        out[..., c] = gae_reference(
            reward[..., c], discount, value[..., c], next_value[..., c], boundary, lam
        )
    return next_value, out


@pair(
    gae_components_reference,
    component_examples,
    rtol=1e-5,
    atol=1e-5,
    dtypes=("float32", "float64"),
)
@kernel
def gae_components(reward, discount, value, next_value, boundary, last_value, lam, out):
    """Advantages [T, B, C] into `out`; discount and boundary [T, B] are the same for all
    components."""
    steps, rows, columns = reward.shape
    for t in range(steps - 1, -1, -1):
        for b in range(rows):
            ended = boundary[t, b] > 0
            for c in range(columns):
                if not ended:
                    next_value[t, b, c] = value[t + 1, b, c] if t + 1 < steps else last_value[b, c]
                running = out[t + 1, b, c] if t + 1 < steps and not ended else out.dtype.type(0)
                delta = reward[t, b, c] + discount[t, b] * next_value[t, b, c] - value[t, b, c]
                out[t, b, c] = delta + lam * discount[t, b] * running
    return next_value, out
