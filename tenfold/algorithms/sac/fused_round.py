"""Everything between two environment steps as ONE compiled call: storing the step, drawing batches,
whole updates of critics, actor, temperature and target networks, and the next action."""

import numpy as np

from tenfold.algorithms.fused_acting import (
    acting_output,
    draw_options,
    put_rows,
    random_actions,
    scale_actions,
)
from tenfold.algorithms.fused_arrays import (
    ACT,
    ACTING,
    DELTA,
    DISCOUNT,
    DUE,
    ERROR,
    HIDDEN,
    LOG_P,
    NEXT,
    NEXT_HIDDEN,
    NEXT_LOG_P,
    NEXT_POLICY,
    NOW,
    OWN,
    POLICY,
    RANDOM,
    REWARD,
    ROUNDS,
    STARTS,
    STEP,
    STORE,
    TAU,
    UPDATE,
    VALUE,
    WEIGHT,
    WHOLE,
    Y,
    open_arrays,
)
from tenfold.algorithms.fused_critics import (
    actor_output,
    critic_output,
    draw_batch,
    finish_update,
    learn_actor,
    learn_critic,
    learn_critics,
    mean_of,
    parameter_total,
    step_of_adam,
    store_last,
    target_values,
    through_least_critics,
    values_of_drawn,
)
from tenfold.core.kernels import kernel
from tenfold.envs.control_tasks import play_all
from tenfold.ops.actor_critic import (
    critic_gradient,
    discrete_actor_gradient,
    policy_value,
    soft_target,
    temperature_gradient,
)
from tenfold.ops.adam import polyak_numba
from tenfold.ops.reparameterised import fill_noise, squashed_gradient, squashed_sample

# its own places in `rule`
AUTOMATIC, TARGET_ENTROPY, RULES = range(OWN, OWN + 3)


@kernel
def learn_reals(table):
    """One update of a squashed Gaussian policy and its critics; returns their losses, the mean
    value, α and the sum of the gradients' squares."""
    a = open_arrays(table)
    size, dimensions = a.row.size, a.drawn.shape[0]
    start = (a.updates[0] - 1) * size * dimensions
    alpha = np.exp(a.online[a.online.size - 1])
    fill_noise(a.streams[NEXT_POLICY], start, a.noise[NEXT])
    next_action = a.inputs[NEXT, a.actor_sizes[0] :]
    output = actor_output(table, NEXT, NEXT_HIDDEN)
    squashed_sample(output, a.noise[NEXT], next_action, a.items[NEXT_LOG_P])
    target_values(table, 0)
    soft_target(a.q, a.items[NEXT_LOG_P], a.items[REWARD], a.items[DISCOUNT], alpha, a.items[Y])
    loss, mean, squares = learn_critics(table)
    fill_noise(a.streams[POLICY], start, a.noise[NOW])
    output = actor_output(table, NOW, HIDDEN)
    squashed_sample(output, a.noise[NOW], a.drawn, a.items[LOG_P])
    values_of_drawn(table, a.q.shape[0])
    least = through_least_critics(table)
    delta = a.actor_layers[DELTA]
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    squashed_gradient(output, a.noise[NOW], a.drawn, a.by_action, alpha / size, by_output)
    squares += learn_actor(table, a.updates[0])
    return loss, alpha * mean_of(a.items[LOG_P]) - least, mean, alpha, squares


@kernel
def least_values(table, flat, first, which):
    """min_c Q_c of every action [A, B], into `drawn`."""
    a = open_arrays(table)
    for c in range(a.q.shape[0]):
        q = critic_output(table, flat, first, c, which)
        for k in range(q.shape[0]):
            for b in range(q.shape[1]):
                a.drawn[k, b] = min(a.drawn[k, b], q[k, b]) if c else q[k, b]
    return a.drawn


@kernel
def learn_options(table):
    """The same for one discrete action: expectations over all of them in place of draws."""
    a = open_arrays(table)
    size, first = a.row.size, parameter_total(a.actor_sizes)
    alpha = np.exp(a.online[a.online.size - 1])
    output, least = actor_output(table, NEXT, NEXT_HIDDEN), least_values(table, a.target, 0, NEXT)
    policy_value(output, least, alpha, a.items[VALUE], a.items[NEXT_LOG_P])
    for b in range(size):
        a.items[Y, b] = a.items[REWARD, b] + a.items[DISCOUNT, b] * a.items[VALUE, b]
    loss, mean, squares = learn_taken(table)
    output, least = actor_output(table, NOW, HIDDEN), least_values(table, a.online, first, NOW)
    policy_value(output, least, alpha, a.items[VALUE], a.items[LOG_P])
    delta = a.actor_layers[DELTA]
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    _, actor_loss = discrete_actor_gradient(output, least, alpha, by_output)
    squares += learn_actor(table, a.updates[0])
    return loss, actor_loss, mean, alpha, squares


