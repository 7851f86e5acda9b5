"""The derivative of the Q-learning loss in Triton, `ops.td` for the resident engine.

Action values are [rows, (duel + actions)·atoms], padded: those of action a are the columns of group
duel + a.
"""

from typing import NamedTuple

import triton.language as tl

from tenfold.ops.device import network
from tenfold.ops.device.language import gpu_kernel


class ValueShape(NamedTuple):
    """What a network's outputs are."""

    duel: int  # 1: the first group is the state's value
    actions: int
    atoms: int
    huber: bool
    double: bool  # the online network chooses the next action


@gpu_kernel
def duel_map(width: tl.constexpr, V: tl.constexpr):
    """V, A_1 … A_n -> 0, V + A_i − mean(A), as a matrix for each atom."""
    i, j = tl.arange(0, width)[:, None], tl.arange(0, width)[None, :]
    here, there = i // V.atoms, j // V.atoms
    share = tl.where(here == 0, 1.0, 0.0) + tl.where(here == there, 1.0, 0.0)
    share -= tl.where(here >= 1, 1.0 / V.actions, 0.0)
    counts = (i % V.atoms == j % V.atoms) & (there >= 1) & (there <= V.actions)
    return tl.where(counts & (here <= V.actions), share, 0.0)


@gpu_kernel
def joined(output, S: tl.constexpr):
    """Action values from a network's outputs."""
    V: tl.constexpr = S.outputs
    if V.duel:
        turn = duel_map(output.shape[1], V)
        output = tl.dot(output, turn, input_precision=S.net.precision)
    return output


@gpu_kernel
def parted(delta, S: tl.constexpr):
    """The derivative by a network's outputs, from that by action values."""
    V: tl.constexpr = S.outputs
    if V.duel:
        turn = tl.trans(duel_map(delta.shape[1], V))
        delta = tl.dot(delta, turn, input_precision=S.net.precision)
    return delta


@gpu_kernel
def values(layers, x, S: tl.constexpr):
    """Action values of rows x."""
    N: tl.constexpr = S.net
    return joined(network.forward(layers, x, N)[N.layers], S)


@gpu_kernel
def total_of(values, group: tl.constexpr, V: tl.constexpr):
    """Σ of a group's atoms [rows]."""
    own = tl.arange(0, values.shape[1])[None, :] // V.atoms == group
    return tl.sum(tl.where(own, values, 0.0), 1)


@gpu_kernel
def of_actions(values, V: tl.constexpr):
    """Values of one atom, −∞ in columns that belong to no action."""
    column = tl.arange(0, values.shape[1])[None, :]
    there = (column >= V.duel) & (column < V.duel + V.actions)
    return tl.where(there, values, float("-inf"))


@gpu_kernel
def best_group(values, V: tl.constexpr):
    """The group of argmax_a Q; the first of equals."""
    if V.atoms == 1:
        return tl.argmax(of_actions(values, V), 1)
    else:
        most = total_of(values, V.duel, V)
        best = (most * 0).to(tl.int32) + V.duel
        actions: tl.constexpr = V.actions
        for action in tl.static_range(1, actions):
            total = total_of(values, V.duel + action, V)
            best = tl.where(total > most, V.duel + action, best)
            most = tl.maximum(total, most)
        return best


@gpu_kernel
def gradient(values, next_values, chooser, action, reward, discount, weight, size, V: tl.constexpr):
    """(∂loss/∂values, TD error, loss, Q) of rows of action values; `weight` is 0 for rows that
    are not there."""
    share = weight / size
    column = tl.arange(0, values.shape[1])[None, :]
    taken = column // V.atoms == (action + V.duel)[:, None]
    q = tl.sum(tl.where(taken, values, 0.0), 1) / V.atoms
    if V.atoms == 1 and not V.double:
        next_q = tl.max(of_actions(next_values, V), 1)
    else:
        chosen = column // V.atoms == best_group(chooser, V)[:, None]
        next_q = tl.sum(tl.where(chosen, next_values, 0.0), 1) / V.atoms
    error = reward + discount * next_q - q
    if V.atoms == 1:
        inside = tl.minimum(tl.maximum(error, -1.0), 1.0)
        if V.huber:
            item, slope = inside * (error - 0.5 * inside), -share * inside
        else:
            item, slope = error * error, -share * 2.0 * error
        loss = share * item
        delta = tl.where(taken, slope[:, None], 0.0)
    else:
        level = ((column % V.atoms).to(tl.float32) + 0.5) / V.atoms
        delta, items = values * 0.0, values * 0.0
        for j in range(V.atoms):
            atom = chosen & (column % V.atoms == j)
            y = reward + discount * tl.sum(tl.where(atom, next_values, 0.0), 1)
            u = y[:, None] - values
            inside = tl.minimum(tl.maximum(u, -1.0), 1.0)
            asymmetry = tl.where(u < 0, 1 - level, level) / V.atoms
            delta -= asymmetry * inside
            items += asymmetry * inside * (u - 0.5 * inside)
        delta = tl.where(taken, delta * share[:, None], 0.0)
        loss = tl.sum(tl.where(taken, items * share[:, None], 0.0), 1)
    there = weight > 0
    return delta, tl.where(there, error, 0.0), loss, tl.where(there, q, 0.0)
