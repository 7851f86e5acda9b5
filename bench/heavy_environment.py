"""An environment whose step takes as much processor time as one likes: a loop of so many turns, not
a sleep and not a clock, so that a step is the same work whoever else wants the core."""

import time
from typing import Any

import gymnasium as gym
import numpy as np

CALIBRATED, TRIES = 100_000, 15  # turns of the loop that are timed, how often


class Heavy(gym.Env[np.ndarray, int]):
    """A walk on a line of 11 places; the right end gives 1."""

    def __init__(self, spins: int = 0) -> None:
        self.spins = spins
        self.observation_space, self.action_space = (
            gym.spaces.Box(-1, 1, (4,)),
            gym.spaces.Discrete(2),
        )

    def seen(self) -> np.ndarray:
        return np.array([self.at / 5, self.turn / 100, 0, 1], np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = self.turn = 0
        return self.seen(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        spin(self.spins)
        self.at, self.turn = max(self.at + 2 * int(action) - 1, -5), self.turn + 1
        return self.seen(), float(self.at == 5), self.at == 5, self.turn == 100, {}


class Asleep(Heavy):
    """The same, whose step is done elsewhere: it sleeps meanwhile."""

    def __init__(self, ms: float = 5.0) -> None:
        super().__init__()
        self.seconds = ms / 1000

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        time.sleep(self.seconds)
        return super().step(action)


class Pixels(Heavy):
    """The same, seen as a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = gym.spaces.Box(0, 255, (84, 84), np.uint8)

    def seen(self) -> np.ndarray:
        return np.full((84, 84), 20 * (self.at + 5), np.uint8)


def spin(turns: int) -> None:
    for _ in range(turns):
        pass


def spins_for(seconds: float) -> int:
    """Turns of the loop that take so much processor time here, when nothing disturbs."""
    least = np.inf
    for _ in range(TRIES):
        start = time.process_time()
        spin(CALIBRATED)
        least = min(least, time.process_time() - start)
    return round(CALIBRATED * seconds / least)


gym.register("Heavy-v0", Heavy)
gym.register("Pixels-v0", Pixels)
gym.register("Asleep-v0", Asleep)
