"""The least error of predictions: derivatives of the filter against finite differences, the minimum
that is reached, and what is recovered behind much noise."""

import numpy as np
import pytest
import torch

from tenfold.domains.dynamics.belief import beliefs
from tenfold.domains.dynamics.closed_form import (
    Fit,
    bootstrap_coefficients,
    gauss_newton,
    normal_equations,
    refit,
)
from tenfold.domains.dynamics.config import LatentModel
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.prediction_error import (
    Record,
    filter_sensitivities,
    filter_states,
    first_belief,
    with_first_shares,
)

DT = 0.1
TURN = np.array([[-0.38, -1.98], [1.98, -0.38]])


def rotation(rows: int, error: float, noise: float = 0.1, seed: int = 0) -> Record:
    """Readings, with errors, of a damped rotation under random pushes."""
    rng = np.random.default_rng(seed)
    a, z = rng.uniform(-1, 1, (rows, 2)), np.zeros((rows + 1, 2))
    for t in range(rows):
        z[t + 1] = z[t] + DT * (TURN @ z[t] + a[t]) + noise * rng.normal(size=2)
    whole, grid, first = np.ones(rows, np.bool_), (np.zeros(0), 1.0), believed_at_first(rows)
    return Record(z + error * rng.normal(size=z.shape), a, whole, *grid, *first)


