"""An environment with every kind of observation, action, mask and end, for processes that import
it by name."""

import os
from typing import Any

import gymnasium as gym
import numpy as np

spaces = gym.spaces
OBSERVATIONS = {
    "vector": spaces.Box(-9, 9, (3,), np.float32),
    "image": spaces.Box(0, 255, (6, 5, 2), np.uint8),
    "number": spaces.Discrete(7),
    "nested": spaces.Dict(
        {
            "a": spaces.Box(-9, 9, (2, 2)),
            "b": spaces.Tuple((spaces.Discrete(3), spaces.MultiBinary(2))),
        }
    ),
}
ACTIONS = {
    "choice": spaces.Discrete(4, start=1),
    "choices": spaces.MultiDiscrete([3, 2]),
    "reals": spaces.Box(-2, 1, (2, 2), np.float32),
    "mixed": spaces.Tuple((spaces.Discrete(3), spaces.Box(-1, 1, (2,)))),
}
DIFFERENT = "TENFOLD_TESTS_DIFFERENT"  # what another process sees differently, where it is set


class Many(gym.Env[Any, Any]):
    """Its numbers come from its seed and its actions; `fails`: what goes wrong in step `after` of
    an episode whose first number is above 0.5."""

    def __init__(
        self,
        obs: str = "vector",
        action: str = "choice",
        masked: bool = False,
        fails: str = "",
        after: int = 4,
        alone: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space, self.action_space = OBSERVATIONS[obs], ACTIONS[action]
        self.masked, self.fails, self.after = masked, fails, after
        self.metadata = {"one_process": alone}

    def seen(self) -> tuple[Any, dict[str, Any]]:
        self.observation_space.seed(int(self.np_random.integers(2**31)))
        allowed = self.np_random.random(4) < 0.6
        allowed[int(self.np_random.integers(4))] = True
        if self.fails == "dead end" and self.t == self.after:
            allowed[:] = False
        return self.observation_space.sample(), {"action_mask": allowed} if self.masked else {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t, self.flawed = 0, self.np_random.random() > 0.5
        if os.environ.get(DIFFERENT):
            self.flawed = os.environ[DIFFERENT] == str(os.getpid())
        return self.seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        flaw = self.fails if self.flawed and self.t == self.after else ""
        if flaw == "raises":
            raise ZeroDivisionError("the physics broke")
        if flaw == "talks":
            raise ZeroDivisionError("more than a pipe holds " * 50_000)
        number = float(np.sum(np.concatenate([np.ravel(part) for part in flat(action)])))
        reward = float("nan") if flaw == "nan" else number + self.np_random.normal()
        obs, info = self.seen()
        if flaw == "nothing":
            obs = None
        if flaw == "infinite":
            obs = np.full(3, np.inf, np.float32)
        if flaw == "leaves":
            os._exit(7)
        end = self.np_random.random()
        cut = self.fails == "dead end" and self.t == self.after
        return obs, reward, end < 0.1, bool(end > 0.9) or cut, info


def flat(action: Any) -> tuple[Any, ...]:
    return action if isinstance(action, tuple) else (action,)


def make_many() -> gym.Env[Any, Any]:
    """A function that can be sent to another process."""
    return Many(obs="nested", action="choices")


class Fixed(Many):
    """With an attribute that a program may set, in its own process alone."""

    level = 0

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        obs, reward, *rest = super().step(action)
        return obs, reward + Fixed.level, *rest


gym.register("Many-v0", Many)
gym.register("Fixed-v0", Fixed)
gym.register("Limited-v0", Many, max_episode_steps=3)
