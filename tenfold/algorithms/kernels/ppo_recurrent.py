"""Policies that remember, compiled: one tower (layers, memory, linear layer) over sequences of rows
forward and backward, and a learning phase of them.

All parameters lie in one buffer: deviations, policy, value; each tower's as layers, memory, linear
layer. Policy and value take turns with one scratch.
"""

from typing import NamedTuple

import numpy as np

from tenfold.algorithms.kernels.ppo import (
    ACT,
    FINISH,
    PLAYING,
    STORE,
    UPDATE,
    begin_row,
    draw_next,
    end_step,
    finish_with,
    gather_rows,
    inputs_of,
    learn_parts,
    note_step,
    played,
    policy_slopes,
    show,
    value_slopes,
)
from tenfold.algorithms.kernels.ppo_arrays import (
    ACTIVATION,
    OBS_SCALE,
    ROUNDS,
    open_arrays,
)
from tenfold.algorithms.ppo import GRAD, ONLINE, PPOAgent
from tenfold.core.kernels import kernel
from tenfold.core.tables import F1, F2, F3, I1, opener
from tenfold.engines.fused import ACTED, STORED, looks, many_rounds, note, transpose_rows, zeros
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
OF_POLICY, FIRST_ROW = np.int64(0), np.int64(0)


class Memories(NamedTuple):
    """What is remembered, and scratch for as many rows as a minibatch has, or a step."""

    memory: F2  # before the current row, and behind it
    following: F2
    states: F3  # in front of every sequence
    numbers: I1  # of the sequences, in an epoch's order
    length: I1  # of a sequence
    layers: I1  # widths in front of a memory, the observation's first
    sizes: I1  # of a memory: inputs, H, gates
    policy_head: I1
    value_head: I1
    x: F1
    encoded: F1
    delta: F1
    turned: F1
    keep: F1
    state: F1
    scratch: F1
    gate: F1
    cell: F1
    before_h: F1
    before_c: F1
    h: F1
    shown: F1
    output: F1
    by_output: F1
    by_shown: F1
    by_h: F1
    by_x: F1
    slopes: F1
    past: F1


open_memories = opener(Memories)


def make_memories(agent: PPOAgent, rollout: RolloutBuffer, sequences: int) -> Memories:
    """Scratch for minibatches of up to so many sequences."""
    tower, count = agent.online.policy, rollout.hidden.shape[0]
    memory, outputs = tower.memory, agent.online.outputs
    layers, size, wide = np.array(tower.sizes), memory.size, memory.gates * memory.size
    lanes, rows = max(sequences, count), max(sequences * rollout.sequence_length, count)
    inputs, widest = int(layers[-1]), int(max(*layers, size, outputs))
    hidden = int(layers[1:].sum())
    return Memories(
        rollout.hidden,
        rollout.next_hidden,
        rollout.start_states,
        rollout.order,
        np.array([rollout.sequence_length]),
        layers,
        np.array([inputs, size, memory.gates]),
        np.array([size, outputs]),
        np.array([size, 1]),
        x=zeros(rows * inputs),
        encoded=zeros(rows * hidden),
        delta=zeros(rows * hidden),
        turned=zeros(rows * widest),
        keep=zeros(rows),
        state=zeros(lanes * memory.state_size),
        scratch=zeros(wide * (inputs + size + lanes)),
        gate=zeros(rows * wide),
        cell=zeros(rows * size),
        before_h=zeros(rows * size),
        before_c=zeros(rows * size),
        h=zeros(rows * size),
        shown=zeros(rows * size),
        output=zeros(rows * outputs),
        by_output=zeros(rows * outputs),
        by_shown=zeros(rows * size),
        by_h=zeros(rows * size),
        by_x=zeros(rows * inputs),
        slopes=zeros(2 * rows * wide),
        past=zeros(3 * lanes * size),
    )


@kernel
def table_rows(room, rows, columns):
    """The part of scratch that a table of rows takes."""
    return room[: rows * columns].reshape(rows, columns)


@kernel
def memory_total(sizes):
    """Parameters of a memory."""
    return sizes[2] * sizes[1] * (sizes[0] + sizes[1] + 2)


@kernel
def tower_total(memories, head):
    """Parameters of a tower."""
    m = open_memories(memories)
    return parameter_total(m.layers) + memory_total(m.sizes) + parameter_total(head)


@kernel
def held_by_one(sizes):
    """Numbers of a state that are one tower's."""
    return sizes[1] * (2 if sizes[2] == LSTM_GATES else 1)


