"""A domain of your own: an environment, the evaluation of runs in it, and a section of their page.

    tenfold train dqn --env orchard:Orchard-v0 --steps 20k && tenfold eval

Run it where this file is. `tenfold eval` then says how many apples were picked, and the report
shows it.
"""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import tenfold as ten
from tenfold.runs.page import Section, table

TREES = 8


class Orchard(gym.Env[np.ndarray, int]):
    """A row of trees: wait, or pick the tree in front. Ripe apples are worth 1, unripe ones cost
    half of that."""

    observation_space = gym.spaces.Box(0, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.ripe, self.at, self.picked = self.np_random.random(TREES) < 0.5, 0, 0
        return self.observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        reward = (1.0 if self.ripe[self.at] else -0.5) if action else 0.0
        self.picked += bool(action and self.ripe[self.at])
        self.at += 1
        over = self.at == TREES
        info = {"picked": self.picked, "ripe": int(self.ripe.sum())} if over else {}
        return self.observe(), reward, over, False, info

    def observe(self) -> np.ndarray:
        ripe = self.ripe[self.at] if self.at < TREES else 0
        return np.array([ripe, self.at / TREES], np.float32)


class Orchards(ten.Domain):
    """Runs in orchards are evaluated by the share of ripe apples that were picked."""

    name, title = "orchard", "orchards"
    registered = {"Orchard-v0": {"entry_point": "orchard:Orchard"}}

    def evaluate(self, played: Any) -> dict[str, Any]:
        ends = played.score.infos
        share = sum(end["picked"] for end in ends) / max(sum(end["ripe"] for end in ends), 1)
        (played.path / "apples.json").write_text(json.dumps(share))
        return {"picked_share": share}

    def lines(self, results: dict[str, Any]) -> list[str]:
        return [f"  picked   {results['picked_share']:10.1%} of the ripe apples"]

    def sections(self, path: Path, rows: list[dict[str, Any]]) -> list[Section]:
        if not (path / "apples.json").exists():
            return []
        share = json.loads((path / "apples.json").read_text())
        return [Section("Apples", table({"picked of the ripe ones": f"{share:.1%}"}))]


ten.register_domain(Orchards())
