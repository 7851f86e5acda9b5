"""A learning phase of PPO, compiled: all epochs of minibatches, each the gradient of the loss and a
step of Adam.

All parameters lie in one buffer: deviations, policy, value. Arrays that begin with r_ are the
rollout's, with e_ of the environments or of acting in them.
"""

import numpy as np

from tenfold.algorithms.ppo import PPO_GRAD, PPO_MEAN, PPO_ONLINE, PPO_SQUARE
from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.tables import open_table
from tenfold.core.work import begin_trial, end_trial
from tenfold.engines.fused import FIRST_NUMBER, STEP
from tenfold.ops.minibatch_loss import KL, normalize_advantages, value_gradient
from tenfold.ops.mlp import parameter_total, room_of
from tenfold.ops.sampling import shuffle
from tenfold.ops.split_adam import adam_by_team, clip_by_team
from tenfold.ops.split_mlp import backward, forward
from tenfold.ops.surrogate import policy_gradient

# in `counter`, behind those of `engines.fused`: the minibatches that are due
FIRST, LAST, COUNTS = 3, 4, 5
STOPPED = -1  # in place of the last one: the phase ended early
LOG_P, VALUE, ADVANTAGE, TARGET, WEIGHT, COLUMNS = range(6)  # of `columns`, before real actions
COINS, NORMALS, SHUFFLES = range(3)  # in `keys`
GRAD_NORM, UPDATES = 5, 6  # in `sums`, behind the loss's statistics


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
    if a.normalize_minibatch:
        normalize_advantages(columns[ADVANTAGE, :rows], columns[WEIGHT, :rows])


@kernel(inline="always")
def policy_loss_gradient(rows, table, output, by_output):
    """The derivative of a minibatch's loss by the policy's output, and by the deviations."""
    a = open_table(table)
    reals = a.r_real.shape[2]
    acted = a.sizes, a.chosen[:rows], reals_of(table, rows), a.mask[:rows]
    columns = a.columns[LOG_P, :rows], a.columns[ADVANTAGE, :rows], a.columns[WEIGHT, :rows]
    results = by_output, a.block[PPO_GRAD][:reals], a.sums
    log_std = a.block[PPO_ONLINE][:reals]
    clip = schedule_at(a.clip, FIRST_NUMBER, a.counter[STEP])
    policy_gradient(output, log_std, *acted, *columns, clip, a.entropy, *results)


@kernel(inline="always")
def value_loss_gradient(rows, table, value, by_value):
    """The derivative of a minibatch's loss by the values."""
    a = open_table(table)
    columns = a.columns[TARGET, :rows], a.columns[VALUE, :rows], a.columns[WEIGHT, :rows]
    clip = schedule_at(a.value_clip, FIRST_NUMBER, a.counter[STEP])
    settings = clip, a.value_clipped_alone, a.value_weight
    value_gradient(value, *columns, *settings, by_value, a.sums)


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


@kernel
def begin_epoch(table, order):
    """Shuffles what an epoch learns from."""
    a = open_table(table)
    shuffle(a.keys[SHUFFLES], a.updates_made[1], order)
    a.updates_made[1] += 1
    a.epoch_kl[0] = 0


@kernel
def make_step(table):
    """A step of Adam by the gradient, which is shortened in place where it is too long. Returns its
    length."""
    a = open_table(table)
    grad, start = a.block[PPO_GRAD], a.value_start[0]
    if a.value_norm.shape[1]:
        scale = np.float32(a.value_norm[2, 0] ** 2)
        for j in range(start, grad.size):
            grad[j] *= scale
    norm = clip_by_team(a.team, grad, a.clip_norm)
    a.updates_made[0] += 1
    lr = schedule_at(a.lr, FIRST_NUMBER, a.counter[STEP])
    if a.value_start[1]:
        step_of_adam(table, 0, start, lr)
        lr = schedule_at(a.value_lr, FIRST_NUMBER, a.counter[STEP])
        step_of_adam(table, start, grad.size, lr)
    else:
        step_of_adam(table, 0, grad.size, lr)
    return norm


@kernel
def step_of_adam(table, first, last, lr):
    """A step of the parameters first … last − 1."""
    a = open_table(table)
    online, grad = a.block[PPO_ONLINE][first:last], a.block[PPO_GRAD][first:last]
    mean, square = a.block[PPO_MEAN][first:last], a.block[PPO_SQUARE][first:last]
    options = (a.updates_made[0], lr, a.adam_eps, a.weight_decay)
    adam_by_team(a.team, grad[:0], online, grad, mean, square, *options)


@kernel(inline="always")
def learn_minibatches(table, order, gradient, arguments):
    """The minibatches counter[FIRST … LAST − 1] of `order`, which every epoch shuffles. Each is one
    update from `gradient(first, last, arguments)`. Where target_kl ends the phase counter[LAST]
    becomes STOPPED; a minibatch without a step counts for nothing."""
    a = open_table(table)
    counter, sums, count = a.counter, a.sums, a.r_bounds.size - 1
    before = a.sums_before
    for number in range(counter[FIRST], counter[LAST]):
        part = number % count
        if part == 0:
            begin_epoch(table, order)
        before[:] = sums
        began = begin_trial(a.team)
        gradient(a.r_bounds[part], a.r_bounds[part + 1], arguments)
        kl = sums[KL] - before[KL]
        if kl > a.minibatch_kl_limit:
            sums[:] = before
            a.block[PPO_GRAD][:] = 0
            counter[LAST] = STOPPED
            break
        norm = make_step(table)
        end_trial(a.team, began)
        sums[GRAD_NORM] += norm
        sums[UPDATES] += 1
        a.epoch_kl[0] += kl / count
        if part == count - 1 and a.epoch_kl[0] > a.epoch_kl_limit:
            counter[LAST] = STOPPED
            break


@kernel(inline="always")
def learn(table, r_obs):
    """All minibatches that are due."""
    learn_minibatches(table, open_table(table).row_order, minibatch_gradient, (table, r_obs))
