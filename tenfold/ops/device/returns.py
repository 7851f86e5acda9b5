"""Generalised advantage estimation in one launch: a scan over time of every lane's column, in
registers."""

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.ops.device.language import available, device, gpu_kernel
from tenfold.ops.returns import EQUAL, GAE_EXAMPLES, gae_reference
from tenfold.ops.rollouts import check_shapes

TIME = 128  # steps that a program holds at a time
COLUMNS, WARPS = 8, 4


@gpu_kernel
def follow(constant, factor, later_constant, later_factor):
    """x_t = constant_t + factor_t·x_{t+1}, two stretches as one; the later one comes first in a
    reversed scan."""
    return later_constant + later_factor * constant, later_factor * factor


@gpu_kernel(do_not_specialize=["lam", "rest", "time", "batch", "parts"])
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
    parts,
    TIME: tl.constexpr,
    COLUMNS: tl.constexpr,
    CHUNKS: tl.constexpr,
    COMPONENTS: tl.constexpr,
):
    """Columns are those of [T, B, K] for one member; `parts` = K components share a boundary.
    `rest` is what float32 leaves of λ; CHUNKS and COMPONENTS say whether there are several."""
    kind = out.dtype.element_ty
    member, width = tl.program_id(1).to(tl.int64) * time, batch * parts
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    there, owner = column < width, column
    if COMPONENTS:
        owner = column // parts
    keep = tl.zeros((), kind) + lam + rest
    running = tl.zeros((COLUMNS,), kind)
    last = (time + TIME - 1) // TIME - 1
    for chunk in range(last + 1):
        t = ((last - chunk) * TIME + tl.arange(0, TIME))[:, None]
        mask = (t < time) & there[None, :]
        own, shared = t * width + column[None, :], t * batch + owner[None, :]
        full, lead = member * width, member * batch
        gamma = tl.load(discount + lead + shared, mask=mask, other=0.0)
        ends = tl.load(boundary + lead + shared, mask=mask, other=0).to(kind)
        delta = tl.load(reward + full + own, mask=mask, other=0.0)
        delta += gamma * tl.load(next_value + full + own, mask=mask, other=0.0)
        delta -= tl.load(value + full + own, mask=mask, other=0.0)
        flow = keep * gamma * (1 - ends)
        inner, share = tl.associative_scan((delta, flow), 0, follow, reverse=True)
        if CHUNKS:
            inner = inner + share * running[None, :]
            first = tl.arange(0, TIME)[:, None] == 0
            running = tl.sum(tl.where(first, inner, 0.0), 0).to(kind)
        tl.store(out + full + own, inner, mask=mask)


def gae_on_gpu(
    reward: torch.Tensor,
    discount: torch.Tensor,
    value: torch.Tensor,
    next_value: torch.Tensor,
    boundary: torch.Tensor,
    lam: float,
) -> torch.Tensor:
    """`ops.returns.gae` of tensors where they are, all layouts, without gradient."""
    dtype, lead, full = reward.dtype, discount.shape, reward.shape
    ready = all(
        t.dtype == dtype and t.is_contiguous() for t in (reward, discount, value, next_value)
    )
    flat = (full, lead) == (value.shape, boundary.shape) and full == next_value.shape
    if not (ready and flat and boundary.is_contiguous() and dtype.itemsize >= 4):
        check_shapes((reward, discount, value, next_value, boundary))
        floats = (reward, discount, value, next_value)
        dtype = torch.promote_types(torch.float32, reward.dtype)
        for t in floats[1:]:
            dtype = torch.promote_types(dtype, t.dtype)
        reward, discount, value, next_value = (t.to(dtype).contiguous() for t in floats)
        boundary = boundary.contiguous()
    elif len(lead) not in (2, 3) or full[: len(lead)] != lead or 0 in full:
        check_shapes((reward, discount, value, next_value, boundary))
    if boundary.dtype == torch.bool:
        boundary = boundary.view(torch.uint8)
    time, batch = lead[-2:]
    parts = full[-1] if len(full) > len(lead) else 1
    size = min(TIME, triton.next_power_of_2(time))
    out, near = torch.empty_like(reward), float(np.float32(lam))
    gae_kernel[(triton.cdiv(batch * parts, COLUMNS), lead[0] if len(lead) == 3 else 1)](
        reward,
        discount,
        value,
        next_value,
        boundary,
        out,
        near,
        lam - near,
        time,
        batch,
        parts,
        size,
        COLUMNS,
        time > size,
        parts > 1,
        num_warps=WARPS,
    )
    return out


@pair(gae_reference, GAE_EXAMPLES, **EQUAL, name="ops.device.returns.gae", when=available)
def gae_device(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """The same of arrays and tensors anywhere."""
    given = (reward, discount, value, next_value, boundary)
    tensors = [torch.as_tensor(a).to(device()) for a in given]
    return gae_on_gpu(*tensors, lam)
