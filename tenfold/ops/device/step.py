"""What follows a gradient, in two launches: the sum of its parts and its norm; then clipping, Adam
and the target network, on flat buffers [P] or [M, P] whose rows may lie apart.

Learning rate, the count of steps and how far the target moves are tensors, so that a CUDA graph can
repeat a step. Every sum has one order: the same gradient gives the same bits.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.ops.adam import adam_reference, clip_reference, polyak_reference
from tenfold.ops.device.language import device_pair, gpu_kernel, padded
from tenfold.ops.device.network import adam_rates, adam_step

SMALL, LARGE = 512, 4096  # numbers of a program, of a small network and of a large one


def step_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Buffers of one network and of two whose rows are apart; parts of the gradient; a target."""
    for members, size, clip, part_count, moves in (
        (0, 3, None, 0, False),
        (0, 5000, 0.5, 3, True),
        (2, 700, 1e-2, 0, True),
        (2, 33, None, 2, False),
    ):
        lead = (members,) if members else ()
        block = torch.from_numpy(rng.normal(size=(*lead, 5, size)).astype(dtype))
        block[..., 2, :] = block[..., 2, :].square()
        flat, mean, square, grad, target = block.unbind(-2)
        gradients = rng.normal(size=(*lead, part_count, size)).astype(dtype) if part_count else None
        partial = None if gradients is None else torch.from_numpy(gradients)
        before = torch.full(lead, 6.0)
        numbers = torch.tensor(1e-2), torch.tensor(0.3)
        yield flat, grad, mean, square, before, *numbers, 1e-8, clip, target, partial, moves


def step_reference(flat, grad, mean, square, before, lr, tau, eps, clip, target, partial, moves):
    """PyTorch's clipping and optimiser, member by member."""
    if flat.dim() > 1:
        partials = [None] * len(flat) if partial is None else partial
        per_member = [
            step_reference(f, g, m, s, b, lr, tau, eps, clip, t, p, moves)
            for f, g, m, s, b, t, p in zip(
                flat, grad, mean, square, before, target, partials, strict=True
            )
        ]
        *tensors, norms = zip(*per_member, strict=True)
        return *(torch.stack(one) for one in tensors), torch.cat(norms)
    grad = grad if partial is None else partial.sum(0)
    shortened, norm = clip_reference(grad, math.inf if clip is None else clip)
    grad = grad if clip is None else shortened
    new = adam_reference(flat, grad, mean, square, int(before) + 1, float(lr), eps)
    return *new, grad, polyak_reference(target, new[0], float(tau)) if moves else target, norm


