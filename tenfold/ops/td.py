"""The derivative of the Q-learning loss by the network's output, as compiled code: the fused
engine's part of `qlearning`."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.qlearning import SHAPES, dueling, td_items


def gradient_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Outputs [(duel + A)·N, B] of the online network on s, of the target network and of the
    chooser on s'."""
    for b, a, n in (*SHAPES, (33, 6, 1), (2, 3, 32)):
        for duel in (0, 1):
            for is_huber in (False, True):
                outputs = [2 * rng.normal(size=((duel + a) * n, b)).astype(dtype) for _ in range(3)]
                discount = (0.9 * rng.integers(0, 2, b)).astype(dtype)
                masked = a * int(rng.integers(0, 2))
                yield (
                    *outputs,
                    rng.integers(0, a, b),
                    rng.normal(size=b).astype(dtype),
                    discount,
                    rng.uniform(0.1, 1, b).astype(dtype),
                    rng.random((b, masked)) < 0.6,
                    duel,
                    n,
                    is_huber,
                    np.ones_like(outputs[0]),
                    np.zeros(b, dtype),
                    np.zeros(n, dtype),
                )


def gradient_by_autograd(
    items, output, next_output, choosing_output, action, reward, discount, weight, mask, duel, atoms
):
    """∂loss/∂output, every item's error, the loss and the mean Q, of equations that say (weighted
    loss, error, Q) of every item: `items(batch, values, next values, chooser's values)`."""

    def values(outputs: torch.Tensor) -> torch.Tensor:
        shaped = outputs.T.reshape(len(action), -1, atoms)
        return dueling(shaped) if duel else shaped

    leaf = torch.from_numpy(output).requires_grad_()
    numbers = {"action": action, "reward": reward, "discount": discount, "weight": weight}
    batch = {name: torch.from_numpy(array) for name, array in numbers.items()}
    if mask.shape[1]:
        batch["next_mask"] = torch.from_numpy(mask)
    after, chooser = (values(torch.from_numpy(each)) for each in (next_output, choosing_output))
    weighted, error, q = items(batch, values(leaf), after, chooser)
    loss = weighted.sum() / len(action)
    loss.backward()
    return leaf.grad, error, loss.detach(), q.mean()


def td_gradient_reference(*given):
    """Autograd through the equations of `qlearning`. What the kernel writes into is not looked
    at."""
    *numbers, is_huber, _delta, _error, _y = given
    return gradient_by_autograd(partial(td_items, kind="huber" if is_huber else "mse"), *numbers)


@pair(td_gradient_reference, gradient_examples, rtol=1e-4, atol=1e-6)
@kernel
def td_gradient(
    output,
    next_output,
    choosing_output,
    action,
    reward,
    discount,
    weight,
    mask,
    duel,
    atoms,
    is_huber,
    delta,
    error,
    y,
):
    """Writes ∂loss/∂output into `delta` and each item's TD error into `error`; returns these, the
    loss and the mean Q. `y` is scratch for one item's target atoms.

    Values are V + A − mean(A) with `duel`. `mask` [B, A] is of the next states, [B, 0] where all
    actions are allowed.
    """
    size, actions = output.shape[1], output.shape[0] // atoms - duel
    if atoms == 1 and duel == 0 and mask.shape[1] == 0:
        loss, mean_q = td_gradient_of_values(
            output,
            next_output,
            choosing_output,
            action,
            reward,
            discount,
            weight,
            is_huber,
            delta,
            error,
        )
        return delta, error, loss, mean_q
    n = np.float32(1 / atoms)
    loss = mean_q = np.float32(0)
    for b in range(size):
        best = best_of(choosing_output, b, duel, atoms, actions, mask)
        scale = weight[b] / np.float32(size)
        q = mean_y = np.float32(0)
        for j in range(atoms):
            y[j] = reward[b] + discount[b] * value_of(next_output, b, best, j, duel, atoms, actions)
            mean_y += y[j] * n
        for i in range(atoms):
            theta = value_of(output, b, action[b], i, duel, atoms, actions)
            slope, level = np.float32(0), (np.float32(i) + np.float32(0.5)) * n
            for j in range(atoms):
                u = y[j] - theta
                item, derivative = atom_loss(u, level, n, is_huber)
                loss += scale * item
                slope -= derivative
            q += theta * n
            slope *= scale
            write_slope(slope, b, action[b], i, duel, atoms, actions, delta)
        error[b] = mean_y - q
        mean_q += q / np.float32(size)
    return delta, error, loss, mean_q


