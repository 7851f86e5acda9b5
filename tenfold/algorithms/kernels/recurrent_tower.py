"""A recurrent network compiled (a tower: layers, memory, layers behind it), on sequences, forward
and backward. Its parameters lie in this order. Policy and value take turns with one scratch, whose
arrays begin with m_.
"""

from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.tables import open_table
from tenfold.engines.fused import zeros
from tenfold.memory.rollout import RolloutBuffer
from tenfold.ops.activations import ACTIVATIONS, RELU, activate, through_activation
from tenfold.ops.mlp import (
    kept_at,
    layer_total,
    mlp_backward,
    mlp_backward_to_input,
    mlp_forward,
    parameter_total,
    room_of,
)
from tenfold.ops.products import turn
from tenfold.ops.recurrence import LSTM_GATES, memory_backward, memory_forward
from tenfold.ops.tiles import at

PARTS = ("layers", "memory", "head")  # of a tower


def tower_sizes(tower: Any, outputs: int) -> list[np.ndarray]:
    """Widths of the layers in front of a memory; its inputs, size and gates; widths behind it."""
    layers, memory = np.array(tower.sizes), getattr(tower, "memory", None)
    if memory is None:
        return [layers, np.array([layers[-1], 0, 0]), np.array([0, outputs])]
    return [layers, np.array([layers[-1], memory.size, memory.gates]), np.array(tower.head.sizes)]