@kernel
def tower_forward(flat, head, activation, inputs, lanes, memories):
    """Outputs [out, T·lanes] of a tower with these parameters for inputs [features, T·lanes], with
    what stands in `keep` and `state`; `state` becomes that behind the last rows."""
    m = open_memories(memories)
    rows, into, size = inputs.shape[1], m.sizes[0], m.sizes[1]
    first, wide = parameter_total(m.layers), m.sizes[2] * m.sizes[1]
    if m.layers.size > 1:
        encoded = m.encoded[: m.layers[1:].sum() * rows]
        last = mlp_forward(flat[:first], m.layers, activation, inputs, encoded)
        if activation == RELU:
            for j in range(last.size):
                encoded[encoded.size - last.size + j] = max(
                    encoded[encoded.size - last.size + j], np.float32(0)
                )
        activate(last.size, at(last, 0), activation)
        turn(into, rows, at(last, 0), at(m.x, 0))
    else:
        turn(into, rows, at(inputs, 0), at(m.x, 0))
    split = first + memory_total(m.sizes)
    memory_forward(
        flat[first:split],
        m.sizes,
        table_rows(m.x, rows, into),
        table_rows(m.state, lanes, held_by_one(m.sizes)),
        table_rows(m.keep, rows // lanes, lanes),
        m.scratch,
        table_rows(m.gate, rows, wide),
        table_rows(m.cell, rows, size),
        table_rows(m.before_h, rows, size),
        table_rows(m.before_c, rows, size),
        table_rows(m.h, rows, size),
    )
    turn(rows, size, at(m.h, 0), at(m.shown, 0))
    shown = table_rows(m.shown, size, rows)
    return mlp_forward(flat[split:], head, activation, shown, m.output[: head[1] * rows])


@kernel
def tower_backward(flat, grad, head, activation, inputs, lanes, memories):
    """Gradients by all parameters of the tower that `tower_forward` was last asked of, from the
    derivative by its outputs in `by_output`."""
    m = open_memories(memories)
    rows, into, size, out = inputs.shape[1], m.sizes[0], m.sizes[1], head[1]
    first, wide = parameter_total(m.layers), m.sizes[2] * m.sizes[1]
    split = first + memory_total(m.sizes)
    layer_by_input(out, rows, size, at(flat, split), at(m.by_output, 0), at(m.by_shown, 0))
    turn(size, rows, at(m.by_shown, 0), at(m.by_h, 0))
    mlp_backward(
        flat[split:],
        head,
        activation,
        table_rows(m.shown, size, rows),
        m.output[: out * rows],
        m.by_output[: out * rows],
        m.turned,
        grad[split:],
    )
    memory_backward(
        flat[first:split],
        m.sizes,
        table_rows(m.x, rows, into),
        table_rows(m.keep, rows // lanes, lanes),
        table_rows(m.gate, rows, wide),
        table_rows(m.cell, rows, size),
        table_rows(m.before_h, rows, size),
        table_rows(m.before_c, rows, size),
        table_rows(m.by_h, rows, size),
        m.slopes[: 2 * rows * wide].reshape(2, rows, wide),
        m.past[: 3 * lanes * size].reshape(3, lanes, size),
        table_rows(m.by_x, rows, into),
        grad[first:split],
        m.memory,
    )
    if m.layers.size > 1:
        total = m.layers[1:].sum() * rows
        encoded, delta = m.encoded[:total], m.delta[:total]
        end = total - into * rows
        turn(rows, into, at(m.by_x, 0), at(delta, end))
        through_activation(into * rows, at(delta, end), at(encoded, end), activation)
        mlp_backward(
            flat[:first], m.layers, activation, inputs, encoded, delta, m.turned, grad[:first]
        )


# learning


@kernel(inline="always")
def gather_sequences(first, last, table, memories, r_obs):
    """The rows of the sequences numbers[first … last − 1], time by time, into the scratch of a
    minibatch; where they begin episodes."""
    a, m = open_arrays(table), open_memories(memories)
    lanes, all_lanes, length = last - first, a.r_boundary.shape[1], m.length[0]
    ends = a.r_boundary.reshape(-1)
    for i in range(lanes):
        number = m.numbers[first + i]
        begin = number // all_lanes * length * all_lanes + number % all_lanes
        for t in range(length):
            place = begin + t * all_lanes
            a.order[t * lanes + i] = place
            m.keep[t * lanes + i] = 1 - ends[place - all_lanes] if t else np.float32(1)
    gather_rows(FIRST_ROW, lanes * length, table, r_obs)


@kernel
def put_states(first, last, offset, memories):
    """What one tower remembered in front of sequences into `state`."""
    m = open_memories(memories)
    held = held_by_one(m.sizes)
    states = m.states.reshape(-1, m.states.shape[2])
    for i in range(last - first):
        for k in range(held):
            m.state[i * held + k] = states[m.numbers[first + i], offset + k]


@kernel(inline="always")
def find_memory_gradient(first, last, table, memories):
    """The gradient of the loss of a minibatch of sequences, deviations, policy and value."""
    a, m = open_arrays(table), open_memories(memories)
    flat, grad, lanes = a.block[ONLINE], a.block[GRAD], last - first
    activation, rows, reals = int(a.rule[ACTIVATION]), lanes * m.length[0], a.r_real.shape[2]
    split = reals + tower_total(memories, m.policy_head)
    inputs = inputs_of(table, rows)
    put_states(first, last, OF_POLICY, memories)
    output = tower_forward(flat[reals:split], m.policy_head, activation, inputs, lanes, memories)
    policy_slopes(rows, table, output, m.by_output[: output.size].reshape(output.shape))
    of_policy = (flat[reals:split], grad[reals:split])
    tower_backward(*of_policy, m.policy_head, activation, inputs, lanes, memories)
    put_states(first, last, held_by_one(m.sizes), memories)
    guess = tower_forward(flat[split:], m.value_head, activation, inputs, lanes, memories)
    value_slopes(rows, table, guess, m.by_output[: guess.size].reshape(guess.shape))
    of_value = (flat[split:], grad[split:])
    tower_backward(*of_value, m.value_head, activation, inputs, lanes, memories)


@kernel(inline="always")
def find_sequence_gradient(first, last, given):
    """From the sequences numbers[first … last − 1]."""
    table, memories, r_obs = given
    gather_sequences(first, last, table, memories, r_obs)
    find_memory_gradient(first, last, table, memories)


@kernel(inline="always")
def learn_sequences(table, memories, r_obs):
    """All minibatches that are due."""
    numbers = open_memories(memories).numbers
    learn_parts(table, numbers, find_sequence_gradient, (table, memories, r_obs))


# a round


@kernel
def one_step(table, memories, head, offset, state, first, end):
    """Outputs of the tower whose parameters are first … end − 1 for the inputs of acting, behind
    `state` [B, S], which stays; what it remembers then is in the scratch."""
    a, m = open_arrays(table), open_memories(memories)
    lanes, held = state.shape[0], held_by_one(m.sizes)
    for b in range(lanes):
        m.keep[b] = 1
        for k in range(held):
            m.state[b * held + k] = state[b, offset + k]
    flat, activation = a.block[ONLINE], int(a.rule[ACTIVATION])
    return tower_forward(flat[first:end], head, activation, a.act_inputs, lanes, memories)


@kernel
def keep_following(memories, offset):
    """What the tower asked last remembers behind the current row."""
    m = open_memories(memories)
    held = held_by_one(m.sizes)
    for b in range(m.following.shape[0]):
        for k in range(held):
            m.following[b, offset + k] = m.state[b * held + k]


@kernel
def values_after(obs, state, table, memories):
    """Values [1, B] of observations that were not counted into the running statistics, behind
    `state`."""
    a, m = open_arrays(table), open_memories(memories)
    show(obs, table)
    first = a.r_real.shape[2] + tower_total(memories, m.policy_head)
    end, offset = a.block.shape[1], held_by_one(m.sizes)
    return one_step(table, memories, m.value_head, offset, state, first, end)


@kernel(inline="always")
def store_remembered(table, memories, e_obs, e_final_obs):
    """The step just made, into the rollout's current row; episodes that ended are forgotten."""
    a, m = open_arrays(table), open_memories(memories)
    t = a.r_count[0]
    if note_step(table):
        final = values_after(e_final_obs, m.following, table, memories)
        for b in range(a.e_truncated.size):
            if a.e_truncated[b]:
                a.r_next[t, b] = final[0, b]
    advance_states(t, m.length[0], a.r_boundary, m.memory, m.following, m.states)
    end_step(table, e_obs)


@kernel(inline="always")
def choose_remembering(table, memories, r_obs, e_obs):
    """Actions for the current observations, into the rollout's current row."""
    if not begin_row(table, r_obs, e_obs):
        return
    a, m = open_arrays(table), open_memories(memories)
    t, size, flat, reals = a.r_count[0], e_obs.shape[0], a.block[ONLINE], a.r_real.shape[2]
    transpose_rows(r_obs[t], a.rule[OBS_SCALE], a.act_inputs)
    split, behind = reals + tower_total(memories, m.policy_head), held_by_one(m.sizes)
    output = one_step(table, memories, m.policy_head, OF_POLICY, m.memory, reals, split)
    keep_following(memories, OF_POLICY)
    draw_next(table, output)
    value = one_step(table, memories, m.value_head, behind, m.memory, split, flat.size)
    keep_following(memories, behind)
    for b in range(size):
        a.r_value[t, b] = value[0, b]


@kernel
def fused_memory(parts, table, memories, r_obs, e_obs, e_final_obs):
    """As `fused_ppo`."""
    m, counter = open_memories(memories), open_arrays(table).counter
    if parts & STORE:
        began = looks(counter[ROUNDS])
        store_remembered(table, memories, e_obs, e_final_obs)
        note(counter, STORED, began)
    if parts & FINISH:
        finish_with(table, values_after(e_obs, m.memory, table, memories)[0])
    if parts & UPDATE:
        learn_sequences(table, memories, r_obs)
    if parts & ACT:
        began = looks(counter[ROUNDS])
        choose_remembering(table, memories, r_obs, e_obs)
        note(counter, ACTED, began)


@kernel
def fused_memory_rounds(most, low, high, action, lanes, table, memories, r_obs, e_obs, e_final_obs):
    """As `fused_ppo_rounds`."""
    moves, given = (low, high, action, lanes, table), (table, memories, r_obs, e_obs, e_final_obs)
    return many_rounds(played, moves, fused_memory, PLAYING, most, given)
