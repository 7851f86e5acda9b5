"""The derivative of the Q-learning loss in Triton: in one launch, which autograd makes of
`ops.qlearning.td_items` in some thirty; and as functions inside other kernels, whose networks stay
in registers.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import triton.language as tl

from tenfold.ops.device import network
from tenfold.ops.device.language import device_pair, gpu_kernel, padded
from tenfold.ops.qlearning import td_items

LARGEST = 64 * 64  # pairs of atoms that a program holds
Batch = dict[str, torch.Tensor]


def td_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, a, n, targets, kind in (
        ((5,), 3, 1, 1, "mse"),
        ((7,), 4, 1, 1, "huber"),
        ((4,), 2, 6, 6, "mse"),
        ((3, 5), 3, 3, 4, "implicit"),
    ):
        numbers = {name: rng.normal(size=lead).astype(dtype) for name in ("reward", "weight")}
        numbers["discount"] = (0.9 * rng.integers(0, 2, lead)).astype(dtype)
        batch = {name: torch.from_numpy(value) for name, value in numbers.items()}
        batch["action"] = torch.from_numpy(rng.integers(0, a, lead))
        if kind == "implicit":
            batch["fractions"] = torch.from_numpy(rng.random((*lead, n)).astype(dtype))
        values, other, chooser = (
            torch.from_numpy(2 * rng.normal(size=(*lead, atoms, a)).astype(dtype)).mT
            for atoms in (n, targets, targets)
        )
        yield batch, values, other, chooser, kind, 8


def td_derivative_reference(batch, values, next_values, chooser, kind, effective):
    leaf = values.detach().clone().requires_grad_()
    weighted, errors, q = td_items(batch, leaf, next_values, chooser, kind)
    (derivative,) = torch.autograd.grad(weighted.sum() / effective, leaf)
    metrics = torch.stack([weighted.detach() / effective, q, errors.abs()], -1)
    return derivative, errors, metrics.view(-1, 3)


@gpu_kernel
def td_kernel(
    values,
    next_values,
    chooser,
    action,
    reward,
    discount,
    weight,
    fractions,
    derivative,
    errors,
    metrics,
    effective,
    S: tl.constexpr,
    V: tl.constexpr,
    N: tl.constexpr,
    C: tl.constexpr,
):
    """An item a program. S: actions, atoms, atoms of the target, these padded, whether fractions
    are given, whether errors count as Huber's; V, N, C: strides of the values."""
    item = tl.program_id(0).to(tl.int64)
    a, i, j = tl.arange(0, S[3]), tl.arange(0, S[4]), tl.arange(0, S[5])
    exists, atom, aim = a < S[0], i < S[1], j < S[2]
    known = tl.load(
        chooser + item * C[0] + a[:, None] * C[1] + j[None, :] * C[2],
        mask=exists[:, None] & aim[None, :],
        other=0.0,
    )
    best = tl.argmax(tl.where(exists, tl.sum(known, 1), float("-inf")), 0)
    after = tl.load(next_values + item * N[0] + best * N[1] + j * N[2], mask=aim, other=0.0)
    target = tl.load(reward + item) + tl.load(discount + item) * after
    taken_action = tl.load(action + item)
    q_atoms = tl.load(values + item * V[0] + taken_action * V[1] + i * V[2], mask=atom, other=0.0)
    error = target[None, :] - q_atoms[:, None]
    clipped = tl.minimum(tl.maximum(error, -1.0), 1.0)
    huber = tl.where(tl.abs(error) <= 1, 0.5 * error * error, tl.abs(error) - 0.5)
    both = atom[:, None] & aim[None, :]
    if S[6] or S[1] > 1:
        level = (i + 0.5) / S[1]
        if S[6]:
            level = tl.load(fractions + item * S[1] + i, mask=atom, other=0.0)
        side = tl.abs(level[:, None] - tl.where(error < 0, 1.0, 0.0))
        loss, slope = side * huber / S[2], -side * clipped / S[2]
    else:
        loss = huber if S[7] else error * error
        slope = -clipped if S[7] else -2 * error
    share = tl.load(weight + item)
    slopes = tl.sum(tl.where(both, slope, 0.0), 1) * share / effective
    whole = tl.sum(tl.sum(tl.where(both, loss, 0.0), 1), 0) * share / effective
    q = tl.sum(q_atoms, 0) / S[1]
    td_error = tl.sum(tl.where(aim, target, 0.0), 0) / S[2] - q
    tl.store(
        derivative + item * V[0] + a[:, None] * V[1] + i[None, :] * V[2],
        tl.where(a[:, None] == taken_action, slopes[None, :], 0.0),
        mask=exists[:, None] & atom[None, :],
    )
    tl.store(errors + item, td_error)
    tl.store(metrics + item * 3, whole)
    tl.store(metrics + item * 3 + 1, q)
    tl.store(metrics + item * 3 + 2, tl.abs(td_error))


