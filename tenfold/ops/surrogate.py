"""The clipped surrogate loss of a policy and the loss of its value, and their derivatives by the
networks' outputs, as compiled code.

The policy's output, actions and masks lie as `policy` says. Values are [1, B].
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.policy import (
    HALF_LOG_TAU,
    evaluated,
    log_softmax_column,
    policy_examples,
)

# what `policy_gradient` and `value_gradient` add up, in `sums`; then the number of minibatches
POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED = range(5)


def policy_gradient_reference(
    output,
    log_std,
    sizes,
    chosen,
    real,
    mask,
    old,
    advantage,
    weight,
    clip,
    entropy_weight,
    *buffers,
):
    """L = −mean min(r·A, clip(r, 1 ± ε)·A) − c·mean H,  r = π(a) / π_old(a),  by autograd; means
    are weighted. Of the kernel's buffers only the sums so far are read."""
    _, delta_std, sums = buffers
    out, std = torch.from_numpy(output).requires_grad_(), torch.from_numpy(log_std).requires_grad_()
    w, a = torch.from_numpy(weight / max(weight.sum(), 1)), torch.from_numpy(advantage)
    log_p, entropy = evaluated(out, std, sizes, chosen, real, mask)
    change = log_p - torch.from_numpy(old)
    ratio = change.exp()
    policy = -(w * torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)).sum()
    (policy - entropy_weight * (w * entropy).sum()).backward()
    clipped = (w * ((ratio - 1).abs() > clip)).sum()
    found = [
        policy,
        torch.zeros(()),
        (w * entropy).sum(),
        (w * (ratio - 1 - change)).sum(),
        clipped,
    ]
    return (
        out.grad,
        std.grad if len(log_std) else delta_std,
        torch.from_numpy(sums) + torch.stack(found).detach(),
    )


@pair(policy_gradient_reference, policy_examples, rtol=1e-4, atol=1e-5)
@kernel
def policy_gradient(
    output,
    log_std,
    sizes,
    chosen,
    real,
    mask,
    old,
    advantage,
    weight,
    clip,
    entropy_weight,
    delta,
    delta_std,
    sums,
):
    """Writes ∂L/∂output into `delta` and ∂L/∂log_std into `delta_std`; adds loss, entropy, KL
    estimate (r − 1 − log r) and the share of clipped ratios to `sums`."""
    total = total_weight(weight)
    narrow, bonus = np.float32(clip), np.float32(entropy_weight)
    for d in range(log_std.size):
        delta_std[d] = 0
    for b in range(output.shape[1]):
        share = weight[b] / total
        log_p, entropy = joint_probability(output, log_std, sizes, chosen, real, mask, b, delta)
        change = log_p - old[b]
        ratio = np.exp(change)
        gain = advantage[b]
        bounded = min(max(ratio, np.float32(1) - narrow), np.float32(1) + narrow)
        loss = -min(ratio * gain, bounded * gain)
        slope = -ratio * gain * share if ratio * gain <= bounded * gain else np.float32(0)
        components_slope(output, sizes, chosen, b, slope, bonus * share, delta)
        numbers_slope(output, log_std, real, b, slope, bonus * share, delta, delta_std)
        sums[POLICY_LOSS] += share * loss
        sums[ENTROPY] += share * entropy
        sums[KL] += share * (ratio - np.float32(1) - change)
        sums[CLIPPED] += share * (abs(ratio - np.float32(1)) > narrow)
    return delta, delta_std, sums


@kernel
def total_weight(weight):
    """Σ weight, at least 1: weights are 0 or 1, and a minibatch of none learns nothing."""
    total = np.float32(0)
    for b in range(weight.size):
        total += weight[b]
    return max(total, np.float32(1))


