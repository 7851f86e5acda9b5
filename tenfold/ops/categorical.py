"""The return's distribution as probabilities of fixed values (C51; Bellemare et al., 2017): the
projection of a shifted distribution on these values, the cross-entropy loss, and its derivative by
the network's output as compiled code.

Outputs are logits [..., B, A, N] of N atoms z_i = low + i·Δ, Δ = (high − low) / (N − 1).
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.ops.elementary import exp
from tenfold.ops.qlearning import among, taken, tensor
from tenfold.ops.td import gradient_by_autograd

SHAPES = ((1, 2, 2), (5, 3, 7), (9, 4, 51))  # B, A, N
LEAST = 1e-30  # of a probability whose logarithm is taken


def atoms_of(n: int, low: float, high: float, like: torch.Tensor) -> torch.Tensor:
    """z_0 … z_{n−1}."""
    return torch.linspace(low, high, n, dtype=like.dtype, device=like.device)


def categorical_mean(logits: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Σ_i p_i z_i: [..., N] -> [...]."""
    return logits.softmax(-1) @ atoms_of(logits.shape[-1], low, high, logits)


def project_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for lead, n, low, high in (
        ((1,), 2, -1.0, 1.0),
        ((6,), 5, 0.0, 3.0),
        ((2, 7), 51, -10.0, 10.0),
    ):
        discount = torch.from_numpy((0.9 * rng.integers(0, 2, lead)).astype(dtype))
        shifted = 0.5 * (high - low) * tensor(rng, dtype, *lead)
        yield shifted, discount, tensor(rng, dtype, *lead, n).softmax(-1), low, high


def project_reference(reward, discount, probabilities, low, high):
    """Atom by atom: T z_j = R + discount·z_j, cut at the ends, lies at b = (T z_j − low) / Δ; its
    mass goes to the atoms below and above b in the shares that b is near to them."""
    n = probabilities.shape[-1]
    delta = (high - low) / (n - 1)
    found = torch.zeros_like(probabilities)
    for item in np.ndindex(*reward.shape):
        for j in range(n):
            moved = float(reward[item]) + float(discount[item]) * (low + j * delta)
            b = min(max((min(max(moved, low), high) - low) / delta, 0.0), n - 1.0)
            below = int(b)
            above = min(below + 1, n - 1)
            found[(*item, below)] += float(probabilities[(*item, j)]) * (1 - (b - below))
            found[(*item, above)] += float(probabilities[(*item, j)]) * (b - below)
    return found


@pair(project_reference, project_examples, rtol=1e-4, atol=1e-5, dtypes=("float32", "float64"))
@torch.no_grad()
def project(
    reward: torch.Tensor,
    discount: torch.Tensor,
    probabilities: torch.Tensor,
    low: float,
    high: float,
) -> torch.Tensor:
    """The distribution of R + discount·Z on Z's own atoms, [..., B, N]: an atom takes of every
    moved one the share 1 − distance / Δ."""
    n = probabilities.shape[-1]
    z = atoms_of(n, low, high, probabilities)
    moved = (reward[..., None] + discount[..., None] * z).clamp(low, high)
    place = (moved - low) * ((n - 1) / (high - low))
    share = 1 - (place[..., None] - torch.arange(n, dtype=z.dtype, device=z.device)).abs()
    return (probabilities[..., None, :] @ share.clamp(min=0)).squeeze(-2)


def categorical_items(
    batch: dict[str, torch.Tensor],
    values: torch.Tensor,
    next_values: torch.Tensor,
    chooser: torch.Tensor,
    low: float,
    high: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(weighted loss, error, Q of the action taken) of every item, [..., B], from logits
    [..., B, A, N].

    The loss is the cross-entropy of the projected target and what was predicted; the error, by
    which priorities are set, that less the target's own entropy, their divergence. Only the first
    of the three has a gradient.
    """
    log_p = taken(values, batch["action"]).log_softmax(-1)
    with torch.no_grad():
        best = among(categorical_mean(chooser, low, high), batch.get("next_mask")).argmax(-1)
        after = taken(next_values, best).softmax(-1)
        target = project(batch["reward"], batch["discount"], after, low, high)
        entropy = -(target * target.clamp(min=LEAST).log()).sum(-1)
        q = log_p.exp() @ atoms_of(log_p.shape[-1], low, high, log_p)
    loss = -(target * log_p).sum(-1)
    return batch["weight"] * loss, (loss.detach() - entropy).clamp(min=0), q


# compiled


def gradient_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Outputs [(duel + A)·N, B] of the online network on s, of the target network and of the
    chooser on s'."""
    for b, a, n in SHAPES:
        for duel in (0, 1):
            for masked in (0, a):
                outputs = [2 * rng.normal(size=((duel + a) * n, b)).astype(dtype) for _ in range(3)]
                yield (
                    *outputs,
                    rng.integers(0, a, b),
                    (3 * rng.normal(size=b)).astype(dtype),
                    (0.9 * rng.integers(0, 2, b)).astype(dtype),
                    rng.uniform(0.1, 1, b).astype(dtype),
                    rng.random((b, masked)) < 0.6,
                    duel,
                    n,
                    -4.0,
                    6.0,
                    np.ones_like(outputs[0]),
                    np.zeros(b, dtype),
                    np.zeros(4 * n, dtype),
                )


def categorical_gradient_reference(*given):
    """Autograd through the equations above. What the kernel writes into is not looked at."""
    *numbers, low, high, _delta, _error, _y = given
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
        place = min(max((moved - low) / step, 0.0), atoms - 1.0)
        below = int(place)
        above = np.float32(place - below)
        out[below] += probabilities[j] * (np.float32(1) - above)
        if above > 0:
            out[below + 1] += probabilities[j] * above


@pair(categorical_gradient_reference, gradient_examples, rtol=1e-4, atol=1e-5)
@kernel
def categorical_gradient(
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
    after, target, own = y[:atoms], y[atoms : 2 * atoms], y[2 * atoms : 3 * atoms]
    base = y[3 * atoms : 4 * atoms]
    loss = mean_q = np.float32(0)
    for b in range(size):
        # typed: a literal 0 would compile `softmax_of` twice
        best, most = np.int64(0), np.float32(-np.inf)
        base_of(choosing_output, b, duel, atoms, actions, base)
        for a in range(actions):
            if mask.shape[1] == 0 or mask[b, a]:
                softmax_of(choosing_output, b, a, duel, atoms, base, after)
                mean = mean_of(after, atoms, low, high)
                if mean > most:
                    best, most = a, mean
        base_of(next_output, b, duel, atoms, actions, base)
        softmax_of(next_output, b, best, duel, atoms, base, after)
        project_into(reward[b], discount[b], after, atoms, low, high, target)
        base_of(output, b, duel, atoms, actions, base)
        below = softmax_of(output, b, action[b], duel, atoms, base, own)
        scale, cross, entropy = weight[b] / np.float32(size), np.float32(0), np.float32(0)
        for i in range(atoms):
            logit = output[(duel + action[b]) * atoms + i, b] + base[i]
            cross += target[i] * (below - logit)
            entropy -= target[i] * np.log(target[i]) if target[i] > 0 else np.float32(0)
            delta[i, b] = scale * (own[i] - target[i])
        loss += scale * cross
        error[b] = max(cross - entropy, np.float32(0))
        mean_q += mean_of(own, atoms, low, high) / np.float32(size)
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
            own = delta[(duel + a) * atoms + i]
            for b in range(action.size):
                own[b] = slopes[b] * ((np.float32(1) if action[b] == a else np.float32(0)) - share)
