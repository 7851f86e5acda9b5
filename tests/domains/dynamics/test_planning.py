"""Planning with torch modules: Jacobians, information, and the choice between arrays and
networks."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tenfold.domains.dynamics.config import LatentModel, Planner
from tenfold.domains.dynamics.icem import Icem, streams_of
from tenfold.domains.dynamics.information import FeatureInformation, Information
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.objective import Novelty, objective_of, score_of, worth
from tenfold.domains.dynamics.paths import random_drift
from tenfold.domains.dynamics.planning import (
    Planning,
    add_step,
    drift_of,
    information_of,
    mean_of_one,
    network_worth,
    parameter_count,
    parameters_of,
    slopes,
)


class SmallNetwork(nn.Module):
    """z + dt·(tanh(z·U + a·V)·W), by random weights: the action bends the drift, which no array of
    `Drift` can say."""

    def __init__(
        self, rng: np.random.Generator, members: int, models: int, size: int, hidden: int = 4
    ) -> None:
        super().__init__()
        shapes = (size, hidden), (2, hidden), (hidden, size), (1, size)
        drawn = (rng.normal(size=(members, models, *shape)).astype(np.float32) for shape in shapes)
        self.inner, self.drive, self.outer, self.raw_variance = (
            nn.Parameter(torch.from_numpy(x)) for x in drawn
        )
        self.dt = 0.3

    def forward(self, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return z + self.dt * torch.tanh(
            z @ self.inner + a @ self.drive
        ) @ self.outer, self.raw_variance.square() + 0.1


def network(members: int = 2, models: int = 3) -> SmallNetwork:
    return SmallNetwork(np.random.default_rng(0), members, models, 2)


def test_slopes_are_the_finite_differences() -> None:
    dynamics = network().double()
    rng = np.random.default_rng(1)
    z, a = (torch.from_numpy(rng.normal(size=(2, 3, 4, 2))) for _ in range(2))
    by_state, by_parameter = slopes(dynamics, z, a)
    assert by_state.shape == (2, 3, 4, 2, 2) and by_parameter.shape == (
        2,
        3,
        4,
        2,
        parameter_count(dynamics),
    ) == (2, 3, 4, 2, 24)
    about, rest = ({k: p[1, 2] for k, p in group.items()} for group in parameters_of(dynamics))
    flat, tiny = torch.cat([p.flatten() for p in about.values()]), 1e-6

    def mean(theta: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        parts = theta.split([p.numel() for p in about.values()])
        return mean_of_one(
            dynamics,
            {k: part.view_as(p) for (k, p), part in zip(about.items(), parts, strict=True)},
            rest,
            state,
            a[1, 2, 3],
        )

    for q, e in enumerate(torch.eye(24, dtype=torch.float64) * tiny):
        numeric = (mean(flat + e, z[1, 2, 3]) - mean(flat - e, z[1, 2, 3])) / (2 * tiny)
        torch.testing.assert_close(by_parameter[1, 2, 3, :, q], numeric, rtol=1e-6, atol=1e-8)
    for k, e in enumerate(torch.eye(2, dtype=torch.float64) * tiny):
        numeric = (mean(flat, z[1, 2, 3] + e) - mean(flat, z[1, 2, 3] - e)) / (2 * tiny)
        torch.testing.assert_close(by_state[1, 2, 3, :, k], numeric, rtol=1e-6, atol=1e-8)


def test_slopes_that_a_module_brings_along_are_those_of_autograd() -> None:
    """In the same order: what is known of parameters is kept by it."""
    dynamics = (
        LatentNetwork(5, 2, LatentModel(dynamics="mlp", hidden=(4, 3), ensemble=3), 0.1, 2)
        .initialise([0, 1])
        .dynamics
    )
    z, a = torch.randn(2, 2, 3, 4, 2, generator=torch.Generator().manual_seed(0))
    found = slopes(dynamics, z, a)
    about, rest = parameters_of(dynamics)
    for m, n, b in np.ndindex(2, 3, 4):
        own, other = ({k: p[m, n] for k, p in group.items()} for group in (about, rest))
        by_parameter, by_state = torch.func.jacrev(
            lambda p, s, other=other, act=a[m, n, b]: mean_of_one(dynamics, p, other, s, act),
            argnums=(0, 1),
        )(own, z[m, n, b])
        torch.testing.assert_close(found[0][m, n, b], by_state)
        torch.testing.assert_close(
            found[1][m, n, b], torch.cat([j.flatten(1) for j in by_parameter.values()], 1)
        )


def test_an_observed_step_of_a_network_adds_the_square_of_its_slopes() -> None:
    dynamics, z, a = network(), np.ones((2, 2)), np.zeros((2, 2))
    information = information_of(dynamics, "diagonal", 1.0)
    add_step(information, dynamics, z, a)
    state = torch.ones(2, 3, 1, 2)
    _, by_parameter = slopes(dynamics, state, state * 0)
    _, variance = dynamics(state, state * 0)
    expected = 1 + (by_parameter[:, :, 0].square() / variance[:, :, 0, :, None]).sum(2)
    np.testing.assert_allclose(information.known(), expected.detach().numpy(), rtol=1e-5)


@pytest.mark.parametrize("policy", ["active", "disagreement", "rnd", "goal"])
def test_a_network_plans_and_a_member_plans_what_it_plans_alone(policy: str) -> None:
    dynamics = network(members=2)
    settings = Planner(policy=policy, goal=(1.0, 1.0), horizon=3, samples=6, elites=2, iterations=2)  # type: ignore[arg-type]
    start = np.array([[0.5, 0.1], [-1.0, 0.3]], np.float32)

    def actions(dynamics: SmallNetwork, seeds: list[int], start: np.ndarray) -> np.ndarray:
        information = information_of(dynamics, "full", 0.99)
        add_step(information, dynamics, start, np.zeros((len(seeds), 2)))
        objective = objective_of(settings, 2, 3, Novelty(seeds, 2))
        score = partial(network_worth, objective, dynamics, information.known(), start)
        search = Icem(settings, streams_of(seeds), -np.ones(2), np.ones(2))
        return np.stack([search.plan(score) for _ in range(2)])

    together = actions(dynamics, [5, 6], start)
    assert (np.abs(together) <= 1).all() and together.any()
    for m in range(2):
        alone = network(members=1)
        with torch.no_grad():
            for own, whole in zip(alone.parameters(), dynamics.parameters(), strict=True):
                own.copy_(whole[m : m + 1])
        np.testing.assert_allclose(
            actions(alone, [5 + m], start[m : m + 1])[:, 0], together[:, m], atol=1e-5
        )


def test_dynamics_on_features_are_planned_by_their_arrays() -> None:
    """Those of kind mlp as any network."""
    for kind in ("rbf", "linear", "mlp"):
        model = LatentModel(dynamics=kind, grid=4, ensemble=3, hidden=(4,))
        dynamics = LatentNetwork(5, 2, model, 0.1, 2).initialise([0, 1]).dynamics
        planning = Planning(Planner(), dynamics, [0, 1], -np.ones(2), np.ones(2))
        score: Any = planning.score(np.zeros((2, 2), np.float32))
        if kind == "mlp":
            assert not isinstance(planning.information, FeatureInformation)
            assert score.func is network_worth
            continue
        assert isinstance(planning.information, FeatureInformation) and score.func is worth
        count = 16 if kind == "rbf" else 3
        assert planning.information.known().shape == (2, 1, count, count)
        drift = drift_of(dynamics)
        arrays = dynamics.weight, dynamics.action_weight, dynamics.variance()[:, :, 0]
        for found, expected in zip(drift, arrays, strict=False):
            np.testing.assert_array_equal(found, expected.detach().numpy())
        assert len(drift.axis) == (4 if kind == "rbf" else 0)
        assert (drift.width, drift.dt) == (dynamics.width, 0.1)


def test_information_that_does_not_fit_the_dynamics_is_refused() -> None:
    drift = random_drift(np.random.default_rng(0), 1, 1, 2, 4)
    with pytest.raises(ValueError, match="do not fit dynamics"):
        score_of(
            objective_of(Planner(), 2, 1),
            drift,
            FeatureInformation(1, 9),
            np.zeros((1, 2), np.float32),
        )
    assert Information(1, 1, 3).known().shape == (1, 1, 3)
