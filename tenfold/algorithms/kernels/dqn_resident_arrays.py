"""What the resident engine's kernels are compiled for, their arrays in the GPU's memory (a row for
each seed), and the state that stays in registers while they run."""

from typing import Any, NamedTuple

import triton.language as tl

from tenfold.core.kernels import SCHEDULE
from tenfold.ops.device import network, td
from tenfold.ops.device.episodes import lane_numbers, load_lanes, rows_of, store_lanes
from tenfold.ops.device.language import gpu_kernel

# places in `params`; schedules stand side by side behind the others
GAMMA, SCALE, CLIP, EPS, TAU, ALPHA, PRIORITY_EPS = (tl.constexpr(i) for i in range(7))
LR, EXPLORE, BETA = (tl.constexpr(8 + i * SCHEDULE) for i in range(3))
REPLAY, COIN, CHOICE = (tl.constexpr(i) for i in range(3))  # places in `streams`


class Shape(NamedTuple):
    """The constants that kernels are compiled for."""

    task: Any  # begin, advance, observe and their numbers
    sources: str  # of the task's functions: Triton keeps what it compiled by names alone
    state_width: int
    envs: int
    lanes: int  # the same as a power of two
    net: network.NetShape
    outputs: td.ValueShape
    clips: bool
    hard: int  # updates between copies of the target network; 0: Polyak's average
    boltzmann: bool
    prioritized: bool
    schedules: tuple[int, ...]  # kinds: learning rate, exploration, beta
    n_step: int
    length: int  # rows of a lane
    leaves: int  # of the tree of priorities
    batch: int
    rows: int  # of a batch in registers at a time
    moments_in_memory: bool  # Adam's, where registers are scarce
    starts: int
    every: int
    updates: int
    most: int  # episodes that can be noted


class Arrays(NamedTuple):
    """In the GPU's memory, a row for each seed."""

    block: Any
    streams: Any
    params: Any  # of all seeds
    counts: Any
    powers: Any
    sums: Any
    obs: Any
    action: Any
    reward: Any
    kind: Any
    ready: Any
    head: Any
    start: Any
    tree: Any
    top: Any
    batch_row: Any
    batch_error: Any
    state: Any
    length: Any
    episode: Any
    lane_stream: Any
    ret: Any
    ended: Any


class Counts(NamedTuple):
    """`step` … `noted` as in `Arrays.counts`; β₁ and β₂ to the number of updates; the largest
    priority."""

    step: Any
    rounds: Any
    updates: Any
    ready: Any
    batches: Any
    noted: Any
    power1: Any
    power2: Any
    top: Any


class Nets(NamedTuple):
    online: Any
    target: Any
    mean: Any
    square: Any


class EnvState(NamedTuple):
    """Environments and their rows: `head` and `start` as in the replay memory, `position` the
    head's row within its lane."""

    lane: Any
    live: Any
    stream: Any
    state: Any
    obs: Any
    length: Any
    episode: Any
    ret: Any
    head: Any
    position: Any
    start: Any


@gpu_kernel
def arrays_of(a, seed, S: tl.constexpr):
    """The rows of one seed."""
    rows = seed * S.envs * S.length
    lanes = seed * S.envs
    return Arrays(
        a.block + seed * 5 * S.net.parameters,
        a.streams + seed * 3,
        a.params,
        a.counts + seed * 6,
        a.powers + seed * 2,
        a.sums + seed * 5,
        a.obs + rows * S.task.obs,
        a.action + rows,
        a.reward + rows,
        a.kind + rows,
        a.ready + rows,
        a.head + lanes,
        a.start + lanes,
        a.tree + seed * S.leaves * 2,
        a.top + seed,
        a.batch_row + seed * S.batch,
        a.batch_error + seed * S.batch,
        a.state + lanes * S.state_width,
        a.length + lanes,
        a.episode + lanes,
        a.lane_stream + lanes,
        a.ret + lanes,
        a.ended + seed * S.most * 3,
    )


@gpu_kernel
def load_envs(a, S: tl.constexpr):
    lane = lane_numbers(S.envs, S.lanes)
    live = lane < S.envs
    state, length, episode, ret, stream = load_lanes(a, lane, live, S)
    head = tl.load(a.head + lane, mask=live, other=0)
    return EnvState(
        lane,
        live,
        stream,
        state,
        rows_of(S.task.observe(state), S.envs, S.lanes, S.net.pads[0], S.task.obs),
        length,
        episode,
        ret,
        head,
        (head % S.length).to(tl.int32),
        tl.load(a.start + lane, mask=live, other=0),
    )


@gpu_kernel
def store_envs(a, lanes, S: tl.constexpr):
    lane, live = lanes.lane, lanes.live
    store_lanes(a, lanes.state, lanes.length, lanes.episode, lanes.ret, lane, live, S)
    tl.store(a.head + lane, lanes.head, mask=live)
    tl.store(a.start + lane, lanes.start, mask=live)


@gpu_kernel
def load_counts(a):
    return Counts(
        tl.load(a.counts),
        tl.load(a.counts + 1),
        tl.load(a.counts + 2),
        tl.load(a.counts + 3),
        tl.load(a.counts + 4),
        tl.load(a.counts + 5),
        tl.load(a.powers),
        tl.load(a.powers + 1),
        tl.load(a.top),
    )


@gpu_kernel
def store_counts(a, counts):
    for i in tl.static_range(6):  # step … noted
        tl.store(a.counts + i, counts[i])
    tl.store(a.powers, counts.power1)
    tl.store(a.powers + 1, counts.power2)
    tl.store(a.top, counts.top)


@gpu_kernel
def load_nets(a, S: tl.constexpr):
    N: tl.constexpr = S.net
    p = N.parameters
    if S.moments_in_memory:
        return Nets(network.load(a.block, N), network.load(a.block + p, N), 0, 0)
    else:
        return Nets(
            network.load(a.block, N),
            network.load(a.block + p, N),
            network.load(a.block + 2 * p, N),
            network.load(a.block + 3 * p, N),
        )


@gpu_kernel
def store_nets(a, nets, S: tl.constexpr):
    N: tl.constexpr = S.net
    p = N.parameters
    network.store(a.block, nets.online, N)
    network.store(a.block + p, nets.target, N)
    if not S.moments_in_memory:
        network.store(a.block + 2 * p, nets.mean, N)
        network.store(a.block + 3 * p, nets.square, N)
