"""Choosing the next action of M members: information gathered so far, the objective of the
settings, and the search.

Dynamics that are linear in their weights are planned by their arrays (`objective`). Any other
torch module is planned here, by `torch.func`: its parameters are stacked [M, N, …], it has a float
`dt`, and called with z [M, N, B, D] and a [M, N, B, A] it returns the mean [M, N, B, D] and the
variance [M, N, 1, D] of the next state. Information is about the parameters that its mean depends
on, one after another, each flattened.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

from tenfold.core.errors import ConfigError, UserError
from tenfold.core.pairs import pair
from tenfold.core.system import require_memory
from tenfold.domains.dynamics.config import LatentModel, Planner
from tenfold.domains.dynamics.coordinates import Alignment
from tenfold.domains.dynamics.dynamics import Dynamics
from tenfold.domains.dynamics.icem import Icem, Score, streams_of
from tenfold.domains.dynamics.information import (
    D_OPTIMAL,
    FeatureInformation,
    Information,
    gain_reference,
)
from tenfold.domains.dynamics.objective import (
    Novelty,
    Objective,
    novelty_weight,
    objective_of,
    score_of,
    weighted_sum,
)
from tenfold.domains.dynamics.paths import Drift
from tenfold.ops.qlearning import tensor

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
        self.components: dict[str, Any] = {}  # by their names in a checkpoint
        if self.idle:
            return
        _, models, size = dynamics.raw_variance.shape
        self.information = information_of(dynamics, settings.matrix, settings.forget)
        self.search = Icem(settings, streams_of(seeds), low, high)
        self.components = {"information": self.information, "search": self.search}
        if novelty_weight(settings):
            self.novelty = self.components["novelty"] = Novelty(seeds, size)
        self.objective = objective_of(settings, size, models, self.novelty)

    @property
    def informed(self) -> bool:
        """Whether the objective has information in it."""
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

    def set_goals(self, maps: list[Alignment]) -> None:
        """The goal of the settings, which is in the coordinates that these lead to, of each
        member."""
        if not self.idle and self.objective.goal:
            goals = [to.to_learned(np.array(self.settings.goal)) for to in maps]
            self.objective = self.objective._replace(goals=np.stack(goals).astype(np.float32))

    def visit(self, z: np.ndarray, action: np.ndarray) -> None:
        """Adds the information of steps from states [M, D] with actions [M, A]."""
        if not self.informed:
            return
        if isinstance(self.information, FeatureInformation):
            self.information.add_step(drift_of(self.dynamics), z)
        else:
            add_step(self.information, self.dynamics, z, action)

    def recount(self, z: np.ndarray) -> None:
        """Takes the information anew from all steps in the window, from states [M, n, D] in the
        order of time, by the current features."""
        if self.informed and isinstance(self.information, FeatureInformation):
            self.information.recount(drift_of(self.dynamics), z)

    def train(self, z: np.ndarray) -> None:
        """Trains the novelty networks on visited states [M, D]."""
        if self.novelty:
            self.novelty.train(z[:, None])


# dynamics that are any network


Parameters = dict[str, torch.Tensor]
NOT_OF_THE_MEAN = "variance"  # a parameter with this in its name does not move the mean


def parameters_of(dynamics: nn.Module) -> tuple[Parameters, Parameters]:
    """Those that the mean depends on, and the others."""
    named = {name: p.detach() for name, p in dynamics.named_parameters() if p.numel()}
    rest = {name: p for name, p in named.items() if NOT_OF_THE_MEAN in name}
    return {name: p for name, p in named.items() if name not in rest}, rest


def parameter_count(dynamics: nn.Module) -> int:
    """K, for each model of each member."""
    return sum(p[0, 0].numel() for p in parameters_of(dynamics)[0].values())


def mean_of_one(
    dynamics: nn.Module, about: Parameters, rest: Parameters, z: torch.Tensor, a: torch.Tensor
) -> torch.Tensor:
    """The mean [D] of one model's step from z [D] with a [A]; parameters without their leading
    dimensions."""
    parameters = {name: p[None, None] for name, p in (about | rest).items()}
    return functional_call(dynamics, parameters, (z[None, None, None], a[None, None, None]))[0][
        0, 0, 0
    ]


def slopes_reference(dynamics, z, a):
    """By `torch.func`, of any module."""
    about, rest = parameters_of(dynamics)

    def one(about: Parameters, rest: Parameters, z: torch.Tensor, a: torch.Tensor) -> Any:
        by_parameter, by_state = jacrev(
            lambda p, s: mean_of_one(dynamics, p, rest, s, a), argnums=(0, 1)
        )(about, z)
        return by_state, torch.cat([j.flatten(1) for j in by_parameter.values()], 1)

    return vmap(vmap(vmap(one, (None, None, 0, 0))))(about, rest, z, a)


def random_dynamics(
    members: int, models: int, latent: int, hidden: tuple[int, ...], actions: int, dtype: str
) -> Dynamics:
    """Of kind mlp."""
    config = LatentModel(latent=latent, hidden=hidden, dynamics="mlp", ensemble=models)
    dynamics = Dynamics(config, actions, 0.3, members).to(getattr(torch, dtype))
    for parameter in dynamics.parameters():
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(latent))
    return dynamics


def slopes_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, models, batch, latent, hidden, actions in (
        (1, 1, 1, 1, (), 1),
        (2, 3, 5, 2, (4,), 2),
        (1, 2, 3, 3, (5, 4), 1),
    ):
        lead = members, models, batch
        z, a = tensor(rng, dtype, *lead, latent), tensor(rng, dtype, *lead, actions)
        yield random_dynamics(members, models, latent, hidden, actions, dtype), z, a


@pair(slopes_reference, slopes_examples, rtol=1e-5, atol=1e-5, dtypes=("float32", "float64"))
@torch.no_grad()
def slopes(
    dynamics: nn.Module, z: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """∂m/∂z [M, N, B, D, D] and ∂m/∂θ [M, N, B, D, K] at z [M, N, B, D] and a [M, N, B, A], all in
    one pass: by the module's own `slopes` where it has them."""
    method = getattr(dynamics, "slopes", None)
    return method(z, a) if method is not None else slopes_reference(dynamics, z, a)


