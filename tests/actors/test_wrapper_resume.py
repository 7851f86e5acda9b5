"""With every wrapper: what was saved and loaded goes on as if nothing had happened, bit for bit;
actors in processes equal those in this one."""

from typing import Any

import numpy as np
import pytest

from tenfold.config.run import Run
from tenfold.runs.checkpoint import flat_state
from tenfold.training.learners import make_learner

DQN = {
    "learning_starts": 20,
    "batch_size": 8,
    "capacity": 300,
    "every": 4,  # rounds without an update, whose statistics are acted by all the same
    "explore": "epsilon(0.2)",
    "net": {"hidden": [8]},
}
SAC = {
    "name": "sac",
    "learning_starts": 20,
    "batch_size": 8,
    "capacity": 300,
    "every": 4,
    "net": {"hidden": [8]},
}
PPO = {"name": "ppo", "horizon": 16, "minibatches": 2, "epochs": 1, "net": {"hidden": [8]}}
OWN = {"name": "reinforce:Reinforce"}
WRAPPERS: dict[str, dict[str, Any]] = {
    "frames": {"frames": 3},
    "normalize_obs": {"normalize_obs": True},
    "normalize_reward": {"normalize_reward": True},
    "clip_reward": {"clip_reward": "sign"},
    "max_episode_steps": {"max_episode_steps": 13},
    "action_repeat": {"action_repeat": 3},
}
ALL = {name: value for one in WRAPPERS.values() for name, value in one.items()}


def play(learner: Any, steps: int) -> None:
    while learner.step < steps:
        learner.round(steps)


def contents(learner: Any) -> dict[str, np.ndarray]:
    """All that decides what comes next, replay rows included."""
    learner.settle()
    found = {name: np.array(value) for name, value in flat_state(learner.state()).items()}
    if learner.rows:
        found |= learner.rows.written(np.zeros_like(learner.rows.head))
    return found


def different(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> list[str]:
    assert one.keys() == other.keys()
    return [name for name in one if not np.array_equal(one[name], other[name], equal_nan=True)]


def again(learner: Any) -> Any:
    """Another learner that was given the state of this one."""
    learner.settle()
    other = make_learner(learner.run)
    if learner.rows:
        other.load_rows(learner.rows.written(np.zeros_like(learner.rows.head)))
    state = {part: dict(values) for part, values in learner.state().items()}
    assert other.load_state(state)
    return other


@pytest.mark.parametrize("wrapper", [*WRAPPERS, "all"])
@pytest.mark.parametrize("agent", [DQN, PPO, SAC], ids=["dqn", "ppo", "sac"])
def test_a_run_that_was_saved_and_loaded_equals_one_that_never_stopped(
    agent: dict[str, Any], wrapper: str
) -> None:
    more = ALL if wrapper == "all" else WRAPPERS[wrapper]
    run = Run.of({"env": "CartPole-v1", "agent": agent, "num_envs": 2, "engine": "auto"} | more)
    straight = make_learner(run)
    play(straight, 150)  # in the middle of episodes, and of a rollout
    resumed = again(straight)
    play(straight, 260)
    play(resumed, 260)
    assert different(contents(straight), contents(resumed)) == []


@pytest.mark.parametrize("agent", [DQN, PPO, SAC], ids=["dqn", "ppo", "sac"])
def test_statistics_are_the_learners_where_actors_are_in_processes(agent: dict[str, Any]) -> None:
    case = {"env": "CartPole-v1", "agent": agent, "num_envs": 2, "actors": 2, "ahead": 0} | ALL
    found = []
    for where in ("serial", "processes"):
        learner = make_learner(Run.of(case | {"where": where, "steps": 120}))
        try:
            play(learner, 120)
            found.append(contents(learner))
            form, norm = learner.rewards, learner.agent.norm
            assert form.norm.count[0] == 120 and norm.count[0] == 120 + 4
        finally:
            learner.close()
    assert different(*found) == []


@pytest.mark.parametrize("where", ["serial", "processes"])
def test_what_an_actor_brings_is_rewarded_once_and_lane_by_lane(where: str) -> None:
    """Every reward is 1. Of two actors with an environment each the running returns at the first
    row are 1 and 1, of which the second is the first's equal: no deviation, so 10 and 10; at the
    second 1.99 and 1.99."""
    case = {"env": "CartPole-v1", "agent": PPO | {"horizon": 40}, "normalize_reward": True}
    learner = make_learner(Run.of(case | {"steps": 4, "where": where, "actors": 2}))
    try:
        play(learner, 4)
        assert learner.rewards.returns.tolist() == [1.99, 1.99]
        # after the third return there are 1, 1, 1.99, after the fourth 1, 1, 1.99, 1.99
        deviations = np.std([1, 1, 1.99]), np.std([1, 1, 1.99, 1.99])
        expected = [[10, 10], [1 / deviations[0], 1 / deviations[1]]]
        np.testing.assert_allclose(learner.rollout.reward[:2], expected, rtol=1e-6)
    finally:
        learner.close()


def test_an_algorithm_of_ones_own_has_them_without_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend("examples")
    run = Run.of({"env": "CartPole-v1", "agent": OWN} | ALL)
    straight = make_learner(run)
    play(straight, 150)
    resumed = again(straight)
    play(straight, 260)
    play(resumed, 260)
    assert different(contents(straight), contents(resumed)) == []
    assert straight.agent.norm.count[0] == 261 and straight.agent.frames == 3
