"""The derivatives of the losses of `qlearning` by the network's output, as compiled code for the
fused engine: of TD errors of one value or of quantiles, and of categorical returns."""

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import exp, kernel
from tenfold.core.pairs import pair
from tenfold.ops.qlearning import SHAPES, categorical_items, dueling, td_items


def example_batch(rng, dtype, b, a, n, duel, masked, options, scratch):
    """Outputs [(duel + A)·N, B] of the online network on s, of the target network and of the
    chooser on s'; the batch; a mask [B, masked] of the next states; options; buffers."""
    outputs = [2 * rng.normal(size=((duel + a) * n, b)).astype(dtype) for _ in range(3)]
    reward, discount = 2 * rng.normal(size=b), 0.9 * rng.integers(0, 2, b)
    weight, mask = rng.uniform(0.1, 1, b), rng.random((b, masked)) < 0.6
    batch = (rng.integers(0, a, b), *(x.astype(dtype) for x in (reward, discount, weight)), mask)
    buffers = np.ones_like(outputs[0]), np.zeros(b, dtype), np.zeros(scratch, dtype)
    return *outputs, *batch, duel, n, *options, *buffers


def td_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b, a, n in (*SHAPES, (33, 6, 1), (2, 3, 32)):
        for duel, is_huber in product((0, 1), (False, True)):
            masked = a * int(rng.integers(0, 2))
            yield example_batch(rng, dtype, b, a, n, duel, masked, (is_huber,), n)


def gradient_by_autograd(
    items, output, next_output, chooser, action, reward, discount, weight, mask, duel, atoms
):
    """∂loss/∂output, every item's error, the loss and the mean Q, through `items(batch, values,
    next values, chooser's values)`, which gives (weighted loss, error, Q) of every item."""

    def values(outputs: torch.Tensor) -> torch.Tensor:
        shaped = outputs.T.reshape(len(action), -1, atoms)
        return dueling(shaped) if duel else shaped

    leaf = torch.from_numpy(output).requires_grad_()
    numbers = {"action": action, "reward": reward, "discount": discount, "weight": weight}
    batch = {name: torch.from_numpy(array) for name, array in numbers.items()}
    if mask.shape[1]:
        batch["next_mask"] = torch.from_numpy(mask)
    others = (values(torch.from_numpy(outputs)) for outputs in (next_output, chooser))
    weighted, error, q = items(batch, values(leaf), *others)
    loss = weighted.sum() / len(action)
    loss.backward()
    return leaf.grad, error, loss.detach(), q.mean()


def td_gradient_reference(*arguments):
    """Autograd through the equations of `qlearning`. What the kernel writes into is not looked
    at."""
    *numbers, is_huber, _delta, _error, _y = arguments
    return gradient_by_autograd(partial(td_items, kind="huber" if is_huber else "mse"), *numbers)


@pair(td_gradient_reference, td_examples, rtol=1e-4, atol=1e-6)
@kernel
def td_gradient(
    output,
    next_output,
    chooser,
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
            output, next_output, chooser, action, reward, discount, weight, is_huber, delta, error
        )
        return delta, error, loss, mean_q
    n = np.float32(1 / atoms)
    loss = mean_q = np.float32(0)
    for b in range(size):
        best = best_of(chooser, b, duel, atoms, actions, mask)
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
    output, next_output, chooser, action, reward, discount, weight, is_huber, delta, error
):
    """`td_gradient` for one value of each action: loops over the items, which vectorise. Returns
    the loss and the mean Q."""
    actions, size = output.shape
    loss, total, share = np.float32(0), np.float32(0), np.float32(1 / size)
    for b in range(size):
        most, value = chooser[0, b], next_output[0, b]
        for a in range(1, actions):
            better = chooser[a, b] > most
            most = chooser[a, b] if better else most
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
def write_slope(slope, b, action, i, duel, atoms, actions, delta):
    """∂loss/∂output of item b for atom i of all actions; `slope` is that by the value of the one
    taken."""
    share = np.float32(1 / actions)
    if duel:
        delta[i, b] = slope
    for a in range(actions):
        delta[(duel + a) * atoms + i, b] = -slope * share if duel else np.float32(0)
    delta[(duel + action) * atoms + i, b] += slope


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


# categorical returns (C51)


def categorical_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for b, a, n in ((1, 2, 2), (5, 3, 7), (9, 4, 51)):
        for duel, masked in product((0, 1), (0, a)):
            yield example_batch(rng, dtype, b, a, n, duel, masked, (-4.0, 6.0), 4 * n)


def categorical_gradient_reference(*arguments):
    """Autograd through the equations of `qlearning`; what the kernel writes into is not read."""
    *numbers, low, high, _delta, _error, _y = arguments
    return gradient_by_autograd(partial(categorical_items, low=low, high=high), *numbers)


