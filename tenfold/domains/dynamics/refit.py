"""Dynamics that are linear in their weights, fitted in closed form to states that the encoder
reads.

    (z_{t+1} − b_t) / dt  ≈  W·φ(b_t) + G·a_t        ridge regression of [W, G], one small system
    for each model

Neighbouring radial basis functions overlap, so that gradient steps reach sums of weights soon and
differences of weights late; this reaches both at once. The models of an ensemble see the same steps
with other random weights (a Bayesian bootstrap), so that they differ where there is little to go
by. The gradient goes on from there, encoder and decoder included.

b_t is what may be believed of the state before the step, not what the encoder reads. An encoder's
error in z_t makes the step from there look longer or shorter. Fitted to readings, a field seen
through much noise pulls everything to the middle; and where actions were chosen by looking at z_t
they go with its error: G came out 5 % too large on the limit cycle for an agent that plans. Beliefs
err too, but not along with anything that was known before the step (in a closed loop it is the
error of predictions that has to be least; Ljung, System Identification, 1999). A belief is the
prediction from the one before, moved towards the reading:

    b_t = z_t − e·(z_t − prediction)        e: the share of a surprise that is error of the reading,
    in each dimension

An error is in two surprises, of the step to t with a plus and of the step from t with a minus:
while neighbouring surprises correlate negatively e is too small. Fit and share are found by turns.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of

PRIOR = 0.1  # how far a weight is expected to move a state in one step, whatever the unit of time
ROUNDS = 2  # of fits and shares by turns: more of them overshoot
MOST_ERROR = 0.95  # the largest share of a surprise that is error
# times as large as before, surprises are of beliefs that follow a model which is not stable
RUNAWAY = 10
# of G, as a share of the prior's precision: actions are large and many, no prior is needed
SURE = 1e-3


def ridge_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, features, outputs in ((1, 1, 1), (7, 3, 2), (60, 12, 2)):
        yield (
            rng.normal(size=(rows, features)),
            rng.normal(size=(rows, outputs)),
            rng.exponential(size=(2, rows)),
            rng.uniform(0.1, 1, features),
        )


def ridge_reference(x, y, weight, penalty):
    """argmin Σ_t w_t ‖y_t − B x_t‖² + Σ_p λ_p ‖B_p‖², as least squares of rows scaled by √w with
    rows √λ below them."""
    found = []
    for w in weight:
        root = np.sqrt(w)[:, None]
        rows = np.concatenate((root * x, np.diag(np.sqrt(penalty))))
        wanted = np.concatenate((root * y, np.zeros((x.shape[1], y.shape[1]))))
        found.append(np.linalg.lstsq(rows, wanted, rcond=None)[0].T)
    return np.stack(found)


@pair(ridge_reference, ridge_examples, rtol=1e-6, atol=1e-7)
def ridge(x: np.ndarray, y: np.ndarray, weight: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Coefficients [N, outputs, features] by the normal equations; x [T, features], y [T, outputs],
    weights [N, T]."""
    weighted = weight[:, :, None] * x
    gram = weighted.transpose(0, 2, 1) @ x + np.diag(penalty)
    return np.linalg.solve(gram, weighted.transpose(0, 2, 1) @ y).transpose(0, 2, 1)


def bootstrap(seed: int, models: int, rows: int) -> np.ndarray:
    """Weights [N, T] of mean 1: exponential, by (seed, model, row); of one model alone 1."""
    if models == 1:
        return np.ones((1, rows))
    return -np.log1p(
        -np.stack(
            [uniform(key(seed, Purpose.SEQUENCE, 1 + n), np.arange(rows)) for n in range(models)]
        )
    )


def believed_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rows, size, grid in ((1, 1, 3), (2, 2, 0), (30, 3, 2), (40, 2, 4)):
        axis = np.linspace(-2, 2, grid) if grid else np.zeros(0)
        yield (
            rng.normal(size=(rows + 1, size)),
            rng.normal(size=(rows, size)),
            rng.random(rows) < 0.8,
            0.1 * rng.normal(size=(size, grid**size if grid else size + 1)),
            axis,
            0.7,
            rng.uniform(0, 1, size),
        )


def believed_reference(z, push, whole, weight, axis, width, error):
    """Step by step, with features as they are defined."""
    belief, surprise = z.copy(), np.zeros_like(push)
    for t in range(len(push)):
        start = belief[t]
        if len(axis):
            centres = np.stack(np.meshgrid(*[axis] * len(start), indexing="ij"), -1).reshape(
                -1, len(start)
            )
            phi = np.exp(-np.square((start - centres) / width).sum(-1) / 2)
        else:
            phi = np.append(start, 1.0)
        surprise[t] = z[t + 1] - start - weight @ phi - push[t]
        if whole[t]:
            belief[t + 1] = z[t + 1] - error * surprise[t]
    return belief, surprise


