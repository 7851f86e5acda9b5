"""Rows of metrics: thousands of episodes between two log rows have not all a row of their own."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.config.run import Run
from tenfold.envs.adapter import Episode
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import KEPT, Metrics, read_rows
from tenfold.training.loop import resume, train


def test_of_many_episodes_the_latest_are_kept_and_all_are_counted(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", Run.of({})) as folder:
        metrics = Metrics(folder)
        for number in range(KEPT + 50):
            metrics.episode(number, Episode(0, float(number), 1))
        metrics.add(
            {"kind": "train", "step": KEPT + 50, "updates": 0, "timing": {}, **metrics.recent()}
        )
        size = metrics.flush()
        rows = list(read_rows(metrics.path))
        assert [row["return"] for row in rows[:-1]] == list(range(50, KEPT + 50))
        assert rows[-1]["kind"] == "train" and rows[-1]["episodes"] == KEPT + 50
        again = Metrics(folder, size, KEPT + 50)
        assert again.episodes == KEPT + 50 and again.recent() == metrics.recent()


class Moment(gym.Env[Any, Any]):
    """Every step ends an episode."""

    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(2, np.float32), 1.0, True, False, {}


gym.register("metrics/Moment-v0", Moment)


def test_a_resume_knows_of_episodes_that_have_no_row(tmp_path: Path) -> None:
    """2,500 ended since the last row of another kind, and 1,000 have rows of their own."""
    agent = {"name": "dqn", "learning_starts": 10_000, "net": {"hidden": [4]}}
    run = Run.of({"env": "metrics/Moment-v0", "agent": agent, "steps": 2_500, "eval_every": 0})
    path = train(replace(run, log_every=100_000), tmp_path / "run", quiet=True).path
    resume(path, 2_600, quiet=True)
    rows = [row for row in read_rows(path / "metrics.jsonl") if row["kind"] == "train"]
    assert [(row["step"], row["episodes"]) for row in rows] == [(2_600, 2_600)]