def fits(atoms: int, targets: int) -> bool:
    """Whether a program holds all pairs of atoms."""
    return padded(atoms, 1) * padded(targets, 1) <= LARGEST


@device_pair(
    td_derivative_reference, td_examples, "ops.device.td.td_derivative", rtol=1e-5, atol=1e-6
)
def td_derivative(
    batch: Batch,
    values: torch.Tensor,
    next_values: torch.Tensor,
    chooser: torch.Tensor,
    kind: str,
    effective: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(derivative of Σ weight·loss / effective by the values [..., B, A, N], TD error of each item;
    of each item its share of that loss, Q of the action taken and |TD error|, [rows, 3])."""
    flat = [v.detach().flatten(0, -3) for v in (values, next_values, chooser)]
    (rows, actions, atoms), targets = flat[0].shape, flat[1].shape[-1]
    derivative = torch.empty_like(flat[0])
    errors, metrics = flat[0].new_empty(rows), flat[0].new_empty(rows, 3)
    fractions = batch.get("fractions")
    pads = padded(actions, 1), padded(atoms, 1), padded(targets, 1)
    options = fractions is not None, kind == "huber"
    td_kernel[(rows,)](
        *flat,
        *(batch[name].reshape(-1) for name in ("action", "reward", "discount", "weight")),
        errors if fractions is None else fractions.reshape(-1),
        derivative,
        errors,
        metrics,
        float(effective),
        S=(actions, atoms, targets, *pads, *options),
        V=derivative.stride(),
        N=flat[1].stride(),
        C=flat[2].stride(),
        num_warps=1 if pads[1] * pads[2] <= 256 else 4,
    )
    return derivative.view_as(values), errors.view(values.shape[:-2]), metrics


# inside other kernels: action values are [rows, (duel + actions)·atoms], padded; those of action a
# are the columns of group duel + a


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
    row_group, column_group = i // V.atoms, j // V.atoms
    share = tl.where(row_group == 0, 1.0, 0.0) + tl.where(row_group == column_group, 1.0, 0.0)
    share -= tl.where(row_group >= 1, 1.0 / V.actions, 0.0)
    counts = (i % V.atoms == j % V.atoms) & (column_group >= 1) & (column_group <= V.actions)
    return tl.where(counts & (row_group <= V.actions), share, 0.0)


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
    in_group = tl.arange(0, values.shape[1])[None, :] // V.atoms == group
    return tl.sum(tl.where(in_group, values, 0.0), 1)


@gpu_kernel
def of_actions(values, V: tl.constexpr):
    """Values of one atom, −∞ in columns that belong to no action."""
    column = tl.arange(0, values.shape[1])[None, :]
    is_action = (column >= V.duel) & (column < V.duel + V.actions)
    return tl.where(is_action, values, float("-inf"))


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
    do not exist."""
    share = weight / size
    column = tl.arange(0, values.shape[1])[None, :]
    is_action = column // V.atoms == (action + V.duel)[:, None]
    q = tl.sum(tl.where(is_action, values, 0.0), 1) / V.atoms
    if V.atoms == 1 and not V.double:
        next_q = tl.max(of_actions(next_values, V), 1)
    else:
        is_next = column // V.atoms == best_group(chooser, V)[:, None]
        next_q = tl.sum(tl.where(is_next, next_values, 0.0), 1) / V.atoms
    error = reward + discount * next_q - q
    if V.atoms == 1:
        inside = tl.minimum(tl.maximum(error, -1.0), 1.0)
        if V.huber:
            item, slope = inside * (error - 0.5 * inside), -share * inside
        else:
            item, slope = error * error, -share * 2.0 * error
        loss = share * item
        delta = tl.where(is_action, slope[:, None], 0.0)
    else:
        level = ((column % V.atoms).to(tl.float32) + 0.5) / V.atoms
        delta, items = values * 0.0, values * 0.0
        for j in range(V.atoms):
            atom = is_next & (column % V.atoms == j)
            y = reward + discount * tl.sum(tl.where(atom, next_values, 0.0), 1)
            u = y[:, None] - values
            inside = tl.minimum(tl.maximum(u, -1.0), 1.0)
            asymmetry = tl.where(u < 0, 1 - level, level) / V.atoms
            delta -= asymmetry * inside
            items += asymmetry * inside * (u - 0.5 * inside)
        delta = tl.where(is_action, delta * share[:, None], 0.0)
        loss = tl.sum(tl.where(is_action, items * share[:, None], 0.0), 1)
    valid = weight > 0
    return delta, tl.where(valid, error, 0.0), loss, tl.where(valid, q, 0.0)
