"""Generalised advantage estimation in one launch: a scan over time of every lane's column, in
registers."""

from typing import Any

import torch
import triton
import triton.language as tl

from tenfold.core.pairs import pair
from tenfold.ops.device.language import available, device, gpu_kernel
from tenfold.ops.returns import EQUAL, GAE_EXAMPLES, gae_reference

TIME = 128  # steps that a program holds at a time
COLUMNS = 8


@gpu_kernel
def follow(constant, factor, later_constant, later_factor):
    """x_t = constant_t + factor_t·x_{t+1}, two stretches as one; the later one comes first in a
    reversed scan."""
    return later_constant + later_factor * constant, later_factor * factor


@gpu_kernel
def gae_kernel(
    reward,
    discount,
    value,
    next_value,
    boundary,
    out,
    lam,
    time,
    batch,
    parts,
    TIME: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Columns are those of [T, B, K] for one member; `parts` = K components share a boundary."""
    member = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    width = batch * parts
    there = column < width
    running = tl.zeros((COLUMNS,), out.dtype.element_ty)
    last = (time + TIME - 1) // TIME - 1
    for chunk in range(last + 1):
        t = ((last - chunk) * TIME + tl.arange(0, TIME))[:, None]
        mask = (t < time) & there[None, :]
        own = (member * time + t) * width + column[None, :]
        shared = (member * time + t) * batch + column[None, :] // parts
        gamma = tl.load(discount + shared, mask=mask, other=0.0)
        ends = tl.load(boundary + shared, mask=mask, other=0.0)
        delta = tl.load(reward + own, mask=mask, other=0.0)
        delta += gamma * tl.load(next_value + own, mask=mask, other=0.0)
        delta -= tl.load(value + own, mask=mask, other=0.0)
        flow = lam * gamma * (1 - ends)
        flow = flow.to(delta.dtype)
        inner, share = tl.associative_scan((delta, flow), 0, follow, reverse=True)
        found = inner + share * running[None, :]
        tl.store(out + own, found, mask=mask)
        first = tl.arange(0, TIME)[:, None] == 0
        running = tl.sum(tl.where(first, found, 0.0), 0).to(running.dtype)


@pair(gae_reference, GAE_EXAMPLES, **EQUAL, name="ops.device.returns.gae", when=available)
def gae_device(
    reward: Any, discount: Any, value: Any, next_value: Any, boundary: Any, lam: float
) -> torch.Tensor:
    """`ops.returns.gae` of tensors on the GPU, all layouts."""
    given = (reward, discount, value, next_value, boundary)
    dtype = torch.as_tensor(reward).dtype
    tensors = [torch.as_tensor(a).to(device(), dtype).contiguous() for a in given]
    lead = tensors[1].shape  # members in front, if there are any; then time and batch
    members = lead[0] if len(lead) == 3 else 1
    time, batch = lead[-2:]
    parts = tensors[0].shape[-1] if tensors[0].dim() > len(lead) else 1
    out = torch.empty_like(tensors[0])
    grid = (triton.cdiv(batch * parts, COLUMNS), members)
    gae_kernel[grid](
        *tensors,
        out,
        float(lam),
        time,
        batch,
        parts,
        TIME=min(TIME, triton.next_power_of_2(time)),
        COLUMNS=COLUMNS,
    )
    return out
