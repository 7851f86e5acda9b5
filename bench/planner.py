"""One plan: iCEM of 32 sequences x 10 rounds x 10 steps, five models, D-optimality, on one core.

Against the same search that judges one sequence, model and step after another (the registered
references, in NumPy or, for the network, by autograd). Equality is that of what the sequences of
one round are worth: two searches that differ in the last bit may choose another of two elites that
are worth the same. The bar of 5 ms is that of the diagonal on a 10 x 10 grid.
"""

from functools import partial
from typing import Any

import numpy as np
import torch
from measure import row

from tenfold.domains.dynamics.config import LatentModel, Planner
from tenfold.domains.dynamics.icem import Icem, Score, streams_of
from tenfold.domains.dynamics.information import FeatureInformation, Information
from tenfold.domains.dynamics.latent import LatentNetwork
from tenfold.domains.dynamics.objective import objective_of, score_of, worth_reference
from tenfold.domains.dynamics.paths import random_drift
from tenfold.domains.dynamics.planning import (
    add_step,
    network_worth,
    network_worth_reference,
    parameter_count,
)

MODELS, SEEN = 5, 50  # models of the ensemble; states visited before


class SmallNetwork(torch.nn.Module):
    """z + dt·(tanh(z·U + a·V)·W) by random weights: the action bends the drift, which no array of
    `Drift` can say."""

    def __init__(
        self, rng: np.random.Generator, members: int, models: int, size: int, hidden: int = 4
    ) -> None:
        super().__init__()
        shapes = (size, hidden), (2, hidden), (hidden, size), (1, size)
        drawn = (rng.normal(size=(members, models, *shape)).astype(np.float32) for shape in shapes)
        self.inner, self.drive, self.outer, self.raw_variance = (
            torch.nn.Parameter(torch.from_numpy(x)) for x in drawn
        )
        self.dt = 0.3

    def forward(self, z: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return z + self.dt * torch.tanh(
            z @ self.inner + a @ self.drive
        ) @ self.outer, self.raw_variance.square() + 0.1


def search(settings: Planner) -> Icem:
    return Icem(settings, streams_of([0]), -np.ones(2), np.ones(2))


def compared(
    work: str, settings: Planner, fast: Score, plain: Score, rounds: int
) -> dict[str, Any]:
    tried = (
        np.random.default_rng(1)
        .uniform(-1, 1, (1, settings.samples, settings.horizon, 2))
        .astype(np.float32)
    )
    expected, found = plain(tried), fast(tried)
    worst = float(np.abs(found - expected).max() / np.abs(expected).max())
    slow, quick = search(settings), search(settings)
    setting = {
        "work": work,
        "samples": settings.samples,
        "iterations": settings.iterations,
        "horizon": settings.horizon,
        "models": MODELS,
        "optimality": settings.optimality,
        "matrix": settings.matrix,
    }
    return row(
        "plan",
        setting,
        ("sample by sample", lambda: slow.plan(plain)),
        ("tenfold", lambda: quick.plan(fast)),
        worst < 1e-3,
        worst,
        rounds=rounds,
    )


def on_features(work: str, grid: int, matrix: str, rounds: int = 5) -> dict[str, Any]:
    settings = Planner(optimality="d", matrix=matrix, iterations=10 if matrix == "diagonal" else 1)  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    drift = random_drift(rng, 1, MODELS, 2, grid, constant=True)
    information = FeatureInformation(1, drift.weight.shape[-1], matrix)
    for _ in range(SEEN):
        information.add_step(drift, rng.normal(size=(1, 2)))
    score = score_of(
        objective_of(settings, 2, MODELS),
        drift,
        information,
        rng.normal(size=(1, 2)).astype(np.float32),
    )
    return compared(work, settings, score, partial(worth_reference, *score.args), rounds)


def on_a_network(work: str, dynamics: torch.nn.Module) -> dict[str, Any]:
    # autograd is slow
    rng, settings = np.random.default_rng(0), Planner(optimality="d", iterations=1, samples=8)
    information = Information(1, MODELS, parameter_count(dynamics))
    for _ in range(SEEN):
        add_step(information, dynamics, rng.normal(size=(1, 2)), rng.normal(size=(1, 2)))
    start = rng.normal(size=(1, 2)).astype(np.float32)
    given = objective_of(settings, 2, MODELS), dynamics, information.known(), start
    fast, plain = (partial(worth, *given) for worth in (network_worth, network_worth_reference))
    return compared(work, settings, fast, plain, rounds=1)


def plans() -> list[dict[str, Any]]:
    torch.set_num_threads(1)
    latent = LatentNetwork(20, 2, LatentModel(dynamics="mlp", ensemble=MODELS), 0.1).initialise([0])
    return [
        on_features("rbf 10 x 10, diagonal", 10, "diagonal"),
        on_features("linear, diagonal", 0, "diagonal"),
        on_features("rbf 10 x 10, full", 10, "full", rounds=1),
        on_a_network(
            "any network, 4-64-2", SmallNetwork(np.random.default_rng(0), 1, MODELS, 2, hidden=64)
        ),
        on_a_network("mlp 2-64-2", latent.dynamics),
    ]


NAMES = {"plan": plans}
