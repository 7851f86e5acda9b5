"""PPO compiled: a learning phase (all epochs of minibatches), and the slots of a fused round
(`engines.fused`): storing a step, acting.

All parameters lie in one buffer: deviations, policy, value. Arrays that begin with r_ are the
rollout's, with e_ of the environments or of acting in them.
"""

import numpy as np

from tenfold.algorithms.ppo import PPO_GRAD, PPO_MEAN, PPO_ONLINE, PPO_SQUARE
from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.tables import open_table
from tenfold.core.work import begin_trial, end_trial
from tenfold.engines.fused import (
    ACT,
    DUE,
    FIRST_NUMBER,
    ROUNDS,
    STEP,
    STORE,
    many_rounds,
    one_round,
    transpose_rows,
)
from tenfold.envs.control import play_all
from tenfold.memory.rollout import store_in_rollout
from tenfold.ops.advantages import finish_rollout
from tenfold.ops.mlp import parameter_total, room_of
from tenfold.ops.moments import EPSILON, norm_apply, norm_scale, norm_update
from tenfold.ops.sampling import shuffle
from tenfold.ops.split_adam import adam_by_team, clip_by_team
from tenfold.ops.split_mlp import backward, forward
from tenfold.ops.surrogate import KL, draw_action, policy_gradient, value_gradient

FINISH = 8  # a stage of a round, besides those of `engines.fused`
# of a step within a rollout; typed: Numba compiles a function once more for each literal number
PLAYING = np.int64(STORE | ACT)
# in `counter`, behind those of `engines.fused`: the minibatches that are due
FIRST, LAST, COUNTS = 3, 4, 5
LOG_P, VALUE, ADVANTAGE, TARGET, WEIGHT, COLUMNS = range(6)  # of `columns`, before real actions
COINS, NORMALS, SHUFFLES = range(3)  # in `keys`


@kernel
def inputs_of(table, rows):
    """The part of scratch that so many rows take: observations [features, rows]."""
    a = open_table(table)
    features = a.policy_sizes[0]
    return a.inputs[: features * rows].reshape(features, rows)


@kernel
def reals_of(table, rows):
    """As `inputs_of`: the numbers of actions [rows, D]."""
    a = open_table(table)
    reals = a.r_real.shape[2]
    return a.columns[COLUMNS : COLUMNS + reals].reshape(-1)[: rows * reals].reshape(rows, reals)


@kernel
def gather_rows(first, last, table, r_obs):
    """The rows row_order[first … last − 1] of the rollout, into the scratch of a minibatch."""
    a = open_table(table)
    rows, all_rows = last - first, a.row_order.size
    reals, features = a.r_real.shape[2], r_obs.shape[2]
    inputs, real, columns = inputs_of(table, rows), reals_of(table, rows), a.columns
    obs, all_chosen = r_obs.reshape(all_rows, features), a.r_chosen.reshape(all_rows, a.sizes.size)
    all_real = a.r_real.reshape(all_rows, reals)
    all_masks = a.r_mask.reshape(all_rows, a.r_mask.shape[2])
    log_p, old_value = a.r_log_p.reshape(-1), a.r_value.reshape(-1)
    advantage, target = a.r_advantage.reshape(-1), a.r_target.reshape(-1)
    weight = a.r_weight.reshape(-1)
    factor = np.float32(a.obs_scale)
    for i in range(rows):
        row = a.row_order[first + i]
        for j in range(features):
            inputs[j, i] = obs[row, j] * factor
        for c in range(a.sizes.size):
            a.chosen[i, c] = all_chosen[row, c]
        for d in range(reals):
            real[i, d] = all_real[row, d]
        for k in range(all_masks.shape[1]):
            a.mask[i, k] = all_masks[row, k]
        columns[LOG_P, i] = log_p[row]
        columns[VALUE, i] = old_value[row]
        columns[ADVANTAGE, i] = advantage[row]
        columns[TARGET, i] = target[row]
        columns[WEIGHT, i] = weight[row]


@kernel(inline="always")
def policy_loss_gradient(rows, table, output, by_output):
    """The derivative of a minibatch's loss by the policy's output, and by the deviations."""
    a = open_table(table)
    reals = a.r_real.shape[2]
    acted = a.sizes, a.chosen[:rows], reals_of(table, rows), a.mask[:rows]
    columns = a.columns[LOG_P, :rows], a.columns[ADVANTAGE, :rows], a.columns[WEIGHT, :rows]
    results = by_output, a.block[PPO_GRAD][:reals], a.sums
    log_std = a.block[PPO_ONLINE][:reals]
    policy_gradient(output, log_std, *acted, *columns, a.clip, a.entropy, *results)


@kernel(inline="always")
def value_loss_gradient(rows, table, value, by_value):
    """The derivative of a minibatch's loss by the values."""
    a = open_table(table)
    columns = a.columns[TARGET, :rows], a.columns[VALUE, :rows], a.columns[WEIGHT, :rows]
    value_gradient(value, *columns, a.value_clip, a.value_weight, by_value, a.sums)


