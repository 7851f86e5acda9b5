"""`ops.surrogate` in Triton: actions drawn from a policy's output, their probability, and the slope
of the loss by the output; and what launches for masked components alone are made of.

Output is [rows, columns]: the logits of all components one after another, then the means, padded.
Of an action's components and numbers each is a tensor [rows] in a tuple.
"""

from typing import NamedTuple

import triton.language as tl

from tenfold.ops import surrogate
from tenfold.ops.device.language import gpu_kernel, uniform

HALF_LOG_TAU = tl.constexpr(float(surrogate.HALF_LOG_TAU))
SMALLEST = tl.constexpr(float(surrogate.SMALLEST))
TAU = tl.constexpr(6.283185307179586)


class PolicyShape(NamedTuple):
    """What a policy's actions are."""

    sizes: tuple[int, ...]  # options of each component
    firsts: tuple[int, ...]  # column of each component's first option
    options: int
    reals: int
    masked: bool


@gpu_kernel
def normal(stream, counter):
    """Standard normal numbers, float64, those of `core.random`."""
    radius = tl.sqrt(-2.0 * tl.log(1.0 - uniform(stream, counter * 2)))
    return radius * tl.cos(uniform(stream, counter * 2 + 1) * TAU)


@gpu_kernel
def column_of(output, index):
    """One column [rows]; `index` is a number, or one for each row."""
    column = tl.arange(0, output.shape[1])[None, :]
    return tl.sum(tl.where(column == index, output, 0.0), 1)


@gpu_kernel
def allowed_options(allowed, c: tl.constexpr, P: tl.constexpr):
    """Which columns are options of component c that are allowed."""
    column = tl.arange(0, allowed.shape[1])[None, :]
    return (column >= P.firsts[c]) & (column < P.firsts[c] + P.sizes[c]) & (allowed != 0)


@gpu_kernel
def component(output, allowed, c: tl.constexpr, P: tl.constexpr):
    """Of component c: (allowed columns, their probabilities, log Σ exp, whether there is any)."""
    options = allowed_options(allowed, c, P)
    most = tl.max(tl.where(options, output, float("-inf")), 1)
    any_allowed = most > float("-inf")
    most = tl.where(any_allowed, most, 0.0)
    # an allowed option keeps a probability, which tells it from others
    p = tl.where(options, tl.maximum(tl.exp(output - most[:, None]), SMALLEST), 0.0)
    total = tl.where(any_allowed, tl.sum(p, 1), 1.0)
    return options, p / total[:, None], most + tl.log(total), any_allowed


@gpu_kernel
def mode(output, allowed, P: tl.constexpr):
    """The most probable (components, numbers) of rows; the first of equals."""
    column = tl.arange(0, output.shape[1])[None, :]
    discrete, real = (), ()
    for c in tl.static_range(len(P.sizes)):
        options = allowed_options(allowed, c, P)
        most = tl.max(tl.where(options, output, float("-inf")), 1)
        best = options & (output == most[:, None])
        first = tl.min(tl.where(best, column, output.shape[1]), 1)
        discrete = discrete + (tl.where(first < output.shape[1], first - P.firsts[c], 0),)
    reals: tl.constexpr = P.reals
    for d in tl.static_range(reals):
        real = real + (column_of(output, P.options + d),)
    return discrete, real


@gpu_kernel
def draw(output, log_std, allowed, coins, normals, at, P: tl.constexpr):
    """(components, numbers, log π) for rows whose draws are number `at` of the streams;
    `log_std` is a tuple, `allowed` [rows, columns] not 0 where an option is."""
    column = tl.arange(0, output.shape[1])[None, :]
    discrete, real, log_p = (), (), tl.sum(output * 0.0, 1)
    for c in tl.static_range(len(P.sizes)):
        options, probability, log_sum, any_allowed = component(output, allowed, c, P)
        u = uniform(coins, at * len(P.sizes) + c)
        beyond = options & (tl.cumsum(probability, 1).to(tl.float64) > u[:, None])
        picked = tl.min(tl.where(beyond, column, output.shape[1]), 1)
        # the last allowed one, should rounding leave the sum below u
        picked = tl.minimum(picked, tl.max(tl.where(options, column, P.firsts[c]), 1))
        log_p += tl.where(any_allowed, column_of(output, picked[:, None]) - log_sum, 0.0)
        discrete = discrete + (picked - P.firsts[c],)
    reals: tl.constexpr = P.reals
    for d in tl.static_range(reals):
        mean = column_of(output, P.options + d)
        noise = normal(normals, at * P.reals + d).to(tl.float32)
        number = mean + tl.exp(log_std[d]) * noise
        z = (number - mean) * tl.exp(-log_std[d])  # of the rounded number, which is learned from
        log_p -= 0.5 * z * z + log_std[d] + HALF_LOG_TAU
        real = real + (number,)
    return discrete, real, log_p


