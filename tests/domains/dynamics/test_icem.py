"""iCEM: its noise, its elites, its optimum, and that a plan is a function of what is saved."""

import numpy as np
import pytest

from tenfold.core.errors import ConfigError
from tenfold.domains.dynamics.config import Planner
from tenfold.domains.dynamics.icem import Icem, Score, candidates, colouring, refit, streams_of
from tenfold.domains.dynamics.information import FeatureInformation
from tenfold.domains.dynamics.objective import Novelty, objective_of, score_of
from tenfold.domains.dynamics.paths import Drift, random_drift

BOX = -np.ones(2), np.ones(2)


@pytest.mark.parametrize("colour", [0.0, 1.0, 2.0])
def test_samples_have_the_spectrum_asked_for(colour: float) -> None:
    horizon, samples = 32, 4000
    tried = np.empty((1, samples, horizon, 1), np.float32)
    still = np.zeros((1, horizon, 1), np.float32)
    candidates(
        streams_of([3]),
        0,
        colouring(horizon, colour),
        still,
        still + 1,
        np.full(1, -9.0, np.float32),
        np.full(1, 9.0, np.float32),
        tried,
    )
    power = np.square(np.abs(np.fft.rfft(tried[0, :, :, 0].astype(np.float64), axis=-1))).mean(0)[
        1:-1
    ]
    falls = np.polyfit(np.log(np.arange(1, 1 + power.size)), np.log(power), 1)[0]
    assert falls == pytest.approx(-colour, abs=0.05)
    np.testing.assert_allclose(tried.var(1).ravel(), 1, atol=0.12)


def test_noise_over_one_step_is_plain() -> None:
    np.testing.assert_allclose(colouring(1, 2.0), [[1.0]])


def test_more_elites_than_samples_and_no_horizon_are_refused() -> None:
    with pytest.raises(ConfigError, match="elites = 9 is more than samples = 8"):
        Planner(samples=8, elites=9)
    with pytest.raises(ConfigError, match="horizon = 0"):
        Planner(horizon=0)
    with pytest.raises(ConfigError, match="every bound must be finite"):
        Icem(Planner(), streams_of([0]), np.array([-np.inf]), np.array([1.0]))


def test_the_best_are_kept_and_the_mean_moves_to_them_by_hand() -> None:
    tried = np.array([[[[1.0]], [[3.0]], [[8.0]]]], np.float32)
    elites, scores = np.array([[[[5.0]], [[0.0]]]], np.float32), np.array([[2.0, 0.0]])
    mean, deviation = np.zeros((1, 1, 1), np.float32), np.ones((1, 1, 1), np.float32)
    refit(np.array([[1.0, 3.0, np.nan]]), tried, 1, 0.5, elites, scores, mean, deviation)
    assert elites.ravel().tolist() == [3, 5]
    assert scores.tolist() == [[3, 2]]
    assert (mean.item(), deviation.item()) == (2, 1)  # ½·0 + ½·4; ½·1 + ½·1


def linear_problem() -> tuple[Drift, np.ndarray, np.ndarray]:
    """z' = z + 0.1·(−z + a); from 0 to a goal that five steps can nearly reach."""
    weight = np.array([[-1, 0, 0], [0, -1, 0]], np.float32)[None, None]
    drift = Drift(
        weight,
        np.eye(2, dtype=np.float32)[None, None],
        np.ones((1, 1, 2), np.float32),
        np.zeros(0, np.float32),
        1.0,
        0.1,
    )
    return drift, np.zeros((1, 2), np.float32), np.array([0.08, -0.05])


def test_a_plan_finds_the_optimum_of_a_known_problem() -> None:
    """Mean squared distance to the goal plus cost is a quadratic form of the actions: its least
    value is a linear system's."""
    drift, start, goal = linear_problem()
    horizon, cost = 5, 0.001
    settings = Planner(
        policy="goal",
        goal=tuple(goal),
        action_cost=cost,
        horizon=horizon,
        samples=256,
        elites=32,
        iterations=30,
        colour=0.0,
    )
    shift = np.array(
        [[0.1 * 0.9 ** (t - s) if s <= t else 0 for s in range(horizon)] for t in range(horizon)]
    )
    form = shift.T @ shift / horizon + cost / (2 * horizon) * np.eye(horizon)
    best = np.stack(
        [np.linalg.solve(form, shift.T @ np.full(horizon, g) / horizon) for g in goal], -1
    )
    assert np.abs(best).max() < 1  # the box does not bind
    search = Icem(settings, streams_of([0]), *BOX)
    score = score_of(objective_of(settings, 2, 1), drift, FeatureInformation(1, 3), start)
    action = search.plan(score)
    np.testing.assert_allclose(action[0], best[0], atol=0.1)
    reached = score(np.concatenate([search.tried[:, -1:], best[None, None].astype(np.float32)], 1))[
        0
    ]
    assert reached[1] - reached[0] < 1e-4  # of the best possible


@pytest.mark.parametrize("matrix", ["diagonal", "full"])
def test_an_information_seeker_goes_where_it_has_not_been(matrix: str) -> None:
    """Every state with x < 0 was seen often: the plan pushes to x > 0."""
    drift = random_drift(np.random.default_rng(0), 1, 1, 2, 10)
    drift = drift._replace(weight=drift.weight * 0, push=np.eye(2, dtype=np.float32)[None, None])
    information = FeatureInformation(1, 100, matrix, forget=1.0)
    for x in np.linspace(-2.5, 0, 12):
        for y in np.linspace(-2.5, 2.5, 21):
            information.add_step(drift, np.array([[x, y]]))
    settings = Planner(horizon=10)
    action = Icem(settings, streams_of([0]), *BOX).plan(
        score_of(objective_of(settings, 2, 1), drift, information, np.zeros((1, 2), np.float32))
    )
    assert action[0, 0] > 0.5


