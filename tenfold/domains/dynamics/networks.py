"""Planning with dynamics that are torch modules: arrays of those linear in their weights,
`torch.func` for any other.

A module of dynamics has parameters stacked [M, N, …], a float `dt`, and called with z [M, N, B, D]
and a [M, N, B, A] returns the mean [M, N, B, D] and the variance [M, N, 1, D] of the next state.
Information is about the parameters that its mean depends on, one after another, each flattened.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

from tenfold.core.pairs import pair
from tenfold.domains.dynamics.features import FeatureInformation
from tenfold.domains.dynamics.information import D_OPTIMAL, Information, gain_reference
from tenfold.domains.dynamics.novelty import novelty
from tenfold.domains.dynamics.objective import Judge, Objective
from tenfold.domains.dynamics.paths import Drift

Parameters = dict[str, torch.Tensor]
NOT_OF_THE_MEAN = "variance"  # a parameter with this in its name does not move the mean


def drift_of(dynamics: Any) -> Drift:
    """The arrays of dynamics of kind linear or rbf, as they are now. Copied: parameters may be
    trained while a plan is made."""

    def array(tensor: torch.Tensor) -> np.ndarray:
        return np.ascontiguousarray(tensor.detach().cpu().numpy().astype(np.float32))

    axis = dynamics.axis if dynamics.kind == "rbf" else torch.zeros(0)
    return Drift(
        array(dynamics.weight),
        array(dynamics.action_weight),
        array(dynamics.variance().squeeze(-2)),
        array(axis),
        float(dynamics.width),
        float(dynamics.dt),
    )


def information_of(dynamics: Any, matrix: str, forget: float) -> Information:
    """What is known at first of these dynamics."""
    if getattr(dynamics, "kind", None) in ("linear", "rbf"):
        return FeatureInformation(
            dynamics.weight.shape[0], dynamics.weight.shape[-1], matrix, forget
        )
    members, models = next(dynamics.parameters()).shape[:2]
    return Information(members, models, parameter_count(dynamics), matrix, forget)


def judge_of(
    objective: Objective, dynamics: Any, information: Information, start: np.ndarray
) -> "Judge | NetworkJudge":
    """The compiled judge where the drift is linear in its weights, else the one that differentiates
    the network."""
    if isinstance(information, FeatureInformation):
        return Judge(objective, drift_of(dynamics), information, start)
    return NetworkJudge(objective, dynamics, information, start)


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
    own = {name: p[None, None] for name, p in (about | rest).items()}
    return functional_call(dynamics, own, (z[None, None, None], a[None, None, None]))[0][0, 0, 0]


def slopes(
    dynamics: nn.Module, z: torch.Tensor, a: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """∂m/∂z [M, N, B, D, D] and ∂m/∂θ [M, N, B, D, K] at z [M, N, B, D] and a [M, N, B, A], all in
    one pass: by the module's own `slopes` where it has them."""
    own = getattr(dynamics, "slopes", None)
    if own is not None:
        return own(z, a)
    about, rest = parameters_of(dynamics)

    def one(
        about: Parameters, rest: Parameters, z: torch.Tensor, a: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        by_parameter, by_state = jacrev(
            lambda p, s: mean_of_one(dynamics, p, rest, s, a), argnums=(0, 1)
        )(about, z)
        return by_state, torch.cat([j.flatten(1) for j in by_parameter.values()], 1)

    every = vmap(vmap(vmap(one, (None, None, 0, 0))))
    return every(about, rest, z, a)


def add_step(information: Information, dynamics: nn.Module, z: np.ndarray, a: np.ndarray) -> None:
    """One observed step from the states z [M, D] with actions a [M, A]."""
    if isinstance(information, FeatureInformation):
        information.add_step(drift_of(dynamics), z)
        return
    first = next(dynamics.parameters())
    models = information.known().shape[1]
    state, action = (
        torch.as_tensor(x).to(first)[:, None, None].expand(-1, models, -1, -1) for x in (z, a)
    )
    with torch.no_grad():
        by_parameter = slopes(dynamics, state, action)[1][:, :, 0]
        variance = dynamics(state, action)[1][:, :, 0]
    information.add(by_parameter.double().cpu().numpy(), variance.double().cpu().numpy())


# what paths are worth


class SmallNetwork(nn.Module):
    """z + dt·(tanh(z·U + a·V)·W), for the examples: the action bends the drift, which no array of
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


def network_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    shapes = (1, 1, 1, 1, 2), (2, 3, 5, 4, 2), (1, 2, 3, 3, 3), (1, 1, 4, 2, 1)
    for k, (members, models, samples, horizon, size) in enumerate(shapes):
        dynamics = SmallNetwork(rng, members, models, size)
        information = Information(
            members, models, parameter_count(dynamics), ("diagonal", "full")[k % 2]
        )
        start = rng.normal(size=(members, size)).astype(dtype)
        add_step(information, dynamics, start, rng.normal(size=(members, 2)))
        none = np.zeros((0, 0), np.float32)
        place = rng.normal(size=(members, size)).astype(np.float32)
        objective = Objective(
            1.0, 0.5, 0.0, 0.3, 0.1, k // 2, place, none, none, np.zeros(0, np.int64)
        )
        yield (
            objective,
            dynamics,
            information.known(),
            start,
            rng.uniform(-1, 1, (members, samples, horizon, 2)).astype(dtype),
        )


def network_worth_reference(objective, dynamics, known, start, actions):
    """One member, sample and model after another; the recursion with Jacobians by autograd."""
    about, rest = parameters_of(dynamics)
    found = np.zeros(actions.shape[:2])
    for m, b in np.ndindex(found.shape):
        gain, paths = [], []
        for n in range(known.shape[1]):
            own, other = ({name: p[m, n] for name, p in group.items()} for group in (about, rest))
            z, s, path, sensitivity = torch.from_numpy(start[m]), 0.0, [], []
            for action in torch.from_numpy(actions[m, b]):

                def mean(z, *values, own=own, other=other, action=action):
                    return mean_of_one(
                        dynamics, dict(zip(own, values, strict=True)), other, z, action
                    )

                by_state, *by_values = torch.autograd.functional.jacobian(mean, (z, *own.values()))
                s = (by_state @ s if path else 0) + torch.cat([j.flatten(1) for j in by_values], 1)
                z = mean(z, *own.values())
                path.append(z.numpy())
                sensitivity.append(s.double().numpy())
            nowhere = (
                torch.zeros(*known.shape[:2], 1, width) for width in (len(z), actions.shape[-1])
            )
            variance = dynamics(*nowhere)[1][m, n, 0].detach().double().numpy()
            gain.append(
                gain_reference(known[m, n], np.array(sensitivity), variance, objective.criterion)
            )
            paths.append(path)
        after = np.array(paths, np.float64)  # [N, H, D]
        found[m, b] = (
            objective.information * np.mean(gain)
            + objective.disagreement * after.var(0).sum(-1).mean()
            - objective.goal * np.square(after - objective.place[m]).sum(-1).mean()
            - objective.cost * np.square(actions[m, b]).mean()
        )
    return found


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
    members, samples, horizon, _ = actions.shape
    models, first = known.shape[1], next(dynamics.parameters())
    z = torch.as_tensor(start).to(first)[:, None, None].expand(-1, models, samples, -1)
    tried = torch.as_tensor(actions).to(first)[:, None].expand(-1, models, -1, -1, -1)
    s, scaled, states, variance = None, [], [], None
    for t in range(horizon):
        if objective.information:
            by_state, by_parameter = slopes(dynamics, z, tried[:, :, :, t])
            s = by_parameter if s is None else by_state @ s + by_parameter
        z, variance = dynamics(z, tried[:, :, :, t])
        if s is not None:
            scaled.append(s / variance.sqrt()[..., None])
        states.append(z)
    after = torch.stack(states, 3).double()  # [M, N, B, H, D]
    found = -objective.cost * np.square(actions.astype(np.float64)).mean((2, 3))
    if objective.information:
        gain = network_gain(
            torch.from_numpy(known).to(z.device), torch.cat(scaled, 3).double(), objective.criterion
        )
        found += objective.information * gain
    if objective.disagreement:
        found += objective.disagreement * after.var(1, correction=0).sum(-1).mean(-1).cpu().numpy()
    if objective.goal:
        place = np.broadcast_to(objective.place, start.shape).reshape(members, 1, 1, 1, -1)
        apart = (after - torch.tensor(place).to(after)).square().sum(-1)
        found -= objective.goal * apart.mean((1, 3)).cpu().numpy()
    if objective.novelty:
        for m in range(members):
            flat = np.ascontiguousarray(
                after[m].reshape(-1, after.shape[-1]).T.float().cpu().numpy()
            )
            new = novelty(
                objective.target[m], objective.predictor[m], objective.sizes, flat
            ).reshape(models, samples, horizon)
            found[m] += objective.novelty * new.mean((0, 2))
    return found


def network_gain(known: torch.Tensor, scaled: torch.Tensor, criterion: int) -> np.ndarray:
    """Mean over models of what scaled sensitivities R [M, N, B, H·D, K] add: the equations of
    `ops.information`."""
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


class NetworkJudge:
    """`network_worth` as iCEM calls it."""

    def __init__(
        self, objective: Objective, dynamics: nn.Module, information: Information, start: np.ndarray
    ) -> None:
        self.given = objective, dynamics, information.known(), start

    def __call__(self, actions: np.ndarray) -> np.ndarray:
        return network_worth(*self.given, actions)
