"""What the resident engine's kernels are compiled for, and their arrays in the GPU's memory (a row
for each seed)."""

from typing import Any, NamedTuple

import triton.language as tl

from tenfold.core.kernels import SCHEDULE
from tenfold.ops.device.language import gpu_kernel
from tenfold.ops.device.network import NetShape
from tenfold.ops.device.policy import PolicyShape

# places in `params`; schedules stand side by side behind the others
(
    GAMMA,
    LAM,
    REWARD_SCALE,
    OBS_SCALE,
    VALUE_WEIGHT,
    ENTROPY,
    CLIP_NORM,
    ADAM_EPS,
    EPOCH_KL,
    MINIBATCH_KL,
    NORM_CLIP,
    NORM_EPS,
) = (tl.constexpr(i) for i in range(12))
LR, CLIP, VALUE_CLIP = (tl.constexpr(12 + i * SCHEDULE) for i in range(3))
SCALES = {False: 0, True: 1, "minibatch": 2}  # what advantages are normalised over
PHASE, MINIBATCH = tl.constexpr(SCALES[True]), tl.constexpr(SCALES["minibatch"])
COINS, NORMALS, SHUFFLES = (tl.constexpr(i) for i in range(3))  # places in `streams`
UPDATES, EPOCHS = tl.constexpr(0), tl.constexpr(1)  # places in `count`


class PPOShape(NamedTuple):
    """The constants that kernels are compiled for."""

    task: Any  # begin, advance, observe and their numbers
    sources: str  # of the task's functions: Triton keeps what it compiled by names alone
    state_width: int
    envs: int
    lanes: int  # of a program that plays, a power of two
    blocks: int  # such programs of a seed
    horizon: int
    low: tuple[float, ...]  # bounds of the action's numbers
    high: tuple[float, ...]
    squash: bool
    actions: PolicyShape
    alone: bool  # an action is one number
    refuses: bool  # components without an allowed option
    policy_net: NetShape
    value_net: NetShape
    parameters: int
    normalizes: bool  # observations
    scales: int  # advantages, of SCALES
    clipped_alone: bool  # the value's loss is that of the clipped value
    stops: bool  # a phase may end early
    schedules: tuple[int, ...]  # kinds: learning rate, how far ratios may move, values
    minibatches: int
    size: int  # of a minibatch but for the last one; 0: all of one size
    epochs: int
    rows: int  # of a minibatch that are in registers at a time
    chunks: int  # of so many rows that a program takes
    splits: int  # programs of a network that share a minibatch
    splits_at_once: int  # that a program of the optimiser adds
    stretch: int  # of the flat buffer, such a program
    stretches: int
    bits: tuple[int, int]  # halves of an index in a permutation
    columns: int  # lanes of a program that finishes a rollout
    time: int  # steps of it at a time
    max_noted: int  # episodes that a playing program can note


class PPOArrays(NamedTuple):
    """In the GPU's memory, a row for each seed; `T` steps of `B` environments."""

    block: Any  # parameters, Adam's moments, gradient
    streams: Any
    params: Any  # of all seeds
    count: Any
    clock: Any  # of each playing program: the rollout's current row, rounds
    noted: Any  # of each: episodes that ended since the host asked
    ended: Any  # the last of these: round, lane, return, length
    empty: Any  # of each: an environment and its component that has no allowed option, from 1 on
    sums: Any
    norm_count: Any
    norm: Any  # mean, sum of squares, 1 / deviation of each number
    state: Any
    length: Any
    episode: Any
    ret: Any
    lane_stream: Any
    obs: Any  # [T + 1, B, …]: the last row is that which is acted on next
    final: Any  # [T, B, …], where a time limit cut an episode
    mask: Any
    chosen: Any
    real: Any
    log_p: Any
    value: Any  # [T + 1, B]
    next_value: Any
    reward: Any
    discount: Any
    boundary: Any
    weight: Any
    advantage: Any
    target: Any
    order: Any  # of the rows, in each epoch
    moments: Any  # of the advantages of each finishing program: Σ, Σ of squares
    partial: Any  # gradients of each split of a minibatch
    squares: Any  # Σ of each stretch of the gradient
    statistics: Any  # of each split: the five statistics
    going: Any  # whether a minibatch of the phase is to be learned from
    made: Any  # steps of the phase
    moved: Any  # an epoch's mean KL divergence


