"""The kernels of fused PPO: a learning phase (all epochs of minibatches), and a round: storing a
step, finishing a full rollout, learning from it, choosing the next action.

All parameters lie in one buffer: deviations, policy, value.
"""

import numpy as np

from tenfold.algorithms.kernels.ppo_arrays import (
    ACTIVATION,
    ADAM_EPS,
    ADVANTAGE,
    CLIP,
    CLIP_NORM,
    COINS,
    COLUMNS,
    EMPTY,
    ENTROPY,
    EPOCHS,
    FIRST,
    GAMMA,
    LAM,
    LAST,
    LOG_P,
    LR,
    MINIBATCHES,
    MOVED,
    NORM,
    NORM_CLIP,
    NORM_EPS,
    NORMALIZE,
    NORMALS,
    OBS_SCALE,
    REFUSE,
    ROUNDS,
    SCALE,
    SHUFFLES,
    STEP,
    TARGET,
    TARGET_KL,
    VALUE,
    VALUE_CLIP,
    VALUE_WEIGHT,
    WEIGHT,
    open_arrays,
)
from tenfold.algorithms.ppo import GRAD, MEAN, ONLINE, SQUARE
from tenfold.core.kernels import kernel, schedule_at
from tenfold.engines.fused import ACTED, STORED, looks, many_rounds, note, transpose_rows
from tenfold.envs.control import play_all
from tenfold.memory.rollout import finish_rollout, store_step
from tenfold.ops.adam import adam_numba, clip_numba
from tenfold.ops.mlp import mlp_backward, mlp_forward, parameter_total
from tenfold.ops.moments import norm_apply, norm_scale, norm_update
from tenfold.ops.sampling import shuffle
from tenfold.ops.surrogate import KL, draw_action, policy_gradient, value_gradient


@kernel
def outputs_of(room, sizes, rows):
    """The part of scratch that all layers' outputs for so many rows take."""
    return room[: sizes[1:].sum() * rows]


@kernel
def inputs_of(table, rows):
    """The part of scratch that so many rows take: observations [features, rows]."""
    a = open_arrays(table)
    features = a.policy_sizes[0]
    return a.inputs[: features * rows].reshape(features, rows)


@kernel
def reals_of(table, rows):
    """As `inputs_of`: the numbers of actions [rows, D]."""
    a = open_arrays(table)
    reals = a.r_real.shape[2]
    return a.columns[COLUMNS : COLUMNS + reals].reshape(-1)[: rows * reals].reshape(rows, reals)


@kernel
def gather_rows(first, last, table, r_obs):
    """The rows order[first … last − 1] of the rollout, into the scratch of a minibatch."""
    a = open_arrays(table)
    rows, all_rows, reals, features = last - first, a.order.size, a.r_real.shape[2], r_obs.shape[2]
    inputs, real, columns = inputs_of(table, rows), reals_of(table, rows), a.columns
    obs, all_chosen = r_obs.reshape(all_rows, features), a.r_chosen.reshape(all_rows, a.sizes.size)
    all_real = a.r_real.reshape(all_rows, reals)
    all_masks = a.r_mask.reshape(all_rows, a.r_mask.shape[2])
    log_p, value, advantage = (
        a.r_log_p.reshape(-1),
        a.r_value.reshape(-1),
        a.r_advantage.reshape(-1),
    )
    target, weight = a.r_target.reshape(-1), a.r_weight.reshape(-1)
    factor = np.float32(a.rule[OBS_SCALE])
    for i in range(rows):
        place = a.order[first + i]
        for j in range(features):
            inputs[j, i] = obs[place, j] * factor
        for c in range(a.sizes.size):
            a.chosen[i, c] = all_chosen[place, c]
        for d in range(reals):
            real[i, d] = all_real[place, d]
        for k in range(all_masks.shape[1]):
            a.mask[i, k] = all_masks[place, k]
        columns[LOG_P, i] = log_p[place]
        columns[VALUE, i] = value[place]
        columns[ADVANTAGE, i] = advantage[place]
        columns[TARGET, i] = target[place]
        columns[WEIGHT, i] = weight[place]


