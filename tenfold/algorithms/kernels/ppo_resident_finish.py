"""The end of the resident engine's rollouts: values, advantages, and the order in which every epoch
learns from the rows. Grids have the seeds as their last side."""

import triton.language as tl

from tenfold.algorithms.kernels.ppo_resident_arrays import (
    EPOCHS,
    LAM,
    OBS_SCALE,
    SHUFFLES,
    arrays_of,
    load_rows,
    param,
)
from tenfold.ops.device import network, policy
from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.returns import follow
from tenfold.ops.device.sampling import places

ORDERED = tl.constexpr(1024)  # rows that a program finds the order of


@gpu_kernel
def value_of(layers, rows, scale, N: tl.constexpr):
    return policy.column_of(network.forward(layers, rows * scale, N)[N.layers], 0)


@gpu_kernel(do_not_specialize=["first", "last"])
def values(arrays, first, last, S: tl.constexpr):
    """Values of the rows first … last − 1, and of final observations where a time limit cut."""
    a = arrays_of(arrays, tl.program_id(2).to(tl.int64), S)
    N: tl.constexpr = S.value_net
    layers = network.load(a.block + S.actions.reals + S.policy_net.parameters, N)
    lane = (tl.program_id(0) * S.lanes + tl.arange(0, S.lanes)).to(tl.int64)
    live, scale = lane < S.envs, param(a, OBS_SCALE)
    for row in range(first + tl.program_id(1), last, tl.num_programs(1)):
        index = row * S.envs + lane
        rows = load_rows(a.obs, index, live, S.task.obs, N.pads[0])
        tl.store(a.value + index, value_of(layers, rows, scale, N), mask=live)
        before = live & (row < S.horizon)
        cut = tl.load(a.boundary + index, mask=before, other=0.0) > 0
        cut = cut & (tl.load(a.discount + index, mask=before, other=0.0) > 0)
        if tl.sum(cut.to(tl.int32), 0) > 0:
            rows = load_rows(a.final, index, cut, S.task.obs, N.pads[0])
            tl.store(a.next_value + index, value_of(layers, rows, scale, N), mask=cut)


@gpu_kernel
def finish(arrays, S: tl.constexpr):
    """Advantages and targets of a full rollout, as `ops.advantages.finish_rollout` but for the
    scale, whose sums are noted; every minibatch is due."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    lane = (tl.program_id(0) * S.columns + tl.arange(0, S.columns))[None, :]
    lam, running = param(a, LAM), tl.arange(0, S.columns) * 0.0
    total = running.to(tl.float64)
    square = total
    first = tl.arange(0, S.time)[:, None] == 0
    last: tl.constexpr = (S.horizon + S.time - 1) // S.time - 1
    for chunk in range(last + 1):
        t = ((last - chunk) * S.time + tl.arange(0, S.time))[:, None]
        valid = (t < S.horizon) & (lane < S.envs)
        index = t * S.envs + lane
        value = tl.load(a.value + index, mask=valid, other=0.0)
        ends = tl.load(a.boundary + index, mask=valid, other=0.0)
        after = tl.load(a.next_value + index, mask=valid & (ends > 0), other=0.0)
        after += tl.load(a.value + index + S.envs, mask=valid & (ends == 0), other=0.0)
        discount = tl.load(a.discount + index, mask=valid, other=0.0)
        delta = tl.load(a.reward + index, mask=valid, other=0.0) + discount * after - value
        flow = lam * discount * (1 - ends)
        inner, share = tl.associative_scan((delta, flow), 0, follow, reverse=True)
        result = inner + share * running[None, :]
        running = tl.sum(tl.where(first, result, 0.0), 0)
        tl.store(a.advantage + index, result, mask=valid)
        tl.store(a.target + index, result + value, mask=valid)
        wide = tl.where(valid, result, 0.0).to(tl.float64)
        total += tl.sum(wide, 0)
        square += tl.sum(wide * wide, 0)
    tl.store(a.moments + tl.program_id(0) * 2, tl.sum(total, 0))
    tl.store(a.moments + tl.program_id(0) * 2 + 1, tl.sum(square, 0))
    tl.store(a.going, 1, mask=tl.program_id(0) == 0)
    tl.store(a.made, 0, mask=tl.program_id(0) == 0)


@gpu_kernel
def shuffle(arrays, S: tl.constexpr):
    """The order of the rows in every epoch of the phase."""
    a = arrays_of(arrays, tl.program_id(2).to(tl.int64), S)
    all_rows: tl.constexpr = S.horizon * S.envs
    epoch = tl.program_id(1)
    item = tl.program_id(0) * ORDERED + tl.arange(0, ORDERED)
    valid = item < all_rows
    stream, number = tl.load(a.streams + SHUFFLES), tl.load(a.count + EPOCHS) + epoch
    result = places(tl.where(valid, item, 0), stream, number, all_rows, S.bits[0], S.bits[1])
    tl.store(a.order + epoch * all_rows + item, result.to(tl.int32), mask=valid)