@gpu_kernel
def probability(output, log_std, discrete, real, allowed, P: tl.constexpr):
    """(log π(a), entropy; of each component log-probabilities and probabilities of its options
    and its entropy) of rows."""
    log_p = tl.sum(output * 0.0, 1)
    entropy, per_head = log_p, ()
    for c in tl.static_range(len(P.sizes)):
        options, share, log_sum, any_allowed = component(output, allowed, c, P)
        logs = tl.where(options, output - log_sum[:, None], 0.0)
        index = discrete[c] + P.firsts[c]
        log_p += tl.where(any_allowed, column_of(logs, index[:, None]), 0.0)
        surprise = -tl.sum(share * logs, 1)
        entropy += surprise
        per_head = per_head + (logs, share, surprise)
    reals: tl.constexpr = P.reals
    for d in tl.static_range(reals):
        z = (real[d] - column_of(output, P.options + d)) * tl.exp(-log_std[d])
        log_p -= 0.5 * z * z + log_std[d] + HALF_LOG_TAU
        entropy += log_std[d] + HALF_LOG_TAU + 0.5
    return log_p, entropy, per_head


@gpu_kernel
def slopes(output, log_std, discrete, real, per_head, slope, bonus, P: tl.constexpr):
    """(∂L/∂output, the rows' shares of ∂L/∂log_std): `slope` is ∂L/∂log π(a), `bonus` that by −
    entropy, `per_head` from `probability`."""
    column = tl.arange(0, output.shape[1])[None, :]
    delta, by_std = output * 0.0, ()
    for c in tl.static_range(len(P.sizes)):
        logs, share, surprise = per_head[3 * c], per_head[3 * c + 1], per_head[3 * c + 2]
        is_action = (column == (discrete[c] + P.firsts[c])[:, None]) & (
            share > 0
        )  # else it is absent
        delta += bonus[:, None] * share * (logs + surprise[:, None])
        delta += slope[:, None] * (tl.where(is_action, 1.0, 0.0) - share)
    reals: tl.constexpr = P.reals
    for d in tl.static_range(reals):
        scale = tl.exp(-log_std[d])
        z = (real[d] - column_of(output, P.options + d)) * scale
        delta += tl.where(column == P.options + d, (slope * z * scale)[:, None], 0.0)
        by_std = by_std + (slope * (z * z - 1.0) - bonus,)
    return delta, by_std


# masked components alone, a program for some rows of one of them: [ROWS, WIDE], its options padded
# to a power of two


@gpu_kernel
def load_component(arrays, sizes, MASKED: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr):
    """(rows, which of them exist, options [1, WIDE], which are the component's, which rows had none
    that is allowed; logits, which are allowed, log π, π). A row that had none keeps its
    fallback."""
    logits, mask, offsets, limits, fallback = arrays
    rows, logits_stride, mask_stride, widest = sizes
    part = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    option, valid = tl.arange(0, WIDE)[None, :], row < rows
    start = tl.load(offsets + part)
    cell = valid[:, None] & (option < tl.load(limits + part))
    at = row.to(tl.int64)[:, None]
    x = tl.load(logits + at * logits_stride + start + option, mask=cell, other=0.0)
    allowed, empty = cell, row < 0
    if MASKED:
        allowed = tl.load(mask + at * mask_stride + start + option, mask=cell, other=0) != 0
        empty = valid & (tl.max(allowed.to(tl.int32), 1) == 0)
        left = tl.load(fallback + part * widest + option, mask=option < widest, other=0) != 0
        alone = empty[:, None] & left
        x, allowed = tl.where(alone, 0.0, x), allowed | alone
    log_pi = log_softmax(x, allowed)
    weight = tl.where(allowed, tl.exp(log_pi), 0.0)
    return row, valid, option, cell, empty, x, allowed, log_pi, weight


@gpu_kernel
def log_softmax(x, allowed):
    """log π of allowed options; what stands elsewhere means nothing."""
    most = tl.max(tl.where(allowed, x, float("-inf")), 1)
    away = tl.where(allowed, x - tl.where(most == float("-inf"), 0.0, most)[:, None], 0.0)
    total = tl.sum(tl.where(allowed, tl.exp(away), 0.0), 1)
    return away - tl.log(tl.where(total > 0, total, 1.0))[:, None]


@gpu_kernel
def below(x):
    """The number before a positive one."""
    if x.dtype == tl.float64:
        return (x.to(tl.int64, bitcast=True) - 1).to(tl.float64, bitcast=True)
    else:
        return (x.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True)


@gpu_kernel
def drawn(weight, u, option, WIDE: tl.constexpr):
    """The first option at which Σ π exceeds u, as `MaskedHeads.drawn` has it."""
    steps = tl.where(weight > 0, tl.cumsum(weight, 1), -1.0)
    most = tl.max(steps, 1)
    aim = tl.minimum(u.to(weight.dtype) * most, below(most))
    return tl.min(tl.where(steps > aim[:, None], option, WIDE - 1), 1)
