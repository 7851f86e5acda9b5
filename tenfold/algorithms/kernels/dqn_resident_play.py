"""Acting and storing of the resident engine: a step of every environment, into the rows of the
replay memory, as `memory.replay_rows.add_rows` writes them."""

import triton.language as tl

from tenfold.algorithms.kernels.dqn_resident_arrays import (
    CHOICE,
    COIN,
    EXPLORE,
    SCALE,
    EnvState,
    arrays_of,
)
from tenfold.memory.replay_rows import FINAL, PENDING, STEP, TERMINATED, TRUNCATED
from tenfold.ops.device import network, sampling, td
from tenfold.ops.device.episodes import (
    LANES,
    any_of,
    as_rows,
    note_ended,
    of_lane,
    play_episodes,
    renewed,
    rows_of,
    total,
)
from tenfold.ops.device.language import gpu_kernel, schedule_at, uniform

IS_PENDING, IS_STEP = tl.constexpr(PENDING), tl.constexpr(STEP)
IS_TERMINATED, IS_TRUNCATED, IS_FINAL = (
    tl.constexpr(kind) for kind in (TERMINATED, TRUNCATED, FINAL)
)


@gpu_kernel
def choose(a, values, counts, lane, S: tl.constexpr):
    """The exploring policy's actions for action values [lanes, …]."""
    V: tl.constexpr = S.outputs
    level = schedule_at(a.params + EXPLORE, counts.step, S.schedules[1])
    at = counts.rounds * S.envs + lane
    choice = tl.load(a.streams + CHOICE)
    if S.boltzmann:
        best, most = lane * 0, lane.to(tl.float64) * 0.0 + float("-inf")
        actions: tl.constexpr = V.actions
        for action in tl.static_range(actions):
            u = uniform(choice, at * V.actions + action)
            noise = -tl.log(-tl.log(tl.maximum(u, 1.1102230246251565e-16)))
            mean = of_lane(td.total_of(values, V.duel + action, V), S.envs) / V.atoms
            score = mean.to(tl.float64) + level * noise
            best = tl.where(score > most, action, best)
            most = tl.maximum(score, most)
    else:
        random = (uniform(choice, at) * V.actions).to(tl.int32)
        best = of_lane(td.best_group(values, V), S.envs) - V.duel
        best = tl.where(uniform(tl.load(a.streams + COIN), at) < level, random, best)
    return best


@gpu_kernel
def new_priority(a, row, valid, value, S: tl.constexpr):
    """Sets leaves of the tree where `valid`; nothing without priorities."""
    if S.prioritized:
        if any_of(valid, S.envs):
            sampling.put(a.tree, S.leaves, row, value, valid)


@gpu_kernel
def clear_row(a, row, live, ready, S: tl.constexpr):
    """Rows that are about to be written, and which of them are ready; how many these are."""
    tl.store(a.kind + row, (row * 0 + IS_PENDING).to(tl.uint8), mask=live)
    was = live & (ready != 0)
    tl.store(a.ready + row, (row * 0).to(tl.uint8), mask=was)
    new_priority(a, row, was, row.to(tl.float64) * 0.0, S)
    return total(was.to(tl.int64), S.envs)


@gpu_kernel
def complete_rows(a, lanes, ended, top, S: tl.constexpr):
    """Marks the rows whose n-step return can be computed now, none of which is marked yet; how many
    these are."""
    base, count = lanes.lane * S.length, total(lanes.head * 0, S.envs)
    for back in range(S.n_step):
        valid = lanes.live & (lanes.head - back >= lanes.start) & (ended | (back == S.n_step - 1))
        position = lanes.position - back
        row = base + tl.where(position < 0, position + S.length, position)
        tl.store(a.ready + row, (row * 0 + 1).to(tl.uint8), mask=valid)
        new_priority(a, row, valid, row.to(tl.float64) * 0.0 + top, S)
        count += total(valid.to(tl.int64), S.envs)
    return count


@gpu_kernel
def next_position(position, by, S: tl.constexpr):
    position += by
    return tl.where(position >= S.length, position - S.length, position)


