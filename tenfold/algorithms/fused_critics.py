"""What a compiled update of an actor with critics is made of: drawing a batch, the critics' values
and gradients, the actor's gradient through them, Adam and the target networks. `sac` and `td3`
put their updates together from these.

All parameters lie in one flat buffer: the actor's, then each critic's, then what an algorithm has
of its own.
"""

import numpy as np

from tenfold.algorithms.fused_arrays import (
    DELTA,
    DISCOUNT,
    ERROR,
    HIDDEN,
    NEXT,
    NOW,
    REPLAY,
    REWARD,
    VALUE,
    WEIGHT,
    Y,
    open_arrays,
)
from tenfold.algorithms.fused_replay import (
    ACTIVATION,
    ADAM_EPS,
    GAMMA,
    LR,
    N_STEP,
    SCALE,
    count_stored,
    draw_rows,
    norm_batch,
)
from tenfold.core.kernels import kernel, schedule_at
from tenfold.engines.fusing import FIRST_LANE, ONE_FRAME, STEP
from tenfold.memory.gathering import gather_columns
from tenfold.memory.rows import Stored, add_rows
from tenfold.ops.adam import adam_numba, sum_of_squares
from tenfold.ops.critics import critic_gradient, pick_columns
from tenfold.ops.mlp import mlp_backward, mlp_by_input, mlp_forward, parameter_total


@kernel
def part_of(actor_sizes, critic_sizes, c):
    """Where the parameters of critic c begin and end; of the actor, where c is −1."""
    actor, size = parameter_total(actor_sizes), parameter_total(critic_sizes)
    return (actor + c * size, actor + (c + 1) * size) if c >= 0 else (0, actor)


@kernel
def draw_batch(table, m_obs, m_action):
    """Draws rows of the memory, and gathers them as networks take them."""
    a = open_arrays(table)
    rule = a.rule
    draw_rows(
        a.streams[REPLAY],
        a.counter[STEP],
        rule,
        a.m_count,
        a.m_tree,
        a.m_ready,
        a.m_head,
        a.row,
        a.draw,
        a.items[WEIGHT],
    )
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
    norm_batch(a.inputs, rule, a.norm)


@kernel
def critic_values(flat, first, sizes, activation, x, layers, q):
    """Values of as many critics as `q` has rows, whose parameters begin at `first`, into `q`. Every
    layer's outputs stay in `layers`."""
    size = parameter_total(sizes)
    for c in range(q.shape[0]):
        own = flat[first + c * size : first + (c + 1) * size]
        output = mlp_forward(own, sizes, activation, x, layers[c])
        for b in range(q.shape[1]):
            q[c, b] = output[0, b]


@kernel
def put_actions(drawn, first, inputs):
    """The policy's own actions [D, B] in place of those that were taken; a loop compiles in a
    seventh of an assignment's time."""
    for d in range(drawn.shape[0]):
        for b in range(drawn.shape[1]):
            inputs[first + d, b] = drawn[d, b]


@kernel
def mean_of(x):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i]
    return total / np.float32(x.size)


@kernel
def step_of_adam(online, grad, mean, square, part, number, lr, eps):
    """Of the parameters of a part; returns the sum of their gradient's squares."""
    first, last = part
    own = grad[first:last]
    adam_numba(online[first:last], own, mean[first:last], square[first:last], number, lr, eps)
    return sum_of_squares(own)


@kernel
def learn_critics(table):
    """Every critic from the targets Y of the actions that were taken, one after another: what a
    critic's step needs is then in the cache. Returns the loss, the mean value and the sum of the
    gradients' squares."""
    a = open_arrays(table)
    critics, size, activation = a.q.shape[0], a.row.size, int(a.rule[ACTIVATION])
    lr, by_q = schedule_at(a.rule, LR, a.counter[STEP]), a.items[VALUE]
    loss, mean, squares = np.float32(0), np.float32(0), np.float32(0)
    for b in range(size):
        a.items[ERROR, b] = 0
    for c in range(critics):
        part = part_of(a.actor_sizes, a.critic_sizes, c)
        own, layers = a.online[part[0] : part[1]], a.critic_layers[c]
        output = mlp_forward(own, a.critic_sizes, activation, a.inputs[NOW], layers)
        by_output = a.delta[a.delta.size - output.size :].reshape(output.shape)
        for b in range(size):
            a.q[c, b] = output[a.chosen[b], b]
        _, _, part_loss, value = critic_gradient(
            a.q[c], a.items[Y], a.items[WEIGHT], 1 / critics, by_q, a.items[ERROR]
        )
        for k in range(output.shape[0]):
            for b in range(size):
                by_output[k, b] = by_q[b] if a.chosen[b] == k else np.float32(0)
        grad = a.grad[part[0] : part[1]]
        mlp_backward(
            own, a.critic_sizes, activation, a.inputs[NOW], layers, a.delta, a.turned, grad
        )
        squares += step_of_adam(
            a.online, a.grad, a.mean, a.square, part, a.updates[0], lr, a.rule[ADAM_EPS]
        )
        loss += part_loss
        mean += value / np.float32(critics)
    return loss, mean, squares


@kernel
def through_critic(table, c, which):
    """∂/∂a of −Σ Q_c / B over the items `which`, into their columns of `by_action`."""
    a = open_arrays(table)
    size, count, features = a.row.size, which.size, a.actor_sizes[0]
    if count == 0:
        return
    first, last = part_of(a.actor_sizes, a.critic_sizes, c)
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
def learn_actor(table, number):
    """From the derivative by its output, which lies at the end of its DELTA, the actor's gradient
    and its step of Adam; returns the sum of the gradient's squares."""
    a = open_arrays(table)
    part = part_of(a.actor_sizes, a.critic_sizes, -1)
    mlp_backward(
        a.online[: part[1]],
        a.actor_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[NOW, : a.actor_sizes[0]],
        a.actor_layers[HIDDEN],
        a.actor_layers[DELTA],
        a.turned,
        a.grad[: part[1]],
    )
    lr = schedule_at(a.rule, LR, a.counter[STEP])
    return step_of_adam(a.online, a.grad, a.mean, a.square, part, number, lr, a.rule[ADAM_EPS])


@kernel
def store_last(table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """The step just made, into the memory; the updates that are then due."""
    a = open_arrays(table)
    rule = a.rule
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
    count_stored(a.counter, rule, a.e_skipped, e_obs, a.norm_count, a.norm, a.m_count[0])
