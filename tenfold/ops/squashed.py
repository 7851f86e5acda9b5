"""Draws of a Gaussian policy squashed into [−1, 1], and their derivatives by the network's output,
as compiled code: what `gaussian` says of them, for actor-critic methods.

The network's output is [2D, B]: the means μ, then the logarithms of the deviations, clipped to
LOG_STD_MIN … LOG_STD_MAX. u = μ + σ·z, a = tanh u; the noise z and the actions a are [D, B].
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.functional import softplus

from tenfold.core.kernels import exp, kernel, log1p, tanh
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_normal, fill_normal_reference, key
from tenfold.core.work import block_size, bounds_of, pieces_of, share_work, team_of
from tenfold.ops.gaussian import (
    EQUAL,
    HALF_LOG_TAU,
    LOG_2,
    PLAIN,
    squashed_log_prob,
    squashed_log_prob_reference,
)

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0
LEAST, MOST = np.float32(LOG_STD_MIN), np.float32(LOG_STD_MAX)
LOG_TWO, HALF_LOG = np.float32(LOG_2), np.float32(HALF_LOG_TAU)
ONE, TWO, HALF = np.float32(1), np.float32(2), np.float32(0.5)
SHAPES = ((1, 1), (1, 64), (3, 7), (6, 33), (2, 100))  # D, B


def noise_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in SHAPES:
        yield key(int(rng.integers(99)), Purpose.NOISE_ACT), 12345, np.zeros(shape, dtype)


def fill_noise_reference(stream, start, out):
    """Item b's numbers have the counters start + b·D … start + b·D + D − 1."""
    out[:] = fill_normal_reference(stream, start, out.T.ravel()).reshape(out.shape[::-1]).T
    return out


@kernel
def noise_block(index, block, stream, start, out):
    """Of a block of items."""
    first, count = bounds_of(index, out.shape[1], block)
    for b in range(first, first + count):
        for d in range(out.shape[0]):
            out[d, b] = draw_normal(stream, start + b * out.shape[0] + d)


@kernel
def noise_by_team(team, stream, start, out):
    """`fill_noise`, block by block."""
    block = block_size(team, out.shape[1])
    arguments = (block, stream, start, out)
    share_work(team, pieces_of(out.shape[1], block), noise_block, arguments)


@pair(fill_noise_reference, noise_examples, rtol=1e-6, atol=1e-9)
@kernel
def fill_noise(stream, start, out):
    noise_block(0, max(1, out.shape[1]), stream, start, out)
    return out


@pair(fill_noise_reference, noise_examples, rtol=1e-6, atol=1e-9)
def noise_by_three(stream, start, out):
    noise_by_team(team_of(3), stream, start, out)
    return out


def sample_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Deviations on both sides of where they are clipped, and means at which tanh is flat."""
    for dimensions, items in SHAPES:
        output = rng.normal(size=(2 * dimensions, items)).astype(dtype)
        output[0, ::3] *= 6
        output[dimensions:, ::4] += 5
        output[dimensions, 1::5] = -25
        noise = rng.normal(size=(dimensions, items)).astype(dtype)
        yield output, noise, np.zeros_like(noise), np.zeros(items, dtype)


def sampled(output: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(actions [D, B], log π [B])."""
    mean, log_std = output.double().chunk(2)
    log_std = log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)
    raw = mean + log_std.exp() * noise.double()
    one = torch.ones(1, dtype=torch.float64)
    return raw.tanh(), squashed_log_prob(mean, log_std, raw, -one, one).sum(0)


def squashed_sample_reference(output, noise, *_buffers):
    return sampled(torch.from_numpy(output), torch.from_numpy(noise))


@pair(squashed_sample_reference, sample_examples, rtol=3e-6, atol=2e-5)
@kernel
def squashed_sample(output, noise, action, log_p):
    """Actions into `action` and log π = Σ_d −½z² − log σ − ½ log 2π − log|da/du| into `log_p`,
    where log|da/du| = 2·(log 2 − |u| − log(1 + e^(−2|u|))), which stays finite where tanh is
    flat."""
    dimensions = noise.shape[0]
    for b in range(log_p.size):
        log_p[b] = np.float32(0)
    for d in range(dimensions):
        mean, spread, z, a = output[d], output[dimensions + d], noise[d], action[d]
        for b in range(log_p.size):
            log_std = min(max(spread[b], LEAST), MOST)
            u = mean[b] + exp(log_std) * z[b]
            size = abs(u)
            slope = TWO * (LOG_TWO - size - log1p(exp(-TWO * size)))
            log_p[b] += -HALF * z[b] * z[b] - log_std - HALF_LOG - slope
            a[b] = tanh(u)
    return action, log_p


def gradient_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for output, noise, action, log_p in sample_examples(rng, dtype):
        squashed_sample(output, noise, action, log_p)
        by_action = rng.normal(size=noise.shape).astype(dtype)
        yield output, noise, action, by_action, 0.3, np.zeros_like(output)


def squashed_gradient_reference(output, noise, action, by_action, by_log_p, delta):
    """Autograd through the draw."""
    leaf = torch.from_numpy(output).requires_grad_()
    drawn, log_p = sampled(leaf, torch.from_numpy(noise))
    ((torch.from_numpy(by_action) * drawn).sum() + by_log_p * log_p.sum()).backward()
    return leaf.grad


@pair(squashed_gradient_reference, gradient_examples, rtol=1e-4, atol=1e-5)
@kernel
def squashed_gradient(output, noise, action, by_action, by_log_p, delta):
    """∂L/∂output into `delta`, from ∂L/∂a [D, B] and ∂L/∂log π, one number for all items: with z
    given, ∂L/∂u = ∂L/∂a·(1 − a²) + ∂L/∂log π·2a, ∂L/∂log σ = ∂L/∂u·σz − ∂L/∂log π, and 0 where log
    σ is clipped."""
    dimensions, share = noise.shape[0], np.float32(by_log_p)
    for d in range(dimensions):
        spread, z, a, by_a = output[dimensions + d], noise[d], action[d], by_action[d]
        by_mean, by_spread = delta[d], delta[dimensions + d]
        for b in range(z.size):
            by_u = by_a[b] * (ONE - a[b] * a[b]) + share * TWO * a[b]
            log_std = min(max(spread[b], LEAST), MOST)
            by_mean[b] = by_u
            slope = by_u * exp(log_std) * z[b] - share
            by_spread[b] = slope if log_std == spread[b] else np.float32(0)
    return delta


# a deterministic policy, with noise on its actions


def smooth_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shape in SHAPES:
        for deviation, limit in ((0.2, 0.5), (1.0, 0.1), (0.0, 0.0), (0.3, np.inf)):
            output, noise = rng.normal(size=(2, *shape)).astype(dtype)
            yield output, noise, deviation, limit, np.zeros_like(noise)


def smoothed_reference(output, noise, deviation, limit, _action):
    """clip(tanh(output) + clip(σ·z, ±c), ±1)."""
    return np.clip(np.tanh(output) + np.clip(deviation * noise, -limit, limit), -1, 1)


@pair(smoothed_reference, smooth_examples, rtol=1e-5, atol=1e-6)
@kernel
def smoothed(output, noise, deviation, limit, action):
    most, sigma = np.float32(limit), np.float32(deviation)
    for d in range(noise.shape[0]):
        centre, z, a = output[d], noise[d], action[d]
        for b in range(z.size):
            moved = tanh(centre[b]) + min(max(sigma * z[b], -most), most)
            a[b] = min(max(moved, -ONE), ONE)
    return action


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
