"""PPO of recurrent policies, compiled: a tower (layers, memory, linear layer) on sequences forward
and backward, a learning phase, and the slots of a fused round. Parameters lie in one buffer:
deviations, policy, value; each tower's as layers, memory, linear layer. Policy and value take turns
with one scratch, whose arrays begin with m_.
"""

from typing import Any

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
from tenfold.algorithms.ppo import PPO_GRAD, PPO_ONLINE
from tenfold.core.kernels import kernel
from tenfold.core.tables import open_table
from tenfold.engines.fused import many_rounds, one_round, transpose_rows, zeros
from tenfold.memory.rollout import RolloutBuffer, advance_states
from tenfold.ops.mlp import (
    RELU,
    activate,
    mlp_backward,
    mlp_forward,
    parameter_total,
    through_activation,
)
from tenfold.ops.products import layer_by_input, turn
from tenfold.ops.recurrence import LSTM_GATES, memory_backward, memory_forward
from tenfold.ops.tiles import at

# typed: Numba compiles a function once more for each literal number it is called with; the policy's
# part of a state is the first
POLICY_STATE, FIRST_ROW = np.int64(0), np.int64(0)


def memory_columns(agent: Any, rollout: RolloutBuffer, sequences: int) -> dict[str, np.ndarray]:
    """Sizes of a policy's memory, and scratch for as many rows as a minibatch of so many sequences
    or a step has; empty arrays where there is no memory, so that all tables have one type."""
    tower, num_envs, length = agent.online.policy, rollout.hidden.shape[0], rollout.sequence_length
    memory, outputs = getattr(tower, "memory", None), agent.online.outputs
    size, gates, state = (memory.size, memory.gates, memory.state_size) if memory else (0, 0, 0)
    some = memory is not None
    layers, wide = np.array(tower.sizes), gates * size
    states = max(sequences, num_envs) * some
    rows = max(sequences * length, num_envs) * some
    inputs, hidden = int(layers[-1]), int(layers[1:].sum())
    scratch = {
        "x": rows * inputs,
        "encoded": rows * hidden,
        "delta": rows * hidden,
        "scratch_t": rows * int(max(*layers, size, outputs)),
        "keep": rows,
        "state": states * state,
        "scratch": wide * (inputs + size + states),
        "gate": rows * wide,
        "output": rows * outputs,
        "by_output": rows * outputs,
        "by_x": rows * inputs,
        "slopes": 2 * rows * wide,
        "past": 3 * states * size,
    }
    outputs_of_h = ("cell", "before_h", "before_c", "h", "encoded_t", "by_encoded_t", "by_h")
    scratch |= dict.fromkeys(outputs_of_h, rows * size)
    return {f"m_{name}": zeros(numbers) for name, numbers in scratch.items()} | {
        "m_layers": layers,
        "m_sizes": np.array([inputs, size, gates]),
        "policy_head": np.array([size, outputs]),
        "value_head": np.array([size, 1]),
        "sequence_length": np.array(length),
        # rows of a minibatch of sequences
        "row_order": np.zeros(rollout.reward.size, np.int64) if memory else rollout.order,
    }


@kernel
def table_rows(scratch, rows, columns):
    """The part of scratch that a table of rows takes."""
    return scratch[: rows * columns].reshape(rows, columns)


@kernel
def memory_total(sizes):
    """Parameters of a memory."""
    return sizes[2] * sizes[1] * (sizes[0] + sizes[1] + 2)


@kernel
def tower_total(table, head):
    """Parameters of a tower."""
    a = open_table(table)
    return parameter_total(a.m_layers) + memory_total(a.m_sizes) + parameter_total(head)


@kernel
def state_size_of(sizes):
    """Numbers of one tower's state."""
    return sizes[1] * (2 if sizes[2] == LSTM_GATES else 1)