def add_step(information: Information, dynamics: nn.Module, z: np.ndarray, a: np.ndarray) -> None:
    """One observed step from the states z [M, D] with actions a [M, A]."""
    first, models = next(dynamics.parameters()), information.known().shape[1]
    state, action = (
        torch.as_tensor(x).to(first)[:, None, None].expand(-1, models, -1, -1) for x in (z, a)
    )
    with torch.no_grad():
        by_parameter = slopes(dynamics, state, action)[1][:, :, 0]
        variance = dynamics(state, action)[1][:, :, 0]
    information.add(by_parameter.double().cpu().numpy(), variance.double().cpu().numpy())


# what paths are worth


def network_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    shapes = (1, 1, 1, 1, 2), (2, 3, 5, 4, 2), (1, 2, 3, 3, 3), (1, 1, 4, 2, 1)
    none = np.zeros((0, 0), np.float32)
    for k, (members, models, samples, horizon, size) in enumerate(shapes):
        dynamics = random_dynamics(members, models, size, (4,), 2, dtype)
        matrix = ("diagonal", "full")[k % 2]
        information = Information(members, models, parameter_count(dynamics), matrix)
        start = rng.normal(size=(members, size)).astype(dtype)
        add_step(information, dynamics, start, rng.normal(size=(members, 2)))
        goals = rng.normal(size=(members, size)).astype(np.float32)
        rest = k // 2, goals, none, none, np.zeros(0, np.int64)
        actions = rng.uniform(-1, 1, (members, samples, horizon, 2)).astype(dtype)
        objective = Objective(1.0, 0.5, 0.0, 0.3, 0.1, *rest)
        yield objective, dynamics, information.known(), start, actions


