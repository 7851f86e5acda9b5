"""What the evaluations of a run cost: by default about a tenth of its time, counted in steps; what
was set is played; and a policy that has not changed is not played again."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import tenfold as ten
from tenfold.config.files import named, presets
from tenfold.config.run import Run
from tenfold.envs.making import time_limit
from tenfold.evaluation.evaluator import EpisodeEvaluator, greedy_note
from tenfold.runs.metrics import read_rows
from tenfold.training.loop import resume, train


class Long(gym.Env[np.ndarray, int]):
    """Ends after 60 steps, or never."""

    observation_space, action_space = (
        gym.spaces.Box(-1, 1, (1,), np.float32),
        gym.spaces.Discrete(2),
    )

    def __init__(self, endless: bool = False) -> None:
        self.endless = endless

    def reset(
        self, *, seed: Any = None, options: Any = None
    ) -> tuple[np.ndarray, dict[str, object]]:
        self.left = 60
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, object]]:
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left <= 0 and not self.endless, False, {}


gym.register("Long-v0", lambda **named: Long(**named))
gym.register("LongLimited-v0", lambda **named: Long(**named), max_episode_steps=60)
PHASES = {"horizon": 60, "epochs": 1, "minibatches": 1, "net": {"hidden": [8]}}


def phases(**more: Any) -> Run:
    """Policies that learn every 60 steps, and are evaluated every 20."""
    usual = {"env": "CartPole-v1", "steps": 200, "eval_every": 20, "eval_episodes": 1}
    usual |= {"log_every": 100, "checkpoint_every": 100, "agent": {"name": "ppo", **PHASES}}
    return Run.of(usual | more)


def evaluations(path: Path) -> list[dict[str, Any]]:
    rows = read_rows(path / "metrics.jsonl", episodes=False)
    return [row for row in rows if row["kind"] == "eval"]


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps at which episodes were played."""
    steps, play = [], EpisodeEvaluator.evaluate

    def counted(self: Any, learner: Any, *more: Any) -> Any:
        steps.append(learner.step)
        return play(self, learner, *more)

    monkeypatch.setattr(EpisodeEvaluator, "evaluate", counted)
    return steps


def test_a_policy_that_has_not_changed_is_not_played_again_and_keeps_its_row(
    tmp_path: Path, played: list[int]
) -> None:
    train(phases(), tmp_path / "run", quiet=True)
    assert played == [20, 60, 120, 180]  # the first, and after each of the three updates
    rows = evaluations(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(20, 201, 20))
    assert len({row["mean_return"] for row in rows[:2]}) == 1


def test_a_resume_does_not_play_a_policy_again_either(tmp_path: Path, played: list[int]) -> None:
    """Stopped between two evaluations of one policy."""
    train(phases(), tmp_path / "whole", quiet=True)
    train(phases(steps=100), tmp_path / "run", quiet=True)
    del played[:]
    resume(tmp_path / "run", 200, quiet=True)
    assert played == [120, 180]
    assert evaluations(tmp_path / "run") == evaluations(tmp_path / "whole")


def test_statistics_of_observations_that_moved_are_another_policy(
    tmp_path: Path, played: list[int]
) -> None:
    run = phases(agent={"name": "ppo", **PHASES, "normalize_obs": True}, engine="plain")
    train(run, tmp_path / "run", quiet=True)
    assert len(played) == 10


def test_episodes_that_are_played_otherwise_are_played_again(
    tmp_path: Path, played: list[int]
) -> None:
    train(phases(steps=100), tmp_path / "run", quiet=True)
    del played[:]
    resume(tmp_path / "run", 160, settings={"eval_policy": "sampled"}, quiet=True)
    assert played == [120] and [row["step"] for row in evaluations(tmp_path / "run")][-1] == 160


def test_episodes_that_were_set_are_all_played(
    small_run: Callable[..., Run], tmp_path: Path
) -> None:
    """More steps than any usual allowance: 100 of 60."""
    run = small_run(env="Long-v0", steps=100, eval_every=100, eval_episodes=100)
    train(run, tmp_path / "run", quiet=True)
    assert [row["episodes"] for row in evaluations(tmp_path / "run")] == [100]