@pair(believed_reference, believed_examples, rtol=1e-9, atol=1e-12)
@kernel
def believed(z, push, whole, weight, axis, width, error):
    """Beliefs [T + 1, D] along readings z, and the surprise [T, D] of each step: a belief is the
    reading less the share `error` [D] of its surprise. A step adds W·φ and `push` [T, D]; where it
    is not `whole` [T], an episode begins with its reading."""
    steps, size = push.shape
    features, grid = weight.shape[1], len(axis)
    belief, surprise = z.copy(), np.zeros_like(push)
    phi, bells = np.empty(features), np.empty((size, max(grid, 1)))
    for t in range(steps):
        if grid:
            for d in range(size):
                for g in range(grid):
                    away = (belief[t, d] - axis[g]) / width
                    bells[d, g] = math.exp(-0.5 * away * away)
            for p in range(features):
                product, rest = 1.0, p
                for d in range(size - 1, -1, -1):
                    product *= bells[d, rest % grid]
                    rest //= grid
                phi[p] = product
        else:
            phi[:size], phi[size] = belief[t], 1.0
        for d in range(size):
            moved = push[t, d]
            for p in range(features):
                moved += weight[d, p] * phi[p]
            surprise[t, d] = z[t + 1, d] - belief[t, d] - moved
            if whole[t]:
                belief[t + 1, d] = z[t + 1, d] - error[d] * surprise[t, d]
    return belief, surprise


def correlation(surprise: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Of each step's surprise [T, D] with the one before it in the same episode, [D]."""
    both = (whole[:-1] & whole[1:])[:, None]
    along, squares = (
        np.sum(surprise[1:] * other * both, 0) for other in (surprise[:-1], surprise[1:])
    )
    return along / np.maximum(squares, np.finfo(np.float64).tiny)


@torch.no_grad()
def refit(
    dynamics: Dynamics,
    member: int,
    z: np.ndarray,
    variance: np.ndarray,
    a: np.ndarray,
    whole: np.ndarray,
    seed: int,
) -> None:
    """Fits one member's dynamics to consecutive states z [T + 1, D], read with these variances,
    under actions a [T, A]; `whole` [T] is False where the next state belongs to another episode.

    The noise is what is left, and what both ends of a step are unsure by: the bound compares a step
    with all that z may be. Left alone, the means of a hesitant encoder would make it too small, and
    the bound would bend the encoder to the model.
    """
    if not whole.any():
        return
    count, rows = dynamics.weight.shape[-1], int(whole.sum())
    noise = float(dynamics.variance()[member].mean())

    def inputs(start: np.ndarray) -> np.ndarray:
        phi = (
            dynamics.features(torch.from_numpy(start).to(dynamics.weight)[None, None])[0, 0]
            .double()
            .cpu()
            .numpy()
        )
        return np.concatenate((phi, a), 1)

    def solve(x: np.ndarray, moved: np.ndarray, weight: np.ndarray) -> np.ndarray:
        penalty = np.full(x.shape[1], noise / PRIOR**2)
        penalty[count:] *= SURE
        return ridge(x[whole], moved[whole], weight, penalty)

    start, error, one = z[:-1], np.zeros(z.shape[1]), np.ones((1, rows))
    axis = dynamics.axis.double().cpu().numpy() if dynamics.kind == "rbf" else np.zeros(0)
    for _ in range(ROUNDS):
        plain = solve(inputs(start), z[1:] - start, one)[0]
        given = np.ascontiguousarray(plain[:, :count]), axis, float(dynamics.width)
        push = a @ plain[:, count:].T
        before = believed(z, push, whole, *given, error)[1]
        error = np.clip(error - correlation(before, whole), 0, MOST_ERROR)
        belief, surprise = believed(z, push, whole, *given, error)
        # nor where it is not a number
        if not np.abs(surprise[whole]).max() <= RUNAWAY * np.abs(before[whole]).max():
            break
        start = belief[:-1]
    x, moved = inputs(start), z[1:] - start
    found = solve(x, moved, bootstrap(seed, dynamics.models, rows))
    left = np.square(moved[whole] - x[whole] @ found.transpose(0, 2, 1)).mean(1)  # [N, D]
    left += (variance[:-1] + variance[1:])[whole].mean(0)
    targets = (dynamics.weight, dynamics.action_weight, dynamics.raw_variance)
    values = (found[..., :count] / dynamics.dt, found[..., count:] / dynamics.dt, raw_of(left))
    for tensor, value in zip(targets, values, strict=True):
        tensor[member] = torch.from_numpy(value).to(tensor)
