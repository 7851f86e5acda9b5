"""Soft actor-critic compiled: whole updates of critics, actor, temperature and target networks, and
the exploring policy's actions, for the fused round (`engines.fused`).

The temperature's logarithm is the last of the parameters.
"""

import numpy as np

from tenfold.algorithms.kernels.actor_critic import (
    FusedActorCritic,
    acting_output,
    average,
    critic_values,
    draw_items,
    explore_more,
    learn_actor,
    learn_critics,
    put_actions,
    put_rows,
    random_actions,
    scale_actions,
    step_of_adam,
    through_critics,
)
from tenfold.algorithms.kernels.actor_critic_arrays import (
    ACTING,
    DELTA,
    HIDDEN,
    LOG_P,
    NEXT,
    NEXT_HIDDEN,
    NEXT_LOG_P,
    NEXT_POLICY,
    NOW,
    POLICY,
    RANDOM,
    VALUE,
    Y,
    actor_critic_params,
)
from tenfold.algorithms.sac import SACAgent
from tenfold.algorithms.sac_td3_settings import Auto
from tenfold.core.kernels import kernel
from tenfold.core.random import draw_uniform
from tenfold.core.tables import open_table
from tenfold.core.work import begin_trial, end_trial
from tenfold.engines.fused import (
    ALL_STAGES,
    DISCOUNT,
    ERROR,
    REWARD,
    ROUNDS,
    STEP,
    many_rounds,
)
from tenfold.engines.fused_replay import replay_round, store_in_replay
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.control import play_all
from tenfold.memory.replay_rows import set_priorities
from tenfold.ops.critics import (
    discrete_actor_gradient,
    order_by_least,
    policy_value,
    soft_target,
    temperature_gradient,
)
from tenfold.ops.mlp import parameter_total
from tenfold.ops.split_adam import polyak_by_team
from tenfold.ops.split_mlp import forward, forward_all, output_of
from tenfold.ops.squashed import fill_noise, noise_by_team, squashed_gradient, squashed_sample


@kernel(inline="always")
def learn_reals(table):
    """One update of a squashed Gaussian policy and its critics; returns their losses, the mean
    value, α and the sum of the gradients' squares."""
    a = open_table(table)
    size, features, activation = a.row.size, a.actor_sizes[0], a.activation
    first, start = parameter_total(a.actor_sizes), (a.updates_made[0] - 1) * size * a.drawn.shape[0]
    actor, obs, layers = a.online[:first], a.inputs[NOW, :features], a.actor_layers
    next_obs, next_action = a.inputs[NEXT, :features], a.inputs[NEXT, features:]
    alpha = np.exp(a.online[a.online.size - 1])
    noise_by_team(a.team, a.keys[NEXT_POLICY], start, a.noise[NEXT])
    output = forward(a.team, actor, a.actor_sizes, activation, next_obs, layers[NEXT_HIDDEN])
    squashed_sample(output, a.noise[NEXT], next_action, a.items[NEXT_LOG_P])
    critics = a.critic_sizes, activation
    critic_values(a.team, a.target, 0, *critics, a.inputs[NEXT], a.critic_layers, a.q)
    soft_target(a.q, a.items[NEXT_LOG_P], a.items[REWARD], a.items[DISCOUNT], alpha, a.items[Y])
    loss, mean, squares = learn_critics(table)
    noise_by_team(a.team, a.keys[POLICY], start, a.noise[NOW])
    output = forward(a.team, actor, a.actor_sizes, activation, obs, layers[HIDDEN])
    squashed_sample(output, a.noise[NOW], a.drawn, a.items[LOG_P])
    put_actions(a.drawn, features, a.inputs[NOW])
    critic_values(a.team, a.online, first, *critics, a.inputs[NOW], a.critic_layers, a.q)
    # of every item through the critic that values it least: all together do the work of one
    _, _, least = order_by_least(a.q, a.order, a.bounds)
    through_critics(table)
    by_output = layers[DELTA, layers.shape[1] - output.size :].reshape(output.shape)
    squashed_gradient(output, a.noise[NOW], a.drawn, a.by_action, alpha / size, by_output)
    squares += learn_actor(table, a.updates_made[0])
    return loss, alpha * average(a.items[LOG_P]) - least, mean, alpha, squares


@kernel
def least_values(team, flat, first, sizes, activation, x, layers, least):
    """min_c Q_c of every action [A, B]."""
    forward_all(team, flat[first:], sizes, activation, x, layers)
    for c in range(layers.shape[0]):
        q = output_of(layers, c, sizes, x.shape[1])
        for k in range(q.shape[0]):
            for b in range(q.shape[1]):
                least[k, b] = min(least[k, b], q[k, b]) if c else q[k, b]