@kernel
def joint_probability(output, log_std, sizes, chosen, real, mask, b, probability):
    """(log π(a), entropy) of row b. Each option's probability is left in `probability`."""
    masked, options = mask.shape[1] > 0, output.shape[0] - log_std.size
    # typed: one form of what is called
    log_p, entropy, at = np.float32(0), np.float32(0), np.int64(0)
    for c in range(sizes.size):
        log_sum = log_softmax_column(output, b, at, at + sizes[c], mask, masked, probability)
        if log_sum > -np.inf:
            log_p += output[at + chosen[b, c], b] - log_sum
            for k in range(at, at + sizes[c]):
                if probability[k, b] > 0:
                    entropy -= probability[k, b] * (output[k, b] - log_sum)
        at += sizes[c]
    for d in range(log_std.size):
        z = (real[b, d] - output[options + d, b]) * np.exp(-log_std[d])
        log_p -= np.float32(0.5) * z * z + log_std[d] + HALF_LOG_TAU
        entropy += log_std[d] + HALF_LOG_TAU + np.float32(0.5)
    return log_p, entropy


@kernel
def components_slope(output, sizes, chosen, b, slope, bonus, delta):
    """The logits' part of ∂L/∂output of row b, in place of the probabilities in `delta`; `slope` is
    ∂L/∂log π(a)."""
    at = 0
    for c in range(sizes.size):
        best, own = at, np.float32(0)
        for k in range(at, at + sizes[c]):
            if delta[k, b] > delta[best, b]:
                best = k
        if delta[best, b] > 0:  # else the component is absent
            log_sum = output[best, b] - np.log(delta[best, b])
            for k in range(at, at + sizes[c]):
                if delta[k, b] > 0:
                    own -= delta[k, b] * (output[k, b] - log_sum)
            for k in range(at, at + sizes[c]):
                p = delta[k, b]
                if p > 0:
                    delta[k, b] = bonus * p * (output[k, b] - log_sum + own) - slope * p
            delta[at + chosen[b, c], b] += slope
        at += sizes[c]


@kernel
def numbers_slope(output, log_std, real, b, slope, bonus, delta, delta_std):
    """The means' part of ∂L/∂output of row b, and its share of ∂L/∂log_std."""
    options = output.shape[0] - log_std.size
    for d in range(log_std.size):
        scale = np.exp(-log_std[d])
        z = (real[b, d] - output[options + d, b]) * scale
        delta[options + d, b] = slope * z * scale
        delta_std[d] += slope * (z * z - np.float32(1)) - bonus


# the value


def value_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, clip in ((1, np.inf), (32, np.inf), (32, 0.2), (7, 0.01)):
        value, target, old = (rng.normal(size=rows).astype(np.float32) for _ in range(3))
        weight = np.ones(rows, np.float32)
        weight[1::3] = 0
        yield value[None], target, old, weight, clip, 0.7, np.zeros_like(value[None]), np.zeros(5)


def value_gradient_reference(value, target, old, weight, clip, value_weight, delta, sums):
    """L = c·mean ½(V − R)², or with clipping of the larger of that and ½(V_old + clip(V − V_old,
    ±ε) − R)²."""
    v = torch.from_numpy(value[0]).requires_grad_()
    r, o, w = (
        torch.from_numpy(target),
        torch.from_numpy(old),
        torch.from_numpy(weight / max(weight.sum(), 1)),
    )
    loss = (v - r) ** 2
    if np.isfinite(clip):
        loss = torch.maximum(loss, (o + (v - o).clamp(-clip, clip) - r) ** 2)
    loss = (w * 0.5 * loss).sum()
    (value_weight * loss).backward()
    assert v.grad is not None
    found = torch.from_numpy(sums)
    found[VALUE_LOSS] += loss.detach()
    return v.grad[None], found


@pair(value_gradient_reference, value_examples, rtol=1e-5, atol=1e-6)
@kernel
def value_gradient(value, target, old, weight, clip, value_weight, delta, sums):
    total = total_weight(weight)
    for b in range(target.size):
        share = weight[b] / total
        error = value[0, b] - target[b]
        moved = value[0, b] - old[b]
        other = old[b] + min(max(moved, np.float32(-clip)), np.float32(clip)) - target[b]
        slope = error
        # moved too far: it no longer counts
        if abs(moved) > clip and other * other > error * error:
            slope = np.float32(0)
        delta[0, b] = np.float32(value_weight) * share * slope
        sums[VALUE_LOSS] += share * np.float32(0.5) * max(error * error, other * other)
    return delta, sums