@kernel
def base_of(output, b, duel, atoms, actions, out):
    """What the logits of all actions in row b have in common, into `out`: V − mean(A), 0 without
    `duel`."""
    share = np.float32(1 / actions)
    for i in range(atoms):
        mean = np.float32(0)
        if duel:
            for k in range(1, actions + 1):
                mean += output[k * atoms + i, b]
            out[i] = output[i, b] - mean * share
        else:
            out[i] = np.float32(0)


@kernel
def softmax_of(output, b, a, duel, atoms, base, out):
    """The probabilities of the atoms of action a in row b, into `out`; returns the logarithm of the
    sum that divides them."""
    for i in range(atoms):
        out[i] = output[(duel + a) * atoms + i, b] + base[i]
    most, total = np.float32(-np.inf), np.float32(0)
    for i in range(atoms):
        most = max(most, out[i])
    for i in range(atoms):
        out[i] = exp(out[i] - most)
    for i in range(atoms):
        total += out[i]
    share = np.float32(1) / total
    for i in range(atoms):
        out[i] *= share
    return most + np.log(total)


@kernel
def mean_of(probabilities, atoms, low, high):
    step = np.float32((high - low) / (atoms - 1))
    mean = np.float32(0)
    for i in range(atoms):
        mean += probabilities[i] * (np.float32(low) + np.float32(i) * step)
    return mean


@kernel
def project_into(reward, discount, probabilities, atoms, low, high, out):
    """`project` of one item."""
    for i in range(atoms):
        out[i] = np.float32(0)
    step = (high - low) / (atoms - 1)
    for j in range(atoms):
        moved = min(max(reward + discount * (low + j * step), low), high)
        position = min(max((moved - low) / step, 0.0), atoms - 1.0)
        below = int(position)
        above = np.float32(position - below)
        out[below] += probabilities[j] * (np.float32(1) - above)
        if above > 0:
            out[below + 1] += probabilities[j] * above


@pair(categorical_gradient_reference, categorical_examples, rtol=1e-4, atol=1e-5)
@kernel
def categorical_gradient(
    output,
    next_output,
    chooser,
    action,
    reward,
    discount,
    weight,
    mask,
    duel,
    atoms,
    low,
    high,
    delta,
    error,
    y,
):
    """Writes ∂loss/∂output, which is softmax − target, into `delta` and each item's divergence into
    `error`; returns these, the loss and the mean Q. `mask` [B, A] is of the next states, [B, 0]
    where all actions are allowed; `y` is scratch for four distributions."""
    size, actions = output.shape[1], output.shape[0] // atoms - duel
    after, target, predicted = y[:atoms], y[atoms : 2 * atoms], y[2 * atoms : 3 * atoms]
    base = y[3 * atoms : 4 * atoms]
    loss = mean_q = np.float32(0)
    for b in range(size):
        # typed: a literal 0 would compile `softmax_of` twice
        best, most = np.int64(0), np.float32(-np.inf)
        base_of(chooser, b, duel, atoms, actions, base)
        for a in range(actions):
            if mask.shape[1] == 0 or mask[b, a]:
                softmax_of(chooser, b, a, duel, atoms, base, after)
                mean = mean_of(after, atoms, low, high)
                if mean > most:
                    best, most = a, mean
        base_of(next_output, b, duel, atoms, actions, base)
        softmax_of(next_output, b, best, duel, atoms, base, after)
        project_into(reward[b], discount[b], after, atoms, low, high, target)
        base_of(output, b, duel, atoms, actions, base)
        below = softmax_of(output, b, action[b], duel, atoms, base, predicted)
        scale, cross, entropy = weight[b] / np.float32(size), np.float32(0), np.float32(0)
        for i in range(atoms):
            logit = output[(duel + action[b]) * atoms + i, b] + base[i]
            cross += target[i] * (below - logit)
            entropy -= target[i] * np.log(target[i]) if target[i] > 0 else np.float32(0)
            delta[i, b] = scale * (predicted[i] - target[i])
        loss += scale * cross
        error[b] = max(cross - entropy, np.float32(0))
        mean_q += mean_of(predicted, atoms, low, high) / np.float32(size)
    spread_slopes(action, duel, atoms, actions, delta)
    return delta, error, loss, mean_q


@kernel
def spread_slopes(action, duel, atoms, actions, delta):
    """The slopes by the atoms of the actions taken, the first rows of `delta`, as slopes by all
    outputs: loops over the items, which vectorise."""
    share = np.float32(1 / actions) if duel else np.float32(0)
    for i in range(atoms):
        slopes = delta[i]
        for a in range(actions - 1, -1, -1):  # without `duel` the first action's take their place
            row = delta[(duel + a) * atoms + i]
            for b in range(action.size):
                row[b] = slopes[b] * ((np.float32(1) if action[b] == a else np.float32(0)) - share)