@kernel(inline="always")
def learn_options(table):
    """`learn_reals` for one discrete action: expectations over all of them in place of draws."""
    a = open_table(table)
    size, activation, layers = a.row.size, a.activation, a.actor_layers
    first, alpha = parameter_total(a.actor_sizes), np.exp(a.online[a.online.size - 1])
    actor, least, critics = a.online[:first], a.drawn, (a.critic_sizes, activation)
    net = a.actor_sizes, activation
    output = forward(a.team, actor, *net, a.inputs[NEXT], layers[NEXT_HIDDEN])
    least_values(a.team, a.target, 0, *critics, a.inputs[NEXT], a.critic_layers, least)
    policy_value(output, least, alpha, a.items[VALUE], a.items[NEXT_LOG_P])
    for b in range(size):
        a.items[Y, b] = a.items[REWARD, b] + a.items[DISCOUNT, b] * a.items[VALUE, b]
    loss, mean, squares = learn_critics(table)
    output = forward(a.team, actor, *net, a.inputs[NOW], layers[HIDDEN])
    least_values(a.team, a.online, first, *critics, a.inputs[NOW], a.critic_layers, least)
    policy_value(output, least, alpha, a.items[VALUE], a.items[LOG_P])
    by_output = layers[DELTA, layers.shape[1] - output.size :].reshape(output.shape)
    _, actor_loss = discrete_actor_gradient(output, least, alpha, by_output)
    squares += learn_actor(table, a.updates_made[0])
    return loss, actor_loss, mean, alpha, squares


@kernel(inline="always")
def update(table, memory):
    """One gradient update, as the plain engine does it."""
    m_obs, m_action = memory
    a = open_table(table)
    began = begin_trial(a.team)
    draw_items(table, m_obs, m_action)
    a.updates_made[0] += 1
    if m_action.ndim == 1:
        loss, actor_loss, mean, alpha, squares = learn_options(table)
    else:
        loss, actor_loss, mean, alpha, squares = learn_reals(table)
    if a.auto_temperature:
        last = a.online.size
        a.grad[last - 1] = temperature_gradient(a.items[LOG_P], a.target_entropy)
        squares += step_of_adam(table, last - 1, last, a.updates_made[0], 1)
    first = parameter_total(a.actor_sizes)
    polyak_by_team(a.team, a.target, a.online[first : first + a.target.size], a.tau)
    if a.prioritized:
        alphas, eps = a.alpha, a.priority_eps
        set_priorities(a.m_tree, a.m_top, a.row, a.items[ERROR], alphas, eps)
    sums = a.sums
    sums[0] += loss
    sums[1] += mean
    sums[2] += average(a.items[ERROR])
    sums[3] += np.sqrt(squares)
    sums[4] += actor_loss
    sums[5] += alpha
    sums[6] -= average(a.items[LOG_P])
    sums[7] += 1
    end_trial(a.team, began)


@kernel
def draw_options(logits, stream, start, action):
    """The option in whose share of the probabilities the uniform number falls."""
    options = logits.shape[0]
    for i in range(action.size):
        most, total, below = -np.inf, 0.0, 0.0
        for k in range(options):
            most = max(most, np.float64(logits[k, i]))
        for k in range(options):
            total += np.exp(np.float64(logits[k, i]) - most)
        limit, option = draw_uniform(stream, start + i) * total, 0
        for k in range(options):
            below += np.exp(np.float64(logits[k, i]) - most)
            option += below <= limit
        action[i] = min(option, options - 1)


@kernel
def choose_actions(table, action, obs):
    """The exploring policy's actions for the current observations."""
    a = open_table(table)
    start = a.counter[ROUNDS] * action.size
    if a.counter[STEP] < a.learning_starts:
        random_actions(a.keys[RANDOM], start, a.actor_sizes[a.actor_sizes.size - 1], action)
        return
    output = acting_output(table, obs)
    if action.ndim == 1:
        draw_options(output, a.keys[RANDOM], start, action)
    else:
        fill_noise(a.keys[ACTING], start, a.e_noise)
        squashed_sample(output, a.e_noise, a.e_drawn, a.e_log_p)
        put_rows(a.e_drawn, action)


@kernel(inline="always")
def act(table, acting):
    """`choose_actions`; its actions also as the environments take them."""
    action, obs = acting
    choose_actions(table, action, obs)
    explore_more(table, action)
    scale_actions(table, action)
    return -1


@kernel
def sac_round(stages, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """See `one_round`."""
    step = m_obs, m_action, e_action, e_obs, e_final_obs
    return replay_round(store_in_replay, update, act, stages, table, step)


@kernel
def sac_rounds(most, action, lanes, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """Rounds of a compiled environment: see `many_rounds`."""
    arguments = table, m_obs, m_action, e_action, e_obs, e_final_obs
    return many_rounds(play_all, (action, lanes), sac_round, ALL_STAGES, most, arguments)


class FusedSAC(FusedActorCritic, OffPolicyEngine):
    """Runs rounds of soft actor-critic by one call each."""

    choose = staticmethod(choose_actions)
    one_round, many_rounds = staticmethod(sac_round), staticmethod(sac_rounds)

    @classmethod
    def params(cls, agent: SACAgent) -> dict[str, np.ndarray]:
        learned = isinstance(agent.config.temperature, Auto)
        return actor_critic_params(
            agent, auto_temperature=learned, target_entropy=agent.target_entropy
        )
