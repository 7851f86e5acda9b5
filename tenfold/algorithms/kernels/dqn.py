"""Q-learning compiled: the gradient of a batch, an update, and the exploring policy's actions, for
the fused round (`engines.fused`)."""

from typing import Any

import numpy as np

from tenfold.algorithms.dqn import DQN_GRAD, DQN_MEAN, DQN_ONLINE, DQN_SQUARE, DQN_TARGET, DQNAgent
from tenfold.algorithms.kernels.dqn_arrays import (
    ACTION,
    CHOOSING_HIDDEN,
    COIN,
    DELTA,
    GRAD_UNDER_NOISE,
    HIDDEN,
    NEXT_HIDDEN,
    NOISE_ACT,
    NOISE_ONLINE,
    NOISE_TARGET,
    REPLAY,
    TARGET_UNDER_NOISE,
    UNDER_NOISE,
    acting_columns,
    batch_columns,
    dqn_params,
)
from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.random import draw_uniform
from tenfold.core.tables import open_table
from tenfold.core.work import begin_trial, end_trial
from tenfold.engines.choose import why_not_fused, why_not_layers
from tenfold.engines.fused import (
    ALL_STAGES,
    DISCOUNT,
    ERROR,
    FIRST_NUMBER,
    REWARD,
    ROUNDS,
    STEP,
    WEIGHT,
    many_rounds,
    network_inputs,
)
from tenfold.engines.fused_engine import FusedActing, FusedRounds
from tenfold.engines.fused_replay import draw_batch, replay_round, store_in_replay
from tenfold.engines.plain import OffPolicyEngine
from tenfold.envs.control import play_all
from tenfold.memory.replay_rows import set_priorities
from tenfold.ops.mlp import mlp_forward
from tenfold.ops.sampling import fill_factors, noisy_gradient, noisy_parameters
from tenfold.ops.split_adam import adam_by_team, clip_by_team, polyak_by_team
from tenfold.ops.split_mlp import backward, forward
from tenfold.ops.td import (
    base_of,
    categorical_gradient,
    mean_of,
    mean_size,
    softmax_of,
    td_gradient,
    value_of,
)

# acting


@kernel
def choose_actions(table, action, obs):
    """The exploring policy's actions for the current observations, as `DQNAgent.explore` gives
    them. Returns an environment in which nothing is allowed, or -1."""
    a = open_table(table)
    step, start, size = a.counter[STEP], a.counter[ROUNDS] * action.size, action.size
    level = schedule_at(a.exploration, FIRST_NUMBER, step)
    coins, greedy = not a.boltzmann, 0
    if a.noisy:
        level = 0.0
    if a.uniform_warm_up and step < a.learning_starts:
        coins, level = True, 1.0
    for i in range(size):
        action[i] = -1
        if coins and draw_uniform(a.keys[COIN], start + i) < level:
            u = draw_uniform(a.keys[ACTION], start + i)
            action[i] = random_action(u, a.e_mask, i, a.options)
            if action[i] < 0:
                return i
        greedy += action[i] < 0
    if greedy == 0:
        return -1
    parameters = a.block[DQN_ONLINE]
    if a.noisy:
        fill_factors(a.keys[NOISE_ACT], a.counter[ROUNDS], a.factors[0])
        parameters = noisy_parameters(parameters, a.sizes, a.factors[0], a.perturbed[UNDER_NOISE])
    network_inputs(obs, a.obs_scale, a.norm, a.norm_clip, a.e_inputs)
    output = mlp_forward(parameters, a.sizes, a.activation, a.e_inputs, a.e_hidden)
    for i in range(size):
        if action[i] < 0:
            action[i] = best_action(table, output, i, level, (start + i) * a.options)
            if action[i] < 0:
                return i
    return -1


@kernel
def random_action(u, mask, row, options):
    """An allowed action, each as likely as the other, by a uniform number; -1 where there is
    none."""
    if mask.shape[1] == 0:
        return int(u * options)
    count = 0
    for k in range(options):
        count += mask[row, k]
    left = int(u * count)
    for k in range(options):
        if mask[row, k]:
            if left == 0:
                return k
            left -= 1
    return -1


