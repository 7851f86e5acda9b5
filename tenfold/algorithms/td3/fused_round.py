"""Everything between two environment steps as ONE compiled call: storing the step, drawing batches,
whole updates of critics, actor and target networks, and the next action."""

import numpy as np

from tenfold.algorithms.fused_acting import acting_output, put_rows, random_actions
from tenfold.algorithms.fused_arrays import (
    ACTING,
    DELTA,
    DISCOUNT,
    ERROR,
    HIDDEN,
    NEXT,
    NEXT_HIDDEN,
    NEXT_LOG_P,
    NEXT_POLICY,
    NOW,
    OWN,
    RANDOM,
    REWARD,
    TAU,
    Y,
    open_arrays,
)
from tenfold.algorithms.fused_critics import (
    critic_values,
    draw_batch,
    learn_actor,
    learn_critics,
    mean_of,
    put_actions,
    through_critic,
)
from tenfold.algorithms.fused_one_round import one_round
from tenfold.algorithms.fused_replay import ACTIVATION, ALPHA, PRIORITIZED, PRIORITY_EPS, STARTS
from tenfold.core.kernels import kernel, schedule_at
from tenfold.engines.fusing import ROUNDS, STEP, WHOLE, many_rounds
from tenfold.envs.control import play_all
from tenfold.memory.sampling import set_priorities
from tenfold.ops.adam import polyak_numba
from tenfold.ops.critics import soft_target
from tenfold.ops.mlp import mlp_forward, parameter_total
from tenfold.ops.squashed import fill_noise, smoothed

# its own places in `rule`; the deviation of the noise on actions is a schedule
DELAY, SMOOTHING, SMOOTHING_CLIP = range(OWN, OWN + 3)
NOISE, RULES = np.int64(OWN + 3), OWN + 7
# typed: one form of what is called for all
NOTHING, UNLIMITED, FIRST = np.float64(0), np.float64(np.inf), np.int64(0)


@kernel(inline="always")
def find_targets(table):
    """y = r + discount·min_c Q'_c(s', a'), a' = the target policy's action and some noise."""
    a = open_arrays(table)
    size, actor = a.row.size, parameter_total(a.actor_sizes)
    next_action = a.inputs[NEXT, a.actor_sizes[0] :]
    start = (a.updates[0] - 1) * size * next_action.shape[0]
    fill_noise(a.streams[NEXT_POLICY], start, a.noise[NEXT])
    output = mlp_forward(
        a.target[:actor],
        a.actor_sizes,
        int(a.rule[ACTIVATION]),
        a.inputs[NEXT, : a.actor_sizes[0]],
        a.actor_layers[NEXT_HIDDEN],
    )
    smoothed(output, a.noise[NEXT], a.rule[SMOOTHING], a.rule[SMOOTHING_CLIP], next_action)
    sizes, activation = a.critic_sizes, int(a.rule[ACTIVATION])
    critic_values(a.target, actor, sizes, activation, a.inputs[NEXT], a.critic_layers, a.q)
    log_p = a.items[NEXT_LOG_P]  # which counts for nothing
    soft_target(a.q, log_p, a.items[REWARD], a.items[DISCOUNT], NOTHING, a.items[Y])


@kernel(inline="always")
def learn_policy(table):
    """Of −mean Q_1(s, μ(s)); then all target networks follow. Returns the loss and the sum of the
    gradient's squares."""
    a = open_arrays(table)
    size, loss = a.row.size, np.float32(0)
    features, activation, layers = a.actor_sizes[0], int(a.rule[ACTIVATION]), a.actor_layers
    obs, first, one = a.inputs[NOW, :features], parameter_total(a.actor_sizes), a.q[:1]
    output = mlp_forward(a.online[:first], a.actor_sizes, activation, obs, layers[HIDDEN])
    smoothed(output, a.noise[NOW], NOTHING, NOTHING, a.drawn)
    put_actions(a.drawn, features, a.inputs[NOW])
    critics = a.critic_sizes, activation
    critic_values(a.online, first, *critics, a.inputs[NOW], a.critic_layers, one)
    for b in range(size):
        a.order[b] = b
        loss -= a.q[0, b]
    through_critic(table, FIRST, a.order)
    by_output = layers[DELTA, layers.shape[1] - output.size :].reshape(output.shape)
    for d in range(output.shape[0]):
        for b in range(size):
            action = a.drawn[d, b]
            by_output[d, b] = a.by_action[d, b] * (np.float32(1) - action * action)
    squares = learn_actor(table, a.updates[0] // int(a.rule[DELAY]))
    polyak_numba(a.target, a.online[: a.target.size], a.rule[TAU])
    return loss / np.float32(size), squares


@kernel(inline="always")
def update_once(table, m_obs, m_action):
    """One gradient update, as the plain engine does it."""
    a = open_arrays(table)
    draw_batch(table, m_obs, m_action)
    a.updates[0] += 1
    find_targets(table)
    loss, mean, squares = learn_critics(table)
    delay = int(a.rule[DELAY])
    if a.updates[0] % delay == 0:
        actor_loss, more = learn_policy(table)
        squares += more
        a.sums[4] += np.float32(delay) * actor_loss  # of all updates a mean, and it comes rarer
    else:
        for j in range(parameter_total(a.actor_sizes)):
            a.grad[j] = 0
    if a.rule[PRIORITIZED]:
        alpha, eps = a.rule[ALPHA], a.rule[PRIORITY_EPS]
        set_priorities(a.m_tree, a.m_top, a.row, a.items[ERROR], alpha, eps)
    a.sums[0] += loss
    a.sums[1] += mean
    a.sums[2] += mean_of(a.items[ERROR])
    a.sums[3] += np.sqrt(squares)
    a.sums[5] += 1


@kernel
def choose_actions(table, e_action, e_obs):
    """The exploring policy's actions for the current observations."""
    a = open_arrays(table)
    start, step = a.counter[ROUNDS] * e_action.size, a.counter[STEP]
    if step < a.rule[STARTS]:
        random_actions(a.streams[RANDOM], start, 0, e_action)
        return
    output = acting_output(a.online, a.actor_sizes, a.rule, a.norm, e_obs, a.e_inputs, a.e_hidden)
    fill_noise(a.streams[ACTING], start, a.e_noise)
    spread = schedule_at(a.rule, NOISE, step)
    smoothed(output, a.e_noise, spread, UNLIMITED, a.e_drawn)
    put_rows(a.e_drawn, e_action)


@kernel
def fused_round(parts, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """See `one_round`."""
    one_round(
        update_once, choose_actions, parts, table, m_obs, m_action, e_action, e_obs, e_final_obs
    )


@kernel
def fused_rounds(most, action, lanes, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """Rounds of a compiled environment and `fused_round`: see `many_rounds`."""
    given = table, m_obs, m_action, e_action, e_obs, e_final_obs
    return many_rounds(play_all, (action, lanes), fused_round, WHOLE, most, given)