@kernel(inline="always")
def policy_slopes(rows, table, output, by_output):
    """The derivative of a minibatch's loss by the policy's output, and by the deviations."""
    a = open_arrays(table)
    rule, reals = a.rule, a.r_real.shape[2]
    policy_gradient(
        output,
        a.block[ONLINE][:reals],
        a.sizes,
        a.chosen[:rows],
        reals_of(table, rows),
        a.mask[:rows],
        a.columns[LOG_P, :rows],
        a.columns[ADVANTAGE, :rows],
        a.columns[WEIGHT, :rows],
        rule[CLIP],
        rule[ENTROPY],
        by_output,
        a.block[GRAD][:reals],
        a.sums,
    )


@kernel(inline="always")
def value_slopes(rows, table, guess, by_value):
    """The derivative of a minibatch's loss by the values."""
    a = open_arrays(table)
    value_gradient(
        guess,
        a.columns[TARGET, :rows],
        a.columns[VALUE, :rows],
        a.columns[WEIGHT, :rows],
        a.rule[VALUE_CLIP],
        a.rule[VALUE_WEIGHT],
        by_value,
        a.sums,
    )


@kernel(inline="always")
def find_gradient(rows, table):
    """The gradient of the loss of a minibatch, deviations, policy and value."""
    a = open_arrays(table)
    p_sizes, v_sizes = a.policy_sizes, a.value_sizes
    activation, flat, grad = int(a.rule[ACTIVATION]), a.block[ONLINE], a.block[GRAD]
    reals = a.r_real.shape[2]
    split = reals + parameter_total(p_sizes)
    policy, inputs = flat[reals:split], inputs_of(table, rows)
    # the policy
    hidden, delta = outputs_of(a.hidden, p_sizes, rows), outputs_of(a.delta, p_sizes, rows)
    output = mlp_forward(policy, p_sizes, activation, inputs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    policy_slopes(rows, table, output, by_output)
    mlp_backward(policy, p_sizes, activation, inputs, hidden, delta, a.turned, grad[reals:split])
    # the value
    hidden, delta = outputs_of(a.hidden, v_sizes, rows), outputs_of(a.delta, v_sizes, rows)
    guess = mlp_forward(flat[split:], v_sizes, activation, inputs, hidden)
    by_value = delta[delta.size - guess.size :].reshape(guess.shape)
    value_slopes(rows, table, guess, by_value)
    mlp_backward(flat[split:], v_sizes, activation, inputs, hidden, delta, a.turned, grad[split:])


@kernel(inline="always")
def find_minibatch_gradient(first, last, given):
    """From the rows order[first … last − 1]."""
    table, r_obs = given
    gather_rows(first, last, table, r_obs)
    find_gradient(last - first, table)


@kernel(inline="always")
def learn_parts(table, order, gradient, given):
    """The minibatches counter[FIRST … LAST − 1], parts of `order`, which every epoch shuffles. Each
    is one update from `gradient(first, last, given)`. The phase ends early where the policy has
    moved far enough."""
    a = open_arrays(table)
    counter, rule, sums, grad = a.counter, a.rule, a.sums, a.block[GRAD]
    size, count = order.size, int(rule[MINIBATCHES])
    for number in range(counter[FIRST], counter[LAST]):
        part = number % count
        if part == 0:
            shuffle(a.streams[SHUFFLES], a.updates[1], order)
            a.updates[1] += 1
            rule[MOVED] = 0
        before = sums[KL]
        gradient(size * part // count, size * (part + 1) // count, given)
        _, norm = clip_numba(grad, rule[CLIP_NORM])
        a.updates[0] += 1
        lr = schedule_at(rule, LR, counter[STEP])
        moments = (a.block[MEAN], a.block[SQUARE], a.updates[0])
        adam_numba(a.block[ONLINE], grad, *moments, lr, rule[ADAM_EPS])
        sums[5] += norm
        sums[6] += 1
        rule[MOVED] += (sums[KL] - before) / count
        counter[FIRST] = number + 1
        if part == count - 1 and rule[MOVED] > rule[TARGET_KL]:
            break


@kernel(inline="always")
def learn_due(table, r_obs):
    """All minibatches that are due."""
    learn_parts(table, open_arrays(table).order, find_minibatch_gradient, (table, r_obs))


# a round


# parts of a round, to be added up
STORE, FINISH, UPDATE, ACT = 1, 2, 4, 8
# of a step within a rollout; typed: Numba compiles a function once more for each literal number
PLAYING = np.int64(STORE | ACT)


@kernel
def show(obs, table):
    """Observations that were not counted into the running statistics, as the networks' inputs."""
    a = open_arrays(table)
    if a.rule[NORM]:
        norm_apply(obs, a.norm_mean, a.norm_inverse, a.rule[NORM_CLIP], a.seen)
        transpose_rows(a.seen, 1.0, a.act_inputs)
    else:
        transpose_rows(obs, a.rule[OBS_SCALE], a.act_inputs)


@kernel
def values_of(obs, table):
    """Values [1, B] of such observations."""
    a = open_arrays(table)
    flat = a.block[ONLINE]
    show(obs, table)
    return mlp_forward(
        flat[flat.size - parameter_total(a.value_sizes) :],
        a.value_sizes,
        int(a.rule[ACTIVATION]),
        a.act_inputs,
        a.act_hidden,
    )


@kernel
def has_empty(mask, sizes):
    """Whether some component has no allowed option."""
    for b in range(mask.shape[0]):
        at = 0
        for c in range(sizes.size):
            allowed = mask.shape[1] == 0
            for k in range(at, at + sizes[c]):
                allowed = allowed or mask[b, k]
            if not allowed:
                return True
            at += sizes[c]
    return False


@kernel
def note_step(table):
    """The step just made, into the rollout's current row; whether a time limit cut some lane."""
    a = open_arrays(table)
    store_step(
        a.r_count[0],
        a.rule[GAMMA],
        a.rule[SCALE],
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        a.r_reward,
        a.r_discount,
        a.r_boundary,
        a.r_weight,
    )
    cut = False
    for b in range(a.e_truncated.size):
        cut |= a.e_truncated[b]
        a.counter[STEP] += not a.e_skipped[b]
    return cut


@kernel
def end_step(table, e_obs):
    """The running statistics learn, and the next row is the current one."""
    a = open_arrays(table)
    if a.rule[NORM]:
        norm_update(a.norm_count, a.norm_mean, a.norm_square, e_obs)
        norm_scale(a.norm_count, a.norm_square, a.rule[NORM_EPS], a.norm_inverse)
    a.counter[ROUNDS] += 1
    a.r_count[0] += 1


@kernel(inline="always")
def store_last(table, e_obs, e_final_obs):
    """The step just made, and values of final observations at time limits."""
    a = open_arrays(table)
    t = a.r_count[0]
    if note_step(table):
        final = values_of(e_final_obs, table)
        for b in range(a.e_truncated.size):
            if a.e_truncated[b]:
                a.r_next[t, b] = final[0, b]
    end_step(table, e_obs)


@kernel
def finish_with(table, last):
    """Advantages of the full rollout, by the values of what is acted on next; every epoch's
    minibatches are then due."""
    a = open_arrays(table)
    finish_rollout(
        a.r_reward,
        a.r_discount,
        a.r_value,
        a.r_next,
        a.r_boundary,
        a.r_weight,
        last,
        a.rule[LAM],
        a.rule[NORMALIZE] > 0,
        a.r_advantage,
        a.r_target,
    )
    a.r_count[0] = 0
    a.counter[FIRST], a.counter[LAST] = 0, int(a.rule[EPOCHS] * a.rule[MINIBATCHES])


@kernel
def begin_row(table, r_obs, e_obs):
    """What is acted on, into the rollout's current row; False where a mask allows nothing."""
    a = open_arrays(table)
    t, size = a.r_count[0], e_obs.shape[0]
    if a.rule[NORM]:
        norm_apply(e_obs, a.norm_mean, a.norm_inverse, a.rule[NORM_CLIP], r_obs[t])
    else:
        for b in range(size):
            for j in range(e_obs.shape[1]):
                r_obs[t, b, j] = e_obs[b, j]
    for b in range(size):
        for k in range(a.e_mask.shape[1]):
            a.r_mask[t, b, k] = a.e_mask[b, k]
    if a.rule[REFUSE] and has_empty(a.e_mask, a.sizes):
        a.counter[EMPTY] = 1
        return False
    return True


@kernel(inline="always")
def draw_next(table, output):
    """Actions that the policy's output says, into the rollout's current row."""
    a = open_arrays(table)
    t, lanes = a.r_count[0], a.r_log_p.shape[1]
    draw_action(
        output,
        a.block[ONLINE][: a.r_real.shape[2]],
        a.sizes,
        a.e_mask,
        a.streams[COINS],
        a.streams[NORMALS],
        a.counter[ROUNDS] * lanes,
        a.act_scratch,
        a.r_chosen[t],
        a.r_real[t],
        a.r_log_p[t],
    )


@kernel(inline="always")
def choose_next(table, r_obs, e_obs):
    """Actions for the current observations, into the rollout's current row."""
    if not begin_row(table, r_obs, e_obs):
        return
    a = open_arrays(table)
    t, size, flat, activation = (
        a.r_count[0],
        e_obs.shape[0],
        a.block[ONLINE],
        int(a.rule[ACTIVATION]),
    )
    transpose_rows(r_obs[t], a.rule[OBS_SCALE], a.act_inputs)
    reals = a.r_real.shape[2]
    split = reals + parameter_total(a.policy_sizes)
    output = mlp_forward(flat[reals:split], a.policy_sizes, activation, a.act_inputs, a.act_hidden)
    draw_next(table, output)
    value = mlp_forward(flat[split:], a.value_sizes, activation, a.act_inputs, a.act_hidden)
    for b in range(size):
        a.r_value[t, b] = value[0, b]


@kernel
def fused_ppo(parts, table, r_obs, e_obs, e_final_obs):
    """Store the step just made, finish the full rollout, learn from it, choose the next action:
    those that `parts` ask for."""
    counter = open_arrays(table).counter
    if parts & STORE:
        began = looks(counter[ROUNDS])
        store_last(table, e_obs, e_final_obs)
        note(counter, STORED, began)
    if parts & FINISH:
        finish_with(table, values_of(e_obs, table)[0])
    if parts & UPDATE:
        learn_due(table, r_obs)
    if parts & ACT:
        began = looks(counter[ROUNDS])
        choose_next(table, r_obs, e_obs)
        note(counter, ACTED, began)


@kernel
def played(low, high, action, lanes, table):
    """One step of a compiled environment by the actions in the rollout's current row: what
    `play_all` gives."""
    a = open_arrays(table)
    t = a.r_count[0]
    for b in range(action.size):
        action[b] = a.r_chosen[t, b, 0] if a.sizes.size else min(max(a.r_real[t, b, 0], low), high)
    return play_all(action, lanes)


@kernel
def fused_ppo_rounds(most, low, high, action, lanes, table, r_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment and `fused_ppo`: see `many_rounds`."""
    moves, given = (low, high, action, lanes, table), (table, r_obs, e_obs, e_final_obs)
    return many_rounds(played, moves, fused_ppo, PLAYING, most, given)
