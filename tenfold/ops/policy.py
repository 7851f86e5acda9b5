"""A policy over components and real numbers: probabilities, and drawing actions, as compiled code.

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
        chosen = drawn(output, some, mask, rng.random((rows, len(sizes))))
        said = torch.from_numpy(output), torch.from_numpy(log_std / 3)
        log_p, _ = evaluated(*said, some, chosen, real, mask)
        yield (
            output,
            log_std / 3,
            some,
            chosen,
            real,
            mask,
            log_p.numpy() + moved / 4,
            advantage,
            (rng.random(rows) < 0.8).astype(np.float32),
            0.2,
            0.01,
            np.zeros_like(output),
            np.zeros_like(log_std),
            np.zeros(5),
        )


def drawn(output: np.ndarray, sizes: np.ndarray, mask: np.ndarray, u: np.ndarray) -> np.ndarray:
    """An option of every component by `MaskedHeads`, from uniform numbers [B, C]."""
    if not sizes.size:
        return np.zeros(u.shape, np.int64)
    heads, logits = (
        MaskedHeads(sizes.tolist(), "absent"),
        output[: sizes.sum()].T.astype(np.float64),
    )
    allowed = torch.from_numpy(mask) if mask.shape[1] else None
    return heads.sample(torch.from_numpy(logits), allowed, torch.from_numpy(u)).numpy()


def evaluated(
    output: torch.Tensor,
    log_std: torch.Tensor,
    sizes: np.ndarray,
    chosen: np.ndarray,
    real: np.ndarray,
    mask: np.ndarray,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log π(a), entropy) of the joint action [B]: Σ over components, by `MaskedHeads`, and
    numbers."""
    means = output[sizes.sum() :].T
    log_p = gaussian.log_prob(means, log_std, torch.from_numpy(real)).sum(-1)
    entropy = gaussian.entropy(log_std).sum().expand(len(means))
    if sizes.size:
        heads, logits = MaskedHeads(sizes.tolist(), "absent"), output[: sizes.sum()].T
        allowed = torch.from_numpy(mask) if mask.shape[1] else None
        each, more = heads.evaluate(logits, torch.from_numpy(chosen), allowed)
        log_p, entropy = log_p + each.sum(-1), entropy + more.sum(-1)
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
    rows = start + np.arange(output.shape[1])[:, None]
    u = uniform_reference(coins, rows * len(sizes) + np.arange(len(sizes)))
    chosen[:] = drawn(output, sizes, mask, u)
    noise = fill_normal_reference(normals, start * len(log_std), np.zeros(real.size, np.float32))
    real[:] = output[sizes.sum() :].T + np.exp(log_std) * noise.reshape(real.shape)
    said = torch.from_numpy(output), torch.from_numpy(log_std)
    log_p[:] = evaluated(*said, sizes, chosen, real, mask)[0]
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
            z = np.float32(draw_normal(normals, (start + b) * reals + d))
            real[b, d] = output[options + d, b] + np.exp(log_std[d]) * z
            # of the rounded number, which is learned from
            z = (real[b, d] - output[options + d, b]) * np.exp(-log_std[d])
            log_p[b] -= np.float32(0.5) * z * z + log_std[d] + HALF_LOG_TAU
    return chosen, real, log_p
