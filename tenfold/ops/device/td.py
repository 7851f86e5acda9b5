"""The derivative of the Q-learning loss by the action values in one launch: what autograd makes of
`ops.qlearning.td_items` in some thirty."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import triton.language as tl

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
    own = values.detach().clone().requires_grad_()
    weighted, errors, q = td_items(batch, own, next_values, chooser, kind)
    (derivative,) = torch.autograd.grad(weighted.sum() / effective, own)
    told = torch.stack([weighted.detach() / effective, q, errors.abs()], -1)
    return derivative, errors, told.view(-1, 3)


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
    told,
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
    there, atom, aim = a < S[0], i < S[1], j < S[2]
    known = tl.load(
        chooser + item * C[0] + a[:, None] * C[1] + j[None, :] * C[2],
        mask=there[:, None] & aim[None, :],
        other=0.0,
    )
    best = tl.argmax(tl.where(there, tl.sum(known, 1), float("-inf")), 0)
    after = tl.load(next_values + item * N[0] + best * N[1] + j * N[2], mask=aim, other=0.0)
    target = tl.load(reward + item) + tl.load(discount + item) * after
    taken = tl.load(action + item)
    own = tl.load(values + item * V[0] + taken * V[1] + i * V[2], mask=atom, other=0.0)
    error = target[None, :] - own[:, None]
    cut = tl.minimum(tl.maximum(error, -1.0), 1.0)
    huber = tl.where(tl.abs(error) <= 1, 0.5 * error * error, tl.abs(error) - 0.5)
    both = atom[:, None] & aim[None, :]
    if S[6] or S[1] > 1:
        level = (i + 0.5) / S[1]
        if S[6]:
            level = tl.load(fractions + item * S[1] + i, mask=atom, other=0.0)
        side = tl.abs(level[:, None] - tl.where(error < 0, 1.0, 0.0))
        loss, slope = side * huber / S[2], -side * cut / S[2]
    else:
        loss = huber if S[7] else error * error
        slope = -cut if S[7] else -2 * error
    share = tl.load(weight + item)
    slopes = tl.sum(tl.where(both, slope, 0.0), 1) * share / effective
    whole = tl.sum(tl.sum(tl.where(both, loss, 0.0), 1), 0) * share / effective
    q = tl.sum(own, 0) / S[1]
    apart = tl.sum(tl.where(aim, target, 0.0), 0) / S[2] - q
    tl.store(
        derivative + item * V[0] + a[:, None] * V[1] + i[None, :] * V[2],
        tl.where(a[:, None] == taken, slopes[None, :], 0.0),
        mask=there[:, None] & atom[None, :],
    )
    tl.store(errors + item, apart)
    tl.store(told + item * 3, whole)
    tl.store(told + item * 3 + 1, q)
    tl.store(told + item * 3 + 2, tl.abs(apart))


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
    errors, told = flat[0].new_empty(rows), flat[0].new_empty(rows, 3)
    fractions = batch.get("fractions")
    pads = padded(actions, 1), padded(atoms, 1), padded(targets, 1)
    options = fractions is not None, kind == "huber"
    td_kernel[(rows,)](
        *flat,
        *(batch[name].reshape(-1) for name in ("action", "reward", "discount", "weight")),
        errors if fractions is None else fractions.reshape(-1),
        derivative,
        errors,
        told,
        float(effective),
        S=(actions, atoms, targets, *pads, *options),
        V=derivative.stride(),
        N=flat[1].stride(),
        C=flat[2].stride(),
        num_warps=1 if pads[1] * pads[2] <= 256 else 4,
    )
    return derivative.view_as(values), errors.view(values.shape[:-2]), told