@gpu_kernel
def arrays_of(a, seed, S: tl.constexpr):
    """The rows of one seed."""
    P: tl.constexpr = S.actions
    rows = seed * S.horizon * S.envs
    more = seed * (S.horizon + 1) * S.envs
    lanes = seed * S.envs
    return PPOArrays(
        a.block + seed * 4 * S.parameters,
        a.streams + seed * 3,
        a.params,
        a.count + seed * 2,
        a.clock + seed * S.blocks * 2,
        a.noted + seed * S.blocks,
        a.ended + seed * S.blocks * S.max_noted * 4,
        a.empty + seed * S.blocks * 2,
        a.sums + seed * 7,
        a.norm_count + seed,
        a.norm + seed * 3 * S.task.obs,
        a.state + lanes * S.state_width,
        a.length + lanes,
        a.episode + lanes,
        a.ret + lanes,
        a.lane_stream + lanes,
        a.obs + more * S.task.obs,
        a.final + rows * S.task.obs,
        a.mask + rows * P.options,
        a.chosen + rows * len(P.sizes),
        a.real + rows * P.reals,
        a.log_p + rows,
        a.value + more,
        a.next_value + rows,
        a.reward + rows,
        a.discount + rows,
        a.boundary + rows,
        a.weight + rows,
        a.advantage + rows,
        a.target + rows,
        a.order + seed * S.epochs * S.horizon * S.envs,
        a.moments + seed * ((S.envs + S.columns - 1) // S.columns) * 2,
        a.partial + seed * S.splits * S.parameters,
        a.squares + seed * S.stretches,
        a.statistics + seed * S.splits * 5,
        a.going + seed * (S.epochs * S.minibatches + 1),
        a.made + seed,
        a.moved + seed * S.epochs,
    )


@gpu_kernel
def param(a, index):
    """A setting, float32."""
    return tl.load(a.params + index).to(tl.float32)


@gpu_kernel
def deviations(a, S: tl.constexpr):
    """log σ of each of the action's numbers."""
    reals: tl.constexpr = S.actions.reals
    result = ()
    for d in tl.static_range(reals):
        result = result + (tl.load(a.block + d),)
    return result


@gpu_kernel
def load_rows(source, index, valid, NUMBERS: tl.constexpr, WIDTH: tl.constexpr):
    """Rows `index` of [rows, NUMBERS] in memory as [rows, WIDTH], float32."""
    column = tl.arange(0, WIDTH)[None, :]
    mask = valid[:, None] & (column < NUMBERS)
    return tl.load(source + index[:, None] * NUMBERS + column, mask=mask, other=0.0)


@gpu_kernel
def load_numbers(source, index, valid, NUMBERS: tl.constexpr):
    """What `load_rows` loads, as a tuple of columns."""
    result = ()
    for j in tl.static_range(NUMBERS):
        result = result + (tl.load(source + index * NUMBERS + j, mask=valid, other=0),)
    return result


@gpu_kernel
def load_allowed(a, index, valid, S: tl.constexpr):
    """Which options of rows were allowed [rows, columns], not 0 where."""
    P: tl.constexpr = S.actions
    width: tl.constexpr = S.policy_net.pads[len(S.policy_net.pads) - 1]
    if P.masked:
        return load_rows(a.mask, index, valid, P.options, width)
    else:
        return valid[:, None].to(tl.float32) + tl.zeros((1, width), tl.float32)
