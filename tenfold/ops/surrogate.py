"""A policy over components and real numbers, as compiled code: drawing actions, and the derivatives
of PPO's loss by the policy's output.

An action has C categorical components with `sizes` options each and D real numbers. The policy's
output is [M + D, B]: the logits of all components one after another (M = Σ sizes), then the means;
the deviations are `log_std` [D]. `mask` [B, M] is True where an option is allowed, or has no
columns; a component without any is absent: probability 1, entropy 0.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import (
    Purpose,
    draw_normal,
    draw_uniform,
    fill_normal_reference,
    key,
    uniform_reference,
)
from tenfold.ops import gaussian
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.minibatch_loss import CLIPPED, ENTROPY, KL, POLICY_LOSS, total_weight

HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))
SMALLEST = np.float32(np.finfo(np.float32).tiny)


def policy_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Output, deviations, sizes, an action, a mask, the acting policy's log-probability, advantages
    and weights."""
    for sizes, reals, rows, masked in (
        ((2,), 0, 1, False),
        ((2,), 0, 32, False),
        ((3, 1, 5), 0, 7, True),
        ((), 1, 9, False),
        ((), 3, 5, False),
        ((4, 2), 2, 13, True),
        ((40,) * 3, 1, 3, True),
    ):
        options, some = sum(sizes), np.array(sizes, np.int64)
        output, log_std, real, advantage, moved = (
            rng.normal(size=size).astype(np.float32)
            for size in ((options + reals, rows), reals, (rows, reals), rows, rows)
        )
        mask = rng.random((rows, options if masked else 0)) < 0.6
        discrete = drawn(output, some, mask, rng.random((rows, len(sizes))))
        policy = torch.from_numpy(output), torch.from_numpy(log_std / 3)
        old = evaluated(*policy, some, discrete, real, mask)[0].numpy() + moved / 4
        weight = (rng.random(rows) < 0.8).astype(np.float32)
        buffers = np.zeros_like(output), np.zeros_like(log_std), np.zeros(5)
        action = some, discrete, real, mask
        yield output, log_std / 3, *action, old, advantage, weight, 0.2, 0.01, *buffers


def drawn(output: np.ndarray, sizes: np.ndarray, mask: np.ndarray, u: np.ndarray) -> np.ndarray:
    """An option of every component by `MaskedHeads`, from uniform numbers [B, C]."""
    if not sizes.size:
        return np.zeros(u.shape, np.int64)
    heads, logits = MaskedHeads(sizes.tolist(), "absent"), torch.from_numpy(output[: sizes.sum()])
    allowed = torch.from_numpy(mask) if mask.shape[1] else None
    return heads.sample(logits.T.double(), allowed, torch.from_numpy(u)).numpy()


def evaluated(output, log_std, sizes, discrete, real, mask):
    """(log π(a), entropy) of the joint action [B]: Σ over components, by `MaskedHeads`, and
    numbers."""
    means = output[sizes.sum() :].T
    log_p = gaussian.log_prob(means, log_std, torch.from_numpy(real)).sum(-1)
    entropy = gaussian.entropy(log_std).sum().expand(len(means))
    if sizes.size:
        heads, logits = MaskedHeads(sizes.tolist(), "absent"), output[: sizes.sum()].T
        allowed = torch.from_numpy(mask) if mask.shape[1] else None
        per_head, entropies = heads.evaluate(logits, torch.from_numpy(discrete), allowed)
        log_p, entropy = log_p + per_head.sum(-1), entropy + entropies.sum(-1)
    return log_p, entropy


@kernel
def log_softmax_column(output, b, first, last, mask, masked, probability):
    """Probabilities of the options first … last − 1 of row b, 0 where masked; returns log Σ exp,
    −inf where none is allowed."""
    most = np.float32(-np.inf)
    for k in range(first, last):
        if (not masked or mask[b, k]) and output[k, b] > most:
            most = output[k, b]
    total = np.float32(0)
    for k in range(first, last):
        p = np.float32(0)
        if not masked or mask[b, k]:
            # an allowed option keeps a probability, so that it is told apart
            p = max(np.exp(output[k, b] - most), SMALLEST)
        probability[k, b] = p
        total += p
    if total == 0:
        return np.float32(-np.inf)
    for k in range(first, last):
        probability[k, b] /= total
    return most + np.log(total)


# acting


def draw_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for example in policy_examples(rng, dtype):
        output, log_std, sizes, discrete, real, mask = example[:6]
        streams = key(3, Purpose.ACTION), key(3, Purpose.NOISE_ACT), 77
        buffers = np.zeros_like(output), np.zeros_like(discrete), np.zeros_like(real)
        yield output, log_std, sizes, mask, *streams, *buffers, np.zeros(len(discrete), np.float32)


def draw_action_reference(
    output, log_std, sizes, mask, coins, normals, start, scratch, discrete, real, log_p
):
    """Component c of row b: the first option whose cumulative probability exceeds uniform number
    (start + b)·C + c. Number d: mean + deviation · normal number (start + b)·D + d."""
    rows = start + np.arange(output.shape[1])[:, None]
    u = uniform_reference(coins, rows * len(sizes) + np.arange(len(sizes)))
    discrete[:] = drawn(output, sizes, mask, u)
    noise = fill_normal_reference(normals, start * len(log_std), np.zeros(real.size, np.float32))
    real[:] = output[sizes.sum() :].T + np.exp(log_std) * noise.reshape(real.shape)
    policy = torch.from_numpy(output), torch.from_numpy(log_std)
    log_p[:] = evaluated(*policy, sizes, discrete, real, mask)[0]
    return discrete, real, log_p


