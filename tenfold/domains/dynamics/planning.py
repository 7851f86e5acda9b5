"""Choosing the next action of M members: information gathered so far, the objective of the
settings, and the search."""

from functools import partial
from typing import Any

import numpy as np
import torch

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.system import require_memory
from tenfold.domains.dynamics.config import Planner
from tenfold.domains.dynamics.coordinates import Alignment
from tenfold.domains.dynamics.dynamics import Dynamics
from tenfold.domains.dynamics.icem import Icem, Score, streams_of
from tenfold.domains.dynamics.information import FeatureInformation, Information
from tenfold.domains.dynamics.networks import add_step, network_worth, parameter_count
from tenfold.domains.dynamics.novelty import Novelty
from tenfold.domains.dynamics.objective import novelty_weight, objective_of, score_of
from tenfold.domains.dynamics.paths import Drift

NOTHING = ("random", "zero")  # policies that plan nothing
COPIES = 4  # of the whole matrix of information while it is updated


def drift_of(dynamics: Any) -> Drift:
    """The arrays of dynamics of kind linear or rbf, as they are now. Copied: parameters may be
    trained while a plan is made."""

    def array(tensor: torch.Tensor) -> np.ndarray:
        return np.ascontiguousarray(tensor.detach().cpu().numpy().astype(np.float32))

    return Drift(
        array(dynamics.weight),
        array(dynamics.action_weight),
        array(dynamics.variance().squeeze(-2)),
        array(dynamics.axis if dynamics.kind == "rbf" else torch.zeros(0)),
        float(dynamics.width),
        float(dynamics.dt),
    )


def information_of(dynamics: Any, matrix: str, forget: float) -> Information:
    """What is known at first of these dynamics: of features, which an ensemble shares, or of all
    parameters of a network. Whole matrices that memory cannot hold, with what an update needs
    besides, are refused."""
    members, models = next(dynamics.parameters()).shape[:2]
    on_features = getattr(dynamics, "kind", "mlp") != "mlp"
    if on_features:
        models, parameters = 1, dynamics.weight.shape[-1]
    else:
        parameters = parameter_count(dynamics)
    try:
        require_memory(members * models * parameters**2 * 8 * COPIES if matrix == "full" else 0)
    except UserError:
        raise ConfigError(
            "agent.planner.matrix",
            f"= full keeps {members * models} matrices of {parameters:,} x {parameters:,} numbers, "
            "more than memory holds: set it to diagonal, or make the dynamics smaller.",
        ) from None
    if on_features:
        return FeatureInformation(members, parameters, matrix, forget)
    return Information(members, models, parameters, matrix, forget)


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
        self.parts: dict[str, Any] = {}  # by their names in a checkpoint
        if self.idle:
            return
        _, models, size = dynamics.raw_variance.shape
        self.information = information_of(dynamics, settings.matrix, settings.forget)
        self.search = Icem(settings, streams_of(seeds), low, high)
        self.parts = {"information": self.information, "search": self.search}
        if novelty_weight(settings):
            self.novelty = self.parts["novelty"] = Novelty(seeds, size)
        self.objective = objective_of(settings, size, models, self.novelty)

    @property
    def informed(self) -> bool:
        """Whether information counts."""
        return not self.idle and self.objective.information > 0

    def plan(self, z: np.ndarray) -> np.ndarray:
        """The next actions [M, A] from believed states [M, D]."""
        if self.novelty:  # its arrays change as it learns
            self.objective = self.objective._replace(
                target=self.novelty.target, predictor=self.novelty.predictor
            )
        return self.search.plan(self.score(z))

    def score(self, z: np.ndarray) -> Score:
        """What sequences of actions from these states are worth."""
        if isinstance(self.information, FeatureInformation):
            return score_of(self.objective, drift_of(self.dynamics), self.information, z)
        return partial(network_worth, self.objective, self.dynamics, self.information.known(), z)

    def aim(self, places: list[Alignment]) -> None:
        """The goal of the settings, which is in the coordinates that these lead to, of each
        member."""
        if not self.idle and self.objective.goal:
            goals = [place.to_learned(np.array(self.settings.goal)) for place in places]
            self.objective = self.objective._replace(place=np.stack(goals).astype(np.float32))

    def visit(self, z: np.ndarray, action: np.ndarray) -> None:
        """Steps were taken from states [M, D] with actions [M, A]: what they tell is known from now
        on."""
        if not self.informed:
            return
        if isinstance(self.information, FeatureInformation):
            self.information.add_step(drift_of(self.dynamics), z)
        else:
            add_step(self.information, self.dynamics, z, action)

    def recount(self, z: np.ndarray) -> None:
        """All steps that are remembered, from states [M, n, D] in the order of time, as the
        features are now."""
        if self.informed and isinstance(self.information, FeatureInformation):
            self.information.recount(drift_of(self.dynamics), z)

    def train(self, z: np.ndarray) -> None:
        """Novelty learns that these states [M, D] are not new."""
        if self.novelty:
            self.novelty.train(z[:, None])
