"""Policies that nobody trained, on E colonies at once: random, a constant action, and one that
steers by the local gradient.

A policy takes the environments and the step's number and gives actions [E, 5]. `play` counts
successes over whole episodes.
"""

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.durotaxis.colonies import CHOICES, DurotaxisEnvironments
from tenfold.domains.durotaxis.features import NODE, NodeFeature, graph_size
from tenfold.domains.durotaxis.setting import DELETE, HIGH, LOW, REST, SPAWN, Ending

Policy = Callable[[DurotaxisEnvironments, int], np.ndarray]
FRONT = 15.0  # right-most nodes count most: one this far behind the first counts 1/e
# radians for a relative gradient of 1: a node beside the ridge is back on it after about two steps
STEER = 1.6
GRID = {
    "delete_ratio": (0.45, 0.48, 0.5, 0.52),
    "gamma": (10.0, 15.0),
    "alpha": (0.5, 2.0),
    "noise": (0.05, 0.5),
    "theta": (-0.2, -0.1, -0.05, 0.0, 0.05, 0.1, 0.2),
}


@dataclass(frozen=True)
class Score:
    """Of whole episodes: `steps` is the mean number to the goal (None where it was never reached),
    `discounted` the mean of Σ 0.99^t·reward."""

    episodes: int
    success: float
    steps: float | None
    ret: float
    discounted: float
    endings: dict[str, float]


def nodes_of(envs: DurotaxisEnvironments) -> tuple[np.ndarray, np.ndarray]:
    """Features of nodes [E, max_nodes, F] as they are seen, and which rows are nodes."""
    start, end = graph_size(envs.setting.max_nodes).starts[:2]
    return (
        envs.obs[:, start:end].reshape(envs.num_envs, -1, NODE),
        np.arange(envs.setting.max_nodes) < envs.obs[:, :1],
    )


def random_policy(seed: int = 0, around_half: float = 0.5) -> Policy:
    """Uniform in the ranges, delete_ratio in 0.5 ± around_half; in mode nodes uniform over what
    each node may choose.

    Over its whole range a uniform delete_ratio d ends nearly every colony: log 2(1 − d) is log 2 −
    1 in the mean, and a quarter of the colony is lost in a step.
    """
    stream = key(seed, Purpose.RANDOM_POLICY)

    def act(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
        size = envs.action.shape[1] if envs.mask is not None else len(LOW)
        u = uniform(stream, step * envs.num_envs * size + np.arange(envs.num_envs * size)).reshape(
            envs.num_envs, size
        )
        if envs.mask is None:
            u[:, 0] = 0.5 + 2 * around_half * (u[:, 0] - 0.5)
            return LOW + (HIGH - LOW) * u
        nodes = envs.setting.max_nodes
        options = envs.mask.reshape(envs.num_envs, nodes, CHOICES)
        wanted = np.floor(u[:, :nodes] * options.sum(-1))  # the so-many-th of those allowed
        chosen = (options.cumsum(-1) <= wanted[..., None]).sum(-1)
        numbers = np.tile(LOW[1:], nodes) + np.tile(HIGH[1:] - LOW[1:], nodes) * u[:, nodes:]
        return np.concatenate([np.where(options.any(-1), chosen, REST), numbers], 1)

    return act


def constant_policy(action: Any) -> Policy:
    row = np.asarray(action, np.float64)
    return lambda envs, step: np.tile(row, (envs.num_envs, 1))


def idle_policy(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    """Keeps the population at its target and moves as little as it can: what pays for staying, and
    for nothing else."""
    return whole_colony(
        envs, keep_population(envs), LOW[1], HIGH[2], LOW[3], np.zeros(envs.num_envs)
    )


def follower_policy(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    """Far spawns, steered by the gradient at the right-most nodes; so many deletions that the
    population is near its target."""
    nodes, there = nodes_of(envs)
    x = np.where(there, nodes[..., NodeFeature.X] * envs.rules.width, -np.inf)
    weight = np.exp((x - x.max(1, keepdims=True)) / FRONT)
    gradient = (weight * nodes[..., NodeFeature.GY]).sum(1) / weight.sum(1)
    return whole_colony(
        envs,
        keep_population(envs),
        HIGH[1],
        LOW[2],
        HIGH[3],
        np.clip(STEER * gradient, LOW[4], HIGH[4]),
    )


def keep_population(envs: DurotaxisEnvironments) -> np.ndarray:
    """The ratio after which 2(N − k) is the target."""
    return np.clip(1 - envs.setting.target / (2 * envs.obs[:, 0]), 0, 1)


def whole_colony(
    envs: DurotaxisEnvironments,
    ratio: np.ndarray,
    gamma: float,
    alpha: float,
    noise: float,
    theta: np.ndarray,
) -> np.ndarray:
    """The same numbers for every colony but for ratio and angle; in mode nodes the left-most share
    is deleted by choice."""
    rest = np.tile([gamma, alpha, noise], (envs.num_envs, 1))
    numbers = np.concatenate([rest, theta[:, None]], 1)
    if envs.mask is None:
        return np.concatenate([ratio[:, None], numbers], 1)
    nodes, there = nodes_of(envs)
    x = np.where(there, nodes[..., NodeFeature.X], np.inf)
    rank = x.argsort(1, kind="stable").argsort(1)
    doomed = rank < np.round(ratio * envs.obs[:, 0])[:, None]
    full = envs.obs[:, :1] >= envs.setting.max_nodes
    choice = np.where(doomed & (envs.obs[:, :1] > 1), DELETE, np.where(full, REST, SPAWN))
    return np.concatenate([choice, np.tile(numbers, envs.setting.max_nodes)], 1)


def play(
    envs: DurotaxisEnvironments, policy: Policy, episodes: int, discount: float = 0.99
) -> Score:
    """The same number of whole episodes from every colony, so that short ones do not count more
    often."""
    each = -(-episodes // envs.num_envs)
    left = np.full(envs.num_envs, each)
    running, factor = np.zeros(envs.num_envs), np.ones(envs.num_envs)
    rows, step = [], 0
    while left.any():
        envs.step(policy(envs, step))
        step += 1
        running += factor * envs.reward
        factor *= discount
        for episode in envs.finished:
            i = episode.env
            if left[i]:
                rows.append((int(envs.ending[i]), episode.length, episode.ret, running[i]))
                left[i] -= 1
            running[i], factor[i] = 0.0, 1.0
    endings = np.array([row[0] for row in rows])
    lengths, returns, discounted = np.array([row[1:] for row in rows]).T
    won = endings == Ending.GOAL
    return Score(
        len(rows),
        float(won.mean()),
        float(lengths[won].mean()) if won.any() else None,
        float(returns.mean()),
        float(discounted.mean()),
        {e.name.lower(): float((endings == e).mean()) for e in Ending if (endings == e).any()},
    )


def best_constant(name: str, seed: int = 0, episodes: int = 64) -> tuple[dict[str, float], Score]:
    """By grid search over GRID: the highest rate of success, then the fewest steps. Play it again
    on other seeds to score it."""
    found: list[tuple[tuple[float, float], dict[str, float], Score]] = []
    for values in itertools.product(*GRID.values()):
        score = play(
            DurotaxisEnvironments(name, min(episodes, 64), seed), constant_policy(values), episodes
        )
        found.append(
            ((-score.success, score.steps or 0.0), dict(zip(GRID, values, strict=True)), score)
        )
    _, action, score = min(found, key=lambda one: one[0])
    return action, score


def as_row(policy: str, name: str, score: Score) -> dict[str, Any]:
    return {"policy": policy, "env": name, **asdict(score)}
