"""The loss of a policy and of its value by their networks' outputs, and drawing actions, as
compiled code.

An action has C categorical components with `sizes` options each and D real numbers. The policy's
output is [M + D, B]: the logits of all components one after another (M = Σ sizes), then the means;
the deviations are `log_std` [D]. `mask` [B, M] is True where an option is allowed, or has no
columns; a component without any is absent: probability 1, entropy 0. Values are [1, B].
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, fill_normal_reference, key, uniform_reference

HALF_LOG_TAU = np.float32(0.5 * math.log(2 * math.pi))
SMALLEST = np.float32(np.finfo(np.float32).tiny)
# what `policy_gradient` and `value_gradient` add up, in `sums`; then the number of minibatches
POLICY_LOSS, VALUE_LOSS, ENTROPY, KL, CLIPPED = range(5)


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
        options = sum(sizes)
        mask = rng.random((rows, options if masked else 0)) < 0.6
        chosen = np.zeros((rows, len(sizes)), np.int64)
        for b in range(rows):
            for c, at, n in offsets(sizes):
                allowed = np.flatnonzero(mask[b, at : at + n]) if masked else np.arange(n)
                chosen[b, c] = rng.choice(allowed) if allowed.size else 0
        output = rng.normal(size=(options + reals, rows)).astype(np.float32)
        log_std = rng.normal(size=reals).astype(np.float32) / 3
        real = rng.normal(size=(rows, reals)).astype(np.float32)
        new = log_probability(
            torch.from_numpy(output), torch.from_numpy(log_std), sizes, chosen, real, mask
        ).numpy()
        old = new + rng.normal(size=rows).astype(np.float32) / 4
        weight = (rng.random(rows) < 0.8).astype(np.float32)
        yield (
            output,
            log_std,
            np.array(sizes, np.int64),
            chosen,
            real,
            mask,
            old,
            rng.normal(size=rows).astype(np.float32),
            weight,
            0.2,
            0.01,
            np.zeros_like(output),
            np.zeros_like(log_std),
            np.zeros(5),
        )


def offsets(sizes: Any) -> Iterator[tuple[int, int, int]]:
    at = 0
    for c, n in enumerate(sizes):
        yield c, at, int(n)
        at += int(n)


def head_log_softmax(
    output: torch.Tensor, at: int, n: int, mask: np.ndarray
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities [B, n] of one component, −inf where masked, and whether it is there [B]."""
    logits = output[at : at + n].T
    if not mask.shape[1]:
        return logits.log_softmax(-1), torch.ones(len(logits), dtype=torch.bool)
    allowed = torch.from_numpy(mask[:, at : at + n])
    there = allowed.any(-1)
    logits = logits.masked_fill(~(allowed | ~there[:, None]), -torch.inf)
    return logits.log_softmax(-1), there


def log_probability(
    output: torch.Tensor,
    log_std: torch.Tensor,
    sizes: Any,
    chosen: np.ndarray,
    real: np.ndarray,
    mask: np.ndarray,
) -> torch.Tensor:
    """log π(a) of the joint action: Σ over components and numbers."""
    total = torch.zeros(output.shape[1])
    for c, at, n in offsets(sizes):
        log_p, there = head_log_softmax(output, at, n, mask)
        total = total + torch.where(
            there, log_p.gather(1, torch.from_numpy(chosen[:, c : c + 1])).squeeze(1), 0.0
        )
    means = output[int(sum(sizes)) :].T
    return total + torch.distributions.Normal(means, log_std.exp()).log_prob(
        torch.from_numpy(real)
    ).sum(-1)


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
    delta,
    delta_std,
    sums,
):
    """L = −mean min(r·A, clip(r, 1 ± ε)·A) − c·mean H,  r = π(a) / π_old(a),  by autograd; means
    are weighted."""
    out, std = torch.from_numpy(output).requires_grad_(), torch.from_numpy(log_std).requires_grad_()
    w, a = torch.from_numpy(weight / max(weight.sum(), 1)), torch.from_numpy(advantage)
    change = log_probability(out, std, sizes, chosen, real, mask) - torch.from_numpy(old)
    ratio = change.exp()
    policy = -(w * torch.minimum(ratio * a, ratio.clamp(1 - clip, 1 + clip) * a)).sum()
    entropy = torch.distributions.Normal(0, std.exp()).entropy().sum().expand(output.shape[1])
    for _, at, n in offsets(sizes):
        log_p, there = head_log_softmax(out, at, n, mask)
        finite = log_p.masked_fill(log_p == -torch.inf, 0.0)
        entropy = entropy - torch.where(there, (log_p.exp() * finite).sum(-1), 0.0)
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
    rows, reals, masked = output.shape[1], log_std.size, mask.shape[1] > 0
    options = output.shape[0] - reals
    total = np.float32(0)
    for b in range(rows):
        total += weight[b]
    total = max(total, np.float32(1))  # weights are 0 or 1; a minibatch of none learns nothing
    narrow, bonus = np.float32(clip), np.float32(entropy_weight)
    for d in range(reals):
        delta_std[d] = 0
    for b in range(rows):
        share = weight[b] / total
        # first: log π(a), with each option's probability left in `delta` and each component's
        # entropy summed
        # typed: one form of what is called
        log_p, entropy, at = np.float32(0), np.float32(0), np.int64(0)
        for c in range(sizes.size):
            log_sum = log_softmax_column(output, b, at, at + sizes[c], mask, masked, delta)
            if log_sum > -np.inf:
                log_p += output[at + chosen[b, c], b] - log_sum
                for k in range(at, at + sizes[c]):
                    if delta[k, b] > 0:
                        entropy -= delta[k, b] * (output[k, b] - log_sum)
            at += sizes[c]
        for d in range(reals):
            z = (real[b, d] - output[options + d, b]) * np.exp(-log_std[d])
            log_p -= np.float32(0.5) * z * z + log_std[d] + HALF_LOG_TAU
            entropy += log_std[d] + HALF_LOG_TAU + np.float32(0.5)
        # then the derivatives
        change = log_p - old[b]
        ratio = np.exp(change)
        gain = advantage[b]
        bounded = min(max(ratio, np.float32(1) - narrow), np.float32(1) + narrow)
        loss = -min(ratio * gain, bounded * gain)
        slope = -ratio * gain * share if ratio * gain <= bounded * gain else np.float32(0)
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
                        delta[k, b] = bonus * share * p * (output[k, b] - log_sum + own) - slope * p
                delta[at + chosen[b, c], b] += slope
            at += sizes[c]
        for d in range(reals):
            scale = np.exp(-log_std[d])
            z = (real[b, d] - output[options + d, b]) * scale
            delta[options + d, b] = slope * z * scale
            delta_std[d] += slope * (z * z - np.float32(1)) - bonus * share
        sums[POLICY_LOSS] += share * loss
        sums[ENTROPY] += share * entropy
        sums[KL] += share * (ratio - np.float32(1) - change)
        sums[CLIPPED] += share * (abs(ratio - np.float32(1)) > narrow)
    return delta, delta_std, sums


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
    total = np.float32(0)
    for b in range(target.size):
        total += weight[b]
    total = max(total, np.float32(1))
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


