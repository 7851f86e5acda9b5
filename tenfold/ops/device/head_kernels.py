"""Masked components of a policy in Triton: what is drawn, its log-probability, the entropy, and
their gradient.

A program takes some rows of one component, [ROWS, WIDE], its options padded to a power of two. Bad
values set a flag.
"""

import triton.language as tl

from tenfold.ops.device.language import Launched, gpu_kernel


@gpu_kernel
def load_part(
    logits,
    mask,
    offsets,
    limits,
    fallback,
    rows,
    logits_stride,
    mask_stride,
    widest,
    MASKED: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """(rows, which of them exist, options [1, WIDE], which are the component's own, logits, which
    are allowed, which rows had none); such a row keeps its fallback."""
    part = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    option, there = tl.arange(0, WIDE)[None, :], row < rows
    start = tl.load(offsets + part)
    cell = there[:, None] & (option < tl.load(limits + part))
    at = row.to(tl.int64)[:, None]
    x = tl.load(logits + at * logits_stride + start + option, mask=cell, other=0.0)
    allowed, empty = cell, row < 0
    if MASKED:
        allowed = tl.load(mask + at * mask_stride + start + option, mask=cell, other=0) != 0
        empty = there & (tl.max(allowed.to(tl.int32), 1) == 0)
        left = tl.load(fallback + part * widest + option, mask=option < widest, other=0) != 0
        alone = empty[:, None] & left
        x, allowed = tl.where(alone, 0.0, x), allowed | alone
    return row, there, option, cell, x, allowed, empty


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


@Launched
def choose_kernel(
    logits,
    mask,
    offsets,
    limits,
    fallback,
    uniform,
    actions,
    log_prob,
    entropy,
    bad,
    rows,
    count,
    logits_stride,
    mask_stride,
    widest,
    MASKED: tl.constexpr,
    ABSENT: tl.constexpr,
    RAISES: tl.constexpr,
    CHECK: tl.constexpr,
    DRAWS: tl.constexpr,
    TAKES: tl.constexpr,
    LOWEST: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """DRAWS: actions are written, from uniform numbers; TAKES: they are read. Without either there
    is the entropy alone."""
    row, there, option, cell, x, allowed, empty = load_part(
        logits,
        mask,
        offsets,
        limits,
        fallback,
        rows,
        logits_stride,
        mask_stride,
        widest,
        MASKED,
        WIDE,
        ROWS,
    )
    place = row.to(tl.int64) * count + tl.program_id(1)
    log_pi = log_softmax(x, allowed)
    weight = tl.where(allowed, tl.exp(log_pi), 0.0)
    wrong = tl.max((cell & (x - x != 0)).to(tl.int32), 1)
    if RAISES:
        wrong = tl.maximum(wrong, empty.to(tl.int32))
    if DRAWS:
        u = tl.load(uniform + place, mask=there, other=0.0)
        wrong = tl.maximum(wrong, ((u < 0) | (u > 1) | (u != u)).to(tl.int32))
        action = drawn(weight, u, option, WIDE)
        tl.store(actions + place, action.to(tl.int64), mask=there)
    if TAKES:
        action = tl.load(actions + place, mask=there, other=0)
        size = tl.load(limits + tl.program_id(1))
        wrong = tl.maximum(wrong, ((action < 0) | (action >= size)).to(tl.int32))
    if DRAWS or TAKES:
        taken = allowed & (option == action[:, None])
        lowest = tl.full((ROWS,), LOWEST, x.dtype)
        of_action = tl.maximum(tl.sum(tl.where(taken, log_pi, 0.0), 1), lowest)
        of_action = tl.where(tl.max(taken.to(tl.int32), 1) > 0, of_action, lowest)
        if ABSENT:
            of_action = tl.where(empty, 0.0, of_action)
        tl.store(log_prob + place, of_action, mask=there)
    own = tl.where(weight > 0, weight * log_pi, 0.0)
    tl.store(entropy + place, -tl.sum(own, 1), mask=there)
    if CHECK:
        if tl.max(tl.where(there, wrong, 0), 0) > 0:
            tl.store(bad, 1)


@Launched
def gradient_kernel(
    logits,
    mask,
    offsets,
    limits,
    fallback,
    actions,
    by_log_prob,
    by_entropy,
    gradient,
    rows,
    count,
    logits_stride,
    mask_stride,
    widest,
    whole,
    MASKED: tl.constexpr,
    OF_ACTION: tl.constexpr,
    OF_ENTROPY: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Σ over both results of what a logit adds, times the derivative by each: ∂ log π(a) / ∂ x_k =
    [k = a] − π_k,   ∂ H / ∂ x_k = −π_k (log π_k + H). A fallback is a constant."""
    row, there, option, cell, x, allowed, empty = load_part(
        logits,
        mask,
        offsets,
        limits,
        fallback,
        rows,
        logits_stride,
        mask_stride,
        widest,
        MASKED,
        WIDE,
        ROWS,
    )
    place = row.to(tl.int64) * count + tl.program_id(1)
    log_pi = log_softmax(x, allowed)
    weight = tl.where(allowed, tl.exp(log_pi), 0.0)
    found = weight * 0.0
    if OF_ACTION:
        taken = allowed & (option == tl.load(actions + place, mask=there, other=0)[:, None])
        by = tl.load(by_log_prob + place, mask=there, other=0.0)
        by = tl.where(tl.max(taken.to(tl.int32), 1) > 0, by, 0.0)
        found += by[:, None] * (taken.to(weight.dtype) - weight)
    if OF_ENTROPY:
        own = tl.where(weight > 0, weight * log_pi, 0.0)
        by = tl.load(by_entropy + place, mask=there, other=0.0)
        found -= by[:, None] * (own - weight * tl.sum(own, 1)[:, None])
    learned = allowed & (empty.to(tl.int32) == 0)[:, None]
    at = row.to(tl.int64)[:, None] * whole + tl.load(offsets + tl.program_id(1)) + option
    tl.store(gradient + at, tl.where(learned, found, 0.0), mask=cell)
