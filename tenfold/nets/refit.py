"""Dynamics that are linear in their weights, fitted in closed form to states that the encoder reads.

    (z_{t+1} − z_t) / dt  ≈  W·φ(z_t) + G·a_t        ridge regression of [W, G], one small system for each model

Neighbouring radial basis functions overlap, so that gradient steps reach sums of weights soon and differences of weights late;
this reaches both at once. The models of an ensemble see the same steps with other random weights (a Bayesian bootstrap), so that
they differ where there is little to go by. The gradient goes on from there, encoder and decoder included.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.errors import ConfigError
from tenfold.nets.dynamics import LEAST_VARIANCE, Dynamics
from tenfold.ops.pairs import pair
from tenfold.ops.random import Purpose, key, uniform

PRIOR = 0.5  # how large weights are expected to be: about six features overlap, so that a field of 3 needs weights of 0.5
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


@torch.no_grad()
def refit(dynamics: Dynamics, member: int, z: np.ndarray, a: np.ndarray, whole: np.ndarray, seed: int) -> None:
    """Fits one member's dynamics to consecutive states z [T + 1, D] under actions a [T, A]; `whole` [T] is False where the next
    state belongs to another episode."""
    if dynamics.kind == "mlp":
        raise ConfigError("agent.refit", "fits weights on features in closed form, and dynamics mlp have none: set it to 0.")
    moved = (np.diff(z, axis=0)[whole] / dynamics.dt).astype(np.float64)
    phi = dynamics.features(torch.from_numpy(z[:-1][whole]).to(dynamics.weight)[None, None])[0, 0].double().cpu().numpy()
    x, count = np.concatenate((phi, a[whole]), 1).astype(np.float64), phi.shape[1]
    noise = float(dynamics.variance()[member].mean()) / dynamics.dt**2
    penalty = np.full(x.shape[1], noise / PRIOR**2)
    penalty[count:] *= SURE
    found = ridge(x, moved, bootstrap(seed, dynamics.models, len(x)), penalty)
    left = np.square(moved - x @ found.transpose(0, 2, 1)).mean(1) * dynamics.dt**2  # [N, D]
    raw = np.log(np.expm1(np.maximum(left - LEAST_VARIANCE, LEAST_VARIANCE)))
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance)
    for tensor, value in zip(targets, (found[..., :count], found[..., count:], raw), strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)
