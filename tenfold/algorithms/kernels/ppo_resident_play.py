"""Acting of the resident engine: a program plays some lanes of one seed for many steps, its policy
in registers, and writes the rows of the rollout; and evaluations."""

import triton.language as tl

from tenfold.algorithms.kernels.ppo_resident_arrays import (
    COINS,
    GAMMA,
    NORM_CLIP,
    NORM_EPS,
    NORMALS,
    OBS_SCALE,
    REWARD_SCALE,
    arrays_of,
    deviations,
    param,
)
from tenfold.ops.device import network, policy
from tenfold.ops.device.episodes import (
    LANES,
    load_lanes,
    load_state,
    play_episodes,
    renewed,
    rows_of,
    store_lanes,
)
from tenfold.ops.device.language import gpu_kernel

SPAN = tl.constexpr(2**32)  # draws between those of two episodes, as `sampled_by_step` has them
SEVERAL = tl.constexpr(2)  # lanes: numbers of lanes are tensors, even those of one alone


@gpu_kernel
def lanes_of(S: tl.constexpr):
    """(numbers of this program's lanes, which of them there are)."""
    lane = tl.program_id(0) * S.lanes + tl.arange(0, S.lanes)
    return lane, lane < S.envs


@gpu_kernel
def observed(a, state, LANES: tl.constexpr, S: tl.constexpr):
    """Observations of lanes, as their policy takes them [LANES, …]."""
    width: tl.constexpr = S.task.obs
    numbers, result = S.task.observe(state), ()
    for j in tl.static_range(width):
        x = numbers[j].to(tl.float32)
        if S.normalizes:
            mean, inverse = tl.load(a.norm + j), tl.load(a.norm + 2 * width + j)
            clip = tl.load(a.params + NORM_CLIP)
            x = (x.to(tl.float64) - mean) * inverse
            x = tl.minimum(tl.maximum(x, -clip), clip).to(tl.float32)
        result = result + (x,)
    return rows_of(result, SEVERAL, LANES, S.policy_net.pads[0], width)


@gpu_kernel
def allowed_of(state, LANES: tl.constexpr, S: tl.constexpr):
    """Which options are allowed now [LANES, columns], not 0 where."""
    P: tl.constexpr = S.actions
    width: tl.constexpr = S.policy_net.pads[len(S.policy_net.pads) - 1]
    if P.masked:
        return rows_of(S.task.mask(state), SEVERAL, LANES, width, P.options)
    else:
        return tl.full((LANES, width), 1.0, tl.float32)


@gpu_kernel
def store_obs(target, row, rows, lane, valid, S: tl.constexpr):
    column = tl.arange(0, S.policy_net.pads[0])[None, :]
    index = (row * S.envs + lane)[:, None] * S.task.obs + column
    tl.store(target + index, rows, mask=valid[:, None] & (column < S.task.obs))


@gpu_kernel
def store_allowed(a, row, allowed, lane, live, S: tl.constexpr):
    P: tl.constexpr = S.actions
    if P.masked:
        column = tl.arange(0, allowed.shape[1])[None, :]
        index = (row * S.envs + lane)[:, None] * P.options + column
        mask = live[:, None] & (column < P.options)
        tl.store(a.mask + index, (allowed != 0).to(tl.uint8), mask=mask)


@gpu_kernel
def note_empty(a, allowed, lane, live, S: tl.constexpr):
    """Notes a component without an allowed option, which the host refuses."""
    P: tl.constexpr = S.actions
    if S.refuses:
        index = a.empty + tl.program_id(0) * 2
        for c in tl.static_range(len(P.sizes)):
            options = policy.allowed_options(allowed, c, P)
            none = live & (tl.sum(options.to(tl.int32), 1) == 0)
            result = tl.max(tl.where(none, lane + 1, 0), 0).to(tl.int64)
            tl.store(index, result, mask=result > 0)
            tl.store(index + 1, result * 0 + c + 1, mask=result > 0)


@gpu_kernel
def bounded(number, d: tl.constexpr, S: tl.constexpr):
    """A number of the action as the environment takes it."""
    x = number.to(tl.float64)
    low, high = x * 0.0 + S.low[d], x * 0.0 + S.high[d]
    if S.squash:
        return low + (high - low) * tl.sigmoid(2.0 * x)
    return tl.minimum(tl.maximum(x, low), high)


