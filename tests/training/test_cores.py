"""A run whose environments keep one core busy says how they would be stepped on more."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import pytest

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.user_envs import name_of
from tenfold.training.loop import train
from tenfold.training.profiling import CoreUse, wider


def learner_of(run: Run, one_by_one: bool = True) -> Any:
    return SimpleNamespace(
        run=run,
        step=0,
        agent=SimpleNamespace(updates=0),
        clock=SimpleNamespace(spent={"env": 0, "update": 0, "evaluate": 0}),
        envs=SimpleNamespace(one_by_one=one_by_one),
    )


def goes_on(learner: Any, steps: int, updates: int, env: float, update: float) -> None:
    """So many steps later, of so many milliseconds in each stage."""
    learner.step += steps
    learner.agent.updates += updates
    for stage, each in (("env", env), ("update", update), ("evaluate", 100.0)):
        learner.clock.spent[stage] += int(1e6 * each * steps)


SUGGESTED = (
    "environments take 80% of the time on one core, 4 ms a step, and this process may use 16 cores: "
    "a run with --actors 8 steps them in 8 processes"
)


@pytest.fixture
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


@pytest.mark.usefixtures("sixteen")
def test_slow_environments_on_one_core_are_said_once_when_updates_have_their_share() -> None:
    learner = learner_of(Run())
    use = CoreUse(learner)
    goes_on(learner, 500, 0, 4.0, 0.0)  # before learning begins: 100 %
    assert use.early() == ""
    goes_on(learner, 500, 100, 4.0, 0.1)
    assert use.early() == ""
    goes_on(learner, 500, 50, 4.0, 1.0)
    assert use.early() == ""  # half as many updates as there had been
    goes_on(learner, 500, 50, 4.0, 1.0)
    assert use.early() == SUGGESTED  # 4 of 5 ms of a step; evaluations are none of it
    goes_on(learner, 500, 100, 4.0, 1.0)
    assert use.early() == "" and use.final() == SUGGESTED


@pytest.mark.usefixtures("sixteen")
@pytest.mark.parametrize(
    ("settings", "env", "update", "one_by_one"),
    [
        ({"num_envs": 4}, 4.0, 5.0, True),  # learning takes longer
        ({"num_envs": 1}, 0.2, 0.05, True),  # too short for a process
        ({"num_envs": 4}, 4.0, 1.0, False),  # compiled, or on threads of their own
        ({"actors": 2, "where": "serial"}, 4.0, 1.0, True),
    ],
)
def test_who_would_not_be_faster_is_left_alone(
    settings: dict[str, Any], env: float, update: float, one_by_one: bool
) -> None:
    learner = learner_of(Run(**settings), one_by_one)
    use = CoreUse(learner)
    goes_on(learner, 1000, 1000, env, update)
    assert use.final() == ""


def test_environments_are_divided_as_far_as_cores_go() -> None:
    def divided(cores: int, **settings: Any) -> tuple[int, int] | None:
        run = wider(Run(**settings), cores)
        return run and (run.actors, run.num_envs)

    assert divided(16, num_envs=4) == (4, 1)
    assert divided(2, num_envs=4) == (2, 2)
    assert divided(4, num_envs=6) == (4, 1)
    assert divided(16) == (8, 1) and divided(2) == (2, 1)
    assert divided(1, num_envs=4) is None
    assert divided(16, env=name_of(gym.make("CartPole-v1"))) is None  # there is but this one
    assert divided(16, agent="explorer", env="tenfold/LimitCycle-v0") is None


@pytest.mark.usefixtures("sixteen")
def test_a_run_says_it_at_its_end(
    small_run: Callable[..., Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(CoreUse, "suggestion", lambda use, before, now: f"from {before.step:,}")
    train(small_run(log_every=100), tmp_path / "run", report=False)
    lines = capsys.readouterr().err.splitlines()
    assert lines.count("Note: from 100.") == 2 and lines[-1] == "Note: from 100."


@pytest.mark.parametrize("word", ["vec_env", "SubprocVecEnv", "n_jobs", "num_workers"])
def test_words_for_environments_in_processes_are_answered_with_actors(
    word: str, here: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match="actors"):
        Run.of({word: 4})
    for written in (word, word.replace("_", "-")):
        answer = here("train", "dqn", f"--{written}", "4")
        assert answer.returncode == 2 and "--actors" in answer.stderr
