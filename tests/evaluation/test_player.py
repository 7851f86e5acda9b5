"""The one player of episodes: who plays, what is watched, and how runs that ended are judged."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tenfold as ten
from tenfold.algorithms.dqn_settings import QLearning
from tenfold.cli.main import main
from tenfold.core.errors import EnvironmentFault
from tenfold.core.protocols import EvalRequest
from tenfold.core.random import Purpose, key
from tenfold.core.spaces import discrete_actions, policy_actions
from tenfold.evaluation.player import ChosenEpisodes, episode_seeds, play, random_policy
from tenfold.evaluation.video import pictures
from tenfold.training.learners import agent_of


def agent(env: str, name: str = "ppo", **settings: Any) -> Any:
    return agent_of(ten.Run.of({"env": env, "agent": {"name": name, **settings}}))


def test_an_agent_says_what_it_sees_and_how_it_plays() -> None:
    stacked, policy = agent("CartPole-v1", "dqn", frames=3), agent("CartPole-v1")
    assert (stacked.frames, stacked.reads_masks) == (3, True)
    assert (policy.frames, policy.reads_masks) == (1, True)
    rows, episode, step = np.zeros((20, 4), np.float32), np.arange(20), np.zeros(20, np.int64)
    greedy, sampled = (
        policy.policy(how)(rows, None, episode, step) for how in ("greedy", "sampled")
    )
    assert len(set(greedy.tolist())) == 1 and len(set(sampled.tolist())) == 2


def test_random_actions_are_the_same_by_their_address_and_all_of_them_come() -> None:
    stream, address = key(0, Purpose.RANDOM_POLICY), np.arange(300)
    chosen = discrete_actions(gym.spaces.Discrete(3, start=5), "a").random(stream, address)
    assert set(chosen.tolist()) == {5, 6, 7}
    mixed = policy_actions(
        gym.spaces.Tuple((gym.spaces.Discrete(3), gym.spaces.Box(-1, np.inf, (2,)))), "b"
    )
    mask = np.tile([True, False, True], (300, 1))
    rows = mixed.random(stream, address, mask)
    assert set(rows[:, 0].tolist()) == {0.0, 2.0} and np.abs(rows[:, 1:]).max() <= 1
    assert np.array_equal(mixed.random(stream, address[7:9], mask[7:9]), rows[7:9])
    assert rows[:, 1:].min() < -0.9 and rows[:, 1:].max() > 0.9


def test_a_lane_plays_the_episode_it_is_told_and_rests_where_there_is_none() -> None:
    seeds = episode_seeds(3, Purpose.EVALUATE, 4)
    envs, alone = ChosenEpisodes("CartPole-v1", 2, seeds), gym.make("CartPole-v1")
    for i, e in ((0, 0), (1, 1)):
        assert np.array_equal(envs.obs[i], alone.reset(seed=seeds[e])[0])
    envs.play(0, 3)
    assert np.array_equal(envs.obs[0], alone.reset(seed=seeds[3])[0])
    envs.play(1, 4)
    assert list(envs.playing) == [0]
    resting = envs.obs[1].copy()
    for _ in range(20):
        envs.step(np.zeros(1, np.int64))
        if envs.finished:
            break
    assert envs.finished[0].length == envs.length[0] and envs.terminated[0]
    assert np.array_equal(envs.obs[0], envs.final_obs[0])  # nothing was begun
    assert np.array_equal(envs.obs[1], resting)


@pytest.mark.parametrize("env", ["tenfold/Catch-v0", "tenfold/TreasureSmall-v0(turns=9)"])
def test_a_film_is_the_first_episode_of_the_evaluation(env: str) -> None:
    player = agent(env, "dqn")
    policy = random_policy(player, 0)
    frames, rate = pictures(env, player, policy, seed=4, limit=100)
    played = play(env, player, policy, 1, 4)
    # worlds of several agents have begun the next one by then
    assert len(frames) == 9 if "Treasure" in env else played.lengths[0] + 1
    assert rate == (7 if "Treasure" in env else 8)
    assert frames[0].dtype == np.uint8 and frames[0].shape[2] == 3


class Growing(gym.Env[np.ndarray, int]):
    """Sees more numbers than it said from its second step on."""

    observation_space, action_space = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        self.seen = 1
        return np.zeros(2, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.seen += 1
        return np.zeros(self.seen, np.float32), 0.0, False, False, {}


def test_evaluations_check_what_training_checks() -> None:
    gym.register("tests/Growing-v0", Growing)
    player = agent("tests/Growing-v0", "dqn")
    with pytest.raises(
        EnvironmentFault,
        match=r"tests/Growing-v0, evaluation, episode 0, step 2: the observation has shape \(3,\)",
    ):
        play("tests/Growing-v0", player, player.policy("greedy"), 1, 0)


class Coin:
    """An `Evaluation` of an algorithm's own."""

    def score(self, asked: EvalRequest, env: Any = None) -> str:
        return f"heads of {asked.episodes}"

    def evaluate(self, asked: EvalRequest) -> dict[str, Any]:
        return {"run": asked.path.name, "heads": asked.episodes}

    def lines(self, asked: EvalRequest, found: dict[str, Any]) -> list[str]:
        return [f"heads {found['heads']}", f"checkpoint {asked.checkpoint}"]

    def evaluate_seeds(self, asked: EvalRequest) -> dict[str, Any]:
        raise NotImplementedError

    def lines_of_seeds(self, asked: EvalRequest, found: dict[str, Any]) -> list[str]:
        raise NotImplementedError

    def conclusion(self, result: Any) -> list[str]:
        return ["the coin has landed"]

    def next_steps(self, path: Path, many: bool = False) -> str:
        return "toss it again"


def test_an_algorithm_may_judge_its_runs_in_its_own_way(
    finished_once: Path,
    small_run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(QLearning, "evaluation", lambda self: Coin())
    path = str(finished_once)
    assert main(["eval", path, "--episodes", "7", "--checkpoint", "best"]) == 0
    assert capsys.readouterr().out == "heads 7\ncheckpoint best\n"
    assert main(["eval", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"run": finished_once.name, "heads": 20}
    assert ten.evaluate(path, 3) == "heads of 3"
    out = ["--out", str(tmp_path / "run"), "--steps", "60", "--quiet"]
    assert main(["train", "dqn", *out, "--eval-every", "30"]) == 0
    assert "the coin has landed\n" in (said := capsys.readouterr().out) and "toss it again" in said
