"""How much an evaluation may take: counted in steps, so that it is the same on every machine and
after a resume."""

import re
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

from tenfold.algorithms.dqn import DQNAgent
from tenfold.algorithms.dqn_settings import DQN
from tenfold.config.networks import Net
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.layout import observation_layout
from tenfold.core.spaces import discrete_actions
from tenfold.envs.making import time_limit
from tenfold.evaluation.player import EpisodeQueue, StepBudget, play
from tenfold.runs.metrics import read_rows
from tenfold.training.loop import resume, train


class Corridor(gym.Env[np.ndarray, int]):
    """Ends after as many steps as its seed says, or never."""

    observation_space, action_space = (
        gym.spaces.Box(-1, 1, (1,), np.float32),
        gym.spaces.Discrete(2),
    )

    def __init__(self, shortest: int = 3, endless: bool = False) -> None:
        self.shortest, self.endless = shortest, endless

    def reset(
        self, *, seed: int | None = None, options: object = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        super().reset(seed=seed)
        self.left = self.shortest + int(self.np_random.integers(5))
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left <= 0 and not self.endless, False, {}


gym.register("Hallway-v0", Corridor)
ENDLESS = "Hallway-v0(endless=true)"


def agent_for(name: str) -> DQNAgent:
    env = Corridor()
    return DQNAgent(
        DQN(net=Net(hidden=(4,))),
        observation_layout(env.observation_space, name),
        discrete_actions(env.action_space, name),
        0,
    )


def played(name: str, episodes: int, allowance: StepBudget | None = None):
    agent = agent_for(name)
    return play(
        name,
        agent,
        lambda rows, mask, episode, step: agent.greedy(rows, mask),
        episodes,
        0,
        **({"budget": allowance} if allowance else {}),
    )


def test_within_its_allowance_an_evaluation_is_what_it_was() -> None:
    whole = played("Hallway-v0", 40)
    assert whole.episodes == 40 and whole.cut == 0 and set(whole.lengths) == {3, 4, 5, 6, 7}
    assert played("Hallway-v0", 40, StepBudget(sum(whole.lengths) + 7, 7)) == whole


def test_episodes_that_would_not_end_within_it_do_not_begin_and_those_that_began_count() -> None:
    whole, some = played("Hallway-v0", 40), played("Hallway-v0", 40, StepBudget(60, 7))
    assert 8 <= some.episodes < 20 and sum(some.lengths) <= 60 and some.cut == 0
    assert some.lengths == whole.lengths[: some.episodes]  # the first ones, however long
    # one always begins
    assert played("Hallway-v0(shortest=200)", 5, StepBudget(60, 210)).lengths == [60]


def test_an_episode_without_an_end_is_cut_where_the_allowance_ends() -> None:
    score = played(ENDLESS, 10, StepBudget(500))
    assert score.lengths == [50] * 10 and score.cut == 10 and score.mean_return == 50
    assert played(ENDLESS, 10, StepBudget(500, 400)).lengths == [500]


def test_lanes_are_as_many_as_may_all_come_to_their_end() -> None:
    assert [
        EpisodeQueue(10, StepBudget(5_000, length)).lanes
        for length in (0, 200, 500, 1_000, 1_600, 9_000)
    ] == [10, 10, 10, 5, 3, 1]


def test_time_limits_are_known_by_id_and_by_argument() -> None:
    limits = [
        time_limit(name)
        for name in (
            "CartPole-v1",
            "CliffWalking-v1",
            "CliffWalking-v1(max_episode_steps=200)",
            "no:Such-v0",
        )
    ]
    assert limits == [500, None, 200, None]


def test_a_run_says_once_that_evaluations_are_cut_and_resumes_as_if_it_had_not_stopped(
    small_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = small_run({"learning_starts": 10_000}, env=ENDLESS, eval_every=100, eval_steps=40)
    train(run, tmp_path / "straight")
    said = capsys.readouterr().err
    assert [note[:13] for note in re.findall("Note: (.*)", said)] == [
        "this run ends",
        "an evaluation",
    ]
    assert (
        "an evaluation takes at most 40 steps (--eval-steps): this one played 2 of 2 episodes, 2 of them cut."
        in said
    )
    rows = [
        row for row in read_rows(tmp_path / "straight" / "metrics.jsonl") if row["kind"] == "eval"
    ]
    assert [(row["episodes"], row["cut"], row["mean_return"]) for row in rows] == [(2, 2, 20.0)] * 6
    train(Run.of(to_mapping(run) | {"steps": 300}), tmp_path / "broken", quiet=True)
    resume(tmp_path / "broken", 600, quiet=True)
    assert rows == [
        row for row in read_rows(tmp_path / "broken" / "metrics.jsonl") if row["kind"] == "eval"
    ]


def test_an_environment_whose_episodes_never_end_gets_one_notice(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tenfold.training.recorder.ENDLESS", 150)
    train(small_run({"learning_starts": 10_000}, env=ENDLESS, eval_every=300), tmp_path / "run")
    notes = re.findall("Note: (.*)", capsys.readouterr().err)
    assert notes[0].startswith("this run ends at step 600, before it learns")
    assert notes[1:] == [
        f"no episode of {ENDLESS} has ended in 210 steps, and it has no time limit: there are no returns to show, and "
        "evaluations are cut; give it one, such as --max-episode-steps 1000."
    ]