@gpu_kernel
def for_task(discrete, real, S: tl.constexpr):
    """The action as the task takes it: one tensor, or a tuple of several."""
    reals: tl.constexpr = S.actions.reals
    action = discrete
    for d in tl.static_range(reals):
        action = action + (bounded(real[d], d, S),)
    return action[0] if S.alone else action


@gpu_kernel
def store_action(a, row, lane, live, discrete, real, log_p, S: tl.constexpr):
    P: tl.constexpr = S.actions
    reals: tl.constexpr = P.reals
    index = row * S.envs + lane
    for c in tl.static_range(len(P.sizes)):
        tl.store(a.chosen + index * len(P.sizes) + c, discrete[c].to(tl.int64), mask=live)
    for d in tl.static_range(reals):
        tl.store(a.real + index * reals + d, real[d], mask=live)
    tl.store(a.log_p + index, log_p, mask=live)


@gpu_kernel
def note_ended(a, ended, rounds, lane, ret, length, noted, S: tl.constexpr):
    """Episodes that ended, where the oldest of this program's are overwritten; how many there are
    then."""
    number = noted + tl.cumsum(ended.to(tl.int64), 0) - 1
    row = a.ended + (tl.program_id(0) * S.max_noted + number % S.max_noted) * 4
    tl.store(row, (lane * 0 + rounds).to(tl.float64), mask=ended)
    tl.store(row + 1, lane.to(tl.float64), mask=ended)
    tl.store(row + 2, ret, mask=ended)
    tl.store(row + 3, length.to(tl.float64), mask=ended)
    return noted + tl.sum(ended.to(tl.int64), 0)


@gpu_kernel(do_not_specialize=["count"])
def play(arrays, count, S: tl.constexpr):
    """So many steps of every lane, into the rows from the current one on."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    N: tl.constexpr = S.policy_net
    P: tl.constexpr = S.actions
    lane, live = lanes_of(S)
    layers, log_std = network.load(a.block + S.actions.reals, N), deviations(a, S)
    state, length, episode, ret, stream = load_lanes(a, lane, live, S)
    clock = a.clock + tl.program_id(0) * 2
    row, rounds, noted = tl.load(clock), tl.load(clock + 1), tl.load(a.noted + tl.program_id(0))
    coins, normals = tl.load(a.streams + COINS), tl.load(a.streams + NORMALS)
    scale, gamma = param(a, OBS_SCALE), param(a, GAMMA)
    reward_scale = tl.load(a.params + REWARD_SCALE)
    for _ in range(count):
        rows = observed(a, state, S.lanes, S)
        store_obs(a.obs, row, rows, lane, live, S)
        allowed = allowed_of(state, S.lanes, S)
        store_allowed(a, row, allowed, lane, live, S)
        note_empty(a, allowed, lane, live, S)
        output = network.forward(layers, rows * scale, N)[N.layers]
        at = rounds * S.envs + lane
        discrete, real, log_p = policy.draw(output, log_std, allowed, coins, normals, at, P)
        store_action(a, row, lane, live, discrete, real, log_p, S)
        state, won, terminated = S.task.advance(state, for_task(discrete, real, S))
        length, ret, index = length + 1, ret + won, row * S.envs + lane
        truncated = length >= S.task.limit
        ended = (terminated | truncated) & live
        tl.store(a.reward + index, (won * reward_scale).to(tl.float32), mask=live)
        tl.store(a.discount + index, tl.where(terminated, 0.0, gamma), mask=live)
        tl.store(a.boundary + index, ended.to(tl.float32), mask=live)
        tl.store(a.weight + index, tl.where(live, 1.0, 0.0), mask=live)
        store_obs(a.final, row, observed(a, state, S.lanes, S), lane, truncated & live, S)
        row, rounds, episode = row + 1, rounds + 1, episode + ended.to(tl.int64)
        if tl.sum(ended.to(tl.int32), 0) > 0:
            noted = note_ended(a, ended, rounds, lane, ret, length, noted, S)
            state = renewed(ended, S.task.begin(stream, episode), state, S.task.states)
        length, ret = tl.where(ended, 0, length), tl.where(ended, 0.0, ret)
    store_lanes(a, state, length, episode, ret, lane, live, S)
    tl.store(clock, row)
    tl.store(clock + 1, rounds)
    tl.store(a.noted + tl.program_id(0), noted)


@gpu_kernel
def show(arrays, S: tl.constexpr):
    """What is acted on next, into the row behind the rollout's last."""
    a = arrays_of(arrays, tl.program_id(1).to(tl.int64), S)
    lane, live = lanes_of(S)
    state = load_state(a.state, lane, live, S.task.states, S.state_width)
    store_obs(
        a.obs,
        tl.load(a.clock + tl.program_id(0) * 2),
        observed(a, state, S.lanes, S),
        lane,
        live,
        S,
    )