@kernel
def best_action(table, output, row, temperature, counter):
    """argmax_a Q of what is allowed, with Gumbel noise times the temperature for Boltzmann
    exploration; -1 where nothing is."""
    a = open_table(table)
    best, most, atoms, mask = -1, -np.inf, a.atoms, a.e_mask
    base, softmax = a.y[:atoms], a.y[atoms : 2 * atoms]
    if a.categorical:
        base_of(output, row, a.dueling, atoms, a.options, base)
    for k in range(a.options):
        if mask.shape[1] and not mask[row, k]:
            continue
        if a.categorical:
            softmax_of(output, row, k, a.dueling, atoms, base, softmax)
            score = np.float64(mean_of(softmax, atoms, a.low, a.high))
        else:
            q = np.float32(0)
            for i in range(atoms):
                q += value_of(output, row, k, i, a.dueling, atoms, a.options)
            score = np.float64(q / np.float32(atoms))
        if a.boltzmann:
            u = max(draw_uniform(a.keys[ACTION], counter + k), 2.0**-53)
            score -= temperature * np.log(-np.log(u))
        if score > most or best < 0:
            best, most = k, score
    return best


@kernel(inline="always")
def act(table, acting):
    """`choose_actions`; its actions also as the environments number them."""
    action, obs = acting
    a = open_table(table)
    stuck = choose_actions(table, action, obs)
    for i in range(action.size):
        a.e_whole[i] = action[i] + a.first_option
    return stuck


# learning


@kernel(inline="always")
def find_gradient(table):
    """The gradient of the batch's loss; returns the loss and the mean value of its actions."""
    a = open_table(table)
    sizes, activation = a.sizes, a.activation
    online, target, grad = a.block[DQN_ONLINE], a.block[DQN_TARGET], a.block[DQN_GRAD]
    if a.noisy:
        fill_factors(a.keys[NOISE_ONLINE], a.updates_made[0], a.factors[0])
        fill_factors(a.keys[NOISE_TARGET], a.updates_made[0], a.factors[1])
        online = noisy_parameters(online, sizes, a.factors[0], a.perturbed[UNDER_NOISE])
        target = noisy_parameters(target, sizes, a.factors[1], a.perturbed[TARGET_UNDER_NOISE])
        grad = a.perturbed[GRAD_UNDER_NOISE]
    obs, next_obs = a.inputs[0], a.inputs[1]
    hidden, delta = a.layers[HIDDEN], a.layers[DELTA]
    next_output = forward(a.team, target, sizes, activation, next_obs, a.layers[NEXT_HIDDEN])
    chooser = next_output
    if a.double:
        room = a.layers[CHOOSING_HIDDEN]
        chooser = forward(a.team, online, sizes, activation, next_obs, room)
    output = forward(a.team, online, sizes, activation, obs, hidden)
    by_output = delta[delta.size - output.size :].reshape(output.shape)
    loss, q = loss_gradient(table, output, next_output, chooser, by_output)
    backward(a.team, online, sizes, activation, obs, hidden, delta, a.scratch_t, grad)
    if a.noisy:
        noisy_gradient(grad, sizes, a.factors[0], a.block[DQN_GRAD])
    return loss, q


@kernel(inline="always")
def loss_gradient(table, output, next_output, chooser, by_output):
    """The derivative of the loss by the network's output; returns the loss and the mean value."""
    a = open_table(table)
    outputs = output, next_output, chooser
    items = a.action, a.items[REWARD], a.items[DISCOUNT], a.items[WEIGHT], a.next_mask
    form, results = (a.dueling, a.atoms), (by_output, a.items[ERROR], a.y)
    if a.categorical:
        ends = a.low, a.high
        _, _, loss, q = categorical_gradient(*outputs, *items, *form, *ends, *results)
    else:
        _, _, loss, q = td_gradient(*outputs, *items, *form, a.huber, *results)
    return loss, q


