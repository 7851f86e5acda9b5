"""PPO of recurrent policies, compiled: a learning phase, and the slots of a fused round. The towers
are in `recurrent_tower`; parameters lie in one buffer: deviations, policy, value.
"""

import numpy as np

from tenfold.algorithms.kernels.ppo import (
    FINISH,
    PLAYING,
    begin_row,
    bootstrap,
    end_step,
    finish,
    play,
    sample_actions,
    store_transition,
    unseen_inputs,
)
from tenfold.algorithms.kernels.ppo_minibatches import (
    gather_rows,
    inputs_of,
    learn_minibatches,
    policy_loss_gradient,
    value_loss_gradient,
)
from tenfold.algorithms.kernels.recurrent_tower import (
    derivative_room,
    policy_tower,
    state_size_of,
    tower_backward,
    tower_forward,
    tower_total,
    value_tower,
)
from tenfold.algorithms.ppo import PPO_GRAD, PPO_ONLINE
from tenfold.core.kernels import kernel
from tenfold.core.tables import open_table
from tenfold.engines.fused import many_rounds, one_round, transpose_rows
from tenfold.memory.rollout import advance_states

# typed: Numba compiles a function once more for each literal number it is called with; the policy's
# part of a state is the first
POLICY_STATE, FIRST_ROW = np.int64(0), np.int64(0)


@kernel(inline="always")
def gather_sequences(first, last, table, r_obs):
    """The rows of the sequences r_order[first … last − 1], time by time, into the scratch of a
    minibatch; where they begin episodes."""
    a = open_table(table)
    count, num_envs, length = last - first, a.r_boundary.shape[1], a.sequence_length
    ends = a.r_boundary.reshape(-1)
    for i in range(count):
        number = a.r_order[first + i]
        begin = number // num_envs * length * num_envs + number % num_envs
        for t in range(length):
            row = begin + t * num_envs
            a.row_order[t * count + i] = row
            a.m_keep[t * count + i] = 1 - ends[row - num_envs] if t else np.float32(1)
    gather_rows(FIRST_ROW, count * length, table, r_obs)


@kernel
def load_start_states(first, last, offset, table):
    """One tower's states in front of sequences, into `m_state`."""
    a = open_table(table)
    size = state_size_of(a.policy_memory)
    states = a.r_start_states.reshape(-1, a.r_start_states.shape[2])
    for i in range(last - first):
        for k in range(size):
            a.m_state[i * size + k] = states[a.r_order[first + i], offset + k]


@kernel(inline="always")
def sequence_gradient(first, last, arguments):
    """The gradient of the loss of a minibatch, the sequences r_order[first … last − 1]: deviations,
    policy and value."""
    table, r_obs = arguments
    gather_sequences(first, last, table, r_obs)
    a = open_table(table)
    flat, grad, count = a.block[PPO_ONLINE], a.block[PPO_GRAD], last - first
    activation, rows, reals = a.activation, count * a.sequence_length, a.r_real.shape[2]
    tower = policy_tower(table)
    split = reals + tower_total(tower)
    inputs = inputs_of(table, rows)
    load_start_states(first, last, POLICY_STATE, table)
    output = tower_forward(flat[reals:split], tower, activation, inputs, count, table)
    by_output = derivative_room(table, tower, activation, output)
    policy_loss_gradient(rows, table, output, by_output)
    policy = (flat[reals:split], grad[reals:split])
    tower_backward(*policy, tower, activation, inputs, count, table)
    tower = value_tower(table)
    load_start_states(first, last, state_size_of(a.policy_memory), table)
    output = tower_forward(flat[split:], tower, activation, inputs, count, table)
    by_output = derivative_room(table, tower, activation, output)
    value_loss_gradient(rows, table, output, by_output)
    value = (flat[split:], grad[split:])
    tower_backward(*value, tower, activation, inputs, count, table)


@kernel(inline="always")
def learn(table, r_obs):
    """All minibatches that are due."""
    learn_minibatches(table, open_table(table).r_order, sequence_gradient, (table, r_obs))


# a round


@kernel
def step_tower(table, tower, offset, state, first, end):
    """Outputs of the tower whose parameters are first … end − 1 for the inputs of acting and
    `state` [B, S], which stays; the next state is left in `m_state`."""
    a = open_table(table)
    num_envs, size = state.shape[0], state_size_of(a.policy_memory)
    for b in range(num_envs):
        a.m_keep[b] = 1
        for k in range(size):
            a.m_state[b * size + k] = state[b, offset + k]
    flat, activation = a.block[PPO_ONLINE], a.activation
    return tower_forward(flat[first:end], tower, activation, a.e_inputs, num_envs, table)


@kernel
def keep_next_hidden(table, offset):
    """The next state of the tower that stepped last, into the rollout's."""
    a = open_table(table)
    size = state_size_of(a.policy_memory)
    for b in range(a.r_next_hidden.shape[0]):
        for k in range(size):
            a.r_next_hidden[b, offset + k] = a.m_state[b * size + k]


@kernel
def values_after(obs, state, table):
    """Values [1, B] of observations that were not counted into the running statistics, by the
    states in front of them."""
    a = open_table(table)
    unseen_inputs(obs, table)
    first = a.r_real.shape[2] + tower_total(policy_tower(table))
    end, offset = a.block.shape[1], state_size_of(a.policy_memory)
    return step_tower(table, value_tower(table), offset, state, first, end)


@kernel(inline="always")
def store(table, step):
    """Stores the step just made in the rollout's current row; resets states where episodes
    ended."""
    _, e_obs, e_final_obs = step
    a = open_table(table)
    if store_transition(table):
        bootstrap(table, values_after(e_final_obs, a.r_next_hidden, table))
    states = a.r_hidden, a.r_next_hidden, a.r_start_states
    advance_states(a.r_count[0], a.sequence_length, a.r_boundary, *states)
    end_step(table, e_obs)


@kernel(inline="always")
def act(table, acting):
    """Actions for the current observations, into the rollout's current row; see `begin_row`."""
    r_obs, e_obs = acting
    empty = begin_row(table, r_obs, e_obs)
    if empty >= 0:
        return empty
    a = open_table(table)
    t, flat, reals = a.r_count[0], a.block[PPO_ONLINE], a.r_real.shape[2]
    transpose_rows(r_obs[t], a.obs_scale, a.e_inputs)
    policy, offset = policy_tower(table), state_size_of(a.policy_memory)
    split = reals + tower_total(policy)
    output = step_tower(table, policy, POLICY_STATE, a.r_hidden, reals, split)
    keep_next_hidden(table, POLICY_STATE)
    sample_actions(table, output)
    value = step_tower(table, value_tower(table), offset, a.r_hidden, split, flat.size)
    keep_next_hidden(table, offset)
    for b in range(e_obs.shape[0]):
        a.r_value[t, b] = value[0, b]
    return -1


@kernel
def recurrent_round(stages, table, r_obs, e_obs, e_final_obs):
    """As `ppo_round`."""
    if stages & FINISH:
        finish(table, values_after(e_obs, open_table(table).r_hidden, table)[0])
    step = (r_obs, e_obs, e_final_obs)
    return one_round(store, learn, act, stages, table, step, r_obs, (r_obs, e_obs))


@kernel
def recurrent_rounds(most, low, high, action, envs, table, r_obs, e_obs, e_final_obs):
    """As `ppo_rounds`."""
    moves, arguments = (low, high, action, envs, table), (table, r_obs, e_obs, e_final_obs)
    return many_rounds(play, moves, recurrent_round, PLAYING, most, arguments)
