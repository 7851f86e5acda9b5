"""Q-learning of one seed as ONE Triton program: act, environment, replay, forward, backward, clip,
Adam, target network, for thousands of rounds a launch. Networks stay in registers; the replay
memory and the counters are in the GPU's memory, each seed's own.

It does what `plain` does, from the same random numbers in the same order.
"""

import triton.language as tl

from tenfold.algorithms.dqn import resident_td as td
from tenfold.algorithms.dqn.resident_arrays import (
    SCALE,
    Counts,
    arrays_of,
    load_counts,
    load_lanes,
    load_nets,
    store_counts,
    store_lanes,
    store_nets,
)
from tenfold.algorithms.dqn.resident_play import choose, next_place, play
from tenfold.algorithms.dqn.resident_update import update
from tenfold.ops.device.language import gpu_kernel


@gpu_kernel
def store_sums(a, sums, made, S: tl.constexpr):
    """Of the statistics since they were last asked for, and of how many updates; the gradient's
    norm is that of a sample."""
    mean = sums[3] / tl.maximum(sums[4], 1.0)
    tl.store(a.sums, tl.load(a.sums) + tl.sum(sums[0], 0))
    tl.store(a.sums + 1, tl.load(a.sums + 1) + tl.sum(sums[1], 0) / S.batch)
    tl.store(a.sums + 2, tl.load(a.sums + 2) + tl.sum(sums[2], 0) / S.batch)
    tl.store(a.sums + 3, tl.load(a.sums + 3) + mean * made.to(tl.float32))
    tl.store(a.sums + 4, tl.load(a.sums + 4) + made.to(tl.float32))


@gpu_kernel
def due_after(step, ready, S: tl.constexpr):
    """Updates after the round that began at `step` and left so many rows ready."""
    after = step + S.envs
    due = (after // S.every - step // S.every) * S.updates
    return tl.where((after > S.starts) & (ready > 0), due, 0)


@gpu_kernel(do_not_specialize=["rounds"])
def train(arrays, rounds, STEADY: tl.constexpr, S: tl.constexpr):
    """So many rounds of every seed, one program each. STEADY: every round is followed by one
    update; without a loop inside the loop a third fewer instructions do it."""
    a = arrays_of(arrays, tl.program_id(0).to(tl.int64), S)
    nets, lanes, counts = load_nets(a, S), load_lanes(a, S), load_counts(a)
    scale = tl.load(a.rules + SCALE).to(tl.float32)
    nothing, before = tl.arange(0, S.rows) * 0.0, counts.updates
    sums = (nothing, nothing, nothing, 0.0, 0.0)
    for _ in range(rounds):
        coming = lanes.lane * S.length + next_place(lanes.place, 1, S)
        ready_next = tl.load(a.ready + coming, mask=lanes.live, other=0)
        values = td.values(nets.online, lanes.seen * scale, S)
        action = choose(a, values, counts, lanes.lane, S)
        lanes, ready, noted = play(a, lanes, counts, action, ready_next, S)
        due = due_after(counts.step, ready, S)
        counts = Counts(
            counts.step + S.envs,
            counts.rounds + 1,
            counts.updates,
            ready,
            counts.batches,
            noted,
            counts.power1,
            counts.power2,
            counts.top,
        )
        most = lanes.head
        if S.envs > 1:
            most = tl.max(tl.where(lanes.live, most, 0), 0)
        if STEADY:
            nets, counts, sums = update(a, nets, counts, sums, most, S)
        else:
            for _update in range(due):
                nets, counts, sums = update(a, nets, counts, sums, most, S)
    store_nets(a, nets, S)
    store_lanes(a, lanes, S)
    store_counts(a, counts)
    store_sums(a, sums, counts.updates - before, S)
