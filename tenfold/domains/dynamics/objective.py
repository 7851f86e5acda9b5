"""What a planned path is worth, a weighted sum.

    information     gain of the dynamics' parameters along the path, mean over models (`gains`)
    disagreement    Σ_d Var_n(z_tnd), mean over steps: models that end up apart can learn there
    novelty         of the path's states, mean over steps and models
    goal            −‖z_t − goal‖², mean over steps and models
    cost            −a², mean over steps and numbers of an action

Every model follows its own path. What has no weight is not computed. Novelty is random network
distillation (Burda et al., 2019): a state is new where a trained network, the predictor, does not
yet imitate a random one, the target. Both are `ops.mlp` of the same sizes, each member's its own.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch

from tenfold.core.errors import ConfigError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.dynamics.config import Planner
from tenfold.domains.dynamics.gains import diagonal_gain, full_gain
from tenfold.domains.dynamics.information import (
    CRITERIA,
    FeatureInformation,
    PlannerState,
    random_known,
    weights_gain_reference,
)
from tenfold.domains.dynamics.paths import Drift, path, path_reference, system_examples
from tenfold.ops.activations import TANH
from tenfold.ops.adam import adam
from tenfold.ops.mlp import mlp_forward, mlp_of, parameter_count

OUTPUTS = 8  # of the random network
HIDDEN = (32, 32)
LR, EPS = 1e-3, 1e-8


# novelty


def error_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for size, samples in ((1, 1), (2, 7), (3, 32), (2, 320)):
        sizes = np.array([size, 9, 5, 4])
        target, predictor = (
            rng.normal(size=parameter_count(sizes)).astype(dtype) for _ in range(2)
        )
        yield target, predictor, sizes, rng.normal(size=(size, samples)).astype(dtype)


def novelty_reference(target, predictor, sizes, z):
    """Mean over outputs of (predictor(z) − target(z))², one state after another."""
    errors = []
    for state in torch.from_numpy(z).T:
        predicted, target_output = (
            mlp_of(torch.from_numpy(flat), sizes, TANH, state[None]) for flat in (predictor, target)
        )
        errors.append((predicted - target_output).square().mean())
    return torch.stack(errors)


@pair(novelty_reference, error_examples, rtol=1e-4, atol=1e-5)
@kernel
def novelty(target, predictor, sizes, z):
    """How new states [D, B] are to one member, [B]."""
    samples, outputs = z.shape[1], sizes[-1]
    hidden = np.empty((2, samples * sizes[1:].sum()), np.float32)
    activation = np.int64(TANH)  # typed: a literal would compile `mlp_forward` once more
    target_output = mlp_forward(target, sizes, activation, z, hidden[0])
    predicted = mlp_forward(predictor, sizes, activation, z, hidden[1])
    errors = np.zeros(samples, np.float32)
    for j in range(outputs):
        for b in range(samples):
            errors[b] += (predicted[j, b] - target_output[j, b]) ** 2 / outputs
    return errors


class Novelty(PlannerState):
    """Targets and predictors [M, P] of M members, and the predictors' optimiser. A checkpoint has
    no targets: they are drawn again from the seeds."""

    arrays, counter = ("predictor", "mean", "square"), "steps"
    depends_on = "members and latent"

    def __init__(self, seeds: list[int], size: int) -> None:
        self.sizes = np.array([size, *HIDDEN, OUTPUTS])
        count = parameter_count(self.sizes)
        self.target, self.predictor = (self.drawn(seeds, count, start) for start in (0, count))
        self.mean, self.square = (np.zeros_like(self.target) for _ in range(2))
        self.steps = 0

    def drawn(self, seeds: list[int], count: int, start: int) -> np.ndarray:
        """Uniform within ±√(3 / inputs): outputs keep the spread of inputs."""
        draws = [uniform(key(seed, Purpose.NOVELTY), start + np.arange(count)) for seed in seeds]
        layers = pairwise(self.sizes.tolist())
        scale = [np.full((into + 1) * out, np.sqrt(3 / into)) for into, out in layers]
        return ((2 * np.array(draws) - 1) * np.concatenate(scale)).astype(np.float32)

    def train(self, z: np.ndarray) -> np.ndarray:
        """One step on visited states [M, B, D]; the mean novelty before it, [M]."""
        self.steps += 1
        flat = torch.from_numpy(self.predictor).clone().requires_grad_()
        states, targets = torch.from_numpy(z.astype(np.float32)), torch.from_numpy(self.target)
        errors = [
            mlp_of(weights, self.sizes, TANH, state) - mlp_of(target, self.sizes, TANH, state)
            for weights, target, state in zip(flat, targets, states, strict=True)
        ]
        losses = torch.stack([error.square().mean() for error in errors])
        losses.sum().backward()
        assert flat.grad is not None
        mean, square = torch.from_numpy(self.mean), torch.from_numpy(self.square)
        adam(torch.from_numpy(self.predictor), flat.grad, mean, square, self.steps, LR, EPS)
        return losses.detach().double().numpy()


# the weighted sum


class Objective(NamedTuple):
    """Weights, and the arrays that parts of the sum need; those without weight are empty."""

    information: float
    disagreement: float
    novelty: float
    goal: float
    cost: float
    criterion: int
    goals: np.ndarray  # the goal, [D] or each member's own [M, D]
    target: np.ndarray  # of novelty, [M, P]
    predictor: np.ndarray
    sizes: np.ndarray


def novelty_weight(settings: Planner) -> float:
    return settings.novelty_weight or float(settings.policy == "rnd")


def objective_of(
    settings: Planner, size: int, models: int, novelty: Novelty | None = None
) -> Objective:
    """As the settings ask. `novelty` is needed where it has a weight; its arrays are not copied."""
    policy, new = settings.policy, novelty_weight(settings)
    information = settings.information_weight or float(policy == "active")
    disagreement = settings.disagreement_weight or float(policy == "disagreement")
    nearness = settings.goal_weight or float(policy == "goal")
    if nearness and len(settings.goal) != size:
        raise ConfigError(
            "planner.goal",
            f"= {list(settings.goal)} has {len(settings.goal)} numbers where the hidden state has "
            f"{size}: give one for each.",
        )
    if disagreement and models < 2:
        raise ConfigError(
            "planner.policy",
            "or its weights: disagreement needs models that can disagree: set model.ensemble to 2 "
            "or more.",
        )
    empty = np.zeros((0, 0), np.float32)
    return Objective(
        information,
        disagreement,
        new,
        nearness,
        settings.action_cost,
        CRITERIA[settings.optimality],
        np.array(settings.goal or [0.0] * size, np.float32),
        novelty.target if novelty else empty,
        novelty.predictor if novelty else empty,
        novelty.sizes if novelty else np.zeros(0, np.int64),
    )


def weighted_sum(
    objective: Objective,
    gain: np.ndarray,
    states: np.ndarray,
    actions: np.ndarray,
    newness: Callable[..., Any] = novelty,
) -> np.ndarray:
    """What paths are worth, [M, B], from their information [M, B], the states [M, N, B, H, D] that
    they lead to and their actions [M, B, H, A]."""
    members, _, samples, _, size = states.shape
    goals = np.broadcast_to(objective.goals, (members, size)).reshape(members, 1, 1, 1, size)
    worth_of_paths = (
        objective.information * gain
        + objective.disagreement * states.var(1).sum(-1).mean(-1)
        - objective.goal * np.square(states - goals).sum(-1).mean((1, 3))
        - objective.cost * np.square(actions.astype(np.float64)).mean((2, 3))
    )
    for m in range(members if objective.novelty else 0):
        networks = objective.target[m], objective.predictor[m], objective.sizes
        flat = np.ascontiguousarray(states[m].reshape(-1, size).T.astype(np.float32))
        new = np.asarray(newness(*networks, flat)).reshape(-1, samples, states.shape[3])
        worth_of_paths[m] += objective.novelty * new.mean((0, 2))
    return worth_of_paths


def worth_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Information alone and another sum, of both matrices."""
    sums = [
        (1, 0, 0, 0, 0),
        (0, 1, 0, 0, 0),
        (0, 0, 1, 0, 0),
        (0, 0, 0, 1, 0),
        (1, 1, 1, 1, 1),
        (1, 0, 0, 0.3, 0.1),
    ]
    for k, (drift, start, actions) in enumerate(system_examples(rng, dtype)):
        new = Novelty(list(range(len(start))), start.shape[1])
        goals = rng.normal(size=start.shape).astype(np.float32)
        # the whole matrix of 200 is slow 165 times
        for full in (False, True)[: 1 if drift.weight.shape[1] == 5 else 2]:
            known = random_known(rng, drift, full)
            for weights in (sums[0], sums[k]):
                arrays = goals, new.target, new.predictor, new.sizes
                objective = Objective._make((*map(float, weights), (k + full) % 2, *arrays))
                yield objective, drift, known, start, actions