def test_episodes_that_were_set_and_have_no_end_are_cut_one_by_one(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tenfold.evaluation.evaluator.LONGEST", 50)
    run = small_run(env="Long-v0(endless=true)", steps=100, eval_every=100, eval_episodes=3)
    train(run, tmp_path / "run")
    (row,) = evaluations(tmp_path / "run")
    assert (row["episodes"], row["cut"], row["mean_return"]) == (3, 3, 50.0)
    assert "takes at most 50 steps here: this one played 3 episodes, 3 of them cut" in (
        capsys.readouterr().err
    )


def test_by_default_evaluations_take_about_a_tenth_of_the_time_counted_in_steps() -> None:
    """A step of an evaluation takes longer than one of training where updates are few."""
    ppo = Run(agent=ten.PPO(), steps=200_000)
    assert (ppo.eval_every, ppo.evaluation_steps) == (50_000, 2_000)
    dqn = Run(agent=ten.DQN())
    assert (dqn.eval_every, dqn.evaluation_steps) == (10_000, 1_900)
    assert Run(agent=ten.DQN(every=4)).evaluation_steps == 1_000
    assert Run(agent=ten.SAC()).evaluation_steps == 5_000
    assert Run(agent=ten.PPO(), steps=20_000).evaluation_steps == 1_000  # of a short run
    assert Run(eval_steps=70).evaluation_steps == 70
    assert Run(eval_episodes=50).evaluation_steps is None


def test_no_preset_evaluates_for_longer_than_it_trains() -> None:
    for name in presets():
        run = named(name)
        if run.agent.name != "explorer" and run.eval_every and (limit := time_limit(run.env)):
            steps = run.evaluation_steps or run.evaluation_episodes * limit
            assert max(steps, limit) <= run.eval_every, name


def test_one_episode_is_played_to_its_end_however_little_there_is_to_spend(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenfold.config.run.LEAST_EVALUATION", 10)
    run = small_run(env="LongLimited-v0", steps=100, eval_every=100, eval_episodes=None)
    train(run, tmp_path / "run", quiet=True)
    (row,) = evaluations(tmp_path / "run")
    assert (row["episodes"], row["mean_return"], row.get("cut")) == (1, 60.0, None)


def test_the_time_limit_of_an_environment_that_is_handed_over_is_known(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("tenfold.config.run.LEAST_EVALUATION", 10)
    run = small_run(steps=100, eval_every=50, eval_episodes=None)
    ten.train(run, tmp_path / "run", env=lambda: gym.make("LongLimited-v0"))
    for row in evaluations(tmp_path / "run"):
        assert (row["episodes"], row["mean_return"], row.get("cut")) == (1, 60.0, None)
    assert "up to 10 episodes within 60 steps" in capsys.readouterr().err


def test_an_episode_whose_end_nobody_knows_is_not_cut_by_what_evaluations_may_take(
    small_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One after another: three of 60 steps begin within 130, and the third comes to its end. By
    pieces of ten at once a policy would seem to be worth 13."""
    monkeypatch.setattr("tenfold.config.run.LEAST_EVALUATION", 130)
    run = small_run(env="Long-v0", steps=50, eval_every=50, eval_episodes=None)
    train(run, tmp_path / "run", quiet=True)
    (row,) = evaluations(tmp_path / "run")
    assert (row["episodes"], row["mean_return"], row.get("cut")) == (3, 60.0, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"agent": {"name": "ppo"}, "steps": 200_000},
            "every 50,000 steps and at the end, up to 10 episodes within 2,000 steps, at most 4%",
        ),
        (
            {"agent": {"name": "ppo"}, "steps": 20_000},
            "at the end, up to 10 episodes within 1,000 steps, at most 5%",
        ),
        (
            {"eval_episodes": 50},
            "every 10,000 steps and at the end, 50 episodes of at most 500 steps, at most 250% of "
            "training's steps; fewer with a larger --eval-every or --eval-episodes of your own",
        ),
        ({"eval_every": 0}, ""),
    ],
)
def test_the_first_lines_say_what_evaluations_cost(settings: dict[str, Any], words: str) -> None:
    run = Run.of(settings)
    sentence = EpisodeEvaluator(run).cost(SimpleNamespace(run=run))
    assert sentence.startswith(f"evaluations: {words}") if words else not sentence


def test_what_evaluations_cost_is_said_before_the_first_step(
    small_run: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(small_run(steps=100), tmp_path / "run")
    said = re.findall(
        r"^evaluations: .*2 episodes of at most 500 steps", capsys.readouterr().err, re.M
    )
    assert len(said) == 1


@pytest.mark.parametrize(
    ("trained", "greedy", "how", "told"),
    [
        (-16.0, -158.0, "greedy", True),
        (-16.0, -158.0, "sampled", False),  # both are drawn
        (-158.0, -16.0, "greedy", False),  # as it should be
        (-16.0, -30.0, "greedy", False),  # within two standard errors
    ],
)
def test_a_greedy_policy_that_is_much_worse_than_training_is_pointed_to(
    tmp_path: Path, trained: float, greedy: float, how: str, told: bool
) -> None:
    rows = [
        {"kind": "train", "step": 100, "updates": 1, "return": -200.0},
        {
            "kind": "eval",
            "step": 100,
            "episodes": 10,
            "mean_return": greedy,
            "std_return": 8 * math.sqrt(10),
        },
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = Run(agent=ten.PPO(), eval_policy=how)  # type: ignore[arg-type]
    result = SimpleNamespace(run=run, path=tmp_path, mean_return=trained, episodes=100)
    expected = (
        "Note: the greedy policy returned -158.00, and training, which draws actions, -16.00: "
        "--eval-policy sampled evaluates the policy as it trains."
    )
    assert greedy_note(result, rows[1]) == expected * told
    # of few episodes of many environments: the shortest end first
    result.episodes = 1
    assert greedy_note(result, rows[1]) == ""
