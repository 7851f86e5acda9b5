"""Device environments inside kernels: lanes as rows, episodes that end and begin; and whole
episodes of many seeds, for evaluations.

Numbers of a lane are tensors [lanes], or scalars where there is one lane only: these cost no
exchange between threads. In an evaluation every program plays LANES episodes of one seed, each to
its end, by a function that chooses actions.

What an algorithm adds is a kernel that loads a seed's networks and calls `play_episodes` with its
choosing function; `play` launches it until all episodes are over.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl

from tenfold.ops.device.language import gpu_kernel, key_tensor

EPISODES = 16  # of a program: a product's sides are at least that
LANES = tl.constexpr(EPISODES)
AT_ONCE = 512  # steps of a launch
ENDED, CUT = 1, 2  # by the environment; at the limit of steps
IS_ENDED, IS_CUT = tl.constexpr(ENDED), tl.constexpr(CUT)


class EpisodeShape(NamedTuple):
    """What a kernel is compiled for."""

    task: Any  # a device environment
    sources: str  # of its functions: Triton keeps what it compiled by names alone


class EpisodeRows(NamedTuple):
    """In the GPU's memory, rows [seeds, episodes]."""

    stream: Any
    state: Any
    length: Any
    ret: Any
    over: Any


class Played(NamedTuple):
    """Of one seed: returns and lengths of its episodes, and which of them were cut."""

    returns: np.ndarray
    lengths: np.ndarray
    cut: np.ndarray


# lanes inside a kernel


@gpu_kernel
def lane_numbers(ENVS: tl.constexpr, LANES: tl.constexpr):
    if ENVS == 1:
        return tl.program_id(0) * 0
    else:
        return tl.arange(0, LANES)


@gpu_kernel
def total(x, ENVS: tl.constexpr):
    """Σ over the lanes."""
    if ENVS == 1:
        return x
    else:
        return tl.sum(x, 0)


@gpu_kernel
def any_of(x, ENVS: tl.constexpr):
    return total(x.to(tl.int32), ENVS) > 0


@gpu_kernel
def of_lane(x, ENVS: tl.constexpr):
    """Numbers [rows] of a network's output as those of the lanes; of one lane all rows are
    alike."""
    if ENVS == 1:
        return tl.max(x, 0)
    else:
        return x


@gpu_kernel
def as_rows(x, ENVS: tl.constexpr):
    """To stand beside the columns of rows."""
    if ENVS == 1:
        return x
    else:
        return x[:, None]


@gpu_kernel
def rows_of(
    numbers, ENVS: tl.constexpr, LANES: tl.constexpr, WIDTH: tl.constexpr, COUNT: tl.constexpr
):
    """A tuple of COUNT numbers per lane as rows [LANES, WIDTH], float32."""
    column = tl.arange(0, WIDTH)[None, :]
    rows = tl.zeros((LANES, WIDTH), tl.float32)
    for j in tl.static_range(COUNT):
        rows = tl.where(column == j, as_rows(numbers[j].to(tl.float32), ENVS), rows)
    return rows


@gpu_kernel
def load_state(states, lane, live, STATES: tl.constexpr, WIDTH: tl.constexpr):
    """The first numbers of rows [lanes, WIDTH] in memory as a tuple."""
    state = ()
    for j in tl.static_range(STATES):
        state = state + (tl.load(states + lane * WIDTH + j, mask=live, other=0.0),)
    return state


@gpu_kernel
def store_state(states, state, lane, live, STATES: tl.constexpr, WIDTH: tl.constexpr):
    for j in tl.static_range(STATES):
        tl.store(states + lane * WIDTH + j, state[j], mask=live)


@gpu_kernel
def load_lanes(a, lane, live, S: tl.constexpr):
    """Of lanes of a seed's arrays: (state, steps, number and return of the episode, stream)."""
    return (
        load_state(a.state, lane, live, S.task.states, S.state_width),
        tl.load(a.length + lane, mask=live, other=0),
        tl.load(a.episode + lane, mask=live, other=0),
        tl.load(a.ret + lane, mask=live, other=0.0),
        tl.load(a.lane_stream + lane, mask=live, other=0),
    )


@gpu_kernel
def store_lanes(a, state, length, episode, ret, lane, live, S: tl.constexpr):
    store_state(a.state, state, lane, live, S.task.states, S.state_width)
    tl.store(a.length + lane, length, mask=live)
    tl.store(a.episode + lane, episode, mask=live)
    tl.store(a.ret + lane, ret, mask=live)


@gpu_kernel
def load_action(actions, lane, live, TASK: tl.constexpr):
    """What `advance` takes, of rows [lanes, numbers]."""
    if TASK.numbers == 1:
        return tl.load(actions + lane, mask=live, other=0)
    else:
        action = ()
        numbers: tl.constexpr = TASK.numbers
        for j in tl.static_range(numbers):
            action = action + (tl.load(actions + lane * numbers + j, mask=live, other=0),)
        return action


