"""Information of weights on features, and what paths of `ops.paths` add to it.

In z' = z + dt·W·φ(z) + … an observed step tells dt²·φφᵀ/V of each row of W, the same but for the
row's variance. With a prior that is scaled alike (the conjugate one) the whole matrix is A =
dt²·V⁻¹ ⊗ F, where

    F = prior·I + Σ φ(z_t)·φ(z_t)ᵀ, fading        [P, P]; its diagonal [P]

has been gathered by visits alone: it knows no model, is shared by an ensemble, and stays right
while V is being learned. The prior is in visits: 0.1 is a tenth of a visit to each centre.

Sensitivities need not be formed. S_{t+1} = J_t·S_t + dt·φ_t ⊗ I says N·S = dt·Φ ⊗ I with N
block-bidiagonal, 1 on its diagonal, so that det N = 1. With J̃ = V^(−½)·J·V^½ in N, and with G =
Φ·F⁻¹·Φᵀ [H, H], G₂ = Φ·F⁻²·Φᵀ,

    log det(A + U) − log det A = log det(N·Nᵀ + G ⊗ I)            tr A⁻¹ − tr (A + U)⁻¹ = tr((N·Nᵀ +
    G ⊗ I)⁻¹·(G₂ ⊗ V/dt²))

which are H·D numbers wide; F⁻¹ meets each feature vector once.

Full or diagonal? Neighbouring features overlap, and the diagonal does not know it: it counts a
feature whose tail alone can be reached as unknown for ever and keeps pressing towards it, so that
it seeks the rim of what is reachable. The full matrix values a step by how uncertain the prediction
there is. Field error after 1,000 steps of least squares with the state observed (Q = 0.01, six
seeds; where random episodes go, and over all that actions can reach):

                     random          diagonal        full
    limit cycle      0.077, 0.293    0.126, 0.136    0.082, 0.121
    multi-attractor  0.418, 0.627    0.262, 0.223    0.156, 0.140 (four seeds)

On a limit cycle random actions already stay where the weight of such a mean lies. Longer plans (20
steps) did worse there, and priors from 0.01 to 0.1 alike.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.domains.dynamics.information import D_OPTIMAL, Information, gain_reference
from tenfold.domains.dynamics.paths import Drift, features, path_examples, paths, paths_reference
from tenfold.domains.dynamics.side_by_side import add_log_determinant, add_trace_of_solution, inner

# ratios, each a float32, multiplied before one logarithm is taken: their product fits a float64
FOLD = 8


class FeatureInformation(Information):
    """F of M members: its diagonal [M, 1, P] or F⁻¹ [M, 1, P, P]."""

    def __init__(
        self,
        members: int,
        features: int,
        matrix: str = "full",
        forget: float = 0.999,
        prior: float = 0.1,
    ) -> None:
        super().__init__(members, 1, features, matrix, forget, prior)

    def add_step(self, drift: Drift, z: np.ndarray) -> None:
        """One observed step from the states z [M, D]."""
        self.add(features(drift, z.astype(np.float64))[:, None, None], np.ones((len(z), 1, 1)))

    def recount(self, drift: Drift, z: np.ndarray) -> None:
        """What steps from the states z [M, n, D], the last one at the end, tell together."""
        share = self.forget ** np.arange(z.shape[1])[::-1]
        for m, own in enumerate(z):
            phi = features(drift, own)
            if self.full:
                self.inverse[m, 0] = np.linalg.inv(
                    self.prior * np.eye(phi.shape[1]) + (share[:, None] * phi).T @ phi
                )
            else:
                self.gathered[m, 0] = share @ np.square(phi)


# references


def sensitivities_reference(drift: Drift, phi: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """S_1 … S_H [H, D, D·P] of one path with features [H, P] and Jacobians [H, D, D]: the recursion
    as it stands."""
    horizon, count = phi.shape
    size = slope.shape[-1]
    found, s = np.zeros((horizon, size, size * count)), np.zeros((size, size * count))
    for t in range(horizon):
        s = slope[t] @ s + drift.dt * np.kron(np.eye(size), phi[t])
        found[t] = s
    return found


def known_of_weights(drift: Drift, known: np.ndarray, m: int, n: int) -> np.ndarray:
    """A's diagonal [K], or A⁻¹ [K, K], of one model, from what is known of features."""
    unit = drift.dt**2 / drift.variance[m, n].astype(np.float64)
    return (
        np.kron(unit, known[m, 0]) if known.ndim == 3 else np.kron(np.diag(1 / unit), known[m, 0])
    )