@gpu_kernel
def sum_kernel(grad, partial, squares, size, stride, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """The gradient of a block, from its parts where there are any, and Σ g²."""
    member = tl.program_id(1).to(tl.int64)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < size
    if PARTS:
        g = tl.zeros((BLOCK,), tl.float32)
        for part in range(PARTS):
            g += tl.load(partial + (member * PARTS + part) * size + index, mask=valid, other=0.0)
        tl.store(grad + member * stride + index, g, mask=valid)
    else:
        g = tl.load(grad + member * stride + index, mask=valid, other=0.0)
    tl.store(squares + member * tl.num_programs(0) + tl.program_id(0), tl.sum(g * g, 0))


@gpu_kernel
def step_kernel(
    flat,
    grad,
    mean,
    square,
    target,
    before,
    lr,
    tau,
    squares,
    norms,
    size,
    stride,
    limit,
    eps,
    CLIPS: tl.constexpr,
    MOVES: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step with the gradient shortened to `limit`, which is kept; the norm before is kept too."""
    member, blocks = tl.program_id(1).to(tl.int64), tl.num_programs(0)
    part = tl.arange(0, BLOCKS)
    partial_squares = tl.load(squares + member * blocks + part, mask=part < blocks, other=0.0)
    norm = tl.sqrt(tl.sum(partial_squares, 0))
    if tl.program_id(0) == 0:
        tl.store(norms + member, norm)
    steps = tl.load(before + member).to(tl.float64) + 1
    rate, unbias = adam_rates(tl.load(lr).to(tl.float64), steps)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid, at = index < size, member * stride + index
    g = tl.load(grad + at, mask=valid, other=0.0)
    if CLIPS:  # 1e-6: as clip_grad_norm_ does
        g = g * tl.minimum(limit / (norm + 1e-6), 1.0)
        tl.store(grad + at, g, mask=valid)
    m, s = (tl.load(mean + at, mask=valid, other=0.0), tl.load(square + at, mask=valid, other=0.0))
    x = tl.load(flat + at, mask=valid, other=0.0)
    x, m, s = adam_step(x, m, s, g, rate, unbias, eps)
    tl.store(flat + at, x, mask=valid)
    tl.store(mean + at, m, mask=valid)
    tl.store(square + at, s, mask=valid)
    if MOVES:
        share = tl.load(tau)
        old = tl.load(target + at, mask=valid, other=0.0)
        # exactly the one or the other where it moves wholly or not at all
        new = tl.where(share < 0.5, old + share * (x - old), x - (x - old) * (1 - share))
        tl.store(target + at, new, mask=valid)


@device_pair(step_reference, step_examples, "ops.device.step.learn_step", rtol=1e-5, atol=1e-7)
def step_of_rows(flat, grad, mean, square, before, lr, tau, eps, clip, target, partial, moves):
    rows = torch.stack([flat, grad, mean, square, target], -2).unbind(-2)  # apart in memory
    flat, grad, mean, square, target = rows
    moved = target if moves else None
    norm = learn_step(rows[:4], before, lr, tau, eps, clip, moved, partial)
    return flat, mean, square, grad, target, norm


def learn_step(
    buffers: Any,
    before: torch.Tensor,
    lr: torch.Tensor,
    tau: torch.Tensor | None,
    eps: float,
    clip_norm: float | None = None,
    target: torch.Tensor | None = None,
    partial: torch.Tensor | None = None,
) -> torch.Tensor:
    """One step, in place: `buffers` are parameters, gradient and Adam's moments, all with rows
    equally far apart; `before` [] or [M] the steps so far; `target` moves by `tau` of the way. The
    gradient is what it says, or the sum of `partial` [..., parts, P]. Returns the norms [M] of
    gradients before they were clipped."""
    flat, grad, mean, square = buffers
    members, size = (1, *flat.shape)[-2:]
    stride = flat.stride(0) if flat.dim() > 1 else size
    block = SMALL if size < 100_000 else LARGE
    blocks = triton.cdiv(size, block)
    squares, norms = flat.new_empty(members, blocks), flat.new_empty(members)
    part_count = 0 if partial is None else partial.shape[-2]
    source = grad if partial is None else partial
    grid = (blocks, members)
    sum_kernel[grid](grad, source, squares, size, stride, PARTS=part_count, BLOCK=block)
    step_kernel[grid](
        flat,
        grad,
        mean,
        square,
        flat if target is None else target,
        before,
        lr,
        lr if tau is None else tau,
        squares,
        norms,
        size,
        stride,
        float(clip_norm or 0.0),
        float(eps),
        CLIPS=clip_norm is not None,
        MOVES=target is not None,
        BLOCKS=padded(blocks, 1),
        BLOCK=block,
    )
    return norms


def add_metrics_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, columns, width, members in ((1, 5, 5, 1), (70, 3, 4, 1), (10, 3, 3, 2)):
        sums, metrics, norms, shares = (
            torch.from_numpy(rng.normal(size=size).astype(dtype))
            for size in ((columns + 2,), (rows, width), (members,), (columns,))
        )
        yield sums.double() if members == 1 else sums, metrics, norms, shares


def add_metrics_reference(sums, metrics, norms, shares):
    means = [*(metrics[:, : len(shares)].sum(0) * shares), norms.mean(), torch.ones(())]
    return sums + torch.stack(means)


@gpu_kernel
def metrics_kernel(
    sums, metrics, norms, shares, rows, width, members, COLUMNS: tl.constexpr, PAD: tl.constexpr
):
    column, row = tl.arange(0, PAD), tl.arange(0, 64)
    valid = column < COLUMNS
    total = tl.zeros((PAD,), tl.float32)
    for first in range(0, rows, 64):
        at = (first + row)[:, None] * width + column[None, :]
        mask = (first + row < rows)[:, None] & valid[None, :]
        total += tl.sum(tl.load(metrics + at, mask=mask, other=0.0), 0)
    total = total * tl.load(shares + column, mask=valid, other=0.0)
    old = tl.load(sums + column, mask=valid, other=0.0)
    tl.store(sums + column, old + total, mask=valid)
    norm = 0.0
    for member in range(members):
        norm += tl.load(norms + member)
    tl.store(sums + COLUMNS, tl.load(sums + COLUMNS) + norm / members)
    tl.store(sums + COLUMNS + 1, tl.load(sums + COLUMNS + 1) + 1)


@device_pair(
    add_metrics_reference, add_metrics_examples, "ops.device.step.add_metrics", rtol=1e-5, atol=1e-6
)
def add_metrics(
    sums: torch.Tensor, metrics: torch.Tensor, norms: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    """Adds an update to the sums of metrics: the columns of `metrics` [rows, …], summed and times
    `shares`; the mean norm; and 1."""
    metrics_kernel[(1,)](
        sums,
        metrics,
        norms,
        shares,
        metrics.shape[0],
        metrics.shape[1],
        norms.numel(),
        COLUMNS=shares.numel(),
        PAD=padded(shares.numel(), 1),
    )
    return sums
