"""Fisher information of the dynamics' parameters, and what a path adds to it.

If z_t is observed with variance V, the parameters θ of z' = m(z, a; θ) are seen through the
sensitivities

    S_{t+1} = (∂m/∂z)·S_t + ∂m/∂θ,  S_0 = 0,        U = Σ_t S_tᵀ·V⁻¹·S_t

U is minus the expected Hessian of the log-likelihood of the path. Added to the information A that
is there already, it is worth

    D:  log det(A + U) − log det A          A:  tr A⁻¹ − tr (A + U)⁻¹

The diagonal form keeps A's diagonal. The full form never factors a K × K matrix for a candidate:
with the scaled sensitivities R = V^(−½)·S of all steps, (H·D) × K, both follow from the small
matrix C = I + R·A⁻¹·Rᵀ,

    log det(A + U) − log det A = log det C        tr A⁻¹ − tr (A + U)⁻¹ = tr(C⁻¹·R·A⁻²·Rᵀ)
    (determinant lemma, Woodbury)

`Information` is of any parameters. Of weights on features, z' = z + dt·W·φ(z) + …, more can be
said (`FeatureInformation`): an observed step tells dt²·φφᵀ/V of each row of W, the same but for the
row's variance. With a prior that is scaled alike (the conjugate one) the whole matrix is A =
dt²·V⁻¹ ⊗ F, where

    F = prior·I + Σ φ(z_t)·φ(z_t)ᵀ, fading        [P, P]; its diagonal [P]

has been gathered by visits alone: it knows no model, is shared by an ensemble, and stays right
while V is being learned. The prior is in visits: 0.1 is a tenth of a visit to each centre.

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
from typing import Any, ClassVar

import numpy as np

from tenfold.core.errors import ConfigError
from tenfold.core.pairs import pair
from tenfold.domains.dynamics.paths import Drift, features

D_OPTIMAL, A_OPTIMAL = range(2)
CRITERIA = {"d": D_OPTIMAL, "a": A_OPTIMAL}
LEAST_LEFT = 0.1  # of a coordinate's prior before its turn to be restored


class PlannerState:
    """Arrays that the planner carries from step to step, and how many steps or plans there were."""

    arrays: ClassVar[tuple[str, ...]]
    counter: ClassVar[str]
    depends_on: ClassVar[str]  # settings that the arrays' shapes follow

    def state(self) -> dict[str, np.ndarray]:
        arrays = {name: getattr(self, name) for name in self.arrays}
        return arrays | {self.counter: np.array(getattr(self, self.counter))}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name in self.arrays:
            here, saved = getattr(self, name).shape, state[name].shape
            if here != saved:
                raise ConfigError(
                    "planner",
                    f"has {name} of {here} here and {saved} where it was saved: {self.depends_on} "
                    "must be the same.",
                )
            setattr(self, name, state[name].copy())
        setattr(self, self.counter, int(state[self.counter]))


class Information(PlannerState):
    """What is known about the parameters of M members with N models each: the prior, and what was
    gathered, fading.

    Diagonal: gathered [M, N, K] ← forget·gathered + diag(Sᵀ·V⁻¹·S), and A = prior + gathered.
    Full: A⁻¹ [M, N, K, K] is kept and updated by Woodbury's identity. A fades by `forget` as a
    whole, and at each step some coordinates in turn get back what their prior lost since their last
    turn, so that no direction is ever forgotten entirely: one coordinate where a tenth of the prior
    is left after a round of K steps, more where it fades faster, all of them if need be. Everything
    is float64; only `state()` has to be saved.
    """

    arrays, counter = ("gathered", "inverse"), "steps"
    depends_on = "members, ensemble, grid and matrix"

    def __init__(
        self,
        members: int,
        models: int,
        parameters: int,
        matrix: str = "diagonal",
        forget: float = 0.999,
        prior: float = 1.0,
    ) -> None:
        self.full, self.forget, self.prior, self.steps = matrix == "full", forget, prior, 0
        # steps until so little is left
        lasting = parameters if forget == 1 else max(int(np.log(LEAST_LEFT) / np.log(forget)), 1)
        self.turn = -(-parameters // min(lasting, parameters))  # coordinates restored in a step
        self.gathered = np.zeros((members, models, 0 if self.full else parameters))
        self.inverse = np.broadcast_to(
            np.eye(parameters if self.full else 0) / prior,
            (members, models, *[parameters if self.full else 0] * 2),
        ).copy()

    def add(self, sensitivity: np.ndarray, variance: np.ndarray) -> None:
        """One observed step: sensitivities [M, N, D, K] of a state with variances [M, N, D]."""
        scaled = sensitivity / np.sqrt(variance)[..., None]
        if not self.full:
            self.gathered *= self.forget
            self.gathered += np.square(scaled).sum(-2)
        else:
            parameters = scaled.shape[-1]
            whole = -(-parameters // self.turn)  # steps of a round
            turn = np.arange(
                self.steps % whole * self.turn,
                min((self.steps % whole + 1) * self.turn, parameters),
            )
            restored = np.zeros((*scaled.shape[:2], len(turn), parameters))
            restored[..., np.arange(len(turn)), turn] = np.sqrt(
                self.prior * (1 - self.forget**whole)
            )
            added = np.concatenate([scaled, restored], -2)
            self.inverse = (
                updated_inverse(self.inverse / self.forget, added)
                if whole > 1
                else faded_inverse(self.inverse, self.forget, added)
            )
        self.steps += 1

    def known(self) -> np.ndarray:
        """A's diagonal [M, N, K], or A⁻¹ [M, N, K, K]."""
        return self.inverse if self.full else self.prior + self.gathered


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
        for m, states in enumerate(z):
            phi = features(drift, states)
            if self.full:
                self.inverse[m, 0] = np.linalg.inv(
                    self.prior * np.eye(phi.shape[1]) + (share[:, None] * phi).T @ phi
                )
            else:
                self.gathered[m, 0] = share @ np.square(phi)