def weights_gain_reference(
    drift: Drift,
    known: np.ndarray,
    m: int,
    n: int,
    phi: np.ndarray,
    slope: np.ndarray,
    criterion: int,
) -> float:
    """What one path with features [H, P] and Jacobians [H, D, D] is worth, by determinants and
    inverses of A itself."""
    sensitivity = sensitivities_reference(drift, phi, slope)
    return gain_reference(
        known_of_weights(drift, known, m, n), sensitivity, drift.variance[m, n], criterion
    )


def random_known(rng: np.random.Generator, drift: Drift, full: bool) -> np.ndarray:
    """After a few visits."""
    members, _, size, count = drift.weight.shape
    information = FeatureInformation(members, count, "full" if full else "diagonal")
    for _ in range(3):
        information.add_step(drift, rng.normal(size=(members, size)))
    return information.known()


def gain_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for k, (drift, start, actions) in enumerate(path_examples(rng, dtype)):
        # the whole matrix of 200 is slow 165 times
        for full in (False, True)[: 1 if drift.weight.shape[1] == 5 else 2]:
            yield drift, random_known(rng, drift, full), start, actions, (k + full) % 2


def gains_reference(drift, known, start, actions, criterion):
    """Mean over models, one path after another."""
    _, phi, slope = paths_reference(drift, start, actions)
    worth = np.zeros((*actions.shape[:2], drift.weight.shape[1]))
    for m, b, n in np.ndindex(worth.shape):
        worth[m, b, n] = weights_gain_reference(
            drift, known, m, n, phi[m, n, :, :, b], slope[m, n, :, :, :, b], criterion
        )
    return worth.mean(-1)


# fast


@pair(gains_reference, gain_examples, rtol=5e-4, atol=2e-5)
def gains(
    drift: Drift, known: np.ndarray, start: np.ndarray, actions: np.ndarray, criterion: int
) -> np.ndarray:
    """What paths from states [M, D] along actions [M, B, H, A] are worth, [M, B], mean over models.
    `known` is `FeatureInformation.known()`."""
    _, phi, slope = paths(drift, start, actions)
    found, models = np.zeros(actions.shape[:2]), drift.weight.shape[1]
    kernel = diagonal_gain if known.ndim == 3 else full_gain
    for m, n in np.ndindex(len(known), models):
        kernel(
            known[m, 0],
            drift.variance[m, n],
            np.float32(drift.dt),
            phi[m, n],
            slope[m, n],
            criterion,
            1 / models,
            found[m],
        )
    return found


@kernel
def diagonal_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """Each parameter's sensitivity is a recursion of D numbers on its own: nothing of size K is
    kept for a sample. known [P], phi [H, P, B], slope [H, D, D, B]."""
    count, samples = phi.shape[1:]
    size = slope.shape[1]
    narrow = (1 / variance).astype(np.float32)
    # one array for all that is written: the compiler must show that what it reads and writes is
    # apart before it vectorises
    scratch, product = np.empty((2 * size + 1, samples), np.float32), np.ones(samples)
    added = scratch[2 * size]
    for d in range(size):
        for p in range(count):
            if size == 2:
                add_planar(d, p, dt, narrow, phi, slope, scratch)
            else:
                add_any(d, p, dt, narrow, phi, slope, scratch)
            before = known[p] * dt * dt * narrow[d]
            if criterion == D_OPTIMAL:
                for b in range(samples):
                    product[b] *= 1 + added[b] / before
                if p % FOLD == FOLD - 1 or p == count - 1:
                    for b in range(samples):
                        worth[b] += share * np.log(product[b])
                        product[b] = 1
            else:
                for b in range(samples):
                    worth[b] += share * (added[b] / (before * (before + added[b])))


