"""Fisher information of the dynamics' parameters, and what a path adds to it.

If z_t is observed with variance V, the parameters θ of z' = m(z, a; θ) are seen through the sensitivities

    S_{t+1} = (∂m/∂z)·S_t + ∂m/∂θ,  S_0 = 0,        U = Σ_t S_tᵀ·V⁻¹·S_t

U is minus the expected Hessian of the log-likelihood of the path. Added to the information A that is there already, it is worth

    D:  log det(A + U) − log det A          A:  tr A⁻¹ − tr (A + U)⁻¹

The diagonal form keeps A's diagonal. The full form never factors a K × K matrix for a candidate: with the scaled sensitivities
R = V^(−½)·S of all steps, (H·D) × K, both follow from the small matrix C = I + R·A⁻¹·Rᵀ,

    log det(A + U) − log det A = log det C        tr A⁻¹ − tr (A + U)⁻¹ = tr(C⁻¹·R·A⁻²·Rᵀ)        (determinant lemma, Woodbury)

Parameters are the weights of `ops.paths`, row by row (θ = W_00, W_01, …), or those of any network through `torch.func`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import njit

from tenfold.errors import ConfigError
from tenfold.ops.pairs import pair
from tenfold.ops.paths import Drift, features, path_examples, paths, paths_reference

D_OPTIMAL, A_OPTIMAL = range(2)
CRITERIA = {"d": D_OPTIMAL, "a": A_OPTIMAL}
FOLD = 8  # ratios, each a float32, multiplied before one logarithm is taken: their product fits a float64


class Information:
    """What is known about the parameters of M members with N models each: the prior, and what was gathered, fading.

    Diagonal: gathered [M, N, K] ← forget·gathered + diag(Sᵀ·V⁻¹·S), and A = prior + gathered.
    Full: A⁻¹ [M, N, K, K] is kept and updated by Woodbury's identity. A fades by `forget` as a whole, and at each step one
    coordinate in turn gets back what its prior lost in a round of K steps, so that no direction is ever forgotten entirely.
    Everything is float64; only `state()` has to be saved.
    """

    def __init__(self, members: int, models: int, parameters: int, matrix: str = "diagonal", forget: float = 0.999,
                 prior: float = 1.0) -> None:
        if not prior > 0:
            raise ConfigError("prior", f"= {prior} is no information to begin with: it must be above 0.")
        if matrix not in ("diagonal", "full"):
            raise ConfigError("matrix", f"= {matrix} is not a form of the information matrix: it is diagonal or full.")
        self.full, self.forget, self.prior, self.steps = matrix == "full", forget, prior, 0
        self.gathered = np.zeros((members, models, 0 if self.full else parameters))
        self.inverse = np.broadcast_to(np.eye(parameters if self.full else 0) / prior,
                                       (members, models, *[parameters if self.full else 0] * 2)).copy()

    def add(self, sensitivity: np.ndarray, variance: np.ndarray) -> None:
        """One observed step: sensitivities [M, N, D, K] of a state with variances [M, N, D]."""
        scaled = sensitivity / np.sqrt(variance)[..., None]
        if not self.full:
            self.gathered *= self.forget
            self.gathered += np.square(scaled).sum(-2)
        else:
            parameters = scaled.shape[-1]
            restored = np.zeros((*scaled.shape[:2], 1, parameters))
            restored[..., self.steps % parameters] = np.sqrt(self.prior * (1 - self.forget**parameters))
            self.inverse = updated_inverse(self.inverse / self.forget, np.concatenate([scaled, restored], -2))
        self.steps += 1

    def add_step(self, drift: Drift, z: np.ndarray) -> None:
        """One observed step from the states z [M, D]: S = dt·φ(z) in the rows of each dimension."""
        members, models, size, count = drift.weight.shape
        phi = features(drift, z.astype(np.float64))  # [M, P]
        sensitivity = np.zeros((members, models, size, size, count))
        sensitivity[:, :, range(size), range(size)] = drift.dt * phi[:, None, None]
        self.add(sensitivity.reshape(members, models, size, size * count), drift.variance.astype(np.float64))

    def known(self) -> np.ndarray:
        """What `gains` takes: A's diagonal [M, N, K], or A⁻¹ [M, N, K, K]."""
        return self.inverse if self.full else self.prior + self.gathered

    def state(self) -> dict[str, np.ndarray]:
        return {"gathered": self.gathered, "inverse": self.inverse, "steps": np.array(self.steps)}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name in ("gathered", "inverse"):
            if state[name].shape != getattr(self, name).shape:
                raise ConfigError("information", f"was saved as {state[name].shape} and is {getattr(self, name).shape} here: "
                                  "members, ensemble, grid and matrix must be those it was saved with.")
        self.gathered, self.inverse, self.steps = state["gathered"].copy(), state["inverse"].copy(), int(state["steps"])