def worth_reference(objective, drift, known, start, actions):
    """One model and sample after another."""
    (members, samples, horizon, _), models = actions.shape, drift.weight.shape[1]
    gain = np.zeros((members, models, samples))
    states = np.zeros((*gain.shape, horizon, start.shape[1]))
    for m, n in np.ndindex(members, models):
        state, phi, slope = path_reference(drift, m, n, start[m], actions[m].transpose(1, 2, 0))
        states[m, n] = state[1:].transpose(2, 0, 1)
        for b in range(samples if objective.information else 0):
            one = phi[..., b], slope[..., b], objective.criterion
            gain[m, n, b] = weights_gain_reference(drift, known, m, n, *one)
    return weighted_sum(objective, gain.mean(1), states, actions, novelty_reference)


# compiled


@pair(worth_reference, worth_examples, rtol=3e-4, atol=2e-5)
@kernel
def worth(objective, drift, known, start, actions):
    """What actions [M, B, H, A] from states [M, D] are worth, [M, B]. `known` is
    `FeatureInformation.known()`."""
    members, samples, horizon, controls = actions.shape
    models, size, count = drift.weight.shape[1:]
    state = np.empty((models, horizon + 1, size, samples), np.float32)
    phi, slope = (
        np.empty((horizon, count, samples), np.float32),
        np.empty((horizon, size, size, samples), np.float32),
    )
    moved = np.empty((horizon, controls, samples), np.float32)
    total = np.zeros((members, samples))
    for m in range(members):
        for t in range(horizon):
            for a in range(controls):
                for b in range(samples):
                    moved[t, a, b] = actions[m, b, t, a]
                    total[m, b] -= objective.cost * moved[t, a, b] ** 2 / (horizon * controls)
        for n in range(models):
            path(drift, m, n, start[m], moved, state[n], phi, slope)
            if objective.information:
                share, variance, dt = (
                    objective.information / models,
                    drift.variance[m, n],
                    np.float32(drift.dt),
                )
                if known.ndim == 3:
                    diagonal_gain(
                        known[m, 0], variance, dt, phi, slope, objective.criterion, share, total[m]
                    )
                else:
                    full_gain(
                        known[m, 0], variance, dt, phi, slope, objective.criterion, share, total[m]
                    )
            for t in range(1, horizon + 1):
                if objective.novelty:
                    new = novelty(
                        objective.target[m], objective.predictor[m], objective.sizes, state[n, t]
                    )
                    for b in range(samples):
                        total[m, b] += objective.novelty * new[b] / (models * horizon)
                if objective.goal:
                    for d in range(size):
                        for b in range(samples):
                            total[m, b] -= (
                                objective.goal
                                * (state[n, t, d, b] - objective.goals[m, d]) ** 2
                                / (models * horizon)
                            )
        if objective.disagreement:
            add_disagreement(state, objective.disagreement, total[m])
    return total