# acting


def draw_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for example in policy_examples(rng, dtype):
        output, log_std, sizes, chosen, real, mask = example[:6]
        yield (
            output,
            log_std,
            sizes,
            mask,
            key(3, Purpose.ACTION),
            key(3, Purpose.NOISE_ACT),
            77,
            np.zeros_like(output),
            np.zeros_like(chosen),
            np.zeros_like(real),
            np.zeros(len(chosen), np.float32),
        )


def draw_action_reference(
    output, log_std, sizes, mask, coins, normals, start, scratch, chosen, real, log_p
):
    """Component c of row b: the first option whose cumulative probability exceeds uniform number
    (start + b)·C + c. Number d: mean + deviation · normal number (start + b)·D + d."""
    rows = output.shape[1]
    for c, at, n in offsets(sizes):
        log_softmax, there = head_log_softmax(torch.from_numpy(output), at, n, mask)
        u = uniform_reference(coins, (start + np.arange(rows)) * len(sizes) + c)
        cumulative = log_softmax.double().exp().cumsum(-1).numpy()
        chosen[:, c] = np.where(there, (cumulative <= u[:, None] * cumulative[:, -1:]).sum(-1), 0)
    noise = fill_normal_reference(
        normals, start * len(log_std), np.zeros(rows * len(log_std), np.float32)
    )
    real[:] = output[int(sum(sizes)) :].T + np.exp(log_std) * noise.reshape(rows, -1)
    log_p[:] = log_probability(
        torch.from_numpy(output), torch.from_numpy(log_std), sizes, chosen, real, mask
    ).numpy()
    return chosen, real, log_p


@pair(draw_action_reference, draw_examples, rtol=1e-4, atol=1e-5)
@kernel
def draw_action(output, log_std, sizes, mask, coins, normals, start, scratch, chosen, real, log_p):
    """Draws an action for every row into `chosen` [B, C] and `real` [B, D], its log-probability
    into `log_p` [B]."""
    rows, reals, masked = output.shape[1], log_std.size, mask.shape[1] > 0
    options = output.shape[0] - reals
    for b in range(rows):
        log_p[b], at = 0, np.int64(0)
        for c in range(sizes.size):
            log_sum = log_softmax_column(output, b, at, at + sizes[c], mask, masked, scratch)
            chosen[b, c] = 0
            if log_sum > -np.inf:
                u, cumulative = draw_uniform(coins, (start + b) * sizes.size + c), 0.0
                for k in range(sizes[c]):
                    p = scratch[at + k, b]
                    if p > 0:
                        # the last allowed one, should rounding leave the sum below u
                        chosen[b, c] = k
                        cumulative += p
                        if cumulative > u:
                            break
                log_p[b] += output[at + chosen[b, c], b] - log_sum
            at += sizes[c]
        for d in range(reals):
            counter = 2 * ((start + b) * reals + d)
            z = np.float32(
                np.sqrt(-2 * np.log1p(-draw_uniform(normals, counter)))
                * np.cos(2 * np.pi * draw_uniform(normals, counter + 1))
            )
            real[b, d] = output[options + d, b] + np.exp(log_std[d]) * z
            # of the rounded number, which is learned from
            z = (real[b, d] - output[options + d, b]) * np.exp(-log_std[d])
            log_p[b] -= np.float32(0.5) * z * z + log_std[d] + HALF_LOG_TAU
    return chosen, real, log_p


@kernel
def shuffle(stream, count, order):
    """Permutation number `count` of 0 … n − 1 (Fisher & Yates), into `order`."""
    for i in range(order.size):
        order[i] = i
    for i in range(order.size - 1, 0, -1):
        j = int(draw_uniform(stream, count * order.size + i) * (i + 1))
        order[i], order[j] = order[j], order[i]
