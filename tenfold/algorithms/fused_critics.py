"""What a compiled update of an actor with critics is made of: drawing a batch, the critics' values
and gradients, the actor's gradient through them, Adam and the target networks. `sac` and `td3`
put their updates together from these.

All parameters lie in one flat buffer: the actor's, then each critic's, then what an algorithm has
of its own.
"""

import numpy as np

from tenfold.algorithms.fused_arrays import (
    ACTIVATION,
    ADAM_EPS,
    ALPHA,
    BETA,
    DELTA,
    DISCOUNT,
    DUE,
    ERROR,
    EVERY,
    FIRST_LANE,
    GAMMA,
    HIDDEN,
    LR,
    N_STEP,
    NEXT,
    NOW,
    ONE_FRAME,
    PER_ROUND,
    PRIORITIZED,
    PRIORITY_EPS,
    REPLAY,
    REWARD,
    ROUNDS,
    SCALE,
    STARTS,
    STEP,
    WEIGHT,
    Y,
    open_arrays,
)
from tenfold.core.kernels import kernel
from tenfold.core.schedules import schedule_at
from tenfold.memory.gathering import gather_columns
from tenfold.memory.rows import Stored, add_rows
from tenfold.memory.sampling import draw_prioritized, draw_ready, set_priorities
from tenfold.ops.actor_critic import critic_gradient, order_by_least, pick_columns
from tenfold.ops.adam import adam_numba, sum_of_squares
from tenfold.ops.mlp import mlp_backward, mlp_forward
from tenfold.ops.mlp_input import mlp_by_input


@kernel
def parameter_total(sizes):
    total = 0
    for i in range(sizes.size - 1):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


@kernel
def critic_range(a, c):
    """Where critic c's parameters begin and end."""
    size = parameter_total(a.critic_sizes)
    first = parameter_total(a.actor_sizes) + c * size
    return first, first + size


@kernel
def draw_batch(table, m_obs, m_action):
    """Draws rows of the memory, and gathers them as networks take them."""
    a = open_arrays(table)
    rule = a.rule
    if rule[PRIORITIZED]:
        beta = schedule_at(rule, BETA, a.counter[STEP])
        stream, weight = a.streams[REPLAY], a.items[WEIGHT]
        draw_prioritized(stream, a.m_count, a.m_tree, beta, a.row, a.draw, weight)
    else:
        draw_ready(a.streams[REPLAY], a.m_count, a.m_ready, a.m_head, a.row)
    gather_columns(
        a.row,
        a.m_ready.size // a.m_head.size,
        int(rule[N_STEP]),
        rule[GAMMA],
        rule[SCALE],
        Stored(m_obs, m_action, a.m_reward, a.m_kind),
        a.inputs[NOW],
        a.chosen if m_action.ndim == 1 else a.inputs[NOW, a.actor_sizes[0] :],
        a.items[REWARD],
        a.items[DISCOUNT],
        a.inputs[NEXT],
    )


@kernel
def actor_output(table, which, layers):
    """Of the actor on s or s'."""
    a = open_arrays(table)
    return mlp_forward(
        a.online[: parameter_total(a.actor_sizes)],
        a.actor_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[which, : a.actor_sizes[0]],
        a.actor_layers[layers],
    )


@kernel
def critic_output(table, flat, first, c, which):
    """Of critic c on [s | a] or [s' | a']; the parameters are those of `flat` from `first` on."""
    a = open_arrays(table)
    size = parameter_total(a.critic_sizes)
    return mlp_forward(
        flat[first + c * size : first + (c + 1) * size],
        a.critic_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[which],
        a.critic_layers[c],
    )


@kernel
def target_values(table, first):
    """Values of the target's critics in [s' | a'], into `q`; they begin at `first`."""
    a = open_arrays(table)
    for c in range(a.q.shape[0]):
        q = critic_output(table, a.target, first, c, NEXT)
        for b in range(a.row.size):
            a.q[c, b] = q[0, b]


@kernel
def mean_of(x):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total / np.float32(x.size)


@kernel
def step_of_adam(table, first, last, number):
    """Of the parameters from `first` to `last`; returns the sum of their gradient's squares."""
    a = open_arrays(table)
    lr = schedule_at(a.rule, LR, a.counter[STEP])
    found = sum_of_squares(a.grad[first:last])
    adam_numba(
        a.online[first:last],
        a.grad[first:last],
        a.mean[first:last],
        a.square[first:last],
        number,
        lr,
        a.rule[ADAM_EPS],
    )
    return found


@kernel
def learn_critic(table, c):
    """From the derivative by its output, which lies at the end of `delta`, the gradient of critic c
    and its step of Adam, while what it needs is in the cache; returns the sum of the gradient's
    squares."""
    a = open_arrays(table)
    first, last = critic_range(a, c)
    mlp_backward(
        a.online[first:last],
        a.critic_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[NOW],
        a.critic_layers[c],
        a.delta,
        a.turned,
        a.grad[first:last],
    )
    return step_of_adam(table, first, last, a.updates[0])