@kernel(fastmath={"reassoc", "nsz"})
def td_gradient_of_values(
    output, next_output, choosing_output, action, reward, discount, weight, is_huber, delta, error
):
    """`td_gradient` for one value of each action: loops over the items, which vectorise. Returns
    the loss and the mean Q."""
    actions, size = output.shape
    loss, total, share = np.float32(0), np.float32(0), np.float32(1 / size)
    for b in range(size):
        most, value = choosing_output[0, b], next_output[0, b]
        for a in range(1, actions):
            better = choosing_output[a, b] > most
            most = choosing_output[a, b] if better else most
            value = next_output[a, b] if better else value
        error[b] = reward[b] + discount[b] * value
    for b in range(size):
        q = output[0, b]
        for a in range(1, actions):
            q = output[a, b] if action[b] == a else q
        u = error[b] - q
        inside = min(max(u, np.float32(-1)), np.float32(1))
        scale = weight[b] * share
        loss += scale * (inside * (u - np.float32(0.5) * inside) if is_huber else u * u)
        slope = -scale * (inside if is_huber else np.float32(2) * u)
        for a in range(actions):
            delta[a, b] = slope if action[b] == a else np.float32(0)
        error[b] = u
        total += q
    return loss, total * share


@kernel
def best_of(output, b, duel, atoms, actions, mask):
    """argmax_a Σ_i of the atoms, of those that the mask allows; with `duel` V and the mean
    cancel."""
    # typed: a literal 0 would compile `value_of` twice
    best, most = np.int64(0), np.float32(-np.inf)
    for a in range(actions):
        total = np.float32(0)
        for i in range(atoms):
            total += output[(duel + a) * atoms + i, b]
        if total > most and (mask.shape[1] == 0 or mask[b, a]):
            best, most = a, total
    return best


@kernel
def atom_loss(u, level, n, is_huber):
    """(loss, its derivative by u) of one difference u of atoms. Huber: u²/2 inside ±1, |u| − ½
    outside; where there are several atoms, n = 1 / atoms, weighted by the asymmetry at the
    level."""
    inside = min(max(u, np.float32(-1)), np.float32(1))
    item, derivative = inside * (u - np.float32(0.5) * inside), inside
    if n < 1:
        asymmetry = np.float32(1) - level if u < 0 else level
        return asymmetry * item * n, asymmetry * derivative * n
    if not is_huber:
        return u * u, np.float32(2) * u
    return item, derivative


@kernel
def write_slope(slope, b, taken, i, duel, atoms, actions, delta):
    """∂loss/∂output of item b for atom i of all actions; `slope` is that by the value of the one
    taken."""
    share = np.float32(1 / actions)
    if duel:
        delta[i, b] = slope
    for a in range(actions):
        delta[(duel + a) * atoms + i, b] = -slope * share if duel else np.float32(0)
    delta[(duel + taken) * atoms + i, b] += slope


@kernel
def value_of(output, b, a, i, duel, atoms, actions):
    """Atom i of Q(s_b, a)."""
    if not duel:
        return output[a * atoms + i, b]
    mean = np.float32(0)
    for k in range(1, actions + 1):
        mean += output[k * atoms + i, b]
    return output[i, b] + output[(1 + a) * atoms + i, b] - mean / np.float32(actions)


@kernel
def mean_size(error):
    total = np.float32(0)
    for b in range(error.size):
        total += abs(error[b])
    return total / np.float32(error.size)
