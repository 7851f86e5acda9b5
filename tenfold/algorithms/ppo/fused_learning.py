"""A learning phase as one compiled call: all epochs of minibatches.

All parameters lie in one buffer: deviations, policy, value.
"""

import numpy as np

from tenfold.algorithms.ppo.agent import GRAD, MEAN, ONLINE, SQUARE
from tenfold.algorithms.ppo.fused_arrays import (
    ACTIVATION,
    ADAM_EPS,
    ADVANTAGE,
    CLIP,
    CLIP_NORM,
    COLUMNS,
    ENTROPY,
    FIRST,
    LAST,
    LOG_P,
    LR,
    MINIBATCHES,
    MOVED,
    OBS_SCALE,
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
from tenfold.core.kernels import kernel, schedule_at
from tenfold.ops.adam import adam_numba, clip_numba
from tenfold.ops.mlp import mlp_backward, mlp_forward, parameter_total
from tenfold.ops.sampling import shuffle
from tenfold.ops.surrogate import KL, policy_gradient, value_gradient


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
