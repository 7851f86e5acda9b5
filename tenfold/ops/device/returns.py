"""Generalised advantage estimation in one launch: a scan over time of every lane's column, in
registers."""

from typing import Any

import numpy as np
import torch
import triton.language as tl

from tenfold.ops.device.language import LaunchedKernel, device_pair, gpu_kernel, padded
from tenfold.ops.returns import EQUAL, GAE_EXAMPLES, gae_reference
from tenfold.ops.rollouts import check_shapes, dispatched

TIME = 128  # steps that a program holds at a time
COLUMNS = 16


@gpu_kernel
def follow(constant, factor, later_constant, later_factor):
    """x_t = constant_t + factor_t·x_{t+1}, two stretches as one; the later one comes first in a
    reversed scan."""
    return later_constant + later_factor * constant, later_factor * factor


@LaunchedKernel
def gae_kernel(
    reward,
    discount,
    value,
    next_value,
    boundary,
    out,
    lam,
    rest,
    time,
    batch,
    components,
    TIME: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNKS: tl.constexpr,
    COMPONENTS: tl.constexpr,
):
    """Columns are those of [T, B, K] for one member; `components` = K share a boundary.
    `rest` is what float32 leaves of λ; CHUNKS and COMPONENTS say whether there are several."""
    kind = out.dtype.element_ty
    member, width = tl.program_id(1).to(tl.int64) * time, batch * components
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    valid, owner = column < width, column
    if COMPONENTS:
        owner = column // components
    keep = tl.zeros((), kind) + lam + rest
    running = tl.zeros((COLUMNS,), kind)
    last = (time + TIME - 1) // TIME - 1
    for chunk in range(last + 1):
        t = ((last - chunk) * TIME + tl.arange(0, TIME))[:, None]
        mask = (t < time) & valid[None, :]
        cell, shared = t * width + column[None, :], t * batch + owner[None, :]
        full, lead = member * width, member * batch
        gamma = tl.load(discount + lead + shared, mask=mask, other=0.0)
        ends = tl.load(boundary + lead + shared, mask=mask, other=0).to(kind)
        delta = tl.load(reward + full + cell, mask=mask, other=0.0)
        delta += gamma * tl.load(next_value + full + cell, mask=mask, other=0.0)
        delta -= tl.load(value + full + cell, mask=mask, other=0.0)
        flow = keep * gamma * (1 - ends)
        inner, share = tl.associative_scan((delta, flow), 0, follow, reverse=True)
        if CHUNKS:
            inner = inner + share * running[None, :]
            first = tl.arange(0, TIME)[:, None] == 0
            running = tl.sum(tl.where(first, inner, 0.0), 0).to(kind)
        tl.store(out + full + cell, inner, mask=mask)


def gae_on_gpu(
    reward: torch.Tensor,
    discount: Any,
    value: Any,
    next_value: Any,
    boundary: Any,
    lam: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """`ops.returns.gae` of tensors where they are, all layouts, without gradient."""
    tensors = (reward, discount, value, next_value, boundary)
    if out is None and as_they_are(*tensors):
        return launched(*tensors, lam)
    return dispatched(None, copied, tensors, lam, out)


def as_they_are(reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any) -> bool:
    """Whether the kernel takes these tensors without a copy."""
    for other in (discount, value, next_value, boundary):
        if not isinstance(other, torch.Tensor) or not other.is_contiguous() or not other.is_cuda:
            return False
    dtype, full, lead = reward.dtype, reward.shape, discount.shape
    return (
        dtype in (torch.float32, torch.float64)
        and dtype == discount.dtype == value.dtype == next_value.dtype
        and boundary.dtype in (dtype, torch.bool)
        and full == value.shape == next_value.shape
        and lead == boundary.shape
        and len(lead) in (2, 3)
        and len(full) <= len(lead) + 1
        and full[: len(lead)] == lead
        and reward.numel() > 0
        and reward.is_contiguous()
    )


@device_pair(gae_reference, GAE_EXAMPLES, "ops.device.returns.gae", **EQUAL)
def copied(*tensors: Any) -> torch.Tensor:
    """The same of tensors that must be made alike first."""
    *numbers, boundary, lam = tensors
    check_shapes((*numbers, boundary))
    dtype = torch.float32
    for tensor in numbers:
        dtype = torch.promote_types(dtype, tensor.dtype)
    floats = (tensor.to(dtype).contiguous() for tensor in numbers)
    return launched(*floats, boundary.to(dtype).contiguous(), lam)


def launched(
    reward: torch.Tensor,
    discount: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    boundary: torch.Tensor,
    lam: float,
) -> torch.Tensor:
    full, lead = reward.shape, discount.shape
    time, batch = lead[-2:]
    components = full[-1] if len(full) > len(lead) else 1
    size = min(TIME, padded(time, 1))
    out, near = torch.empty_like(reward), float(np.float32(lam))
    tensors = reward, discount, value, next_value, boundary, out, near, lam - near
    gae_kernel(
        (-(-batch * components // COLUMNS), lead[0] if len(lead) == 3 else 1, 1),
        (*tensors, time, batch, components),
        (size, COLUMNS, time > size, components > 1),
    )
    return out