def network_worth_reference(objective, dynamics, known, start, actions):
    """One member, sample and model after another; the recursion with Jacobians by autograd."""
    (members, samples, horizon, controls), models = actions.shape, known.shape[1]
    gain = np.zeros((members, models, samples))
    states = np.zeros((*gain.shape, horizon, start.shape[1]))
    about, rest = parameters_of(dynamics)
    nowhere = (torch.zeros(members, models, 1, size) for size in (start.shape[1], controls))
    variance = dynamics(*nowhere)[1].detach().double().numpy()
    for m, n, b in np.ndindex(gain.shape):
        of_model, of_variance = (
            {name: p[m, n] for name, p in group.items()} for group in (about, rest)
        )
        z, s, sensitivity = torch.from_numpy(start[m]), torch.zeros(()), []
        for t, action in enumerate(torch.from_numpy(actions[m, b])):

            def mean(z, *values, of_model=of_model, of_variance=of_variance, action=action):
                return mean_of_one(
                    dynamics, dict(zip(of_model, values, strict=True)), of_variance, z, action
                )

            by_state, *by_values = torch.autograd.functional.jacobian(mean, (z, *of_model.values()))
            s = (by_state @ s if t else 0) + torch.cat([j.flatten(1) for j in by_values], 1)
            z = mean(z, *of_model.values())
            states[m, n, b, t] = z.numpy()
            sensitivity.append(s.double().numpy())
        one = known[m, n], np.array(sensitivity), variance[m, n, 0], objective.criterion
        gain[m, n, b] = gain_reference(*one)
    return weighted_sum(objective, gain.mean(1), states, actions)


@pair(network_worth_reference, network_examples, rtol=3e-4, atol=2e-5)
@torch.no_grad()
def network_worth(
    objective: Objective,
    dynamics: nn.Module,
    known: np.ndarray,
    start: np.ndarray,
    actions: np.ndarray,
) -> np.ndarray:
    """`objective.worth` for any network: every sample of every model of every member in one batched
    step after another."""
    samples, models, first = actions.shape[1], known.shape[1], next(dynamics.parameters())
    z = torch.as_tensor(start).to(first)[:, None, None].expand(-1, models, samples, -1)
    tried = torch.as_tensor(actions).to(first)[:, None].expand(-1, models, -1, -1, -1)
    s, scaled, states, gain = None, [], [], np.zeros(actions.shape[:2])
    for action in tried.unbind(3):
        if objective.information:
            by_state, by_parameter = slopes(dynamics, z, action)
            s = by_parameter if s is None else by_state @ s + by_parameter
        z, variance = dynamics(z, action)
        if s is not None:
            scaled.append(s / variance.sqrt()[..., None])
        states.append(z)
    if objective.information:
        arrays = torch.from_numpy(known).to(z.device), torch.cat(scaled, 3).double()
        gain = network_gain(*arrays, objective.criterion)
    return weighted_sum(objective, gain, torch.stack(states, 3).double().cpu().numpy(), actions)


def network_gain(known: torch.Tensor, scaled: torch.Tensor, criterion: int) -> np.ndarray:
    """Mean over models of what scaled sensitivities R [M, N, B, H·D, K] add: the equations of
    `information`."""
    if known.ndim == 3:
        added = scaled.square().sum(3)
        before = known[:, :, None]
        gain = (
            torch.log1p(added / before).sum(-1)
            if criterion == D_OPTIMAL
            else (added / (before * (before + added))).sum(-1)
        )
    else:
        left = (scaled.flatten(2, 3) @ known).view_as(scaled)  # not one copy of A⁻¹ for each path
        root = torch.linalg.cholesky(
            left @ scaled.mT + torch.eye(scaled.shape[3], dtype=scaled.dtype, device=scaled.device)
        )
        if criterion == D_OPTIMAL:
            gain = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        else:
            gain = torch.linalg.solve_triangular(root, left, upper=False).square().sum((-1, -2))
    return gain.mean(1).cpu().numpy()
