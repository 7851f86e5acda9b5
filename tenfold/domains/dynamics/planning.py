"""Choosing the next action of M members: information gathered so far, the objective of the
settings, and the search."""

from typing import Any

import numpy as np

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.system import require_memory
from tenfold.domains.dynamics.alignment import Alignment
from tenfold.domains.dynamics.config import Planner
from tenfold.domains.dynamics.dynamics import Dynamics
from tenfold.domains.dynamics.features import FeatureInformation
from tenfold.domains.dynamics.icem import Icem, streams_of
from tenfold.domains.dynamics.networks import (
    add_step,
    drift_of,
    information_of,
    judge_of,
    parameter_count,
)
from tenfold.domains.dynamics.novelty import Novelty
from tenfold.domains.dynamics.objective import novelty_weight, objective_of

NOTHING = ("random", "zero")  # policies that plan nothing
COPIES = 4  # of the whole matrix of information while it is updated


def require_matrix(planner: Planner, dynamics: Dynamics) -> None:
    """Refuses whole matrices of information that memory cannot hold, with what an update needs
    besides."""
    members, models = dynamics.raw_variance.shape[:2]
    if planner.matrix == "diagonal" or planner.policy in NOTHING:
        return
    shared = dynamics.kind != "mlp"  # by the models of an ensemble
    count, parameters = (
        members * (1 if shared else models),
        dynamics.weight.shape[-1] if shared else parameter_count(dynamics),
    )
    try:
        require_memory(count * parameters**2 * 8 * COPIES)
    except UserError:
        raise ConfigError(
            "agent.planner.matrix",
            f"= full keeps {count} matrices of {parameters:,} x {parameters:,} numbers, more than "
            "memory holds: set it to diagonal, or make the dynamics smaller.",
        ) from None


class Planning:
    """What the planner keeps between steps; a policy that plans nothing keeps nothing."""

    def __init__(
        self,
        settings: Planner,
        dynamics: Dynamics,
        seeds: list[int],
        low: np.ndarray,
        high: np.ndarray,
    ) -> None:
        self.settings, self.dynamics = settings, dynamics
        self.idle = settings.policy in NOTHING
        self.novelty: Novelty | None = None
        if self.idle:
            return
        if novelty_weight(settings):
            self.novelty = Novelty(seeds, dynamics.latent)
        _, models, size = dynamics.raw_variance.shape
        self.information = information_of(dynamics, settings.matrix, settings.forget)
        self.search = Icem(settings, streams_of(seeds), low, high)
        self.objective = objective_of(settings, size, models, self.novelty)

    def plan(self, z: np.ndarray) -> np.ndarray:
        """The next actions [M, A] from believed states [M, D]."""
        if self.novelty:  # its arrays change as it learns
            self.objective = self.objective._replace(
                target=self.novelty.target, predictor=self.novelty.predictor
            )
        return self.search.plan(judge_of(self.objective, self.dynamics, self.information, z))

    def aim(self, places: list[Alignment]) -> None:
        """The goal of the settings, which is in the coordinates that these lead to, of each
        member."""
        if not self.idle and self.objective.goal:
            goals = [place.to_learned(np.array(self.settings.goal)) for place in places]
            self.objective = self.objective._replace(place=np.stack(goals).astype(np.float32))

    def visit(self, z: np.ndarray, action: np.ndarray) -> None:
        """Steps were taken from states [M, D] with actions [M, A]: what they tell is known from now
        on."""
        if not self.idle and self.objective.information:
            add_step(self.information, self.dynamics, z, action)

    def recount(self, z: np.ndarray) -> None:
        """All steps that are remembered, from states [M, n, D] in the order of time, as the
        features are now."""
        if (
            not self.idle
            and self.objective.information
            and isinstance(self.information, FeatureInformation)
        ):
            self.information.recount(drift_of(self.dynamics), z)

    def train(self, z: np.ndarray) -> None:
        """Novelty learns that these states [M, D] are not new."""
        if self.novelty:
            self.novelty.train(z[:, None])

    def state(self) -> dict[str, np.ndarray]:
        if self.idle:
            return {}
        parts: dict[str, Any] = {"information": self.information, "search": self.search}
        if self.novelty:
            parts["novelty"] = self.novelty
        return {
            f"{part}.{name}": value
            for part, owner in parts.items()
            for name, value in owner.state().items()
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for part in (
            () if self.idle else ("information", "search", *(("novelty",) if self.novelty else ()))
        ):
            getattr(self, part).load_state(
                {
                    k.removeprefix(f"{part}."): v
                    for k, v in state.items()
                    if k.startswith(f"{part}.")
                }
            )
