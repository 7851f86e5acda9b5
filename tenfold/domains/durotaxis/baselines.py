"""Untrained policies as baselines, on E colonies at once: random, a constant action, and one that
steers by the local gradient.

A policy takes the environments and the step's number and gives actions [E, 5]. `play` counts
successes over whole episodes.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.durotaxis.colonies import CHOICES, DurotaxisEnvironments
from tenfold.domains.durotaxis.features import NODE, NodeFeature, graph_size
from tenfold.domains.durotaxis.setting import DELETE, HIGH, LOW, REST, SPAWN, EndReason
from tenfold.evaluation.player import Score

Policy = Callable[[DurotaxisEnvironments, int], np.ndarray]
FRONT = 15.0  # right-most nodes count most: one this far behind the first counts 1/e
# radians for a relative gradient of 1: a node beside the ridge is back on it after about two steps
STEER = 1.6


def nodes_of(envs: DurotaxisEnvironments) -> tuple[np.ndarray, np.ndarray]:
    """Observed features of nodes [E, max_nodes, F], and which rows are nodes."""
    start, end = graph_size(envs.setting.max_nodes).starts[:2]
    return (
        envs.obs[:, start:end].reshape(envs.num_envs, -1, NODE),
        np.arange(envs.setting.max_nodes) < envs.obs[:, :1],
    )


def random_policy(seed: int = 0, around_half: float = 0.5) -> Policy:
    """Uniform within the limits, delete_ratio in 0.5 ± around_half; in mode nodes uniform over each
    node's legal choices.

    Over its whole range a uniform delete_ratio d ends nearly every colony: log 2(1 − d) is log 2 −
    1 in the mean, and a quarter of the colony is lost in a step.
    """
    stream = key(seed, Purpose.RANDOM_POLICY)

    def act(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
        size = envs.action.shape[1]
        u = uniform(stream, step * envs.num_envs * size + np.arange(envs.num_envs * size)).reshape(
            envs.num_envs, size
        )
        if envs.mask is None:
            u[:, 0] = 0.5 + 2 * around_half * (u[:, 0] - 0.5)
            return LOW + (HIGH - LOW) * u
        nodes = envs.setting.max_nodes
        options = envs.mask.reshape(envs.num_envs, nodes, CHOICES)
        rank = np.floor(u[:, :nodes] * options.sum(-1))  # the so-many-th of those allowed
        choice = (options.cumsum(-1) <= rank[..., None]).sum(-1)
        numbers = envs.low + (envs.high - envs.low) * u[:, nodes:]
        return np.concatenate([np.where(options.any(-1), choice, REST), numbers], 1)

    return act


def constant_policy(action: Any) -> Policy:
    row = np.asarray(action, np.float64)
    return lambda envs, step: np.tile(row, (envs.num_envs, 1))


def idle_policy(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    """Keeps the population at its target and moves as little as possible."""
    return whole_colony(
        envs, keep_population(envs), LOW[1], HIGH[2], LOW[3], np.zeros(envs.num_envs)
    )


def follower_policy(envs: DurotaxisEnvironments, step: int) -> np.ndarray:
    """Long spawn distances at the angle of the gradient at the right-most nodes; keeps the
    population near its target."""
    nodes, is_node = nodes_of(envs)
    width = envs.colonies.extent[:, :1].astype(nodes.dtype)
    x = np.where(is_node, nodes[..., NodeFeature.X] * width, -np.inf)
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
    """The delete_ratio after which the population 2(N − k) is the target."""
    return np.clip(1 - envs.setting.target / (2 * envs.obs[:, 0]), 0, 1)


def whole_colony(
    envs: DurotaxisEnvironments,
    ratio: np.ndarray,
    gamma: float,
    alpha: float,
    noise: float,
    theta: np.ndarray,
) -> np.ndarray:
    """The same numbers for every colony but ratio and angle; in mode nodes the left-most nodes
    choose to be deleted."""
    rest = np.tile([gamma, alpha, noise], (envs.num_envs, 1))
    numbers = np.concatenate([rest, theta[:, None]], 1)
    if envs.mask is None:
        return np.concatenate([ratio[:, None], numbers], 1)
    nodes, is_node = nodes_of(envs)
    x = np.where(is_node, nodes[..., NodeFeature.X], np.inf)
    rank = x.argsort(1, kind="stable").argsort(1)
    removed = rank < np.round(ratio * envs.obs[:, 0])[:, None]
    full = envs.obs[:, :1] >= envs.setting.max_nodes
    choice = np.where(removed & (envs.obs[:, :1] > 1), DELETE, np.where(full, REST, SPAWN))
    return np.concatenate([choice, np.tile(numbers, envs.setting.max_nodes)], 1)


def play(
    envs: DurotaxisEnvironments, policy: Policy, episodes: int, discount: float = 0.99
) -> Score:
    """Plays the same number of whole episodes in every colony, so that short ones do not count more
    often. The score's `infos` have `ending`, `success`, and `discounted`, Σ discount^t·reward."""
    left = np.full(envs.num_envs, -(-episodes // envs.num_envs))
    running, factor = np.zeros(envs.num_envs), np.ones(envs.num_envs)
    score, step = Score([], []), 0
    while left.any():
        envs.step(policy(envs, step))
        step += 1
        running += factor * envs.reward
        factor *= discount
        for episode in envs.finished:
            i = episode.env
            if left[i]:
                ending = EndReason(envs.ending[i]).name.lower()
                info = {"ending": ending, "success": episode.success, "discounted": running[i]}
                score.infos.append(info)
                score.returns.append(episode.ret)
                score.lengths.append(episode.length)
                left[i] -= 1
            running[i], factor[i] = 0.0, 1.0
    return score