@kernel(inline="always")
def step_and_follow(table):
    """Clipping, a step of Adam, and the target network follows; returns the gradient's norm before
    it was clipped."""
    a = open_table(table)
    updates, grad = a.updates_made, a.block[DQN_GRAD]
    online = a.block[DQN_ONLINE]
    norm = clip_by_team(a.team, grad, a.clip_norm)
    updates[0] += 1
    lr = schedule_at(a.lr, FIRST_NUMBER, a.counter[STEP])
    buffers = online, grad, a.block[DQN_MEAN], a.block[DQN_SQUARE]
    adam_by_team(a.team, grad[:0], *buffers, updates[0], lr, a.adam_eps, a.weight_decay)
    if a.target_every == 0 or (a.target_rounds == 0 and updates[0] % a.target_every == 0):
        follow(table)
    return norm


@kernel
def follow(table):
    """The target network moves by the share `tau`; by all of it it is a copy, in every bit."""
    a = open_table(table)
    online, target = a.block[DQN_ONLINE], a.block[DQN_TARGET]
    if a.tau < 1:
        polyak_by_team(a.team, target, online, a.tau)
    else:
        for j in range(online.size):
            target[j] = online[j]


@kernel(inline="always")
def store(table, step):
    """The step just made, into the memory; and the target network follows where that is counted in
    steps."""
    store_in_replay(table, step)
    a = open_table(table)
    if a.target_rounds and a.counter[ROUNDS] % a.target_rounds == 0:
        follow(table)


@kernel(inline="always")
def update(table, memory):
    """One gradient update, as the plain engine does it."""
    m_obs, m_action = memory
    a = open_table(table)
    sums, error, began = a.sums, a.items[ERROR], begin_trial(a.team)
    draw_batch(table, a.keys[REPLAY], m_obs, m_action, a.action)
    loss, q = find_gradient(table)
    norm = step_and_follow(table)
    if a.prioritized:
        set_priorities(a.m_tree, a.m_top, a.row, error, a.alpha, a.priority_eps)
    sums[0] += loss
    sums[1] += q
    sums[2] += mean_size(error)
    sums[3] += norm
    sums[4] += 1
    end_trial(a.team, began)


@kernel
def dqn_round(stages, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """See `one_round`."""
    step = m_obs, m_action, e_action, e_obs, e_final_obs
    return replay_round(store, update, act, stages, table, step)


@kernel
def dqn_rounds(most, action, lanes, table, m_obs, m_action, e_action, e_obs, e_final_obs):
    """Rounds of a compiled environment: see `many_rounds`."""
    arguments = table, m_obs, m_action, e_action, e_obs, e_final_obs
    return many_rounds(play_all, (action, lanes), dqn_round, ALL_STAGES, most, arguments)


# the engine


def why_not_kernels(agent: DQNAgent) -> str:
    """What keeps engines from an agent whose kernels compute the update: fused and resident."""
    if reason := why_not_layers(agent):
        return reason
    if agent.config.frames > 1:
        return "the network sees several frames"
    return "the quantiles are implicit" if agent.config.implicit else ""


class FusedDQN(FusedRounds, OffPolicyEngine):
    """Runs rounds of Q-learning by one call each."""

    one_round, many_rounds = staticmethod(dqn_round), staticmethod(dqn_rounds)

    @classmethod
    def why_not(cls, agent: DQNAgent, run: Any = None) -> str:
        return why_not_fused(agent) or why_not_kernels(agent)

    def columns(self) -> tuple[dict[str, np.ndarray], ...]:
        agent, batch = self.agent, self.replay.batch
        return (
            acting_columns(agent, self.envs.num_envs, perturbed=3),
            batch_columns(agent, len(batch.row)),
            {"e_whole": self.scaled, "action": batch.action},
            dqn_params(agent, self.envs.num_envs),
        )

    @classmethod
    def acting(cls, agent: DQNAgent, lanes: int, options: int = 0) -> FusedActing:
        """`DQNAgent.explore` as one compiled call; masks are of so many options."""
        columns = acting_columns(agent, lanes), dqn_params(agent, lanes)
        return FusedActing(choose_actions, columns, np.zeros(lanes, np.int64), options)