@kernel
def learn_critics(table):
    """Every critic from the targets in `items`; returns the loss, the mean value and the sum of the
    gradients' squares."""
    a = open_arrays(table)
    critics, size = a.q.shape[0], a.row.size
    loss, mean, squares = np.float32(0), np.float32(0), np.float32(0)
    for b in range(size):
        a.items[ERROR, b] = 0
    for c in range(critics):
        q = critic_output(table, a.online, parameter_total(a.actor_sizes), c, NOW)
        by_q = a.delta[a.delta.size - size :]
        _, _, own, value = critic_gradient(
            q[0], a.items[Y], a.items[WEIGHT], 1 / critics, by_q, a.items[ERROR]
        )
        squares += learn_critic(table, c)
        loss += own
        mean += value / np.float32(critics)
    return loss, mean, squares


@kernel
def values_of_drawn(table, critics):
    """Values of the first `critics` critics for the policy's own actions, into `q`."""
    a = open_arrays(table)
    for d in range(a.drawn.shape[0]):
        for b in range(a.row.size):
            a.inputs[NOW, a.actor_sizes[0] + d, b] = a.drawn[d, b]
    for c in range(critics):
        q = critic_output(table, a.online, parameter_total(a.actor_sizes), c, NOW)
        for b in range(a.row.size):
            a.q[c, b] = q[0, b]


@kernel
def through_critic(table, c, which):
    """∂/∂a of −Σ Q_c / B over the items `which`, into their columns of `by_action`."""
    a = open_arrays(table)
    size, count, features = a.row.size, which.size, a.actor_sizes[0]
    if count == 0:
        return
    first, last = critic_range(a, c)
    room = a.delta.size // size * count
    hidden, delta = a.critic_layers[c], a.delta[:room]
    if count < size:
        hidden = a.picked[:room]
        pick_columns(a.critic_layers[c], size, which, hidden)
    for j in range(count):
        delta[room - count + j] = np.float32(-1) / np.float32(size)
    dimensions = a.by_action.shape[0]
    # `turned` is free between two backward passes
    found = a.turned[: dimensions * count].reshape(dimensions, count)
    mlp_by_input(
        a.online[first:last],
        a.critic_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[NOW],
        hidden,
        delta,
        features,
        found,
    )
    for d in range(dimensions):
        for j in range(count):
            a.by_action[d, which[j]] = found[d, j]


@kernel
def through_least_critics(table):
    """∂/∂a of −mean min_c Q_c into `by_action`: of every item through the critic that values it
    least, so that all critics together do the work of one. Returns that mean."""
    a = open_arrays(table)
    _, _, mean = order_by_least(a.q, a.order, a.bounds)
    for c in range(a.q.shape[0]):
        through_critic(table, c, a.order[a.bounds[c] : a.bounds[c + 1]])
    return mean


@kernel
def learn_actor(table, number):
    """From the derivative by its output, which lies at the end of its DELTA, the actor's gradient
    and its step of Adam; returns the sum of the gradient's squares."""
    a = open_arrays(table)
    last = parameter_total(a.actor_sizes)
    mlp_backward(
        a.online[:last],
        a.actor_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[NOW, : a.actor_sizes[0]],
        a.actor_layers[HIDDEN],
        a.actor_layers[DELTA],
        a.turned,
        a.grad[:last],
    )
    return step_of_adam(table, 0, last, number)


@kernel
def finish_update(table):
    """New priorities, where rows have them."""
    a = open_arrays(table)
    if a.rule[PRIORITIZED]:
        alpha, eps = a.rule[ALPHA], a.rule[PRIORITY_EPS]
        set_priorities(a.m_tree, a.m_top, a.row, a.items[ERROR], alpha, eps)


@kernel
def store_last(table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """The step just made, into the memory; the updates that are then due."""
    a = open_arrays(table)
    rule, counter = a.rule, a.counter
    add_rows(
        m_obs,
        m_action,
        a.m_reward,
        a.m_kind,
        a.m_ready,
        a.m_head,
        a.m_start,
        a.m_count,
        a.m_tree,
        a.m_top,
        int(rule[N_STEP]),
        ONE_FRAME,
        FIRST_LANE,
        e_action,
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        e_obs,
        e_final_obs,
    )
    before = counter[STEP]
    for i in range(a.e_skipped.size):
        counter[STEP] += not a.e_skipped[i]
    counter[ROUNDS] += 1
    every = int(rule[EVERY])
    due = (counter[STEP] // every - before // every) * int(rule[PER_ROUND])
    counter[DUE] = due if counter[STEP] > rule[STARTS] and a.m_count[0] > 0 else 0
