"""Catch a falling ball: the smallest task with images."""

from typing import Any

import gymnasium as gym
import numpy as np

SIDE = 10


class Catch(gym.Env[np.ndarray, int]):
    """A ball falls from the top of a 10 × 10 image; a paddle on the bottom row moves left, stays or
    moves right.

    The ball starts in a random column and falls one row a step; at the bottom the reward is +1 if
    the paddle is under it, −1 if not, and the episode terminates. A uniformly random policy gets
    about −0.74, an optimal one 1.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 8}

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(0, 255, (SIDE, SIDE), np.uint8)
        self.action_space = gym.spaces.Discrete(3)
        self.render_mode = render_mode
        self.ball_row = self.ball_column = self.paddle = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.ball_row, self.ball_column = 0, int(self.np_random.integers(SIDE))
        self.paddle = SIDE // 2
        return self.image(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.paddle = min(max(self.paddle + int(action) - 1, 0), SIDE - 1)
        self.ball_row += 1
        landed = self.ball_row == SIDE - 1
        reward = (1.0 if self.paddle == self.ball_column else -1.0) if landed else 0.0
        return self.image(), reward, landed, False, {}

    def image(self) -> np.ndarray:
        image = np.zeros((SIDE, SIDE), np.uint8)
        image[SIDE - 1, self.paddle] = 128
        image[self.ball_row, self.ball_column] = 255
        return image

    def render(self) -> np.ndarray:  # type: ignore[override]
        return np.repeat(np.kron(self.image(), np.ones((16, 16), np.uint8))[..., None], 3, axis=2)
