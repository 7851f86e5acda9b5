"""What a compiled update of an actor with critics is made of: drawing a batch, the critics' values
and gradients, the actor's gradient through them, Adam and the target networks. `sac` and `td3`
put their updates together from these.

All parameters lie in one flat buffer: the actor's, then each critic's, then what an algorithm has
of its own.
"""

from typing import NamedTuple

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.schedules import schedule_at
from tenfold.core.tables import B1, D1, F1, F2, F3, I1, U1, Y1, opener
from tenfold.memory.gathering import gather_columns
from tenfold.memory.rows import Stored, add_rows
from tenfold.memory.sampling import draw_prioritized, draw_ready, set_priorities
from tenfold.ops.actor_critic import critic_gradient, order_by_least, pick_columns
from tenfold.ops.adam import adam_numba, sum_of_squares
from tenfold.ops.mlp import mlp_backward, mlp_forward
from tenfold.ops.mlp_input import mlp_by_input

# parts of a round, to be added up
STORE, UPDATE, ACT = 1, 2, 4
# typed: Numba compiles a function once more for each literal number it is called with
WHOLE, ONE_FRAME, FIRST_LANE = np.int64(7), np.int64(1), np.int64(0)
# places in `counter`
STEP, ROUNDS, DUE = range(3)
# streams
REPLAY, RANDOM, ACTING, POLICY, NEXT_POLICY = range(5)
# rows of `items`: numbers for each item of a batch
REWARD, DISCOUNT, WEIGHT, ERROR, Y, LOG_P, NEXT_LOG_P, VALUE, ITEMS = range(9)
# rows of `inputs`: [s | a] and [s' | a']; of `actor_layers`
NOW, NEXT = range(2)
HIDDEN, NEXT_HIDDEN, DELTA = range(3)
# places in `rule`, the settings as numbers; a schedule takes four
(
    ACTIVATION,
    ADAM_EPS,
    TAU,
    PRIORITIZED,
    ALPHA,
    PRIORITY_EPS,
    N_STEP,
    GAMMA,
    SCALE,
    STARTS,
    EVERY,
    PER_ROUND,
    FIRST_OPTION,
    SINGLE,
) = range(14)
LR, BETA, OWN = np.int64(14), np.int64(18), 22  # from OWN on an algorithm's own settings


class Arrays(NamedTuple):
    """What a round reads and writes, but for observations and actions, whose kind of number is the
    environment's."""

    counter: I1
    updates: I1
    rule: D1
    streams: U1
    sums: F1
    # parameters, their slow copy, gradient and moments
    online: F1
    target: F1
    grad: F1
    mean: F1
    square: F1
    actor_sizes: I1
    critic_sizes: I1
    # of a batch
    inputs: F3
    actor_layers: F2
    critic_layers: F2  # of each critic
    delta: F1  # of one critic's layers
    picked: F1
    noise: F3
    drawn: F2  # actions of the current policy, or their values
    by_action: F2
    q: F2
    items: F2
    turned: F1
    order: I1
    bounds: I1
    row: I1
    chosen: I1  # discrete actions
    draw: D1
    # the replay memory
    m_reward: F1
    m_kind: Y1
    m_ready: B1
    m_head: I1
    m_start: I1
    m_count: I1
    m_tree: D1
    m_top: D1
    # the environments' last step, and acting
    e_reward: D1
    e_terminated: B1
    e_truncated: B1
    e_skipped: B1
    e_inputs: F2
    e_hidden: F1
    e_noise: F2
    e_drawn: F2
    e_log_p: F1
    low: D1  # bounds of the environments' actions
    high: D1


open_arrays = opener(Arrays)


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