@kernel
def add_disagreement(state, weight, total):
    """Adds weight · (mean over steps of Σ_d Var_n) of states [N, H + 1, D, B], whose first step is
    given, to `total` [B]."""
    models, steps, size, samples = state.shape
    for t in range(1, steps):
        for d in range(size):
            for b in range(samples):
                middle, square = 0.0, 0.0
                for n in range(models):
                    middle += state[n, t, d, b] / models
                for n in range(models):
                    square += (state[n, t, d, b] - middle) ** 2 / models
                total[b] += weight * square / (steps - 1)


def score_of(
    objective: Objective, drift: Drift, information: FeatureInformation, start: np.ndarray
) -> "partial[np.ndarray]":
    """`worth` as iCEM calls it, of this objective and model, from these states."""
    members, _, size, count = drift.weight.shape
    known = information.known()
    if start.shape != (members, size) or known.shape[:3] != (members, 1, count):
        raise ValueError(
            f"states {start.shape} and information {known.shape} do not fit dynamics "
            f"{drift.weight.shape}"
        )
    # its own, in C order: what is read-only or in another order is compiled for again
    goals = np.array(np.broadcast_to(objective.goals, (members, size)), order="C")
    arguments = (
        objective._replace(goals=goals),
        drift,
        known,
        np.ascontiguousarray(start, np.float32),
    )
    return partial(worth, *arguments)
