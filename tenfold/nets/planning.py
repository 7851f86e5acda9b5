"""Choosing the next action of M members: information gathered so far, the objective of the settings, and the search."""

from typing import Any

import numpy as np

from tenfold.errors import ConfigError
from tenfold.explorer_settings import Planner
from tenfold.nets.dynamics import Dynamics
from tenfold.ops.icem import Icem, streams_of
from tenfold.ops.information import Information
from tenfold.ops.novelty import Novelty
from tenfold.ops.objective import Judge, objective_of
from tenfold.ops.paths import Drift

NOTHING = ("random", "zero")  # policies that plan nothing


def drift_of(dynamics: Dynamics) -> Drift:
    """The dynamics as plain arrays, copied: they are the parameters of this moment."""
    weight, push, variance = (np.ascontiguousarray(x.detach().cpu().numpy())
                              for x in (dynamics.weight, dynamics.action_weight, dynamics.variance()[:, :, 0]))
    axis = dynamics.axis.cpu().numpy() if dynamics.kind == "rbf" else np.zeros(0, np.float32)
    return Drift(weight, push, variance, axis, float(dynamics.width), float(dynamics.dt))


class Planning:
    """What the planner keeps between steps; a policy that plans nothing keeps nothing."""

    def __init__(self, settings: Planner, dynamics: Dynamics, seeds: list[int], low: np.ndarray, high: np.ndarray) -> None:
        self.settings, self.dynamics = settings, dynamics
        self.idle = settings.policy in NOTHING
        self.novelty: Novelty | None = None
        if self.idle:
            return
        if dynamics.kind == "mlp":
            raise ConfigError("agent.model.dynamics", "= mlp cannot be planned with yet: use rbf or linear, or policy random.")
        if settings.policy == "rnd":
            self.novelty = Novelty(seeds, dynamics.latent)
        members, models, size, count = dynamics.weight.shape
        self.information = Information(members, models, size * count, settings.matrix, settings.forget)
        self.search = Icem(settings, streams_of(seeds), low, high)
        self.objective = objective_of(settings, size, models, self.novelty)

    def plan(self, z: np.ndarray) -> np.ndarray:
        """The next actions [M, A] from believed states [M, D]."""
        if self.novelty:  # its arrays change as it learns
            self.objective = self.objective._replace(target=self.novelty.target, predictor=self.novelty.predictor)
        return self.search.plan(Judge(self.objective, drift_of(self.dynamics), self.information, z))

    def visit(self, z: np.ndarray) -> None:
        """A step was taken from these states: what it tells is known from now on."""
        if not self.idle:
            self.information.add_step(drift_of(self.dynamics), z)

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
        return {f"{part}.{name}": value for part, owner in parts.items() for name, value in owner.state().items()}

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for part in () if self.idle else ("information", "search", *(("novelty",) if self.novelty else ())):
            getattr(self, part).load_state({k.removeprefix(f"{part}."): v for k, v in state.items() if k.startswith(f"{part}.")})
