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
from tenfold.core.kernels import kernel
from tenfold.core.schedules import schedule_at
from tenfold.ops.adam import adam_numba, clip_numba
from tenfold.ops.mlp import mlp_backward, mlp_forward
from tenfold.ops.permutation import shuffle
from tenfold.ops.surrogate import KL, policy_gradient, value_gradient


@kernel
def parameter_total(sizes):
    total = 0
    for i in range(sizes.size - 1):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


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
def find_gradient(rows, table):
    """The gradient of the loss of a minibatch, deviations, policy and value."""
    a = open_arrays(table)
    rule, sums, p_sizes, v_sizes = a.rule, a.sums, a.policy_sizes, a.value_sizes
    activation, flat, grad = int(rule[ACTIVATION]), a.block[ONLINE], a.block[GRAD]
    reals = a.r_real.shape[2]
    split = reals + parameter_total(p_sizes)
    policy, inputs, weight = flat[reals:split], inputs_of(table, rows), a.columns[WEIGHT, :rows]
    # the policy
    hidden, delta = outputs_of(a.hidden, p_sizes, rows), outputs_of(a.delta, p_sizes, rows)
    output = mlp_forward(policy, p_sizes, activation, inputs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    policy_gradient(
        output,
        flat[:reals],
        a.sizes,
        a.chosen[:rows],
        reals_of(table, rows),
        a.mask[:rows],
        a.columns[LOG_P, :rows],
        a.columns[ADVANTAGE, :rows],
        weight,
        rule[CLIP],
        rule[ENTROPY],
        by_output,
        grad[:reals],
        sums,
    )
    mlp_backward(policy, p_sizes, activation, inputs, hidden, delta, a.turned, grad[reals:split])
    # the value
    hidden, delta = outputs_of(a.hidden, v_sizes, rows), outputs_of(a.delta, v_sizes, rows)
    guess = mlp_forward(flat[split:], v_sizes, activation, inputs, hidden)
    by_value = delta[delta.size - guess.size :].reshape(guess.shape)
    value_gradient(
        guess,
        a.columns[TARGET, :rows],
        a.columns[VALUE, :rows],
        weight,
        rule[VALUE_CLIP],
        rule[VALUE_WEIGHT],
        by_value,
        sums,
    )
    mlp_backward(flat[split:], v_sizes, activation, inputs, hidden, delta, a.turned, grad[split:])


@kernel(inline="always")
def learn_minibatch(first, last, table, r_obs):
    """One gradient update from the rows order[first … last − 1]; returns its KL estimate."""
    a = open_arrays(table)
    rule, sums, grad = a.rule, a.sums, a.block[GRAD]
    before = sums[KL]
    gather_rows(first, last, table, r_obs)
    find_gradient(last - first, table)
    _, norm = clip_numba(grad, rule[CLIP_NORM])
    a.updates[0] += 1
    adam_numba(
        a.block[ONLINE],
        grad,
        a.block[MEAN],
        a.block[SQUARE],
        a.updates[0],
        schedule_at(rule, LR, a.counter[STEP]),
        rule[ADAM_EPS],
    )
    sums[5] += norm
    sums[6] += 1
    return sums[KL] - before


@kernel(inline="always")
def learn_due(table, r_obs):
    """The minibatches counter[FIRST … LAST − 1]; the phase ends early where the policy has moved
    far enough."""
    a = open_arrays(table)
    counter, rule = a.counter, a.rule
    rows, count = a.order.size, int(rule[MINIBATCHES])
    for number in range(counter[FIRST], counter[LAST]):
        part = number % count
        if part == 0:
            shuffle(a.streams[SHUFFLES], a.updates[1], a.order)
            a.updates[1] += 1
            rule[MOVED] = 0
        rule[MOVED] += (
            learn_minibatch(rows * part // count, rows * (part + 1) // count, table, r_obs) / count
        )
        counter[FIRST] = number + 1
        if part == count - 1 and rule[MOVED] > rule[TARGET_KL]:
            break