@gpu_kernel
def store_obs(a, row, valid, rows, S: tl.constexpr):
    column = tl.arange(0, S.net.pads[0])[None, :]
    lane = tl.arange(0, S.lanes)[:, None]  # of one lane all rows are alike, and the first counts
    offset = (as_rows(row, S.envs) + lane * 0) * S.task.obs + column
    is_valid = as_rows(valid.to(tl.int32), S.envs) + lane * 0 > 0
    mask = (lane < S.envs) & is_valid & (column < S.task.obs)
    tl.store(a.obs + offset, rows, mask=mask)


@gpu_kernel
def play(a, lanes, counts, action, ready_next, S: tl.constexpr):
    """One step of every environment, stored as `replay_rows.add_rows` does. `ready_next` says
    whether the next row of each lane is ready, which takes a while to load."""
    lane, live, base = lanes.lane, lanes.live, lanes.lane * S.length
    state, won, terminated = S.task.advance(lanes.state, action)
    length, ret = lanes.length + 1, lanes.ret + won
    truncated = length >= S.task.limit
    ended = (terminated | truncated) & live
    final = rows_of(S.task.observe(state), S.envs, S.lanes, S.net.pads[0], S.task.obs)
    row = base + lanes.position
    tl.store(a.action + row, action.to(tl.int32), mask=live)
    tl.store(a.reward + row, won.to(tl.float32), mask=live)
    kind = tl.where(terminated, IS_TERMINATED, tl.where(truncated, IS_TRUNCATED, IS_STEP))
    tl.store(a.kind + row, kind.to(tl.uint8), mask=live)
    ready = counts.ready + complete_rows(a, lanes, ended, counts.top, S)
    position = next_position(lanes.position, 1, S)
    ready -= clear_row(a, base + position, live, ready_next, S)
    store_obs(a, base + position, live, final, S)
    noted, over = counts.noted, ended.to(tl.int64)
    episode = lanes.episode + over
    head = lanes.head + live.to(tl.int64) + over
    if any_of(ended, S.envs):
        # the round is stored with the lane: launches are of any length
        at = counts.rounds * S.envs + lane
        noted = note_ended(ended, at, ret, length, a.ended, noted, S.most, S.envs)
        state = renewed(ended, S.task.begin(lanes.stream, episode), state, S.task.states)
        tl.store(a.kind + base + position, (row * 0 + IS_FINAL).to(tl.uint8), mask=ended)
        position = next_position(position, ended.to(tl.int32), S)
        ready_after = tl.load(a.ready + base + position, mask=ended, other=0)
        tl.debug_barrier()  # every thread has read what one of them is about to write
        ready -= clear_row(a, base + position, ended, ready_after, S)
    obs = rows_of(S.task.observe(state), S.envs, S.lanes, S.net.pads[0], S.task.obs)
    store_obs(a, base + position, ended, obs, S)
    tl.debug_barrier()
    lanes = EnvState(
        lane,
        live,
        lanes.stream,
        state,
        obs,
        tl.where(ended, 0, length),
        episode,
        tl.where(ended, 0.0, ret),
        head,
        position,
        tl.where(ended, head, lanes.start),
    )
    return lanes, ready, noted


# greedy episodes: all seeds and all episodes of an evaluation in one launch


@gpu_kernel
def greedy(policy, state, number, length, S: tl.constexpr):
    """argmax_a Q(s, a)."""
    V: tl.constexpr = S.outputs
    layers, scale = policy
    rows = rows_of(S.task.observe(state), LANES, LANES, S.net.pads[0], S.task.obs)
    return td.best_group(td.values(layers, rows * scale, S), V) - V.duel


@gpu_kernel(do_not_specialize=["count", "steps", "limit"])
def evaluate(arrays, episodes, count, steps, limit, E: tl.constexpr, S: tl.constexpr):
    """At most so many steps of every episode of every seed."""
    seed = tl.program_id(0).to(tl.int64)
    a = arrays_of(arrays, seed, S)
    N: tl.constexpr = S.net
    policy = (network.load(a.block, N), tl.load(a.params + SCALE).to(tl.float32))
    play_episodes(episodes, policy, seed, count, steps, limit, greedy, E, S)