def planned(search: Icem, score: Score, count: int) -> np.ndarray:
    return np.stack([search.plan(score) for _ in range(count)])


def informed(
    members: int, models: int = 2, grid: int = 5
) -> tuple[Drift, FeatureInformation, np.ndarray]:
    rng = np.random.default_rng(4)
    drift = random_drift(rng, members, models, 2, grid)
    information = FeatureInformation(members, grid**2)
    for _ in range(5):
        information.add_step(drift, rng.normal(size=(members, 2)))
    return drift, information, rng.normal(size=(members, 2)).astype(np.float32)


@pytest.mark.parametrize(
    "shape",
    [
        {"horizon": 1},
        {"samples": 8, "elites": 8},
        {"keep": 0.0},
        {"keep": 1.0},
        {"samples": 1, "elites": 1},
        {"iterations": 1},
    ],
)
def test_plans_repeat_and_go_on_from_their_saved_state(shape: dict[str, int]) -> None:
    settings = Planner(**({"horizon": 4, "iterations": 3} | shape))  # type: ignore[arg-type]
    drift, information, start = informed(2)
    score = score_of(objective_of(settings, 2, 2), drift, information, start)
    whole, first, second = (Icem(settings, streams_of([1, 2]), *BOX) for _ in range(3))
    expected = planned(whole, score, 6)
    found = planned(first, score, 3)
    second.load_state({name: value.copy() for name, value in first.state().items()})
    np.testing.assert_array_equal(np.concatenate([found, planned(second, score, 3)]), expected)
    assert np.unique(expected[:, 0], axis=0).shape[0] > 1 or settings.iterations > 1


def test_a_member_plans_what_it_plans_alone() -> None:
    settings = Planner(horizon=5, iterations=3)
    drift, information, start = informed(3)
    together = planned(
        Icem(settings, streams_of([7, 8, 9]), *BOX),
        score_of(objective_of(settings, 2, 2), drift, information, start),
        3,
    )
    for m in range(3):
        alone = drift._replace(
            **{name: getattr(drift, name)[m : m + 1] for name in ("weight", "push", "variance")}
        )
        known = FeatureInformation(1, 25)
        known.load_state(
            {
                "gathered": information.gathered[m : m + 1],
                "inverse": information.inverse[m : m + 1],
                "steps": np.array(5),
            }
        )
        score = score_of(objective_of(settings, 2, 2), alone, known, start[m : m + 1])
        np.testing.assert_array_equal(
            planned(Icem(settings, streams_of([7 + m]), *BOX), score, 3)[:, 0], together[:, m]
        )


def test_a_foreign_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="members, horizon, elites and keep"):
        Icem(Planner(horizon=3), streams_of([0]), *BOX).load_state(
            Icem(Planner(), streams_of([0]), *BOX).state()
        )


def test_objectives_that_cannot_be_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"planner.goal = \[1.0\] has 1 numbers where the hidden state has 2"
    ):
        objective_of(Planner(policy="goal", goal=(1.0,)), 2, 1)
    with pytest.raises(ConfigError, match="ensemble to 2 or more"):
        objective_of(Planner(policy="disagreement"), 2, 1)
    with pytest.raises(ConfigError, match="ensemble to 2 or more"):
        objective_of(Planner(disagreement_weight=0.5), 2, 1)


def test_weights_add_up() -> None:
    drift, information, start = informed(1)
    actions = np.random.default_rng(0).uniform(-1, 1, (1, 6, 4, 2)).astype(np.float32)

    new = Novelty([0], 2)

    def worth(**settings: object) -> np.ndarray:
        return score_of(objective_of(Planner(**settings), 2, 2, new), drift, information, start)(
            actions
        )  # type: ignore[arg-type]

    both = worth(goal=(1.0, 0.5), goal_weight=0.3, action_cost=2.0)
    np.testing.assert_allclose(
        both,
        worth() + 0.3 * worth(policy="goal", goal=(1.0, 0.5)) - 2 * np.square(actions).mean((2, 3)),
        rtol=1e-6,
    )
    three = worth(policy="disagreement", information_weight=0.2, novelty_weight=3.0)
    np.testing.assert_allclose(
        three, worth(policy="disagreement") + 0.2 * worth() + 3 * worth(policy="rnd"), rtol=1e-5
    )
    np.testing.assert_allclose(
        worth(policy="disagreement", disagreement_weight=0.5),
        0.5 * worth(policy="disagreement"),
        rtol=1e-6,
    )


def test_novelty_falls_where_the_predictor_was_trained_and_goes_on_from_its_state() -> None:
    new, again = Novelty([0, 1], 2), Novelty([0, 1], 2)
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(2, 64, 2)) * 0.2
    first = new.train(seen)
    for _ in range(150):
        new.train(seen)
    again.load_state({name: value.copy() for name, value in new.state().items()})
    np.testing.assert_array_equal(new.train(seen), again.train(seen))
    assert (new.train(seen) < 0.1 * first).all()
    far = np.concatenate([seen[:, :1], seen[:, :1] + 3], 1)
    # a member's target is its seed's own
    assert np.square(new.target - Novelty([0], 2).target)[0].max() == 0
    settings = Planner(policy="rnd", horizon=1)
    drift, information, _ = informed(2)
    still = drift._replace(weight=drift.weight * 0, push=drift.push * 0)
    old, there = (
        score_of(objective_of(settings, 2, 2, new), still, information, far[:, k])(
            np.zeros((2, 1, 1, 2), np.float32)
        )
        for k in (0, 1)
    )
    assert (there > 10 * old).all()
