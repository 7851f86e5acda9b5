"""Dynamics fitted in closed form: what is recovered, in which coordinates, and why beliefs and not
readings are fitted."""

import numpy as np
import pytest
import torch

from tenfold.config.run import Run
from tenfold.domains.dynamics.closed_form import refit
from tenfold.domains.dynamics.config import Explorer, LatentModel, Planner
from tenfold.domains.dynamics.coordinates import Alignment, align, standardise
from tenfold.domains.dynamics.dynamics import Dynamics, raw_of
from tenfold.domains.dynamics.information import FeatureInformation
from tenfold.domains.dynamics.learner import ExplorerLearner
from tenfold.domains.dynamics.planning import drift_of

DT = 0.1
A, C, G = (
    np.array([[-0.5, 1.0], [-1.0, -0.3]]),
    np.array([0.2, -0.1]),
    np.array([[1.0, 0.2], [0.0, 0.7]]),
)


def played(
    rows: int, error: float, feedback: float, noise: float = 0.03
) -> tuple[np.ndarray, np.ndarray]:
    """Readings [T + 1, 2] of a linear system, and actions that push on by `feedback` where the last
    two readings lead."""
    rng = np.random.default_rng(0)
    z, read, acts = np.zeros(2), [], []
    for _ in range(rows + 1):
        read.append(z + error * rng.normal(size=2))
        acts.append(np.clip(feedback * (read[-1] - read[-2:][0]) + 0.3 * rng.normal(size=2), -1, 1))
        z = z + DT * (A @ z + C + G @ acts[-1]) + noise * rng.normal(size=2)
    return np.array(read), np.array(acts[:-1], np.float32)


def linear() -> Dynamics:
    """Three members that expect little noise."""
    dynamics = Dynamics(LatentModel(dynamics="linear", ensemble=2), 2, DT, 3)
    with torch.no_grad():
        dynamics.raw_variance.fill_(float(raw_of(0.03**2)))
    return dynamics


def test_a_linear_system_is_recovered_and_the_other_members_stay() -> None:
    dynamics = linear()
    z, a = played(400, error=0.0, feedback=0.0, noise=0.0)
    whole = np.ones(400, np.bool_)
    z[200], whole[199:201] = 50, False  # no step leads there or away
    refit(dynamics, 1, z, np.zeros_like(z), a, whole, seed=0)
    for n in range(2):
        assert dynamics.weight[1, n, :, :2].detach().numpy() == pytest.approx(A, abs=0.05)
        assert dynamics.weight[1, n, :, 2].detach().numpy() == pytest.approx(C, abs=0.05)
        assert dynamics.action_weight[1, n].detach().numpy() == pytest.approx(G, abs=0.02)
    assert not dynamics.weight[0].any() and not dynamics.action_weight[2].any()


def test_the_push_of_actions_is_right_although_they_follow_readings_that_err() -> None:
    """The reading's error is in the action that follows it and, negative, in the step from it: a
    plain fit to readings is far off; with beliefs most of that is gone."""
    z, a = played(10_000, error=0.02, feedback=5)
    whole = np.ones(len(a), np.bool_)
    rows = np.concatenate((z[:-1], np.ones((len(a), 1)), a), 1)
    plain = np.linalg.lstsq(rows, np.diff(z, axis=0) / DT, rcond=None)[0].T[:, 3:]
    dynamics = linear()
    refit(dynamics, 0, z, np.zeros_like(z), a, whole, seed=0)
    found = dynamics.action_weight[0].detach().numpy().mean(0)
    assert np.abs(plain - G).max() > 0.1  # about (0.02² / 0.1) · 5 / variance of an action
    assert np.abs(found - G).max() < np.abs(plain - G).max() / 3


def test_a_field_read_through_much_noise_is_not_damped() -> None:
    """Readings err by twice the noise of a step: fitted to them, states seem to be pulled to the
    middle at every step."""
    z, a = played(10_000, error=0.06, feedback=0)
    rows = np.concatenate((z[:-1], np.ones((len(a), 1)), a), 1)
    plain = np.linalg.lstsq(rows, np.diff(z, axis=0) / DT, rcond=None)[0].T[:, :2]
    dynamics = linear()
    refit(dynamics, 0, z, np.zeros_like(z), a, np.ones(len(a), np.bool_), seed=0)
    found = dynamics.weight[0, :, :, :2].detach().numpy().mean(0)
    assert np.abs(plain - A).max() > 0.4 and np.abs(found - A).max() < 0.15


