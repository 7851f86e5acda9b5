"""An environment whose every number is known beforehand, whatever the actions are."""

from typing import Any

import gymnasium as gym
import numpy as np

ACTIONS = {
    "discrete": gym.spaces.Discrete(3),
    "box": gym.spaces.Box(-2.0, 2.0, (2,)),
    "multi": gym.spaces.MultiDiscrete([2, 3]),
}


class ClockEnv(gym.Env[Any, Any]):
    """Observes (step, episode); rewards half the step. Episode e has 7 + e mod 3 steps: odd ones
    are cut there, even ones end."""

    observation_space: gym.Space[Any] = gym.spaces.Box(-100.0, 100.0, (2,), np.float32)

    def __init__(self, actions: str = "discrete") -> None:
        self.action_space = ACTIONS[actions]
        self.step_number = self.episode = 0
        self.seeds: list[int | None] = []

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.step_number, self.episode = 0, self.episode + 1
        return self.observe(), {}

    def observe(self) -> Any:
        return np.array([self.step_number, self.episode], np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.step_number += 1
        last = self.step_number >= 7 + self.episode % 3
        odd = self.episode % 2 == 1
        info = {"odd": odd, "is_success": not odd}
        return self.observe(), self.step_number / 2, last and not odd, last and odd, info


class MaskedClock(ClockEnv):
    """Allows only the option that the step number names."""

    def action_masks(self) -> Any:
        return np.arange(3) == self.step_number % 3

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.chosen = getattr(self, "chosen", [])
        self.chosen.append(int(action) == self.step_number % 3)
        return super().step(action)


class DictClock(ClockEnv):
    """The same in a Dict, with a choice."""

    observation_space = gym.spaces.Dict(
        {"time": gym.spaces.Box(-100.0, 100.0, (2,)), "odd": gym.spaces.Discrete(2)}
    )

    def observe(self) -> Any:
        return {"time": super().observe(), "odd": self.episode % 2}