@kernel
def learn_taken(table):
    """Every critic from the targets of the actions that were taken."""
    a = open_arrays(table)
    critics, size, first = a.q.shape[0], a.row.size, parameter_total(a.actor_sizes)
    loss, mean, squares = np.float32(0), np.float32(0), np.float32(0)
    for b in range(size):
        a.items[ERROR, b] = 0
    for c in range(critics):
        q = critic_output(table, a.online, first, c, NOW)
        delta = a.delta[a.delta.size - q.size :].reshape(q.shape)
        for b in range(size):
            a.q[c, b] = q[a.chosen[b], b]
        _, _, own, value = critic_gradient(
            a.q[c], a.items[Y], a.items[WEIGHT], 1 / critics, a.items[VALUE], a.items[ERROR]
        )
        for k in range(q.shape[0]):
            for b in range(size):
                delta[k, b] = a.items[VALUE, b] if a.chosen[b] == k else np.float32(0)
        squares += learn_critic(table, c)
        loss += own
        mean += value / np.float32(critics)
    return loss, mean, squares


@kernel
def learn_temperature(table):
    """log α moves so that the entropy nears its target; returns the gradient's square."""
    a = open_arrays(table)
    place = a.online.size - 1
    if not a.rule[AUTOMATIC]:
        return np.float32(0)
    a.grad[place] = temperature_gradient(a.items[LOG_P], a.rule[TARGET_ENTROPY])
    return step_of_adam(table, place, place + 1, a.updates[0])


@kernel
def update_once(table, m_obs, m_action):
    """One gradient update, as the plain engine does it."""
    a = open_arrays(table)
    draw_batch(table, m_obs, m_action)
    a.updates[0] += 1
    if m_action.ndim == 1:
        loss, actor_loss, mean, alpha, squares = learn_options(table)
    else:
        loss, actor_loss, mean, alpha, squares = learn_reals(table)
    squares += learn_temperature(table)
    first = parameter_total(a.actor_sizes)
    polyak_numba(a.target, a.online[first : first + a.target.size], a.rule[TAU])
    finish_update(table)
    sums = a.sums
    sums[0] += loss
    sums[1] += mean
    sums[2] += mean_of(a.items[ERROR])
    sums[3] += np.sqrt(squares)
    sums[4] += actor_loss
    sums[5] += alpha
    sums[6] -= mean_of(a.items[LOG_P])
    sums[7] += 1


@kernel
def choose_actions(table, e_action, e_obs):
    """The exploring policy's actions for the current observations."""
    a = open_arrays(table)
    start = a.counter[ROUNDS] * e_action.size
    if a.counter[STEP] < a.rule[STARTS]:
        random_actions(a.streams[RANDOM], start, a.actor_sizes[a.actor_sizes.size - 1], e_action)
        return
    output = acting_output(table, e_obs)
    if e_action.ndim == 1:
        draw_options(output, a.streams[RANDOM], start, e_action)
    else:
        fill_noise(a.streams[ACTING], start, a.e_noise)
        squashed_sample(output, a.e_noise, a.e_drawn, a.e_log_p)
        put_rows(a.e_drawn, e_action)


@kernel
def fused_round(parts, table, m_obs, m_action, e_action, e_scaled, e_obs, e_final_obs):
    """Store the step just made, run the updates that are due, choose the next action: those of the
    three in `parts`."""
    a = open_arrays(table)
    if parts & STORE:
        store_last(table, m_obs, m_action, e_action, e_obs, e_final_obs)
    if parts & UPDATE:
        for _ in range(a.counter[DUE]):
            update_once(table, m_obs, m_action)
        a.counter[DUE] = 0
    if parts & ACT:
        choose_actions(table, e_action, e_obs)
        scale_actions(table, e_action, e_scaled)


@kernel
def fused_rounds(
    most, action, lanes, table, m_obs, m_action, e_action, e_scaled, e_obs, e_final_obs
):
    """Rounds of a compiled environment and `fused_round`, until an episode ends or `most` rounds
    are done. Returns what `play_all` gave: the number of episodes that ended, or less than 0 for a
    number that is not finite."""
    ended = 0
    while ended == 0 and most > 0:
        ended = play_all(action, lanes)
        if ended >= 0:
            fused_round(WHOLE, table, m_obs, m_action, e_action, e_scaled, e_obs, e_final_obs)
        most -= 1
    return ended
