"""Fisher information of the dynamics' parameters: against numerical derivatives, determinants and
inverses."""

import numpy as np
import pytest

from tenfold.core.errors import ConfigError
from tenfold.domains.dynamics.information import (
    A_OPTIMAL,
    D_OPTIMAL,
    FeatureInformation,
    Information,
    gain_reference,
    known_of_weights,
    random_known,
    sensitivities_reference,
)
from tenfold.domains.dynamics.objective import Objective, worth
from tenfold.domains.dynamics.paths import (
    Drift,
    features,
    jacobian,
    path,
    path_reference,
    random_drift,
)

NONE = np.zeros((0, 0), np.float32)


def gains(
    drift: Drift, known: np.ndarray, start: np.ndarray, actions: np.ndarray, criterion: int
) -> np.ndarray:
    """What paths are worth by information alone."""
    objective = Objective(
        1.0, 0.0, 0.0, 0.0, 0.0, criterion, NONE, NONE, NONE, np.zeros(0, np.int64)
    )
    return worth(objective, drift, known, start, actions)


def sensitivities(drift: Drift, start: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Of the only path."""
    _, phi, slope = path_reference(drift, 0, 0, start[0], actions[0].transpose(1, 2, 0))
    return sensitivities_reference(drift, phi[..., 0], slope[..., 0])


def small(grid: int, size: int = 2, horizon: int = 6) -> tuple[Drift, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    drift = random_drift(rng, 1, 1, size, grid, constant=True)
    return drift, rng.normal(size=(1, size)), rng.uniform(-1, 1, (1, 1, horizon, 2))


def states(drift: Drift, weight: np.ndarray, start: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """[H, D] of one path in float64, written out once more."""
    z, found = start[0], []
    for a in actions[0, 0]:
        z = z + drift.dt * (weight @ features(drift, z) + drift.push[0, 0] @ a)
        found.append(z)
    return np.array(found)


@pytest.mark.parametrize("grid", [0, 4])
def test_jacobians_and_sensitivities_are_the_finite_differences(grid: int) -> None:
    drift, start, actions = small(grid)
    weight, tiny = drift.weight[0, 0].astype(np.float64), 1e-6
    at = start[0]
    numeric = np.stack(
        [
            (
                states(drift, weight, start + tiny * e, actions)[0]
                - states(drift, weight, start - tiny * e, actions)[0]
            )
            / (2 * tiny)
            for e in np.eye(2)
        ],
        -1,
    )
    np.testing.assert_allclose(jacobian(drift, 0, 0, at), numeric, rtol=1e-6, atol=1e-8)
    found = sensitivities(drift, start, actions)
    for q in range(weight.size):
        step = np.zeros(weight.size)
        step[q] = tiny
        there, back = (
            states(drift, weight + sign * step.reshape(weight.shape), start, actions)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(
            found[:, :, q], (there - back) / (2 * tiny), rtol=1e-6, atol=1e-8
        )


@pytest.mark.parametrize("grid", [0, 3])
def test_information_is_minus_the_hessian_of_the_log_likelihood(grid: int) -> None:
    """Where the observed path is the predicted one, the Hessian has no other term."""
    drift, start, actions = small(grid, horizon=4)
    weight, variance = (
        drift.weight[0, 0].astype(np.float64),
        drift.variance[0, 0].astype(np.float64),
    )
    seen = states(drift, weight, start, actions)

    def log_likelihood(theta: np.ndarray) -> float:
        return float(
            -0.5
            * (
                np.square(states(drift, theta.reshape(weight.shape), start, actions) - seen)
                / variance
            ).sum()
        )

    s = sensitivities(drift, start, actions)
    found = np.einsum("tdi,d,tdj->ij", s, 1 / variance, s)
    h, theta, count = 1e-3, weight.ravel(), weight.size
    for i, j in np.ndindex(count, count):
        e, f = h * np.eye(count)[i], h * np.eye(count)[j]
        numeric = (
            log_likelihood(theta + e + f)
            - log_likelihood(theta + e - f)
            - log_likelihood(theta - e + f)
            + log_likelihood(theta - e - f)
        ) / (4 * h * h)
        assert -numeric == pytest.approx(found[i, j], rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("criterion", [D_OPTIMAL, A_OPTIMAL])
@pytest.mark.parametrize("full", [False, True])
def test_the_worth_of_a_path_is_that_of_whole_determinants_and_inverses(
    criterion: int, full: bool
) -> None:
    drift, start, actions = small(5, horizon=10)
    known = random_known(np.random.default_rng(0), drift, full)
    s = sensitivities(drift, start, actions)
    assert gains(drift, known, start.astype(np.float32), actions.astype(np.float32), criterion)[
        0, 0
    ] == pytest.approx(
        gain_reference(known_of_weights(drift, known, 0, 0), s, drift.variance[0, 0], criterion),
        rel=1e-4,
    )


def test_one_step_of_a_linear_model_is_worth_what_is_worked_out_by_hand() -> None:
    """z' = z + dt·w·z: S = dt·z, U = (dt·z)²/v = 0.04/0.1 = 0.4; A = F·dt²/v = 0.1·F. F = 10: D is
    log 1.4, A is 1 − 1/1.4."""
    drift = Drift(
        np.zeros((1, 1, 1, 1), np.float32),
        np.zeros((1, 1, 1, 1), np.float32),
        np.full((1, 1, 1), 0.1, np.float32),
        np.zeros(0, np.float32),
        1.0,
        0.1,
    )
    start, actions = np.full((1, 1), 2, np.float32), np.zeros((1, 1, 1, 1), np.float32)
    for known in (np.full((1, 1, 1), 10.0), np.full((1, 1, 1, 1), 0.1)):
        assert gains(drift, known, start, actions, D_OPTIMAL)[0, 0] == pytest.approx(
            np.log(1.4), rel=1e-6
        )
        assert gains(drift, known, start, actions, A_OPTIMAL)[0, 0] == pytest.approx(
            1 - 1 / 1.4, rel=1e-6
        )


def test_what_is_gathered_fades_and_the_prior_stays() -> None:
    information = Information(1, 1, 2, forget=0.5, prior=3)
    seen = np.array([[[[2.0, 0.0]]]])
    for _ in range(2):
        information.add(seen, np.full((1, 1, 1), 4.0))
    np.testing.assert_allclose(information.known(), [[[3 + 1.5, 3]]])


def test_the_kept_inverse_is_the_inverse_after_hundreds_of_fading_steps() -> None:
    rng = np.random.default_rng(1)
    information, plain = Information(1, 1, 6, "full", forget=0.97, prior=2), 2 * np.eye(6)
    for step in range(300):
        s, variance = rng.normal(size=(1, 1, 2, 6)), np.array([[[0.5, 2.0]]])
        information.add(s, variance)
        plain = 0.97 * plain + s[0, 0].T @ np.diag(1 / variance[0, 0]) @ s[0, 0]
        plain[step % 6, step % 6] += 2 * (1 - 0.97**6)
    np.testing.assert_allclose(information.known()[0, 0], np.linalg.inv(plain), rtol=1e-9)


def test_a_direction_never_seen_keeps_its_prior_though_everything_fades() -> None:
    information = Information(1, 1, 4, "full", forget=0.9, prior=2)
    for _ in range(400):
        information.add(np.array([[[[1.0, 0, 0, 0]]]]), np.ones((1, 1, 1)))
    kept = 1 / np.diag(information.known()[0, 0])[1:]
    assert ((kept > 2 * 0.9**4) & (kept <= 2.0001)).all()


@pytest.mark.parametrize("forget", [0.999, 0.9, 0.5, 0.1, 1e-6])
@pytest.mark.parametrize("grid", [3, 8])
def test_the_kept_inverse_stays_positive_and_right_however_fast_it_fades(
    forget: float, grid: int
) -> None:
    """A round restores each coordinate once; a prior never falls below a tenth of itself before
    that, or below `forget`."""
    rng, count = np.random.default_rng(4), grid**2
    drift = random_drift(rng, 1, 1, 2, grid)
    information, plain, z = (
        FeatureInformation(1, count, "full", forget),
        0.1 * np.eye(count),
        np.zeros((1, 2)),
    )
    whole = -(-count // information.turn)
    assert forget**whole >= 0.1 or whole == 1
    assert (information.turn == 1) == (forget**count >= 0.1)
    for step in range(300):
        z = 0.98 * z + 0.2 * rng.normal(size=(1, 2))
        information.add_step(drift, z)
        plain = forget * plain + np.outer(features(drift, z[0]), features(drift, z[0]))
        own = np.arange(count)[step % whole * information.turn :][: information.turn]
        plain[own, own] += 0.1 * (1 - forget**whole)
    kept = information.known()[0, 0]
    assert np.linalg.eigvalsh(kept)[0] > 0 and kept.diagonal().max() <= 1.0001 / (
        0.1 * min(0.1, forget) if whole > 1 else 0.1 * (1 - forget)
    )
    np.testing.assert_allclose(kept, np.linalg.inv(plain), rtol=1e-6, atol=1e-8)


def test_a_visit_adds_the_products_of_its_features() -> None:
    drift = random_drift(np.random.default_rng(2), 2, 3, 2, 4)
    z = np.array([[0.3, -1.0], [2.0, 0.1]])
    for matrix in ("diagonal", "full"):
        information = FeatureInformation(2, 16, matrix, forget=1.0, prior=0.5)
        information.add_step(drift, z)
        for m in range(2):
            whole = 0.5 * np.eye(16) + np.outer(features(drift, z[m]), features(drift, z[m]))
            np.testing.assert_allclose(
                information.known()[m, 0],
                np.diag(whole) if matrix == "diagonal" else np.linalg.inv(whole),
                rtol=1e-6,
            )


def test_information_of_features_is_that_of_their_weights() -> None:
    """`Information` of W, fed with S = dt·φ ⊗ I and the prior's unit dt²/V, is dt²·V⁻¹ ⊗ F."""
    rng = np.random.default_rng(7)
    drift = random_drift(rng, 1, 1, 2, 3)._replace(variance=np.full((1, 1, 2), 0.02, np.float32))
    weights, visits = (
        Information(1, 1, 18, "full", 1.0, prior=0.1 * 0.1**2 / 0.02),
        FeatureInformation(1, 9, "full", 1.0),
    )
    for z in rng.normal(size=(5, 1, 2)):
        visits.add_step(drift, z)
        weights.add(np.kron(np.eye(2), 0.1 * features(drift, z)[0])[None, None], drift.variance)
    np.testing.assert_allclose(
        weights.known()[0, 0], known_of_weights(drift, visits.known(), 0, 0), rtol=1e-5, atol=1e-8
    )


@pytest.mark.parametrize("matrix", ["diagonal", "full"])
def test_information_goes_on_from_its_saved_state(matrix: str) -> None:
    rng = np.random.default_rng(5)
    seen = rng.normal(size=(6, 1, 2, 2, 5))
    whole, first, second = (Information(1, 2, 5, matrix, 0.9) for _ in range(3))
    for s in seen:
        whole.add(s, np.ones((1, 2, 2)))
    for s in seen[:3]:
        first.add(s, np.ones((1, 2, 2)))
    second.load_state({name: value.copy() for name, value in first.state().items()})
    for s in seen[3:]:
        second.add(s, np.ones((1, 2, 2)))
    np.testing.assert_array_equal(second.known(), whole.known())
    with pytest.raises(ConfigError, match="members, ensemble, grid and matrix"):
        Information(1, 2, 4, matrix).load_state(first.state())


def test_a_member_is_worth_what_it_is_worth_alone() -> None:
    rng = np.random.default_rng(6)
    drift, actions = (
        random_drift(rng, 3, 2, 2, 6),
        rng.uniform(-1, 1, (3, 9, 5, 2)).astype(np.float32),
    )
    start = rng.normal(size=(3, 2)).astype(np.float32)
    for full in (False, True):
        known = random_known(rng, drift, full)
        together = gains(drift, known, start, actions, D_OPTIMAL)
        for m in range(3):
            alone = drift._replace(
                **{name: getattr(drift, name)[m : m + 1] for name in ("weight", "push", "variance")}
            )
            np.testing.assert_array_equal(
                gains(alone, known[m : m + 1], start[m : m + 1], actions[m : m + 1], D_OPTIMAL)[0],
                together[m],
            )


def test_states_far_outside_the_grid_have_no_features_and_stay_finite() -> None:
    drift = random_drift(np.random.default_rng(0), 1, 1, 2, 10)
    room = (np.empty((*shape, 2), np.float32) for shape in ((3, 2), (2, 100), (2, 2, 2)))
    far, still = np.array([1e6, -1e6], np.float32), np.zeros((2, 2, 2), np.float32)
    state, phi, slope = path(drift, 0, 0, far, still, *room)
    assert np.isfinite(state).all() and not phi.any()
    np.testing.assert_array_equal(slope[0, :, :, 0], np.eye(2))