# A⁻¹ after an observation -----------------------------------------------------------------------------------------------------


def inverse_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, models, parameters, rank in ((1, 1, 1, 1), (1, 2, 7, 3), (3, 1, 40, 2), (2, 2, 5, 9)):
        root = rng.normal(size=(members, models, parameters, parameters))
        yield (np.linalg.inv(root @ root.swapaxes(-1, -2) + np.eye(parameters)),
               rng.normal(size=(members, models, rank, parameters)))


def updated_inverse_reference(inverse, scaled):
    """(A + RᵀR)⁻¹."""
    return np.linalg.inv(np.linalg.inv(inverse) + scaled.swapaxes(-1, -2) @ scaled)


@pair(updated_inverse_reference, inverse_examples, rtol=1e-8, atol=1e-10, dtypes=("float64",))
def updated_inverse(inverse: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """(A + RᵀR)⁻¹ = A⁻¹ − A⁻¹Rᵀ·(I + R·A⁻¹·Rᵀ)⁻¹·R·A⁻¹, of [M, N, K, K] and R [M, N, rank, K]."""
    left = scaled @ inverse
    small = np.eye(scaled.shape[-2]) + left @ scaled.swapaxes(-1, -2)
    after = inverse - left.swapaxes(-1, -2) @ np.linalg.solve(small, left)
    return (after + after.swapaxes(-1, -2)) / 2  # rounding must not make it lopsided over thousands of steps


# what paths are worth ---------------------------------------------------------------------------------------------------------


def sensitivities_reference(drift: Drift, m: int, n: int, phi: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """S_1 … S_H [H, D, D·P] of one path with features [H, P] and Jacobians [H, D, D]: the recursion as it stands."""
    horizon, count = phi.shape
    size = slope.shape[-1]
    found, s = np.zeros((horizon, size, size * count)), np.zeros((size, size * count))
    for t in range(horizon):
        s = slope[t] @ s + drift.dt * np.kron(np.eye(size), phi[t])
        found[t] = s
    return found


def gain_reference(known: np.ndarray, sensitivity: np.ndarray, variance: np.ndarray, criterion: int) -> float:
    """What one path is worth: determinants and inverses of whole matrices. Sensitivities [H, D, K], variances [D]."""
    added = sum(s.T @ np.diag(1 / variance) @ s for s in sensitivity)
    before = np.linalg.inv(known) if known.ndim == 2 else np.diag(known)
    after = before + (added if known.ndim == 2 else np.diag(np.diag(added)))
    if criterion == D_OPTIMAL:
        return np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1]
    return np.trace(np.linalg.inv(before)) - np.trace(np.linalg.inv(after))


def random_known(rng: np.random.Generator, drift: Drift, full: bool) -> np.ndarray:
    """Information after a few random observations."""
    members, models, size, count = drift.weight.shape
    information = Information(members, models, size * count, "full" if full else "diagonal")
    for _ in range(3):
        information.add(0.3 * rng.normal(size=(members, models, size, size * count)), drift.variance)
    return information.known()


def gain_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for k, (drift, start, actions) in enumerate(path_examples(rng, dtype)):
        for full in (False, True)[:1 if drift.weight.shape[1] == 5 else 2]:  # the whole matrix of 200 is slow 165 times
            yield drift, random_known(rng, drift, full), start, actions, (k + full) % 2


def gains_reference(drift, known, start, actions, criterion):
    """Mean over models, one path after another."""
    _, phi, slope = paths_reference(drift, start, actions)
    worth = np.zeros((*actions.shape[:2], known.shape[1]))
    for m, b, n in np.ndindex(worth.shape):
        sensitivity = sensitivities_reference(drift, m, n, phi[m, n, :, :, b], slope[m, n, :, :, :, b])
        worth[m, b, n] = gain_reference(known[m, n], sensitivity, drift.variance[m, n], criterion)
    return worth.mean(-1)


@pair(gains_reference, gain_examples, rtol=2e-4, atol=1e-5)
def gains(drift: Drift, known: np.ndarray, start: np.ndarray, actions: np.ndarray, criterion: int) -> np.ndarray:
    """What paths from states [M, D] along actions [M, B, H, A] are worth, [M, B], mean over models. `known` is
    `Information.known()`."""
    _, phi, slope = paths(drift, start, actions)
    found = np.zeros(actions.shape[:2])
    for m, n in np.ndindex(known.shape[:2]):
        add_gain(drift, known, m, n, phi[m, n], slope[m, n], criterion, found[m])
    return found


def add_gain(drift: Drift, known: np.ndarray, m: int, n: int, phi: np.ndarray, slope: np.ndarray, criterion: int,
             worth: np.ndarray) -> None:
    """Adds what the paths of one model are worth, over the number of models, to `worth` [B]."""
    kernel = diagonal_gain if known.ndim == 3 else full_gain
    kernel(known[m, n], drift.variance[m, n], np.float32(drift.dt), phi, slope, criterion, 1 / known.shape[1], worth)


@njit(cache=True, error_model="numpy")
def diagonal_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """Each parameter's sensitivity is a recursion of D numbers on its own: nothing of size K is kept for a sample.
    phi [H, P, B], slope [H, D, D, B]."""
    count, samples = phi.shape[1:]
    size = slope.shape[1]
    narrow = (1 / variance).astype(np.float32)
    # one array for all that is written: the compiler must show that what it reads and writes is apart before it vectorises
    scratch, product = np.empty((2 * size + 1, samples), np.float32), np.ones(samples)
    added = scratch[2 * size]
    for d in range(size):
        for p in range(count):
            if size == 2:
                add_planar(d, p, dt, narrow, phi, slope, scratch)
            else:
                add_any(d, p, dt, narrow, phi, slope, scratch)
            before = known[d * count + p]
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


@njit(cache=True, error_model="numpy")
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


@njit(cache=True, error_model="numpy")
def add_any(d, p, dt, narrow, phi, slope, scratch):
    """Σ_t S_tᵀ·V⁻¹·S_t of the weight of feature p in dimension d, for every sample, into the last row of `scratch`."""
    size, samples = slope.shape[1], scratch.shape[1]
    scratch[:] = np.float32(0)
    added = scratch[2 * size]
    for t in range(phi.shape[0]):
        s, after = scratch[t % 2 * size:], scratch[(t + 1) % 2 * size:]
        for i in range(size):
            row, own = after[i], dt * np.float32(i == d)
            for b in range(samples):
                row[b] = own * phi[t, p, b]
            for k in range(size):
                for b in range(samples):
                    row[b] += slope[t, i, k, b] * s[k, b]
            for b in range(samples):
                added[b] += narrow[i] * row[b] * row[b]


@njit(cache=True, error_model="numpy")
def full_gain(known, variance, dt, phi, slope, criterion, share, worth):
    """All scaled sensitivities of a sample [H·D, K], one product with A⁻¹, one small Cholesky."""
    horizon, count, samples = phi.shape
    size, parameters = slope.shape[1], slope.shape[1] * count
    scaled, s = np.zeros((horizon * size, parameters)), np.zeros((size, parameters))
    left, small = np.empty((horizon * size, parameters)), np.empty((horizon * size, horizon * size))
    for b in range(samples):
        s[:] = 0.0
        for t in range(horizon):
            s = np.dot(slope[t, :, :, b].astype(np.float64), s)
            for i in range(size):
                for p in range(count):
                    s[i, i * count + p] += dt * phi[t, p, b]
                for q in range(parameters):
                    scaled[t * size + i, q] = s[i, q] / np.sqrt(variance[i])
        np.dot(scaled, known, left)
        np.dot(left, scaled.T, small)
        for i in range(horizon * size):
            small[i, i] += 1
        if criterion == D_OPTIMAL:
            worth[b] += share * 2 * np.sum(np.log(np.diag(np.linalg.cholesky(small))))
        else:
            worth[b] += share * np.trace(np.linalg.solve(small, np.dot(left, left.T)))
