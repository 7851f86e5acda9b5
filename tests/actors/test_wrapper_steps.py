"""Repeated actions and time limits of one's own: what a step brings, what the learner makes of it,
what evaluations play."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit, TransformReward

import tenfold as ten
from tenfold.algorithms.off_policy import OffPolicyLearner
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, EnvironmentFault
from tenfold.envs.making import make_environments, time_limit
from tenfold.envs.scalar import ScalarEnvironments
from tenfold.evaluation.player import play
from tenfold.training.learners import agent_of, make_learner

COUNT = "wrapping/Count-v0"


def envs_of(**settings: object) -> ScalarEnvironments:
    run = Run.of({"env": COUNT} | settings)
    envs = make_environments(run.world, 1, 0)
    assert isinstance(envs, ScalarEnvironments)
    return envs


def steps(envs: ScalarEnvironments, count: int) -> list[tuple[float, float, bool, bool]]:
    """Of each step: observation to act on next, reward, terminated, truncated."""
    found = []
    for _ in range(count):
        envs.step(np.zeros(1, np.int64))
        seen = envs.final_obs if envs.finished else envs.obs
        found.append(
            (
                float(seen[0, 0]),
                float(envs.reward[0]),
                bool(envs.terminated[0]),
                bool(envs.truncated[0]),
            )
        )
    return found


def test_an_action_is_repeated_its_rewards_added_up_and_it_stops_where_the_episode_ends() -> None:
    """Rewards are 1, 2, 3, 4, 5 and then the end: 1 + 2, 3 + 4, 5 alone."""
    envs = envs_of(action_repeat=2)
    assert steps(envs, 3) == [(2, 3, False, False), (4, 7, False, False), (5, 5, True, False)]
    assert envs.finished[0].ret == 15 and envs.finished[0].length == 3
    assert steps(envs, 1) == [(2, 3, False, False)]  # the next episode is not touched


def test_a_repeated_action_that_its_environment_writes_into_stays_the_agents_own() -> None:
    class Spoils(gym.Env):
        observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

        def reset(self, *, seed=None, options=None):
            return np.zeros(1, np.float32), {}

        def step(self, action):
            felt = float(action[0])
            action[0] = 99
            return np.zeros(1, np.float32), felt, False, False, {}

    run = Run.of({"env": Spoils, "agent": {"name": "ppo"}, "action_repeat": 3})
    envs = make_environments(run.world, 1, 0, policy=True)
    envs.step(np.full((1, 1), 0.5, np.float32))
    assert envs.reward[0] == 1.5


def limited(steps: int) -> Any:
    """Ends by itself after 9; its limit is not the outermost wrapper."""
    return TransformReward(TimeLimit(gym.make(COUNT, ends=9), steps), lambda reward: 2 * reward)


@pytest.mark.parametrize("kind", ["function", "object"])
@pytest.mark.parametrize("limit", [2, 6])
@pytest.mark.parametrize("repeat", [1, 3])
def test_a_limit_of_ones_own_replaces_that_of_an_environment_that_is_handed_over(
    kind: str, limit: int, repeat: int
) -> None:
    """Its own is 4: a step of the agent may be several of the environment's."""
    env = limited(4) if kind == "object" else lambda: limited(4)
    more = {"env": env, "max_episode_steps": limit, "action_repeat": repeat}
    envs, length = envs_of(**more), min(limit, 9 // repeat)
    played = steps(envs, length)
    assert envs.finished[0].length == length
    assert envs.finished[0].ret == 2 * sum(range(min(limit * repeat, 9) + 1))
    assert [s[2:] for s in played[:-1]] == [(False, False)] * (length - 1)
    envs.close()


def test_an_object_has_its_own_limit_again_when_nobody_borrows_it(tmp_path: Path) -> None:
    """Evaluations borrow it from training, which goes on with the run's limit."""
    env = limited(4)
    run = {"env": env, "steps": 90, "max_episode_steps": 7, "eval_every": 30, "eval_episodes": 2}
    result = ten.train(Run.of(run | {"agent": {"name": "dqn"}}), tmp_path / "run", quiet=True)
    rows = [json.loads(line) for line in (result.path / "metrics.jsonl").read_text().splitlines()]
    assert {row["length"] for row in rows if row["kind"] == "episode"} == {7}
    assert {row["mean_return"] for row in rows if row["kind"] == "eval"} == {2 * 28}
    assert ten.evaluate(result, episodes=2).lengths == [7, 7]
    env.reset()
    assert [env.step(0)[3] for _ in range(4)] == [False, False, False, True]


def test_a_limit_of_ones_own_cuts_the_episode_and_replaces_the_registered_one() -> None:
    assert [s[2:] for s in steps(envs_of(env="wrapping/Limited-v0"), 3)][-1] == (False, True)
    longer = steps(envs_of(env="wrapping/Limited-v0", max_episode_steps=4), 4)
    assert [s[2:] for s in longer] == [(False, False)] * 3 + [(False, True)]
    # none is left where the environment ends by itself before it
    assert steps(envs_of(env="wrapping/Limited-v0", max_episode_steps=9), 5)[-1][2:] == (
        True,
        False,
    )


def test_a_limit_counts_steps_of_the_agent_and_not_repeated_actions() -> None:
    envs = envs_of(action_repeat=2, max_episode_steps=2)
    assert steps(envs, 2) == [(2, 3, False, False), (4, 7, False, True)]
    assert time_limit(Run(env=COUNT, max_episode_steps=2).world) == 2


def test_an_episode_that_is_cut_is_bootstrapped_from_its_last_observation() -> None:
    """With the value of s' beyond the limit: γ is not replaced by 0, as it is where it ends."""
    agent = {"learning_starts": 0, "batch_size": 4, "capacity": 50, "gamma": 0.9}
    run = {"env": COUNT, "agent": agent, "engine": "plain"}
    found = {}
    for limit in (4, None):
        learner = OffPolicyLearner(Run.of(run | {"max_episode_steps": limit}))
        for _ in range(5):
            learner.round()
        seen = {}
        for _ in range(60):
            b = learner.replay.sample()
            for obs, discount, then in zip(b.obs, b.discount, b.next_obs, strict=True):
                seen[float(obs[0])] = (round(float(discount), 6), float(then[0]))
        found[limit] = seen
    assert found[4][3] == (0.9, 4)  # cut after the fourth step: γ, and the true last observation
    assert found[None][3] == (0.9, 4) and found[None][4] == (0, 5)  # and by itself after the fifth


def test_a_policys_advantage_at_a_limit_uses_the_last_value() -> None:
    agent = {"name": "ppo", "horizon": 4, "minibatches": 1, "net": {"hidden": [4]}}
    run = Run.of({"env": COUNT, "agent": agent, "engine": "plain", "max_episode_steps": 3})
    learner = make_learner(run)
    for _ in range(3):
        learner.round()
    rollout = learner.rollout
    assert rollout.boundary[2, 0] == 1 and rollout.discount[2, 0] == np.float32(0.99)
    expected = learner.agent.values(np.full((1, 1), 3, np.float32))[0]
    assert rollout.next_value[2, 0] == pytest.approx(expected, abs=1e-6)


def test_the_time_of_a_step_is_that_of_all_its_repetitions() -> None:
    step_time = make_environments("Pendulum-v1(action_repeat=3)", 1, 0, True).step_time
    assert step_time == pytest.approx(0.15)  # Pendulum's dt is 0.05


def test_evaluations_play_the_same_steps_and_limits() -> None:
    run = Run.of({"env": COUNT, "action_repeat": 2, "max_episode_steps": 2})
    agent = agent_of(run)
    score = play(run.world, agent, agent.policy("greedy"), 3, 0)
    assert score.lengths == [2, 2, 2] and score.returns == [10, 10, 10]  # 1 + 2 + 3 + 4


def test_a_runs_own_evaluations_and_later_ones_do_so_too(tmp_path: Path) -> None:
    """Four rewards of the five there are: 1 + 2 + 3 + 4. What is learned from are their signs."""
    wrapped = {"action_repeat": 2, "max_episode_steps": 2, "clip_reward": "sign"}
    run = {"env": COUNT, "steps": 40, "eval_every": 20, "eval_episodes": 2} | wrapped
    ten.train(Run.of(run), out=tmp_path / "run", quiet=True)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    judged = [row["mean_return"] for row in rows if row["kind"] == "eval"]
    assert judged == [10, 10]
    assert ten.evaluate(tmp_path / "run", episodes=2).returns == [10, 10]
    assert {row["return"] for row in rows if row["kind"] == "episode"} == {10}


def test_compiled_environments_leave_their_loop_for_it_and_the_engine_says_so() -> None:
    usual = make_learner(named("dqn", {"env": "tenfold/CartPole-v1"}))
    assert usual.engine.compiled_envs and "steps outside" not in usual.engine_choice
    run = named("dqn", {"env": "tenfold/CartPole-v1", "max_episode_steps": 7})
    learner = make_learner(run)
    assert learner.engine.compiled_envs is None
    assert "tenfold/CartPole-v1 steps outside of the compiled loop" in learner.engine_choice
    lengths = [e.length for _ in range(300) for e in learner.round(200)]
    assert lengths and max(lengths) == 7


def test_what_cannot_be_is_refused_with_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"action_repeat = 0 is out of range"):
        Run(action_repeat=0)
    with pytest.raises(ConfigError, match=r"max_episode_steps = -3 is out of range"):
        Run(max_episode_steps=-3)
    with pytest.raises(ConfigError, match=r"max_episode_steps = 5 is given twice"):
        Run(env="CartPole-v1(max_episode_steps=3)", max_episode_steps=5)
    with pytest.raises(
        ConfigError, match=r"is not for tenfold/TreasureSmall-v0, which has several"
    ):
        make_learner(Run.of({"env": "tenfold/TreasureSmall-v0", "action_repeat": 2}))
    with pytest.raises(ConfigError, match=r"max_episode_steps = 9 is not for tenfold/Durotaxis-v0"):
        make_learner(
            Run.of(
                {"env": "tenfold/Durotaxis-v0", "agent": {"name": "ppo"}, "max_episode_steps": 9}
            )
        )
    with pytest.raises(EnvironmentFault, match="action_repeat must be a whole number"):
        make_environments("CartPole-v1(action_repeat=0)", 1, 0)
    with pytest.raises(EnvironmentFault, match="Taxi-v3 offers an action mask, and an action"):
        make_environments("Taxi-v3(action_repeat=2)", 1, 0)