@kernel(inline="always")
def network_gradient(rows, table):
    """The gradient of the loss of a minibatch, deviations, policy and value."""
    a = open_table(table)
    p_sizes, v_sizes = a.policy_sizes, a.value_sizes
    activation, flat, grad = a.activation, a.block[PPO_ONLINE], a.block[PPO_GRAD]
    reals = a.r_real.shape[2]
    split = reals + parameter_total(p_sizes)
    policy, inputs = flat[reals:split], inputs_of(table, rows)
    hidden = room_of(a.hidden, p_sizes, activation, rows)
    delta = room_of(a.delta, p_sizes, activation, rows)
    output = forward(a.team, policy, p_sizes, activation, inputs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    policy_loss_gradient(rows, table, output, by_output)
    passed = activation, inputs, hidden, delta, a.scratch_t
    backward(a.team, policy, p_sizes, *passed, grad[reals:split])
    hidden = room_of(a.hidden, v_sizes, activation, rows)
    delta = room_of(a.delta, v_sizes, activation, rows)
    value = forward(a.team, flat[split:], v_sizes, activation, inputs, hidden)
    by_value = delta[delta.size - value.size :].reshape(value.shape)
    value_loss_gradient(rows, table, value, by_value)
    passed = activation, inputs, hidden, delta, a.scratch_t
    backward(a.team, flat[split:], v_sizes, *passed, grad[split:])


@kernel(inline="always")
def minibatch_gradient(first, last, arguments):
    """From the rows row_order[first … last − 1]."""
    table, r_obs = arguments
    gather_rows(first, last, table, r_obs)
    network_gradient(last - first, table)


@kernel(inline="always")
def learn_minibatches(table, order, gradient, arguments):
    """The minibatches counter[FIRST … LAST − 1] of `order`, which every epoch shuffles. Each is one
    update from `gradient(first, last, arguments)`. The phase ends early by target_kl."""
    a = open_table(table)
    counter, sums, grad = a.counter, a.sums, a.block[PPO_GRAD]
    size, count = order.size, a.minibatches
    for number in range(counter[FIRST], counter[LAST]):
        part = number % count
        if part == 0:
            shuffle(a.keys[SHUFFLES], a.updates_made[1], order)
            a.updates_made[1] += 1
            a.epoch_kl[0] = 0
        before, began = sums[KL], begin_trial(a.team)
        gradient(size * part // count, size * (part + 1) // count, arguments)
        norm = clip_by_team(a.team, grad, a.clip_norm)
        a.updates_made[0] += 1
        lr = schedule_at(a.lr, FIRST_NUMBER, counter[STEP])
        moments, optimiser = (a.block[PPO_MEAN], a.block[PPO_SQUARE]), (lr, a.adam_eps)
        step = (a.updates_made[0], *optimiser, a.weight_decay)
        adam_by_team(a.team, grad[:0], a.block[PPO_ONLINE], grad, *moments, *step)
        end_trial(a.team, began)
        sums[5] += norm
        sums[6] += 1
        a.epoch_kl[0] += (sums[KL] - before) / count
        counter[FIRST] = number + 1
        if part == count - 1 and a.epoch_kl[0] > a.target_kl:
            break


@kernel(inline="always")
def learn(table, r_obs):
    """All minibatches that are due."""
    learn_minibatches(table, open_table(table).row_order, minibatch_gradient, (table, r_obs))


# a round


@kernel
def unseen_inputs(obs, table):
    """Observations that were not counted into the running statistics, as the networks' inputs."""
    a = open_table(table)
    if a.norm.shape[1]:
        norm_apply(obs, a.norm[0], a.norm[2], a.norm_clip, a.e_rows)
        transpose_rows(a.e_rows, 1.0, a.e_inputs)
    else:
        transpose_rows(obs, a.obs_scale, a.e_inputs)


@kernel
def values_of(obs, table):
    """Values [1, B] of such observations."""
    a = open_table(table)
    flat = a.block[PPO_ONLINE]
    unseen_inputs(obs, table)
    value = flat[flat.size - parameter_total(a.value_sizes) :]
    return forward(a.team, value, a.value_sizes, a.activation, a.e_inputs, a.e_hidden)


@kernel
def first_empty(mask, sizes):
    """An environment in which some component has no allowed option, or -1."""
    for b in range(mask.shape[0]):
        at = 0
        for c in range(sizes.size):
            allowed = mask.shape[1] == 0
            for k in range(at, at + sizes[c]):
                allowed = allowed or mask[b, k]
            if not allowed:
                return b
            at += sizes[c]
    return -1


@kernel
def store_transition(table):
    """Stores the step in the rollout's current row; returns whether a time limit cut an episode."""
    a = open_table(table)
    step = a.e_reward, a.e_terminated, a.e_truncated, a.e_skipped
    rollout = a.r_reward, a.r_discount, a.r_boundary, a.r_weight
    store_in_rollout(a.r_count[0], a.gamma, a.reward_scale, *step, *rollout)
    cut = False
    for b in range(a.e_truncated.size):
        cut |= a.e_truncated[b]
        a.counter[STEP] += not a.e_skipped[b]
    return cut


@kernel
def bootstrap(table, final):
    """Values [1, B] of final observations, into the current row where a time limit cut."""
    a = open_table(table)
    t = a.r_count[0]
    for b in range(a.e_truncated.size):
        if a.e_truncated[b]:
            a.r_next_value[t, b] = final[0, b]


@kernel
def end_step(table, e_obs):
    """Updates the running statistics; makes the next row the current one."""
    a = open_table(table)
    if a.norm.shape[1]:
        norm_update(a.norm_count, a.norm[0], a.norm[1], e_obs)
        norm_scale(a.norm_count, a.norm[1], EPSILON, a.norm[2])
    a.counter[ROUNDS] += 1
    a.r_count[0] += 1


@kernel(inline="always")
def store(table, step):
    """Stores the step just made, and values of final observations at time limits."""
    _, e_obs, e_final_obs = step
    if store_transition(table):
        bootstrap(table, values_of(e_final_obs, table))
    end_step(table, e_obs)


@kernel
def finish(table, last_value):
    """Advantages of the full rollout, by the values of what is acted on next; every epoch's
    minibatches are then due."""
    a = open_table(table)
    rollout = a.r_reward, a.r_discount, a.r_value, a.r_next_value, a.r_boundary, a.r_weight
    results = a.r_advantage, a.r_target
    finish_rollout(*rollout, last_value, a.lam, a.normalize_advantage, *results)
    a.r_count[0] = 0
    a.counter[DUE], a.counter[FIRST], a.counter[LAST] = 1, 0, a.epochs * a.minibatches


@kernel
def begin_row(table, r_obs, e_obs):
    """Stores observations and masks in the rollout's current row. Returns an environment in which a
    mask allows no option of a component, where that is an error, or -1."""
    a = open_table(table)
    t, size = a.r_count[0], e_obs.shape[0]
    if a.norm.shape[1]:
        norm_apply(e_obs, a.norm[0], a.norm[2], a.norm_clip, r_obs[t])
    else:
        for b in range(size):
            for j in range(e_obs.shape[1]):
                r_obs[t, b, j] = e_obs[b, j]
    for b in range(size):
        for k in range(a.e_mask.shape[1]):
            a.r_mask[t, b, k] = a.e_mask[b, k]
    return first_empty(a.e_mask, a.sizes) if a.refuses_empty else -1


@kernel(inline="always")
def sample_actions(table, output):
    """Draws actions by the policy's output, into the rollout's current row."""
    a = open_table(table)
    t, num_envs = a.r_count[0], a.r_log_p.shape[1]
    log_std = a.block[PPO_ONLINE][: a.r_real.shape[2]]
    draws = a.keys[COINS], a.keys[NORMALS], a.counter[ROUNDS] * num_envs
    results = a.e_output, a.r_chosen[t], a.r_real[t], a.r_log_p[t]
    draw_action(output, log_std, a.sizes, a.e_mask, *draws, *results)


@kernel(inline="always")
def act(table, acting):
    """Actions for the current observations, into the rollout's current row; see `begin_row`."""
    r_obs, e_obs = acting
    empty = begin_row(table, r_obs, e_obs)
    if empty >= 0:
        return empty
    a = open_table(table)
    t, flat, reals = a.r_count[0], a.block[PPO_ONLINE], a.r_real.shape[2]
    transpose_rows(r_obs[t], a.obs_scale, a.e_inputs)
    split = reals + parameter_total(a.policy_sizes)
    policy, net = flat[reals:split], (a.activation, a.e_inputs, a.e_hidden)
    sample_actions(table, forward(a.team, policy, a.policy_sizes, *net))
    value = forward(a.team, flat[split:], a.value_sizes, *net)
    for b in range(e_obs.shape[0]):
        a.r_value[t, b] = value[0, b]
    return -1


@kernel
def ppo_round(stages, table, r_obs, e_obs, e_final_obs):
    """See `one_round`; before it the end of a full rollout, where `stages` have FINISH."""
    if stages & FINISH:
        finish(table, values_of(e_obs, table)[0])
    step = (r_obs, e_obs, e_final_obs)
    return one_round(store, learn, act, stages, table, step, r_obs, (r_obs, e_obs))


@kernel
def play(low, high, action, envs, table):
    """One step of a compiled environment by the actions in the rollout's current row: what
    `play_all` gives."""
    a = open_table(table)
    t = a.r_count[0]
    for b in range(action.size):
        action[b] = a.r_chosen[t, b, 0] if a.sizes.size else min(max(a.r_real[t, b, 0], low), high)
    return play_all(action, envs)


@kernel
def ppo_rounds(most, low, high, action, envs, table, r_obs, e_obs, e_final_obs):
    """Rounds of a compiled environment within a rollout: see `many_rounds`."""
    moves, arguments = (low, high, action, envs, table), (table, r_obs, e_obs, e_final_obs)
    return many_rounds(play, moves, ppo_round, PLAYING, most, arguments)