def test_beliefs_that_run_away_are_not_fitted_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were nearly all of every surprise error, beliefs would follow the model alone, and a fit to
    them has a model that grows."""
    monkeypatch.setattr(
        "tenfold.domains.dynamics.closed_form.lag_one_correlation",
        lambda surprise, whole: np.full(surprise.shape[1], -0.95),
    )
    z, a = played(5_000, error=0.06, feedback=0)
    dynamics = linear()
    refit(dynamics, 0, z, np.zeros_like(z), a, np.ones(len(a), np.bool_), seed=0)
    assert float(dynamics.weight.detach().abs().max()) < 100  # nor NaN


def test_the_noise_of_a_step_counts_what_its_ends_are_unsure_by() -> None:
    z, a = played(2_000, error=0.0, feedback=0)
    noises = []
    for unsure in (0.0, 0.01):
        dynamics = linear()
        refit(dynamics, 0, z, np.full_like(z, unsure), a, np.ones(len(a), np.bool_), seed=0)
        noises.append(dynamics.variance()[0].detach().numpy())
    assert noises[0] == pytest.approx(0.03**2, rel=0.15) and noises[1] - noises[0] == pytest.approx(
        0.02, rel=1e-3
    )


def test_a_fit_does_not_depend_on_the_unit_of_time() -> None:
    z, a = played(300, error=0.02, feedback=1)
    found = []
    for dt in (0.1, 1e-3):
        dynamics = Dynamics(LatentModel(grid=4), 2, dt, 1)
        refit(dynamics, 0, z, np.zeros_like(z), a, np.ones(len(a), np.bool_), seed=0)
        found.append(dt * dynamics.weight.detach().numpy())
    assert found[0] == pytest.approx(found[1], rel=1e-4, abs=1e-6)


def test_nothing_is_fitted_to_episodes_of_one_step() -> None:
    dynamics = linear()
    refit(
        dynamics,
        0,
        np.zeros((3, 2)),
        np.zeros((3, 2)),
        np.zeros((2, 2), np.float32),
        np.zeros(2, np.bool_),
        seed=0,
    )
    assert not dynamics.weight.any() and torch.isfinite(dynamics.variance()).all()


# coordinates


def test_standard_coordinates_have_mean_nought_and_unit_covariance_and_do_not_turn() -> None:
    rng = np.random.default_rng(2)
    mean, variance = (
        rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3)) + (4, 0, -2),
        rng.exponential(0.1, (500, 3)),
    )
    to = standardise(mean, variance)
    inside = to.states(mean)
    assert inside.mean(0) == pytest.approx(np.zeros(3), abs=1e-12)
    spread = np.cov(inside.T, ddof=0) + to.back @ np.diag(variance.mean(0)) @ to.back.T
    assert spread == pytest.approx(np.eye(3), abs=1e-12)
    assert inside @ to.root.T + to.centre == pytest.approx(mean)
    assert to.root == pytest.approx(to.root.T) and np.linalg.eigvalsh(to.root).min() > 0
    unused = standardise(
        np.stack((mean[:, 0], np.zeros(500)), 1), np.stack((variance[:, 0], np.ones(500)), 1)
    )
    # a number that the encoder does not use keeps the prior's variance
    assert unused.root[1] == pytest.approx([0, 1])


@pytest.mark.parametrize("size", [2, 3])
def test_a_map_to_true_coordinates_goes_along(size: int) -> None:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(300, size)) + 1
    x = z @ rng.normal(size=(size, 2)) + 0.5
    old, to = align(z, x), standardise(z, np.full(z.shape, 0.01))
    new = to.alignment(old)
    assert new.to_true(to.states(z)) == pytest.approx(old.to_true(z))
    assert new.to_learned(x) == pytest.approx(to.states(old.to_learned(x)))
    assert isinstance(new, Alignment) and new.r2 == old.r2


MODELS = {
    "plain": {"hidden": (), "grid": 6},
    "hidden": {"hidden": (8,), "decoder": "mlp", "encoder": "gru", "grid": 6, "latent": 3},
    "linear": {"hidden": (5,), "dynamics": "linear", "ensemble": 1},
}


def explored(
    model: dict[str, object], steps: int, members: int = 2, **agent: object
) -> ExplorerLearner:
    settings = Explorer(
        model=LatentModel(**({"samples": 1, "ensemble": 2} | model)),  # type: ignore[arg-type]
        planner=Planner(samples=4, iterations=1, elites=2),
        **({"learning_starts": 40, "first_updates": 30, "every": 2, "lr": 1e-2} | agent),
    )  # type: ignore[arg-type]
    place = ExplorerLearner(
        Run(
            env="tenfold/LimitCycle-v0(scale=0.05, size=7, limit=30)",
            seed=1,
            members=members,
            agent=settings,
        )
    )
    while place.step < steps:
        place.round()
    return place


@pytest.mark.parametrize("kind", MODELS)
def test_what_the_model_says_of_observations_is_the_same_in_other_coordinates(kind: str) -> None:
    agent = explored(MODELS[kind], 60).agent
    _, before, variance = agent.window_states()
    said, believed_before = (
        agent.online.decode(z.float()).detach()
        for z in (torch.from_numpy(before), agent.belief.mean[:, None])
    )
    carried = None if agent.belief.carried is None else agent.belief.carried.clone()
    agent.refit()
    _, after, new_variance = agent.window_states()
    for m in range(2):
        to = standardise(before[m], variance[m])
        assert after[m] == pytest.approx(to.states(before[m]), abs=1e-4)
        assert new_variance[m].mean(0) == pytest.approx(to.variances(variance[m].mean(0)), rel=0.25)
    for z, old in (
        (torch.from_numpy(after).float(), said),
        (agent.belief.mean[:, None], believed_before),
    ):
        assert agent.online.decode(z).detach().numpy() == pytest.approx(old.numpy(), abs=1e-4)
    assert carried is None or torch.equal(carried, agent.belief.carried)  # type: ignore[arg-type]


def test_coordinates_that_are_observed_are_not_free() -> None:
    settings = Explorer(
        model=LatentModel(hidden=(), decoder="identity", samples=1, grid=5),
        planner=Planner(policy="random"),
        learning_starts=30,
        refit=30,
    )
    place = ExplorerLearner(Run(env="tenfold/LimitCycle-v0(observe=identity)", agent=settings))
    while place.step < 29:
        place.round()
    before = place.agent.online.encoder.last.weight.clone()
    place.agent.refit()
    assert (
        torch.equal(before, place.agent.online.encoder.last.weight)
        and place.agent.online.dynamics.weight.any()
    )


def test_an_mlp_learns_by_gradients_alone() -> None:
    agent = explored({"dynamics": "mlp", "hidden": (4,)}, 40, members=1, refit=10).agent
    assert not agent.refit_due(40) and explored(MODELS["plain"], 1, refit=10).agent.refit_due(40)


# what is known, counted anew


@pytest.mark.parametrize(
    ("matrix", "forget"), [("full", 1.0), ("diagonal", 1.0), ("diagonal", 0.9)]
)
def test_counting_visits_anew_gives_what_they_gave_one_by_one(matrix: str, forget: float) -> None:
    dynamics = Dynamics(LatentModel(grid=4), 2, DT, 2)
    z = np.random.default_rng(4).normal(size=(2, 25, 2))
    once, anew = (FeatureInformation(2, 16, matrix, forget) for _ in range(2))
    for t in range(25):
        once.add_step(drift_of(dynamics), z[:, t])
    anew.add_step(drift_of(dynamics), z[:, 3] + 1)  # of other coordinates: nothing of it stays
    anew.recount(drift_of(dynamics), z)
    assert anew.known() == pytest.approx(once.known(), rel=1e-8)


def test_an_agent_that_refits_knows_what_its_window_shows() -> None:
    agent = explored(MODELS["plain"], 60).agent
    agent.refit()
    _, z, _ = agent.window_states()
    phi = (
        agent.online.dynamics.features(torch.from_numpy(z[1]).float()[None, None])[0, 0]
        .double()
        .numpy()
    )
    share = agent.config.planner.forget ** np.arange(60)[::-1]
    known = agent.planning.information.known()[1, 0]
    assert np.linalg.inv(known) == pytest.approx(
        0.1 * np.eye(36) + (share[:, None] * phi).T @ phi, abs=1e-3
    )
