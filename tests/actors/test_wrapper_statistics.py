"""Running statistics of observations, against means and deviations that NumPy takes of all that
environments showed: each first observation is counted and then normalised by what was counted, as
VecNormalize of Stable-Baselines3 does it."""

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tenfold.config.run import Run
from tenfold.training.learners import make_learner

SHOWN: list[list[np.ndarray]] = []  # of each environment what it showed to act on, in order


class Journal(gym.Env[Any, Any]):
    """Writes down what it shows; what ends an episode is not acted on, and is left out."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.mine: list[np.ndarray] = []
        SHOWN.append(self.mine)

    def show(self) -> np.ndarray:
        obs = self.np_random.normal([3.0, -40.0], [2.0, 10.0]).astype(np.float32)
        self.mine.append(obs)
        return obs

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.show(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        last = self.t == 3
        return np.zeros(2, np.float32) if last else self.show(), 1.0, False, last, {}


RESETS = itertools.count()


class Strained(Journal):
    """Does not come back to where it was: its numbers do not follow from the seed."""

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**given)
        self.np_random = np.random.default_rng(next(RESETS))
        return self.show(), {}


gym.register("running/Journal-v0", Journal)
gym.register("running/Strained-v0", Strained)
ROWS = 6
ROLLOUT = {"horizon": 8, "minibatches": 2, "epochs": 1, "net": {"hidden": [4]}}
REPLAY = {"learning_starts": 3, "batch_size": 4, "capacity": 90, "net": {"hidden": [4]}}
AGENTS: dict[str, dict[str, Any]] = {
    "ppo, plain": {"engine": "plain", "agent": {"name": "ppo"} | ROLLOUT},
    "ppo, fused": {"engine": "fused", "agent": {"name": "ppo"} | ROLLOUT},
    "ppo, actors": {"actors": 2, "where": "serial", "agent": {"name": "ppo"} | ROLLOUT},
    "remembering, plain": {
        "engine": "plain",
        "agent": {"name": "ppo"} | ROLLOUT | {"net": {"hidden": [4], "memory": "gru(3)"}},
    },
    "remembering, fused": {
        "engine": "fused",
        "agent": {"name": "ppo"} | ROLLOUT | {"net": {"hidden": [4], "memory": "gru(3)"}},
    },
    "dqn, plain": {"engine": "plain", "agent": {"name": "dqn"} | REPLAY},
    "dqn, fused": {"engine": "fused", "agent": {"name": "dqn"} | REPLAY},
    "dqn, actors": {"actors": 2, "where": "serial", "agent": {"name": "dqn"} | REPLAY},
    "sac, plain": {"engine": "plain", "agent": {"name": "sac"} | REPLAY},
    "sac, fused": {"engine": "fused", "agent": {"name": "sac"} | REPLAY},
    "own algorithm": {"agent": {"name": "reinforce:Reinforce"}},
}


@contextmanager
def playing(**given: Any) -> Iterator[Any]:
    SHOWN.clear()
    settings = {"env": "running/Journal-v0", "num_envs": 2, "steps": 10_000, "eval_every": 0}
    settings["env_threads"] = 1  # else one more environment is tried for a moment, and writes too
    learner = make_learner(Run.of(settings | {"normalize_obs": True} | given))
    try:
        yield learner
    finally:
        learner.close()


def play(learner: Any, rows: int) -> None:
    until = learner.step + rows * learner.envs.num_envs
    while learner.step < until:
        learner.round(until)


def expected(rows: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Before each step what all environments show, and its mean and variance with all before."""
    steps = np.array([mine[: rows + 1] for mine in SHOWN if mine], np.float64).swapaxes(0, 1)
    flat = [steps[: t + 1].reshape(-1, 2) for t in range(rows + 1)]
    return [(steps[t], rows.mean(0), rows.var(0)) for t, rows in enumerate(flat)]


