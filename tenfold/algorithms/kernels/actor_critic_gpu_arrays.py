"""What launches of an update of sac or td3 with wide networks are compiled for, their arrays, and
the functions that several of them call: a batch's inputs, the policy's output, draws from it."""

from typing import Any, NamedTuple

import triton.language as tl

from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.wide_layers import sum_slices
from tenfold.ops.squashed import LOG_STD_MAX, LOG_STD_MIN

LEAST, MOST = tl.constexpr(LOG_STD_MIN), tl.constexpr(LOG_STD_MAX)
HALF_LOG_TAU, LOG_2 = tl.constexpr(0.9189385332046727), tl.constexpr(0.6931471805599453)


class LossShape(NamedTuple):
    """What the loss is. A squashed Gaussian (sac), or an action without a spread (td3), whose
    policy has a target too and noise in its targets: `smoothing` times normal numbers, up to
    `clip`."""

    gaussian: bool
    learned: bool  # the temperature
    entropy: float  # that it aims at
    smoothing: float
    clip: float
    tau: float
    eps: float  # of Adam


class TileBuffers(NamedTuple):
    """Buffers that stay where they are: the agent's, and what launches leave for one another. B
    items, H units, C slices of a layer; "parts" as products read them."""

    online: Any
    grad: Any
    mean: Any
    square: Any
    target: Any
    forms: Any
    table: Any  # observations of the replay memory
    inputs: Any  # parts [inputs, B] of the batch
    first: Any  # parts [3, H, B]: first layers' outputs of policy and critics
    second: Any  # [2, H, B]: second layers' of the critics
    policy_second: Any  # parts [H, B]
    policy_on: Any  # [B, H], whether that fires
    value_slope: Any  # parts [2, B, H]: what a second layer's unit adds to a critic's value
    policy_value_slope: Any  # the same of the policy's action
    first_on: Any  # [2, B, H], whether a critic's first layer fires for the policy's action
    head: Any  # [2, C, heads·actions, B] partial sums of the policy's output: next, current
    value: Any  # [2, C, B] of the critics' values
    target_value: Any
    policy_value: Any
    value_weight: Any  # [2, H]: the critics' last weights before they learn
    base: Any  # [2, B]: the target's reward and entropy, and the discount
    unit_delta: Any  # [2, H, B] of the critics' first layers, for errors of 1
    action_inputs: Any  # [B, inputs]: observation and the policy's action
    action: Any  # [3, B, actions]: the policy's, deviation times noise, whether it is not clipped
    log_p: Any  # [B]
    action_slope: Any  # [2, C, B, actions] partial sums of the values' slopes by the action
    head_delta: Any  # [heads·actions, B]
    first_delta: Any  # [H, B] of the policy's first and second layers
    second_delta: Any


class Sent(NamedTuple):
    """What an update is given, and where it leaves what is told of it."""

    places: Any  # [2, B] rows of the table
    action: Any
    reward: Any
    discount: Any
    weight: Any
    before: Any  # updates before this one, of the critics and of the policy
    policy_before: Any
    lr: Any
    noise: Any  # [2, B, actions]: for the next action, for the current one
    squares: Any  # of the gradient, a sum for each program that learned
    metrics: Any
    errors: Any  # [B]


@gpu_kernel
def batch_inputs(a, u, rows, is_next, with_action, S: tl.constexpr):
    """[rows, inputs]: observations, and behind them the actions that were taken."""
    column = tl.arange(0, S.od)[None, :]
    row = tl.load(u.places + is_next * S.b + rows)[:, None]
    x = tl.load(a.table + row * S.obs + column, mask=column < S.obs, other=0).to(tl.float32)
    at = rows[:, None] * S.act + column - S.obs
    is_action = with_action & (column >= S.obs) & (column < S.obs + S.act)
    return x * S.scale + tl.load(u.action + at, mask=is_action, other=0.0)


@gpu_kernel
def policy_noise(u, which, rows, S: tl.constexpr):
    column = tl.arange(0, S.ad)[None, :]
    at = (which * S.b + rows)[:, None] * S.act + column
    return tl.load(u.noise + at, mask=column < S.act, other=0.0)


@gpu_kernel
def policy_heads(a, bias, which, rows, S: tl.constexpr, C: tl.constexpr):
    """(means, logarithms of deviations) of the policy's output, (row, action)."""
    column = tl.arange(0, S.ad)
    valid = column < S.act
    at = a.head + (which * C * S.heads * S.ad + column)[None, :] * S.b + rows[:, None]
    stride: tl.constexpr = S.heads * S.ad * S.b
    mean = sum_slices(at, stride, C) + tl.load(bias + column, mask=valid, other=0.0)[None, :]
    spread = mean
    if S.heads > 1:
        more = tl.load(bias + S.act + column, mask=valid, other=0.0)
        spread = sum_slices(at + S.ad * S.b, stride, C) + more[None, :]
    return mean, spread


@gpu_kernel
def squash(x):
    z = tl.exp(-2 * tl.abs(x))
    y = (1 - z) / (1 + z)
    return tl.where(x < 0, -y, y)


@gpu_kernel
def draw_action(mean, spread, noise, is_next: tl.constexpr, S: tl.constexpr, L: tl.constexpr):
    """(action, deviation times noise, the Gaussian before tanh)."""
    valid = tl.arange(0, S.ad)[None, :] < S.act
    if L.gaussian:
        move = tl.exp(tl.minimum(tl.maximum(spread, LEAST), MOST)) * noise
        return tl.where(valid, squash(mean + move), 0.0), move, mean + move
    else:
        action = squash(mean)
        if is_next:
            move = tl.minimum(tl.maximum(L.smoothing * noise, -L.clip), L.clip)
            action = tl.minimum(tl.maximum(action + move, -1.0), 1.0)
        return tl.where(valid, action, 0.0), noise, mean


@gpu_kernel
def log_prob(raw, spread, noise, S: tl.constexpr):
    """log π of squashed draws."""
    log_std = tl.minimum(tl.maximum(spread, LEAST), MOST)
    soft = tl.maximum(-2 * raw, 0.0) + tl.log(1 + tl.exp(-2 * tl.abs(raw)))
    by_action = -0.5 * noise * noise - log_std - HALF_LOG_TAU - 2 * (LOG_2 - raw - soft)
    return tl.sum(tl.where(tl.arange(0, S.ad)[None, :] < S.act, by_action, 0.0), 1)