def believed_at_first(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """The factors of the gain, and the mean, where a first reading is believed as it is."""
    scale = np.ones((rows + 1, 2))
    scale[0] = 0.0
    return scale, np.zeros(2)


def trials(count: int, steps: int, error: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Readings [count·steps, 2], of deviation 1, of rotations that begin far out anywhere on a circle
    and fade; and which steps stay in their trial."""
    rng = np.random.default_rng(seed)
    z, angle = np.zeros((count, steps, 2)), 2 * np.pi * rng.random(count)
    z[:, 0] = 1.8 * np.stack((np.cos(angle), np.sin(angle)), 1)
    for t in range(1, steps):
        z[:, t] = z[:, t - 1] @ (np.eye(2) + DT * TURN).T + 0.15 * rng.normal(size=(count, 2))
    z += error * rng.normal(size=z.shape)
    whole = np.arange(1, count * steps) % steps > 0
    return (z / z.std()).reshape(-1, 2), whole


@pytest.mark.parametrize(("size", "grid", "actions"), [(1, 4, 0), (1, 0, 1), (2, 3, 2), (3, 0, 1)])
def test_derivatives_of_predictions_are_those_of_finite_differences(
    size: int, grid: int, actions: int
) -> None:
    rng, rows, step = np.random.default_rng(size), 12, 1e-6
    axis = np.linspace(-2, 2, grid) if grid else np.zeros(0)
    inputs = (grid**size if grid else size + 1) + actions
    theta = np.concatenate((0.1 * rng.normal(size=size * inputs), 0.6 * np.eye(size).ravel()))
    z, a = rng.normal(size=(rows + 1, size)), rng.normal(size=(rows, actions))
    whole = np.ones(rows, np.bool_)
    whole[4] = False
    first = rng.uniform(0, 1.5, z.shape), rng.normal(size=size)

    def parts(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        own = theta[: size * inputs].reshape(size, inputs)
        return own, theta[size * inputs :].reshape(size, size)

    def predictions(theta: np.ndarray) -> np.ndarray:
        return z[1:] - filter_states(z, a, whole, *parts(theta), axis, 0.9, *first)[1]

    start = first_belief(z[0], parts(theta)[1], first[0][0], first[1], size * inputs)
    by = filter_sensitivities(z, a, whole, *parts(theta), axis, 0.9, *first, start)[2]
    for k in range(len(theta)):
        move = step * np.eye(len(theta))[k]
        slope = (predictions(theta + move) - predictions(theta - move)) / (2 * step)
        assert by[:, :, k] == pytest.approx(slope, abs=1e-8)
    assert np.abs(by[5]).max() > 0 and np.any(by[6] != by[5])


def test_a_share_of_nought_leaves_the_plain_regressors() -> None:
    """Then a belief is the reading, whatever the coefficients are: S = x."""
    record = rotation(5, error=0.1)
    nothing = np.zeros((2, 5)), np.zeros((2, 2))
    by = filter_sensitivities(*record[:3], *nothing, *record.filter, np.zeros((2, 15)))[2]
    inputs = np.concatenate((record.z[1:-1], np.ones((4, 1)), record.a[1:]), 1)
    assert by[1:, 0, :5] == pytest.approx(inputs) and by[1:, 1, 5:10] == pytest.approx(inputs)
    assert not by[:, 0, 5:10].any() and not by[:, 1, :5].any()


def test_one_number_by_hand() -> None:
    """b' = b + w·b with readings 1, 2, 4, w = 0.5, e = 0.5: the first prediction is 1.5, its
    surprise 0.5, the belief 2 − 0.25 = 1.75; ∂b/∂w = 0.5·1, so that the next prediction 2.625 has
    the derivative 1.75 + 1.5·0.5 = 2.5 by w and 1.5·(−0.5) by e."""
    z, yes = np.array([[1.0], [2.0], [4.0]]), np.ones(2, np.bool_)
    start = np.array([[1.0, 0, 0, 0]])
    given = (
        np.array([[0.5, 0.0]]),
        np.array([[0.5]]),
        np.zeros(0),
        1.0,
        np.ones((3, 1)),
        np.zeros(1),
    )
    belief, surprise, by, _ = filter_sensitivities(z, np.zeros((2, 0)), yes, *given, start)
    assert belief[1, 0] == pytest.approx(1.75) and surprise[:, 0] == pytest.approx([0.5, 1.375])
    assert by[1, 0] == pytest.approx([2.5, 1 + 1.5 * 0.5, -0.75])


def test_long_recordings_are_summed_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    record = rotation(60, error=0.2)
    record.whole[20], coefficients, gain = False, np.full((2, 5), 0.01), 0.7 * np.eye(2)
    rng = np.random.default_rng(2)
    record = record._replace(scale=rng.uniform(0, 1, (61, 2)), middle=rng.normal(size=2))
    surprise = record.follow(coefficients, gain)[1]
    fit = Fit(coefficients, gain, surprise, 0.0)
    weight = np.random.default_rng(1).exponential(size=(2, 60))
    whole = normal_equations(record, fit, weight)
    monkeypatch.setattr("tenfold.domains.dynamics.closed_form.BLOCK", 7)
    for own, other in zip(whole, normal_equations(record, fit, weight), strict=True):
        assert other == pytest.approx(own, rel=1e-10)


def test_the_fit_is_where_nothing_is_gained_any_more() -> None:
    record, penalty = rotation(1_500, error=0.3), np.full(5, 1e-3)
    best = gauss_newton(record, np.zeros((2, 5)), 0.5 * np.eye(2), penalty)
    again = gauss_newton(record, best.coefficients, best.gain, penalty)
    assert best.loss - again.loss < 2.0
    assert best.coefficients[:, :2] / DT == pytest.approx(TURN, abs=0.25)
    steady = np.linalg.eigvals(best.gain).real
    assert steady.min() > 0.5 and steady.max() < 1.0  # readings err by three times a step's noise


def test_weights_of_one_give_the_fit_itself_and_others_spread_around_it() -> None:
    record, penalty = rotation(1_500, error=0.2), np.full(5, 1e-3)
    best = gauss_newton(record, np.zeros((2, 5)), 0.5 * np.eye(2), penalty)
    drawn = np.random.default_rng(3).exponential(size=(40, 1_500))
    found = bootstrap_coefficients(
        record, best, np.concatenate((np.ones((1, 1_500)), drawn)), penalty
    )
    assert found[0] == pytest.approx(best.coefficients, abs=2e-3)
    spread = found[1:].std(0)[:, :2] / DT
    # a decay of 0.38 seen for 150 units of time is known to about √(2·0.38 / 150) = 0.07
    assert spread.min() > 0.02 and spread.max() < 0.3


def test_a_start_that_runs_away_ends_as_numbers() -> None:
    record, penalty = rotation(300, error=0.1), np.full(5, 1e-3)
    found = gauss_newton(record, np.full((2, 5), 5.0), 0.95 * np.eye(2), penalty)
    assert np.isfinite(found.coefficients).all() and np.isfinite(found.loss)
    assert found.coefficients[:, :2] / DT == pytest.approx(TURN, abs=0.8)


def test_a_rotation_behind_much_noise_keeps_its_eigenvalues() -> None:
    """Readings err by four times the noise of a step, as they do of few counts. A fit to readings
    finds a strong damping."""
    found = []
    for seed in range(3):
        record = rotation(4_000, error=0.4, seed=seed)
        dynamics = Dynamics(LatentModel(dynamics="linear"), 2, DT, 1)
        refit(dynamics, 0, record.z, np.zeros_like(record.z), record.a, record.whole, seed=0)
        found.append(np.linalg.eigvals(dynamics.weight[0, 0, :, :2].detach().numpy())[0])
        x = np.concatenate((record.z[:-1], np.ones((4_000, 1)), record.a), 1)
        plain = np.linalg.lstsq(x, np.diff(record.z, axis=0) / DT, rcond=None)[0].T[:, :2]
        assert np.linalg.eigvals(plain).real.max() < -0.9
    apart = np.abs(np.real(found) + 1j * np.abs(np.imag(found)) - (-0.38 + 1.98j))
    assert apart.max() < 0.1 * abs(-0.38 + 1.98j)


def test_an_episode_begins_with_the_mean_of_first_readings() -> None:
    """By hand: readings 3, 5 of an episode and 1 of the next, m = 1, E = ½ with the factors ½, 1, ½.
    The first belief is 3 − ¼·2 = 2.5, the surprise of the next 5 − 2.5 and the belief 3.75; the
    belief of the other episode 1 − ¼·0."""
    z = np.array([[3.0], [5.0], [1.0]])
    whole, nothing = np.array([True, False]), np.zeros((2, 0))
    first = np.array([[0.5], [1.0], [0.5]]), np.ones(1)
    fit = np.zeros((1, 2)), np.array([[0.5]]), np.zeros(0), 1.0
    belief, surprise = filter_states(z, nothing, whole, *fit, *first)
    assert belief[:, 0] == pytest.approx([2.5, 3.75, 1.0])
    assert surprise[:, 0] == pytest.approx([2.5, 1 - 3.75])


def test_the_share_of_first_surprises_that_is_error_by_hand() -> None:
    """A surprise of variance 4, half of it error, and first readings of variance 8 around 0: a
    quarter of theirs is error, which is half of the steady share. A quarter of the unknown 6 is left
    and a step adds ½·2, so that 2.5 are unknown and 2 / 4.5 of the next surprise is error; then
    2.5·4/9 + 1, and 2 / (2 + 19/9) of the one after."""
    length, count = 3, 40_000
    rng = np.random.default_rng(0)
    z = np.zeros((count * length, 1))
    z[::length, 0] = np.sqrt(8) * rng.choice((-1, 1), count)
    whole = np.arange(1, len(z)) % length > 0
    record = Record(z, z[1:, :0], whole, np.zeros(0), 1.0, np.zeros_like(z), np.zeros(1))
    made = with_first_shares(record, np.array([[0.5]]), np.full((len(whole), 1), 2.0))
    assert made.scale[:4, 0] == pytest.approx([1 / 2, 8 / 9, 36 / 37, 1 / 2], rel=0.01)
    assert made.middle[0] == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(("steps", "error"), [(40, 0.45), (40, 0.9), (20, 0.9)])
def test_trials_of_a_rotation_behind_much_noise_do_not_seem_to_fade_faster(
    steps: int, error: float
) -> None:
    """Beliefs that began with a reading as it is had −0.41, −0.50 and −0.60 for −0.38 (means of 16
    seeds, with standard errors of 0.01): the error of a trial's first reading was in all of its
    beliefs."""
    found = []
    for seed in range(6):
        z, whole = trials(80, steps, error, seed)
        dynamics = Dynamics(LatentModel(dynamics="linear"), 0, DT, 1)
        refit(dynamics, 0, z, np.zeros_like(z), np.zeros((len(whole), 0)), whole, seed=0)
        own = np.linalg.eigvals(dynamics.weight[0, 0, :, :2].detach().numpy())[0]
        found.append([own.real, abs(own.imag)])
    assert np.mean(found, 0) == pytest.approx([-0.38, 1.98], abs=0.04)


@pytest.mark.parametrize("expected", [1.0, 0.1, 0.01])
def test_noise_that_was_expected_hardly_bends_a_fit_to_steps_that_have_none(
    expected: float,
) -> None:
    """P = 5 steps of variance v beside n that have none leave a variance of P·v / (n + P), so that
    the prior's precision of 100 draws coefficients of standard states to 0 by the share 100·P·v /
    (n·(n + P)); a ridge that takes v for the noise draws by 100·v / n, a hundred times as much."""
    record, rows = rotation(540, error=0.0, noise=0.0), 540
    z = record.z / record.z.std()
    dynamics = Dynamics(LatentModel(dynamics="linear"), 2, DT, 1)
    with torch.no_grad():
        dynamics.raw_variance.fill_(float(raw_of(expected)))
    refit(dynamics, 0, z, np.zeros_like(z), record.a, record.whole, seed=0)
    found = np.linalg.eigvals(dynamics.weight[0, 0, :, :2].detach().numpy())
    drawn = 100 * 5 * expected / (rows * (rows + 5))
    assert np.sort_complex(found) == pytest.approx(
        [-0.38 - 1.98j, -0.38 + 1.98j], abs=2 * drawn * abs(-0.38 + 1.98j) + 1e-4
    )


def test_forecasts_start_from_beliefs_whose_share_grows_to_the_steady_one() -> None:
    """A level that moves by nothing, read as 0, 1, 1, 1 with e = 1/2: w = (1/2)²/(1/2) = 1/2, so
    that p = 3/2 and the share 2/5 first; then p = 3/5 + 1/2 and 10/21; beliefs 3/5, then 1 −
    (10/21)·(2/5)."""
    network = LatentNetwork(1, 0, LatentModel(latent=1, hidden=(), dynamics="linear"), DT)
    with torch.no_grad():
        network.flat.zero_()
        network.encoder.last.weight[0, 0, 0] = 1.0
    y, a = torch.tensor([0.0, 1.0, 1.0, 1.0]).view(1, 1, 4, 1), torch.zeros(1, 1, 4, 0)
    assert torch.equal(beliefs(network, y, a).flatten(), y.flatten())  # readings, without a share
    network.dynamics.share.fill_(0.5)
    found = beliefs(network, y, a).detach().flatten().numpy()
    assert found[:3] == pytest.approx([0, 3 / 5, 1 - 10 / 21 * 2 / 5])


def test_a_closed_form_fit_says_how_much_of_a_surprise_is_error() -> None:
    shares = []
    for error in (0.0, 0.4):
        record = rotation(2_000, error=error)
        dynamics = Dynamics(LatentModel(dynamics="linear"), 2, DT, 1)
        refit(dynamics, 0, record.z, np.zeros_like(record.z), record.a, record.whole, seed=0)
        shares.append(float(dynamics.share[0].diagonal().mean()))
    # variances of readings and steps as 16 to 1: p² = p + 16, e = 16 / (16 + p)
    steady = 16 / (16 + (1 + np.sqrt(65)) / 2)
    assert shares == pytest.approx([0, steady], abs=0.07)