@kernel
def add_planar(d, p, dt, narrow, phi, slope, scratch):
    """`add_any` for states of two numbers, in one loop: a quarter of its time."""
    s0, s1, added, n0, n1 = scratch[0], scratch[1], scratch[4], narrow[0], narrow[1]
    to0, to1 = dt * np.float32(d == 0), dt * np.float32(d == 1)
    samples = added.size
    scratch[:] = np.float32(0)
    for t in range(phi.shape[0]):
        j, f = slope[t], phi[t, p]
        for b in range(samples):
            x = j[0, 0, b] * s0[b] + j[0, 1, b] * s1[b] + to0 * f[b]
            y = j[1, 0, b] * s0[b] + j[1, 1, b] * s1[b] + to1 * f[b]
            s0[b], s1[b] = x, y
            added[b] += n0 * x * x + n1 * y * y


@kernel
def add_any(d, p, dt, narrow, phi, slope, scratch):
    """Σ_t S_tᵀ·V⁻¹·S_t of the weight of feature p in dimension d, for every sample, into the last
    row of `scratch`."""
    size, samples = slope.shape[1], scratch.shape[1]
    scratch[:] = np.float32(0)
    added = scratch[2 * size]
    for t in range(phi.shape[0]):
        s, after = scratch[t % 2 * size :], scratch[(t + 1) % 2 * size :]
        for i in range(size):
            row, own = after[i], dt * np.float32(i == d)
            for b in range(samples):
                row[b] = own * phi[t, p, b]
            for k in range(size):
                for b in range(samples):
                    row[b] += slope[t, i, k, b] * s[k, b]
            for b in range(samples):
                added[b] += narrow[i] * row[b] * row[b]


@kernel
def full_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """known is F⁻¹ [P, P]; phi [H, P, B], slope [H, D, D, B]."""
    horizon, count, samples = phi.shape
    size = slope.shape[1]
    inverse, through = known.astype(np.float32), np.empty((horizon, count, samples), np.float32)
    for t in range(horizon):
        np.dot(inverse, phi[t], through[t])
    small = np.zeros((horizon * size, horizon * size, samples))
    products = np.empty(samples)
    for t in range(horizon):
        for s in range(t + 1):
            inner(phi[t], through[s], products)
            for d in range(size):
                for b in range(samples):
                    small[t * size + d, s * size + d, b] = products[b]
    add_recursion(variance, slope, small)
    if criterion == D_OPTIMAL:
        add_log_determinant(small, share, worth)
        return
    squares = np.zeros((horizon * size, horizon * size, samples))
    for t in range(horizon):
        for s in range(horizon):
            inner(through[t], through[s], products)
            for d in range(size):
                for b in range(samples):
                    squares[t * size + d, s * size + d, b] = products[b] * (variance[d] / (dt * dt))
    add_trace_of_solution(small, squares, share, worth)


@kernel
def add_recursion(variance, slope, small):
    """Adds the lower half of N·Nᵀ to `small` [H·D, H·D, B]: 1 + J̃·J̃ᵀ on the diagonal, −J̃ below
    it."""
    horizon, size, _, samples = slope.shape
    for t in range(horizon):
        for i in range(size):
            for b in range(samples):
                small[t * size + i, t * size + i, b] += 1
            for k in range(size if t else 0):
                scale = np.sqrt(variance[k] / variance[i])
                for b in range(samples):
                    small[t * size + i, (t - 1) * size + k, b] -= scale * slope[t, i, k, b]
            for j in range(i + 1 if t else 0):
                for k in range(size):
                    scale = variance[k] / np.sqrt(variance[i] * variance[j])
                    for b in range(samples):
                        small[t * size + i, t * size + j, b] += (
                            scale * slope[t, i, k, b] * slope[t, j, k, b]
                        )