@kernel
def tower_forward(flat, head, activation, inputs, num_envs, table):
    """Outputs [out, T·B] of a tower with these parameters for inputs [features, T·B], with what is
    in `m_keep` and `m_state`; `m_state` becomes that behind the last rows."""
    a = open_table(table)
    rows, into, size = inputs.shape[1], a.m_sizes[0], a.m_sizes[1]
    first, wide = parameter_total(a.m_layers), a.m_sizes[2] * a.m_sizes[1]
    if a.m_layers.size > 1:
        encoded = a.m_encoded[: a.m_layers[1:].sum() * rows]
        last = mlp_forward(flat[:first], a.m_layers, activation, inputs, encoded)
        if activation == RELU:
            for j in range(last.size):
                encoded[encoded.size - last.size + j] = max(
                    encoded[encoded.size - last.size + j], np.float32(0)
                )
        activate(last.size, at(last, 0), activation)
        turn(into, rows, at(last, 0), at(a.m_x, 0))
    else:
        turn(into, rows, at(inputs, 0), at(a.m_x, 0))
    split = first + memory_total(a.m_sizes)
    memory_forward(
        flat[first:split],
        a.m_sizes,
        table_rows(a.m_x, rows, into),
        table_rows(a.m_state, num_envs, state_size_of(a.m_sizes)),
        table_rows(a.m_keep, rows // num_envs, num_envs),
        a.m_scratch,
        table_rows(a.m_gate, rows, wide),
        table_rows(a.m_cell, rows, size),
        table_rows(a.m_before_h, rows, size),
        table_rows(a.m_before_c, rows, size),
        table_rows(a.m_h, rows, size),
    )
    turn(rows, size, at(a.m_h, 0), at(a.m_encoded_t, 0))
    inputs = table_rows(a.m_encoded_t, size, rows)
    return mlp_forward(flat[split:], head, activation, inputs, a.m_output[: head[1] * rows])


@kernel
def tower_backward(flat, grad, head, activation, inputs, num_envs, table):
    """Gradients by all parameters of the tower that `tower_forward` was last called for, from the
    derivative by its outputs in `m_by_output`."""
    a = open_table(table)
    rows, into, size, out = inputs.shape[1], a.m_sizes[0], a.m_sizes[1], head[1]
    first, wide = parameter_total(a.m_layers), a.m_sizes[2] * a.m_sizes[1]
    split = first + memory_total(a.m_sizes)
    layer_by_input(out, rows, size, at(flat, split), at(a.m_by_output, 0), at(a.m_by_encoded_t, 0))
    turn(size, rows, at(a.m_by_encoded_t, 0), at(a.m_by_h, 0))
    mlp_backward(
        flat[split:],
        head,
        activation,
        table_rows(a.m_encoded_t, size, rows),
        a.m_output[: out * rows],
        a.m_by_output[: out * rows],
        a.m_scratch_t,
        grad[split:],
    )
    memory_backward(
        flat[first:split],
        a.m_sizes,
        table_rows(a.m_x, rows, into),
        table_rows(a.m_keep, rows // num_envs, num_envs),
        table_rows(a.m_gate, rows, wide),
        table_rows(a.m_cell, rows, size),
        table_rows(a.m_before_h, rows, size),
        table_rows(a.m_before_c, rows, size),
        table_rows(a.m_by_h, rows, size),
        a.m_slopes[: 2 * rows * wide].reshape(2, rows, wide),
        a.m_past[: 3 * num_envs * size].reshape(3, num_envs, size),
        table_rows(a.m_by_x, rows, into),
        grad[first:split],
        a.r_hidden,
    )
    if a.m_layers.size > 1:
        total = a.m_layers[1:].sum() * rows
        encoded, delta = a.m_encoded[:total], a.m_delta[:total]
        end = total - into * rows
        turn(rows, into, at(a.m_by_x, 0), at(delta, end))
        through_activation(into * rows, at(delta, end), at(encoded, end), activation)
        mlp_backward(
            flat[:first],
            a.m_layers,
            activation,
            inputs,
            encoded,
            delta,
            a.m_scratch_t,
            grad[:first],
        )


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
    size = state_size_of(a.m_sizes)
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
    split = reals + tower_total(table, a.policy_head)
    inputs = inputs_of(table, rows)
    load_start_states(first, last, POLICY_STATE, table)
    output = tower_forward(flat[reals:split], a.policy_head, activation, inputs, count, table)
    by_output = a.m_by_output[: output.size].reshape(output.shape)
    policy_loss_gradient(rows, table, output, by_output)
    policy = (flat[reals:split], grad[reals:split])
    tower_backward(*policy, a.policy_head, activation, inputs, count, table)
    load_start_states(first, last, state_size_of(a.m_sizes), table)
    output = tower_forward(flat[split:], a.value_head, activation, inputs, count, table)
    by_output = a.m_by_output[: output.size].reshape(output.shape)
    value_loss_gradient(rows, table, output, by_output)
    value = (flat[split:], grad[split:])
    tower_backward(*value, a.value_head, activation, inputs, count, table)


@kernel(inline="always")
def learn(table, r_obs):
    """All minibatches that are due."""
    learn_minibatches(table, open_table(table).r_order, sequence_gradient, (table, r_obs))


# a round


@kernel
def step_tower(table, head, offset, state, first, end):
    """Outputs of the tower whose parameters are first … end − 1 for the inputs of acting and
    `state` [B, S], which stays; the next state is left in `m_state`."""
    a = open_table(table)
    num_envs, size = state.shape[0], state_size_of(a.m_sizes)
    for b in range(num_envs):
        a.m_keep[b] = 1
        for k in range(size):
            a.m_state[b * size + k] = state[b, offset + k]
    flat, activation = a.block[PPO_ONLINE], a.activation
    return tower_forward(flat[first:end], head, activation, a.e_inputs, num_envs, table)


@kernel
def keep_next_hidden(table, offset):
    """The next state of the tower that stepped last, into the rollout's."""
    a = open_table(table)
    size = state_size_of(a.m_sizes)
    for b in range(a.r_next_hidden.shape[0]):
        for k in range(size):
            a.r_next_hidden[b, offset + k] = a.m_state[b * size + k]


@kernel
def values_after(obs, state, table):
    """Values [1, B] of observations that were not counted into the running statistics, by the
    states in front of them."""
    a = open_table(table)
    unseen_inputs(obs, table)
    first = a.r_real.shape[2] + tower_total(table, a.policy_head)
    end, offset = a.block.shape[1], state_size_of(a.m_sizes)
    return step_tower(table, a.value_head, offset, state, first, end)


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
    split, offset = reals + tower_total(table, a.policy_head), state_size_of(a.m_sizes)
    output = step_tower(table, a.policy_head, POLICY_STATE, a.r_hidden, reals, split)
    keep_next_hidden(table, POLICY_STATE)
    sample_actions(table, output)
    value = step_tower(table, a.value_head, offset, a.r_hidden, split, flat.size)
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
