"""Clipping, Adam and the gradient's norm over the flat buffer in two launches: sums of squares by
parts, and the step.

Every sum has one order, so that the same gradient gives the same bits. Learning rate and count of
steps are tensors, so that a CUDA graph can repeat a step.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.ops.adam import BETA1, BETA2, adam_examples, adam_reference, clip_reference
from tenfold.ops.device.language import Launched, available, device

KEEP1, KEEP2 = tl.constexpr(BETA1), tl.constexpr(BETA2)
LOG1, LOG2 = tl.constexpr(math.log(BETA1)), tl.constexpr(math.log(BETA2))
PARTS, BLOCK = 256, 1024  # sums of squares of a member, at most; numbers of a program


@Launched
def squares_kernel(grad, partial, count, size, parts, BLOCK: tl.constexpr):
    """Σ g² of every `parts`-th block into `partial` [M, parts], and one more step into `count`,
    which nobody reads in this launch."""
    part, member = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), grad.dtype.element_ty)
    for first in range(part * BLOCK, size, parts * BLOCK):
        g = tl.load(grad + member * size + first + place, mask=first + place < size, other=0.0)
        total += g * g
    tl.store(partial + member * parts + part, tl.sum(total.to(tl.float64), 0))
    if part + member == 0:
        tl.store(count, tl.load(count) + 1)


@Launched
def adam_kernel(
    flat,
    grad,
    mean,
    square,
    lr,
    count,
    partial,
    norm,
    size,
    parts,
    limit,
    eps,
    CLIPS: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A step with the gradient shortened to `limit`; the norm before is kept."""
    kind = flat.dtype.element_ty
    member = tl.program_id(1).to(tl.int64)
    part = tl.arange(0, PARTS)
    squares = tl.load(partial + member * parts + part, mask=part < parts, other=0.0)
    length = tl.sqrt(tl.sum(squares, 0))
    if tl.program_id(0) == 0:
        tl.store(norm + member, length.to(kind))
    steps = tl.load(count).to(tl.float64)
    rate = (tl.load(lr).to(tl.float64) / (1 - tl.exp(steps * LOG1))).to(kind)
    unbias = (1 / tl.sqrt(1 - tl.exp(steps * LOG2))).to(kind)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there, at = place < size, member * size + place
    g = tl.load(grad + at, mask=there, other=0.0)
    if CLIPS:  # 1e-6: as clip_grad_norm_ does
        g = g * tl.minimum(limit / (length + 1e-6), 1.0).to(kind)
    m = KEEP1 * tl.load(mean + at, mask=there, other=0.0) + (1 - KEEP1) * g
    s = KEEP2 * tl.load(square + at, mask=there, other=0.0) + (1 - KEEP2) * g * g
    x = tl.load(flat + at, mask=there, other=0.0)
    tl.store(flat + at, x - rate * m / (tl.sqrt(s) * unbias + eps), mask=there)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, s, mask=there)


def adam_step(
    flat: torch.Tensor,
    grad: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    lr: torch.Tensor,
    count: torch.Tensor,
    eps: float,
    clip_norm: float | None = None,
) -> torch.Tensor:
    """The next step of Adam on [P], or [M, P] with members, in place; the norms [1] or [M] of the
    gradients, which stay as they are. `lr` holds one number, `count` the steps before (int64),
    which becomes one more. Autograd is not told of the change."""
    given = (flat, grad, mean, square)
    if any(t.shape != flat.shape or t.dtype != flat.dtype for t in given) or not all(
        t.is_contiguous() for t in given
    ):
        raise ValueError(
            "parameters, gradient and moments must be contiguous, of one shape and type"
        )
    if lr.numel() != 1 or count.numel() != 1 or count.dtype != torch.int64:
        raise ValueError("lr must hold one number, and count one of int64")
    members, size = (1, *flat.shape)[-2:]
    blocks = -(-size // BLOCK)
    parts = min(PARTS, blocks)
    partial = torch.empty(members, parts, dtype=torch.float64, device=flat.device)
    norm = torch.empty(members, dtype=flat.dtype, device=flat.device)
    squares_kernel((parts, members, 1), (grad, partial, count, size, parts), (BLOCK,))
    limit, clips = float(clip_norm or 0.0), clip_norm is not None
    adam_kernel(
        (blocks, members, 1),
        (*given, lr, count, partial, norm, size, parts, limit, float(eps)),
        (clips, PARTS, BLOCK),
    )
    return norm


# the pair


def step_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Those of `ops.adam`, with and without a limit, and two members."""
    for *tensors, step, lr, eps in adam_examples(rng, dtype):
        count = np.array([step - 1])
        for clip in (None, 0.5):
            yield *tensors, np.array([lr]), count, eps, clip
        yield *(torch.stack([t, 0.5 * t]) for t in tensors), np.array([lr]), count, eps, 0.5
    yield (
        *(torch.ones(3000, dtype=tensors[0].dtype) for _ in "1234"),
        np.array([lr]),
        count,
        eps,
        9.0,
    )


def step_reference(flat, grad, mean, square, lr, count, eps, clip):
    """Clipping and a step of PyTorch's optimiser, member by member."""
    found = []
    for x, g, m, s in zip(
        *(t.reshape(-1, t.shape[-1]) for t in (flat, grad, mean, square)), strict=True
    ):
        shortened, norm = clip_reference(g, math.inf if clip is None else clip)
        g = g if clip is None else shortened
        found.append((*adam_reference(x, g, m, s, int(count[0]) + 1, float(lr[0]), eps), norm[0]))
    flats, means, squares, norms = map(torch.stack, zip(*found, strict=True))
    return *(t.view_as(flat) for t in (flats, means, squares)), norms, count + 1


@pair(
    step_reference,
    step_examples,
    rtol=1e-5,
    atol=1e-7,
    dtypes=("float32", "float64"),
    when=available,
    name="ops.device.adam.step",
)
def step_on_device(flat, grad, mean, square, lr, count, eps, clip):
    own = [t.to(device()) for t in (flat, grad, mean, square)]
    rate, steps = (torch.from_numpy(a).to(device()) for a in (lr, count))
    norm = adam_step(*own, rate, steps, eps, clip)
    return own[0], own[2], own[3], norm, steps