@gpu_kernel
def store_numbers(rows, numbers, lane, live, COUNT: tl.constexpr):
    """A tuple of numbers into rows [lanes, COUNT], of the rows' type."""
    for j in tl.static_range(COUNT):
        number = (numbers[j] + lane * 0).to(rows.dtype.element_ty)
        tl.store(rows + lane * COUNT + j, number, mask=live)


@gpu_kernel
def renewed(ended, fresh, state, STATES: tl.constexpr):
    """`fresh` where an episode ended."""
    new_state = ()
    for j in tl.static_range(STATES):
        new_state = new_state + (tl.where(ended, fresh[j], state[j]),)
    return new_state


@gpu_kernel
def note_ended(ended, lane, ret, length, record, count, MOST: tl.constexpr, ENVS: tl.constexpr):
    """Lane, return and length of episodes that ended, behind the `count` rows of three that are
    there; how many there are then."""
    over = ended.to(tl.int64)
    index = count
    if ENVS > 1:
        index = count + tl.cumsum(over, 0) - 1
    row, writable = record + index * 3, ended & (index < MOST)
    tl.store(row, lane.to(tl.float64), mask=writable)
    tl.store(row + 1, ret, mask=writable)
    tl.store(row + 2, length.to(tl.float64), mask=writable)
    return count + total(over, ENVS)


# whole episodes


@gpu_kernel
def play_episodes(
    e,
    policy,
    seed,
    count,
    steps,
    limit,
    CHOOSE: tl.constexpr,
    E: tl.constexpr,
    S: tl.constexpr,
):
    """At most so many steps of each of a program's episodes, of which a seed has `count`; one is
    cut after `limit`. The actions are CHOOSE(policy, states, number of the episode, its steps so
    far, S)."""
    number = tl.program_id(1) * LANES + tl.arange(0, LANES)
    live = number < count
    at = seed * count + number
    stream = tl.load(e.stream + at, mask=live, other=0)
    length = tl.load(e.length + at, mask=live, other=0)
    ret = tl.load(e.ret + at, mask=live, other=0.0)
    over = tl.load(e.over + at, mask=live, other=IS_ENDED).to(tl.int32)
    state = load_state(e.state, at, live, E.task.states, E.task.states)
    state = renewed(length == 0, E.task.begin(stream, length * 0), state, E.task.states)
    left = tl.where(tl.sum((over == 0).to(tl.int32), 0) > 0, steps, 0)
    while left > 0:
        action = CHOOSE(policy, state, number, length, S)
        after, won, terminated = E.task.advance(state, action)
        running = over == 0
        state = renewed(running, after, state, E.task.states)
        ret = tl.where(running, ret + won, ret)
        length = tl.where(running, length + 1, length)
        ended = terminated | (length >= E.task.limit)
        now = tl.where(ended, IS_ENDED, tl.where(length >= limit, IS_CUT, 0))
        over = tl.where(running, now, over)
        left = tl.where(tl.sum((over == 0).to(tl.int32), 0) > 0, left - 1, 0)
    store_state(e.state, state, at, live, E.task.states, E.task.states)
    tl.store(e.length + at, length, mask=live)
    tl.store(e.ret + at, ret, mask=live)
    tl.store(e.over + at, over.to(tl.uint8), mask=live)


# one launch of an algorithm's kernel: (episodes, count, steps, limit, grid)
Launch = Callable[[EpisodeRows, int, int, int, tuple[int, int]], None]


def play(
    launch: Launch,
    task: Any,
    streams: list[list[Any]],
    limit: int,
    device: Any,
    stop: Callable[[], bool] = bool,
) -> list[Played] | None:
    """The episodes of each seed that begin by these streams, each cut after `limit` steps; None
    where `stop`, which is asked after every launch, said so. A limit of 0 plays nothing."""
    seeds, count = len(streams), len(streams[0])

    def zeros(*shape: int, dtype: Any) -> torch.Tensor:
        return torch.zeros(seeds, count, *shape, dtype=dtype, device=device)

    episodes = EpisodeRows(
        torch.stack([key_tensor(of_seed, "cpu") for of_seed in streams]).to(device),
        zeros(task.states, dtype=torch.float64),
        zeros(dtype=torch.int64),
        zeros(dtype=torch.float64),
        zeros(dtype=torch.uint8),
    )
    grid = (seeds, -(-count // EPISODES))
    while True:
        launch(episodes, count, min(AT_ONCE, limit), limit, grid)
        if not limit or bool((episodes.over > 0).all()):
            break
        if stop():
            return None
    rows = (episodes.ret, episodes.length, episodes.over == CUT)
    return [Played(*of_seed) for of_seed in zip(*(row.cpu().numpy() for row in rows), strict=True)]