@pair(draw_action_reference, draw_examples, rtol=1e-4, atol=1e-5)
@kernel
def draw_action(output, log_std, sizes, mask, coins, noise, start, scratch, discrete, real, log_p):
    """Draws an action for every row into `discrete` [B, C] and `real` [B, D], its log-probability
    into `log_p` [B]."""
    rows, reals, masked = output.shape[1], log_std.size, mask.shape[1] > 0
    options = output.shape[0] - reals
    for b in range(rows):
        log_p[b], at = 0, np.int64(0)
        for c in range(sizes.size):
            log_sum = log_softmax_column(output, b, at, at + sizes[c], mask, masked, scratch)
            discrete[b, c] = 0
            if log_sum > -np.inf:
                u, cumulative = draw_uniform(coins, (start + b) * sizes.size + c), 0.0
                for k in range(sizes[c]):
                    p = scratch[at + k, b]
                    if p > 0:
                        # the last allowed one, should rounding leave the sum below u
                        discrete[b, c] = k
                        cumulative += p
                        if cumulative > u:
                            break
                log_p[b] += output[at + discrete[b, c], b] - log_sum
            at += sizes[c]
        for d in range(reals):
            z = np.float32(draw_normal(noise, (start + b) * reals + d))
            real[b, d] = output[options + d, b] + np.exp(log_std[d]) * z
            # of the rounded number, which is learned from
            z = (real[b, d] - output[options + d, b]) * np.exp(-log_std[d])
            log_p[b] -= np.float32(0.5) * z * z + log_std[d] + HALF_LOG_TAU
    return discrete, real, log_p


def surrogate_loss(log_p, old, advantage, weight, clip):
    """(L, KL estimate r − 1 − log r, share of clipped ratios), weighted sums over items:
    L = −Σ w·min(r·A, clip(r, 1 ± ε)·A),   r = π(a) / π_old(a)."""
    change = log_p - old
    ratio = change.exp()
    bounded = ratio.clamp(1 - clip, 1 + clip)
    loss = -(weight * torch.minimum(ratio * advantage, bounded * advantage)).sum()
    clipped = (weight * ((ratio - 1).abs() > clip)).sum()
    return loss, (weight * (ratio - 1 - change)).sum(), clipped


def policy_gradient_reference(
    output, log_std, sizes, discrete, real, mask, old, advantage, weight, clip, bonus, *buffers
):
    """The surrogate loss less c·mean H, by autograd; means are weighted. Of the kernel's buffers
    only the sums so far are read."""
    _, delta_std, sums = buffers
    out, std = (torch.from_numpy(array).requires_grad_() for array in (output, log_std))
    share = torch.from_numpy(weight / max(weight.sum(), 1))
    log_p, entropy = evaluated(out, std, sizes, discrete, real, mask)
    numbers = torch.from_numpy(old), torch.from_numpy(advantage), share
    loss, kl, clipped = surrogate_loss(log_p, *numbers, clip)
    mean_entropy = (share * entropy).sum()
    (loss - bonus * mean_entropy).backward()
    added = torch.stack([loss, torch.zeros(()), mean_entropy, kl, clipped]).detach()
    return out.grad, std.grad if len(log_std) else delta_std, torch.from_numpy(sums) + added


@pair(policy_gradient_reference, policy_examples, rtol=1e-4, atol=1e-5)
@kernel
def policy_gradient(
    output,
    log_std,
    sizes,
    discrete,
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
        log_p, entropy = joint_probability(output, log_std, sizes, discrete, real, mask, b, delta)
        change = log_p - old[b]
        ratio = np.exp(change)
        gain = advantage[b]
        bounded = min(max(ratio, np.float32(1) - narrow), np.float32(1) + narrow)
        loss = -min(ratio * gain, bounded * gain)
        slope = -ratio * gain * share if ratio * gain <= bounded * gain else np.float32(0)
        components_slope(output, sizes, discrete, b, slope, bonus * share, delta)
        numbers_slope(output, log_std, real, b, slope, bonus * share, delta, delta_std)
        sums[POLICY_LOSS] += share * loss
        sums[ENTROPY] += share * entropy
        sums[KL] += share * (ratio - np.float32(1) - change)
        sums[CLIPPED] += share * (abs(ratio - np.float32(1)) > narrow)
    return delta, delta_std, sums


@kernel
def joint_probability(output, log_std, sizes, discrete, real, mask, b, probability):
    """(log π(a), entropy) of row b. Each option's probability is left in `probability`."""
    masked, options = mask.shape[1] > 0, output.shape[0] - log_std.size
    # typed: one form of what is called
    log_p, entropy, at = np.float32(0), np.float32(0), np.int64(0)
    for c in range(sizes.size):
        log_sum = log_softmax_column(output, b, at, at + sizes[c], mask, masked, probability)
        if log_sum > -np.inf:
            log_p += output[at + discrete[b, c], b] - log_sum
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
def components_slope(output, sizes, discrete, b, slope, bonus, delta):
    """The logits' part of ∂L/∂output of row b, in place of the probabilities in `delta`; `slope` is
    ∂L/∂log π(a)."""
    at = 0
    for c in range(sizes.size):
        best, option_entropy = at, np.float32(0)
        for k in range(at, at + sizes[c]):
            if delta[k, b] > delta[best, b]:
                best = k
        if delta[best, b] > 0:  # else the component is absent
            log_sum = output[best, b] - np.log(delta[best, b])
            for k in range(at, at + sizes[c]):
                if delta[k, b] > 0:
                    option_entropy -= delta[k, b] * (output[k, b] - log_sum)
            for k in range(at, at + sizes[c]):
                p = delta[k, b]
                if p > 0:
                    delta[k, b] = bonus * p * (output[k, b] - log_sum + option_entropy) - slope * p
            delta[at + discrete[b, c], b] += slope
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