# A⁻¹ after an observation


def inverse_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, models, parameters, rank in (
        (1, 1, 1, 1),
        (1, 2, 7, 3),
        (3, 1, 40, 2),
        (2, 2, 5, 9),
    ):
        root = rng.normal(size=(members, models, parameters, parameters))
        yield (
            np.linalg.inv(root @ root.swapaxes(-1, -2) + np.eye(parameters)),
            rng.normal(size=(members, models, rank, parameters)),
        )


def faded_inverse(inverse: np.ndarray, forget: float, scaled: np.ndarray) -> np.ndarray:
    """(forget·A + RᵀR)⁻¹ by whole inverses: where nearly all of A fades in a step, Woodbury's
    difference would cancel."""
    after = np.linalg.inv(forget * np.linalg.inv(inverse) + scaled.swapaxes(-1, -2) @ scaled)
    return (after + after.swapaxes(-1, -2)) / 2


def updated_inverse_reference(inverse, scaled):
    """(A + RᵀR)⁻¹."""
    return np.linalg.inv(np.linalg.inv(inverse) + scaled.swapaxes(-1, -2) @ scaled)


@pair(updated_inverse_reference, inverse_examples, rtol=1e-8, atol=1e-10, dtypes=("float64",))
def updated_inverse(inverse: np.ndarray, scaled: np.ndarray) -> np.ndarray:
    """(A + RᵀR)⁻¹ = A⁻¹ − A⁻¹Rᵀ·(I + R·A⁻¹·Rᵀ)⁻¹·R·A⁻¹, of [..., K, K] and R [..., rank, K]."""
    left = scaled @ inverse
    small = np.eye(scaled.shape[-2]) + left @ scaled.swapaxes(-1, -2)
    after = inverse - left.swapaxes(-1, -2) @ np.linalg.solve(small, left)
    # rounding must not make it lopsided over thousands of steps
    return (after + after.swapaxes(-1, -2)) / 2


# what a path is worth


def gain_reference(
    known: np.ndarray, sensitivity: np.ndarray, variance: np.ndarray, criterion: int
) -> float:
    """What one path is worth: determinants and inverses of whole matrices, or sums over the
    diagonal. Sensitivities [H, D, K], variances [D]; known is A's diagonal [K] or A⁻¹ [K, K]."""
    if known.ndim == 1:
        diagonal = known + sum(s.T**2 @ (1 / variance) for s in sensitivity)
        return (
            np.log(diagonal / known).sum()
            if criterion == D_OPTIMAL
            else (1 / known - 1 / diagonal).sum()
        )
    before = np.linalg.inv(known)
    after = before + sum(s.T @ np.diag(1 / variance) @ s for s in sensitivity)
    if criterion == D_OPTIMAL:
        return np.linalg.slogdet(after)[1] - np.linalg.slogdet(before)[1]
    return np.trace(np.linalg.inv(before)) - np.trace(np.linalg.inv(after))


def sensitivities_reference(drift: Drift, phi: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """S_1 … S_H [H, D, D·P] of one path with features [H, P] and Jacobians [H, D, D]: the recursion
    as it stands."""
    horizon, count = phi.shape
    size = slope.shape[-1]
    sensitivities, s = np.zeros((horizon, size, size * count)), np.zeros((size, size * count))
    for t in range(horizon):
        s = slope[t] @ s + drift.dt * np.kron(np.eye(size), phi[t])
        sensitivities[t] = s
    return sensitivities


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