def memory_columns(agent: Any, rollout: RolloutBuffer, sequences: int) -> dict[str, np.ndarray]:
    """Sizes of a policy's memory, and scratch for as many rows as a minibatch of so many sequences
    or a step has; empty arrays where there is no memory, so that all tables have one type."""
    online, num_envs, length = agent.online, rollout.hidden.shape[0], rollout.sequence_length
    towers = tower_sizes(online.policy, online.outputs), tower_sizes(online.value, 1)
    layers, memories, heads = zip(*towers, strict=True)
    _, size, gates = memories[0].tolist()
    some, wide = gates > 0, gates * size
    states = max(sequences, num_envs) * some
    rows = max(sequences * length, num_envs) * some
    inputs = int(max(sizes[-1] for sizes in layers))
    activation = ACTIVATIONS[agent.config.net.activation]
    encoded, behind = (max(layer_total(s, activation) for s in sizes) for sizes in (layers, heads))
    scratch = {
        "x": rows * inputs,
        "encoded": rows * encoded,
        "delta": rows * encoded,
        "scratch_t": rows * int(max(np.max(sizes) for sizes in (*layers, *heads))),
        "keep": rows,
        "state": states * online.policy.memory.state_size if some else 0,
        "scratch": wide * (inputs + size + states),
        "gate": rows * wide,
        "output": rows * behind,
        "by_output": rows * behind,
        "by_x": rows * inputs,
        "slopes": 2 * rows * wide,
        "past": 3 * states * size,
    }
    outputs_of_h = ("cell", "before_h", "before_c", "h", "encoded_t", "by_encoded_t", "by_h")
    scratch |= dict.fromkeys(outputs_of_h, rows * size)
    names = [f"{whose}_{part}" for whose in ("policy", "value") for part in PARTS]
    return {f"m_{name}": zeros(numbers) for name, numbers in scratch.items()} | {
        **dict(zip(names, (*towers[0], *towers[1]), strict=True)),
        "sequence_length": np.array(length),
        # rows of a minibatch of sequences
        "row_order": np.zeros(rollout.reward.size, np.int64) if some else rollout.order,
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
def policy_tower(table):
    """Sizes of the policy's layers, memory and head."""
    a = open_table(table)
    return a.policy_layers, a.policy_memory, a.policy_head


@kernel
def value_tower(table):
    """The same of the value."""
    a = open_table(table)
    return a.value_layers, a.value_memory, a.value_head


@kernel
def tower_total(tower):
    """Parameters of a tower."""
    layers, memory, head = tower
    return parameter_total(layers) + memory_total(memory) + parameter_total(head)


@kernel
def state_size_of(sizes):
    """Numbers of one tower's state."""
    return sizes[1] * (2 if sizes[2] == LSTM_GATES else 1)


@kernel
def tower_forward(flat, tower, activation, inputs, num_envs, table):
    """Outputs [out, T·B] of a tower with these parameters for inputs [features, T·B], with what is
    in `m_keep` and `m_state`; `m_state` becomes that behind the last rows."""
    a = open_table(table)
    layers, sizes, head = tower
    rows, into, size = inputs.shape[1], sizes[0], sizes[1]
    first, wide = parameter_total(layers), sizes[2] * sizes[1]
    if layers.size > 1:
        encoded = room_of(a.m_encoded, layers, activation, rows)
        last = mlp_forward(flat[:first], layers, activation, inputs, encoded)
        if activation == RELU:
            for j in range(last.size):
                encoded[encoded.size - last.size + j] = max(
                    encoded[encoded.size - last.size + j], np.float32(0)
                )
        kept = kept_at(activation, rows, layers, encoded.size)
        activate(last.size, at(last, 0), activation, kept)
        turn(into, rows, at(last, 0), at(a.m_x, 0))
    else:
        turn(into, rows, at(inputs, 0), at(a.m_x, 0))
    split = first + memory_total(sizes)
    memory_forward(
        flat[first:split],
        sizes,
        table_rows(a.m_x, rows, into),
        table_rows(a.m_state, num_envs, state_size_of(sizes)),
        table_rows(a.m_keep, rows // num_envs, num_envs),
        a.m_scratch,
        table_rows(a.m_gate, rows, wide),
        table_rows(a.m_cell, rows, size),
        table_rows(a.m_before_h, rows, size),
        table_rows(a.m_before_c, rows, size),
        table_rows(a.m_h, rows, size),
    )
    turn(rows, size, at(a.m_h, 0), at(a.m_encoded_t, 0))
    inputs, room = table_rows(a.m_encoded_t, size, rows), a.m_output
    return mlp_forward(
        flat[split:], head, activation, inputs, room_of(room, head, activation, rows)
    )


@kernel
def derivative_room(table, tower, activation, output):
    """Where `tower_backward` finds the derivative by a tower's outputs."""
    _, _, head = tower
    delta = room_of(open_table(table).m_by_output, head, activation, output.shape[1])
    return delta[delta.size - output.size :].reshape(output.shape)


@kernel
def tower_backward(flat, grad, tower, activation, inputs, num_envs, table):
    """Gradients by all parameters of the tower that `tower_forward` was last called for, from the
    derivative by its outputs in `derivative_room`."""
    a = open_table(table)
    layers, sizes, head = tower
    rows, into, size = inputs.shape[1], sizes[0], sizes[1]
    first, wide = parameter_total(layers), sizes[2] * sizes[1]
    split = first + memory_total(sizes)
    mlp_backward_to_input(
        flat[split:],
        head,
        activation,
        table_rows(a.m_encoded_t, size, rows),
        room_of(a.m_output, head, activation, rows),
        room_of(a.m_by_output, head, activation, rows),
        a.m_scratch_t,
        grad[split:],
        a.m_by_encoded_t[: size * rows],
    )
    turn(size, rows, at(a.m_by_encoded_t, 0), at(a.m_by_h, 0))
    memory_backward(
        flat[first:split],
        sizes,
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
    if layers.size > 1:
        encoded = room_of(a.m_encoded, layers, activation, rows)
        delta = room_of(a.m_delta, layers, activation, rows)
        end, kept = encoded.size - into * rows, kept_at(activation, rows, layers, encoded.size)
        turn(rows, into, at(a.m_by_x, 0), at(delta, end))
        through_activation(into * rows, at(delta, end), at(encoded, end), activation, kept)
        below = inputs, encoded, delta, a.m_scratch_t
        mlp_backward(flat[:first], layers, activation, *below, grad[:first])