@gpu_kernel
def store_inverse(a, j, m2, count, width: tl.constexpr):
    """1/√(σ² + ε) with σ² = M2/n."""
    inverse = 1.0 / tl.sqrt(m2 / count + tl.load(a.params + NORM_EPS))
    tl.store(a.norm + 2 * width + j, inverse)


@gpu_kernel
def norm_update(arrays, S: tl.constexpr):
    """What all lanes of a seed see now, into the running statistics, as `ops.moments.merged`."""
    a = arrays_of(arrays, tl.program_id(0).to(tl.int64), S)
    width: tl.constexpr = S.task.obs
    before, valid = tl.load(a.norm_count), S.envs
    total = (before + valid).to(tl.float64)
    for j in tl.static_range(width):
        sum_ = tl.arange(0, S.lanes).to(tl.float64) * 0.0
        square = sum_
        mean, m2 = tl.load(a.norm + j), tl.load(a.norm + S.task.obs + j)
        for block in range(S.blocks):
            lane = block * S.lanes + tl.arange(0, S.lanes)
            live = lane < S.envs
            state = load_state(a.state, lane, live, S.task.states, S.state_width)
            away = S.task.observe(state)[j].to(tl.float32).to(tl.float64) - mean
            away = tl.where(live, away, 0.0)
            sum_ += away
            square += away * away
        moved = tl.sum(sum_, 0) / valid  # of the rows' mean from the one before
        inside = tl.sum(square, 0) - moved * moved * valid
        m2 += inside + moved * moved * before.to(tl.float64) * valid / total
        tl.store(a.norm + j, mean + moved * valid / total)
        tl.store(a.norm + width + j, m2)
        store_inverse(a, j, m2, total, width)
    tl.store(a.norm_count, before + valid)


@gpu_kernel
def norm_scale(arrays, S: tl.constexpr):
    """What the kernels multiply by, from the moments: a resumed run has the same bits."""
    a = arrays_of(arrays, tl.program_id(0).to(tl.int64), S)
    width: tl.constexpr = S.task.obs
    count = tl.load(a.norm_count)
    for j in tl.static_range(width):
        if count > 0:
            store_inverse(a, j, tl.load(a.norm + width + j), count.to(tl.float64), width)


# evaluations: all seeds and all episodes in one launch


@gpu_kernel
def output_of(actor, state, S: tl.constexpr):
    """(the policy's output, which options are allowed) of states."""
    a, layers, _ = actor
    N: tl.constexpr = S.policy_net
    rows = observed(a, state, LANES, S) * param(a, OBS_SCALE)
    return network.forward(layers, rows, N)[N.layers], allowed_of(state, LANES, S)


@gpu_kernel
def greedy(actor, state, number, length, S: tl.constexpr):
    """The most probable action."""
    P: tl.constexpr = S.actions
    output, allowed = output_of(actor, state, S)
    discrete, real = policy.mode(output, allowed, P)
    return for_task(discrete, real, S)


@gpu_kernel
def sampled(actor, state, number, length, S: tl.constexpr):
    """One drawn by the episode's number and step."""
    P: tl.constexpr = S.actions
    a, _, log_std = actor
    output, allowed = output_of(actor, state, S)
    coins, normals = tl.load(a.streams + COINS), tl.load(a.streams + NORMALS)
    at = number.to(tl.int64) * SPAN + length
    discrete, real, _ = policy.draw(output, log_std, allowed, coins, normals, at, P)
    return for_task(discrete, real, S)


@gpu_kernel(do_not_specialize=["count", "steps", "limit"])
def evaluate(
    arrays, episodes, count, steps, limit, ACTS: tl.constexpr, E: tl.constexpr, S: tl.constexpr
):
    """At most so many steps of every episode of every seed, by the policy ACTS."""
    seed = tl.program_id(0).to(tl.int64)
    a = arrays_of(arrays, seed, S)
    N: tl.constexpr = S.policy_net
    actor = (a, network.load(a.block + S.actions.reals, N), deviations(a, S))
    play_episodes(episodes, actor, seed, count, steps, limit, ACTS, E, S)
