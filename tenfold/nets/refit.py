"""Dynamics that are linear in their weights, fitted in closed form to states that the encoder reads.

    (z_{t+1} − b_t) / dt  ≈  W·φ(b_t) + G·a_t        ridge regression of [W, G], one small system for each model

Neighbouring radial basis functions overlap, so that gradient steps reach sums of weights soon and differences of weights late;
this reaches both at once. The models of an ensemble see the same steps with other random weights (a Bayesian bootstrap), so that
they differ where there is little to go by. The gradient goes on from there, encoder and decoder included.

b_t is what may be believed of the state before the step, not what the encoder reads. An encoder's error in z_t makes the step
from there look longer or shorter, and where actions were chosen by looking at z_t they go with that error: fitted to readings, G
came out 5 % too large on the limit cycle for an agent that plans and right for random actions, and the field made up for it.
Beliefs err too, but not along with anything that was known before the step (in a closed loop it is the error of predictions that
has to be least; Ljung, System Identification, 1999).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.nets.dynamics import Dynamics, raw_of
from tenfold.ops.pairs import pair
from tenfold.ops.random import Purpose, key, uniform

PRIOR = 1.0  # how large weights are expected to be, in standard coordinates
SURE = 1e-3  # of G, as a share of the prior's precision: actions are large and many, no prior is needed


def ridge_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, features, outputs in ((1, 1, 1), (7, 3, 2), (60, 12, 2)):
        yield (rng.normal(size=(rows, features)), rng.normal(size=(rows, outputs)), rng.exponential(size=(2, rows)),
               rng.uniform(0.1, 1, features))


def ridge_reference(x, y, weight, penalty):
    """argmin Σ_t w_t ‖y_t − B x_t‖² + Σ_p λ_p ‖B_p‖², as least squares of rows scaled by √w with rows √λ below them."""
    found = []
    for w in weight:
        root = np.sqrt(w)[:, None]
        rows = np.concatenate((root * x, np.diag(np.sqrt(penalty))))
        wanted = np.concatenate((root * y, np.zeros((x.shape[1], y.shape[1]))))
        found.append(np.linalg.lstsq(rows, wanted, rcond=None)[0].T)
    return np.stack(found)


@pair(ridge_reference, ridge_examples, rtol=1e-6, atol=1e-7)
def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, outputs, features] by the normal equations; x [T, features], y [T, outputs], weights [N, T]."""
    weighted = weight[:, :, None] * x
    gram = weighted.transpose(0, 2, 1) @ x + np.diag(penalty)
    return np.linalg.solve(gram, weighted.transpose(0, 2, 1) @ y).transpose(0, 2, 1)


def bootstrap(seed: int, models: int, rows: int) -> np.ndarray:
    """Weights [N, T] of mean 1: exponential, by (seed, model, row); of one model alone 1."""
    if models == 1:
        return np.ones((1, rows))
    return -np.log1p(-np.stack([uniform(key(seed, Purpose.SEQUENCE, 1 + n), np.arange(rows)) for n in range(models)]))


def believed_reference(z, residual, whole):
    """Step by step."""
    share = np.zeros(z.shape[1])
    for d in range(z.shape[1]):
        both = [(residual[t - 1, d], residual[t, d]) for t in range(1, len(residual)) if whole[t - 1] and whole[t]]
        squares = sum(after**2 for _, after in both)
        share[d] = min(max(-sum(before * after for before, after in both) / squares, 0), 1) if squares else 0
    found = z.copy()
    for t in range(1, len(z)):
        if whole[t - 1]:
            found[t] = z[t] - share * residual[t - 1]
    return found


def believed_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, size in ((1, 1), (2, 2), (30, 3)):
        yield rng.normal(size=(rows + 1, size)), rng.normal(size=(rows, size)), rng.random(rows) < 0.8
    yield np.ones((3, 1)), np.zeros((2, 1)), np.ones(2, np.bool_)


@pair(believed_reference, believed_examples, rtol=1e-9, atol=1e-12)
def believed(z: np.ndarray, residual: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """States [T + 1, D] that the encoder reads, less what one step's surprise [T, D] says of their own error.

    z_t is off by e_t, which is part of the surprise of the step to t with a plus and of the step from t with a minus: minus their
    correlation is the share of a surprise that is error.
    """
    residual = residual * whole[:, None]
    both = (whole[:-1] & whole[1:])[:, None]
    along, squares = (np.sum(residual[1:] * other * both, 0) for other in (residual[:-1], residual[1:]))
    share = np.clip(-along / np.maximum(squares, np.finfo(np.float64).tiny), 0, 1)
    return np.concatenate((z[:1], z[1:] - share * residual))


@torch.no_grad()
def refit(dynamics: Dynamics, member: int, z: np.ndarray, a: np.ndarray, whole: np.ndarray, seed: int) -> None:
    """Fits one member's dynamics to consecutive states z [T + 1, D] under actions a [T, A]; `whole` [T] is False where the next
    state belongs to another episode."""
    if not whole.any():
        return
    count, rows = dynamics.weight.shape[-1], int(whole.sum())
    noise = float(dynamics.variance()[member].mean()) / dynamics.dt**2

    def inputs(start: np.ndarray) -> np.ndarray:
        phi = dynamics.features(torch.from_numpy(start).to(dynamics.weight)[None, None])[0, 0].double().cpu().numpy()
        return np.concatenate((phi, a), 1)

    def solve(x: np.ndarray, moved: np.ndarray, weight: np.ndarray) -> np.ndarray:
        penalty = np.full(x.shape[1], noise / PRIOR**2)
        penalty[count:] *= SURE
        return ridge(x[whole], moved[whole], weight, penalty)

    x, moved = inputs(z[:-1]), np.diff(z, axis=0)
    plain = solve(x, moved / dynamics.dt, np.ones((1, rows)))[0]
    start = believed(z, moved - dynamics.dt * x @ plain.T, whole)[:-1]
    x, moved = inputs(start), z[1:] - start
    found = solve(x, moved / dynamics.dt, bootstrap(seed, dynamics.models, rows))
    left = np.square(moved[whole] - dynamics.dt * x[whole] @ found.transpose(0, 2, 1)).mean(1)  # [N, D]
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance)
    for tensor, value in zip(targets, (found[..., :count], found[..., count:], raw_of(left)), strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)