@pytest.mark.parametrize("which", AGENTS)
def test_every_first_observation_is_counted_before_it_is_acted_on(
    which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("examples")
    with playing(**AGENTS[which]) as learner:
        norm, lanes = learner.agent.norm, learner.envs.num_envs
        for rows in (0, 1, ROWS):
            play(learner, rows - learner.step // lanes)
            _, mean, variance = expected(rows)[-1]
            assert norm.count[0] == lanes * (rows + 1)
            np.testing.assert_allclose(norm.mean, mean, rtol=1e-9)
            np.testing.assert_allclose(norm.variance, variance, rtol=1e-9)


@pytest.mark.parametrize("which", [name for name in AGENTS if name.startswith(("ppo", "rem"))])
def test_every_row_of_a_rollout_is_normalised_by_all_that_was_shown_so_far(which: str) -> None:
    with playing(**AGENTS[which]) as learner:
        play(learner, ROWS)
        for t, (obs, mean, variance) in enumerate(expected(ROWS)[:ROWS]):
            rows = np.clip((obs - mean) / np.sqrt(variance + 1e-8), -10, 10)
            np.testing.assert_allclose(learner.rollout.obs[t], rows, rtol=1e-5, atol=1e-5)
        assert np.abs(learner.rollout.obs[0]).max() < 2  # -40 would be cut to -10 as it comes


@pytest.mark.parametrize("agent", ["sac", "td3"])
def test_a_compiled_environment_is_counted_from_its_first_observation_on(agent: str) -> None:
    """Rounds of engine and environment in one call: what the plain engine counts, step by step."""
    found = []
    for engine in ("fused", "plain"):
        more = {"env": "tenfold/Pendulum-v1", "engine": engine, "agent": {"name": agent} | REPLAY}
        with playing(**more | {"agent": more["agent"] | {"learning_starts": 500}}) as learner:
            seen = [learner.envs.obs.copy()]
            while learner.step < 20:
                learner.round(20 if engine == "fused" else None)
                seen.append(learner.envs.obs.copy())
            found.append((learner.agent.norm, np.concatenate(seen).astype(np.float64)))
    (fused, _), (plain, seen) = found
    assert fused.count[0] == plain.count[0] == len(seen) == 22
    np.testing.assert_allclose(plain.mean, seen.mean(0), rtol=1e-9)
    np.testing.assert_allclose(plain.variance, seen.var(0), rtol=1e-9)
    np.testing.assert_allclose(fused.moments, plain.moments, rtol=1e-9)


@pytest.mark.parametrize("agent", [{"name": "ppo"} | ROLLOUT, {"name": "dqn"} | REPLAY])
def test_what_an_actor_shows_that_takes_anothers_place_is_counted(agent: dict[str, Any]) -> None:
    """Its first observation as well, and it acts by the statistics that the learner has then."""
    more = {"where": "processes", "actors": 2, "ahead": 0, "on_death": "restart"}
    with playing(agent=agent, env="tenfold/CartPole-v1", num_envs=1, **more) as learner:
        play(learner, 3)
        assert learner.agent.norm.count[0] == 8
        process = learner.pool.children[0].process
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        shown, collect = [8], learner.pool.collect

        def counted(*given: Any) -> Iterator[Any]:
            for part in collect(*given):
                shown.append(len(part.row["obs"]))
                yield part

        learner.pool.collect = counted
        while learner.step < 10:
            learner.round()
            assert learner.agent.norm.count[0] == sum(shown)
        assert sum(shown) >= 8 + 4 + 1
        if agent["name"] == "ppo":
            rollout, t = learner.rollout, learner.rollout.count[0] - 1
            value = learner.agent.values(rollout.obs[t])
            np.testing.assert_allclose(rollout.value[t], value, rtol=1e-5)


def test_environments_that_begin_anew_in_a_resume_are_counted_again() -> None:
    """As where VecNormalize goes on: environments are reset, and show something first."""
    agent = AGENTS["ppo, plain"]["agent"]
    with playing(agent=agent, engine="plain", env="running/Strained-v0") as learner:
        play(learner, 3)
        state = learner.state()
    with playing(agent=agent, engine="plain", env="running/Strained-v0") as other:
        assert other.agent.norm.count[0] == 2
        assert not other.load_state(state)
        assert other.agent.norm.count[0] == 8 + 2
