"""The twin delayed deterministic policy gradient compiled: whole updates of critics, actor and
target networks, and the exploring policy's actions, for the fused round (`engines.fused`)."""

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
    through_critics,
)
from tenfold.algorithms.kernels.actor_critic_arrays import (
    ACTING,
    DELTA,
    HIDDEN,
    NEXT,
    NEXT_HIDDEN,
    NEXT_LOG_P,
    NEXT_POLICY,
    NOW,
    RANDOM,
    Y,
    actor_critic_params,
)
from tenfold.algorithms.td3 import TD3Agent
from tenfold.config.action_noise import ActionNoiseOption
from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.tables import open_table
from tenfold.core.work import begin_trial, end_trial
from tenfold.engines.fused import (
    ALL_STAGES,
    DISCOUNT,
    ERROR,
    FIRST_NUMBER,
    REWARD,
    ROUNDS,
    STEP,
    many_rounds,
)
from tenfold.engines.fused_replay import replay_round, store_in_replay
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.control import play_all
from tenfold.memory.replay_rows import set_priorities
from tenfold.ops.critics import soft_target
from tenfold.ops.mlp import parameter_total
from tenfold.ops.split_adam import polyak_by_team
from tenfold.ops.split_mlp import forward
from tenfold.ops.squashed import fill_noise, noise_by_team, smoothed

# typed: one form of what is called for all
NOTHING, UNLIMITED = np.float64(0), np.float64(np.inf)


@kernel(inline="always")
def find_targets(table):
    """y = r + discount·min_c Q'_c(s', a'), a' = the target policy's action and some noise."""
    a = open_table(table)
    size, actor = a.row.size, parameter_total(a.actor_sizes)
    next_action = a.inputs[NEXT, a.actor_sizes[0] :]
    start = (a.updates_made[0] - 1) * size * next_action.shape[0]
    noise_by_team(a.team, a.keys[NEXT_POLICY], start, a.noise[NEXT])
    output = forward(
        a.team,
        a.target[:actor],
        a.actor_sizes,
        a.activation,
        a.inputs[NEXT, : a.actor_sizes[0]],
        a.actor_layers[NEXT_HIDDEN],
    )
    smoothed(output, a.noise[NEXT], a.smoothing, a.smoothing_clip, next_action)
    sizes, activation = a.critic_sizes, a.activation
    critics = a.inputs[NEXT], a.critic_layers, a.q
    critic_values(a.team, a.target, actor, sizes, activation, *critics)
    log_p = a.items[NEXT_LOG_P]  # which counts for nothing
    soft_target(a.q, log_p, a.items[REWARD], a.items[DISCOUNT], NOTHING, a.items[Y])


@kernel(inline="always")
def learn_policy(table):
    """Of −mean Q_1(s, μ(s)); then all target networks follow. Returns the loss and the sum of the
    gradient's squares."""
    a = open_table(table)
    size, loss = a.row.size, np.float32(0)
    features, activation, layers = a.actor_sizes[0], a.activation, a.actor_layers
    obs, first, one = a.inputs[NOW, :features], parameter_total(a.actor_sizes), a.q[:1]
    actor = a.online[:first], a.actor_sizes, activation
    output = forward(a.team, *actor, obs, layers[HIDDEN])
    smoothed(output, a.noise[NOW], NOTHING, NOTHING, a.drawn)
    put_actions(a.drawn, features, a.inputs[NOW])
    critics = a.critic_sizes, activation
    critic_values(a.team, a.online, first, *critics, a.inputs[NOW], a.critic_layers, one)
    a.bounds[:] = size
    a.bounds[0] = 0  # all items are the first critic's
    for b in range(size):
        a.order[b] = b
        loss -= a.q[0, b]
    through_critics(table)
    by_output = layers[DELTA, layers.shape[1] - output.size :].reshape(output.shape)
    for d in range(output.shape[0]):
        for b in range(size):
            action = a.drawn[d, b]
            by_output[d, b] = a.by_action[d, b] * (np.float32(1) - action * action)
    squares = learn_actor(table, a.updates_made[0] // a.policy_delay)
    polyak_by_team(a.team, a.target, a.online[: a.target.size], a.tau)
    return loss / np.float32(size), squares


@kernel(inline="always")
def update(table, memory):
    """One gradient update, as the plain engine does it."""
    m_obs, m_action = memory
    a = open_table(table)
    began = begin_trial(a.team)
    draw_items(table, m_obs, m_action)
    a.updates_made[0] += 1
    find_targets(table)
    loss, mean, squares = learn_critics(table)
    delay = a.policy_delay
    if a.updates_made[0] % delay == 0:
        actor_loss, more = learn_policy(table)
        squares += more
        a.sums[4] += np.float32(delay) * actor_loss  # of all updates a mean, and it comes rarer
    else:
        for j in range(parameter_total(a.actor_sizes)):
            a.grad[j] = 0
    if a.prioritized:
        alpha, eps = a.alpha, a.priority_eps
        set_priorities(a.m_tree, a.m_top, a.row, a.items[ERROR], alpha, eps)
    a.sums[0] += loss
    a.sums[1] += mean
    a.sums[2] += average(a.items[ERROR])
    a.sums[3] += np.sqrt(squares)
    a.sums[5] += 1
    end_trial(a.team, began)


@kernel
def choose_actions(table, action, obs):
    """The exploring policy's actions for the current observations."""
    a = open_table(table)
    start, step = a.counter[ROUNDS] * action.size, a.counter[STEP]
    if step < a.learning_starts:
        random_actions(a.keys[RANDOM], start, 0, action)
        return
    output = acting_output(table, obs)
    fill_noise(a.keys[ACTING], start, a.e_noise)
    spread = schedule_at(a.exploration, FIRST_NUMBER, step)
    smoothed(output, a.e_noise, spread, UNLIMITED, a.e_drawn)
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
def td3_round(stages, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """See `one_round`."""
    step = m_obs, m_action, e_action, e_obs, e_final_obs
    return replay_round(store_in_replay, update, act, stages, table, step)


@kernel
def td3_rounds(most, action, lanes, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """Rounds of a compiled environment: see `many_rounds`."""
    arguments = table, m_obs, m_action, e_action, e_obs, e_final_obs
    return many_rounds(play_all, (action, lanes), td3_round, ALL_STAGES, most, arguments)


class FusedTD3(FusedActorCritic, OffPolicyEngine):
    """Runs rounds of the twin delayed deterministic policy gradient by one call each."""

    choose = staticmethod(choose_actions)
    one_round, many_rounds = staticmethod(td3_round), staticmethod(td3_rounds)

    @classmethod
    def params(cls, agent: TD3Agent) -> dict[str, np.ndarray]:
        noise = agent.config.noise
        exploration = 0.0 if isinstance(noise, ActionNoiseOption) else noise
        return actor_critic_params(agent, exploration=exploration)
