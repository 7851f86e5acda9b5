"""An environment whose numbers can be worked out by hand."""

from typing import Any

import gymnasium as gym
import numpy as np


class Count(gym.Env[Any, Any]):
    """Observation t, reward t: the steps so far in this episode; it terminates after `ends`."""

    def __init__(self, ends: int = 5) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.ends, self.t = ends, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return np.full(1, self.t, np.float32), float(self.t), self.t >= self.ends, False, {}


gym.register("wrapping/Count-v0", Count)
gym.register("wrapping/Limited-v0", Count, max_episode_steps=3)
