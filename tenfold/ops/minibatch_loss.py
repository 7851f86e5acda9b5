"""What PPO's loss takes of a minibatch beside the policy's output: the value's loss and its
derivative, and advantages normalised within the minibatch. Values are [1, B]; weights are 0 or 1,
and rows of weight 0 count for nothing."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

# what the gradients of policy and value add up, in `sums`; then the number of minibatches
POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED = range(5)
EPSILON = 1e-8  # added to the deviation of advantages


@kernel
def total_weight(weight):
    """Σ weight, at least 1: a minibatch of none learns nothing."""
    total = np.float32(0)
    for b in range(weight.size):
        total += weight[b]
    return max(total, np.float32(1))


# advantages


def advantage_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, counted in ((1, 1), (2, 2), (5, 1), (64, 64), (33, 21), (4, 0)):
        advantage = (3 + 2 * rng.normal(size=rows)).astype(dtype)
        weight = np.zeros(rows, dtype)
        weight[rng.permutation(rows)[:counted]] = 1
        yield advantage, weight
    yield np.full(7, 2, dtype), np.ones(7, dtype)  # equal ones


def normalize_advantages_reference(advantage, weight):
    """(A − mean) / (deviation + 1e-8) by the rows that count, N − 1 of them in the deviation; as
    they are where fewer than two count."""
    rows = advantage[weight > 0].astype(np.float64)
    if rows.size < 2:
        return advantage
    return (advantage - rows.mean()) / (rows.std(ddof=1) + EPSILON)


@pair(normalize_advantages_reference, advantage_examples, rtol=1e-5, atol=1e-6)
@kernel
def normalize_advantages(advantage, weight):
    """In place."""
    count = mean = square = 0.0
    for b in range(advantage.size):
        count += weight[b]
        mean += weight[b] * advantage[b]
    if count > 1:
        mean /= count
        for b in range(advantage.size):
            square += weight[b] * (advantage[b] - mean) ** 2
        scale = 1 / (np.sqrt(square / (count - 1)) + EPSILON)
        for b in range(advantage.size):
            advantage[b] = (advantage[b] - mean) * scale
    return advantage


def tensor_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for arrays in advantage_examples(rng, dtype):
        yield tuple(map(torch.from_numpy, arrays))


def normalize_on_host(advantage, weight):
    return normalize_advantages_reference(advantage.numpy(), weight.numpy())


@pair(normalize_on_host, tensor_examples, rtol=1e-5, atol=1e-6, dtypes=("float32", "float64"))
def normalized_advantages(advantage: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """`normalize_advantages` on any device, without waiting for it."""
    count = weight.sum()
    centred = advantage - (weight * advantage).sum() / count.clamp(min=1)
    deviation = ((weight * centred.square()).sum() / (count - 1).clamp(min=1)).sqrt()
    return torch.where(count > 1, centred / (deviation + EPSILON), advantage)


# the value


def value_error(value: Any, target: Any, old: Any, clip: Any, clipped_alone: bool) -> Any:
    """(V − R)²; where values are clipped the larger of that and (V_old + clip(V − V_old, ±ε) − R)²,
    or the latter alone."""
    error = (value - target).square()
    if clip is None:
        return error
    clipped = (old + (value - old).clamp(-clip, clip) - target).square()
    return clipped if clipped_alone else torch.maximum(error, clipped)


def value_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, clip, alone in (
        (1, np.inf, False),
        (32, np.inf, True),
        (32, 0.2, False),
        (7, 0.01, False),
        (33, 0.5, True),
        (1, 0.01, True),
    ):
        value, target, old = (rng.normal(size=rows).astype(np.float32) for _ in range(3))
        weight = np.ones(rows, np.float32)
        weight[1::3] = 0
        buffers = np.zeros_like(value[None]), np.zeros(5)
        yield value[None], target, old, weight, clip, alone, 0.7, *buffers


def value_gradient_reference(value, target, old, weight, clip, alone, value_weight, delta, sums):
    """Σ w·½·`value_error`, by autograd."""
    leaf, share = torch.from_numpy(value[0]).requires_grad_(), weight / max(weight.sum(), 1)
    target, old, share = (torch.from_numpy(array) for array in (target, old, share))
    limit = clip if np.isfinite(clip) else None
    loss = 0.5 * (share * value_error(leaf, target, old, limit, alone)).sum()
    (value_weight * loss).backward()
    assert leaf.grad is not None
    sums[VALUE_LOSS] += float(loss.detach())
    return leaf.grad[None], sums


@pair(value_gradient_reference, value_examples, rtol=1e-5, atol=1e-6)
@kernel
def value_gradient(value, target, old, weight, clip, clipped_alone, value_weight, delta, sums):
    """Writes ∂L/∂V into `delta`; adds the loss to `sums`."""
    total = total_weight(weight)
    for b in range(target.size):
        share = weight[b] / total
        error = value[0, b] - target[b]
        moved = value[0, b] - old[b]
        other = old[b] + min(max(moved, np.float32(-clip)), np.float32(clip)) - target[b]
        slope, square = error, max(error * error, other * other)
        # moved too far: it no longer counts
        if abs(moved) > clip and (clipped_alone or other * other > error * error):
            slope = np.float32(0)
        if clipped_alone:
            square = other * other
        delta[0, b] = np.float32(value_weight) * share * slope
        sums[VALUE_LOSS] += share * np.float32(0.5) * square
    return delta, sums
