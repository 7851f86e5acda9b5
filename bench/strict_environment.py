"""A world that forgives nothing: an action that its mask forbids raises. A walker on a grid looks
for a goal; it may not step over the edge, and may stop only on the goal, which ends the episode
with 1. In that last state nothing is allowed. Seen: where it is and where the goal is."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np

SIDE, LIMIT, COST = 5, 30, 0.02  # of the grid, steps of an episode, of a step
MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
STOP = len(MOVES)


class Forbidden(Exception):
    """An action was taken that the mask does not allow."""


class Walk:
    """One walker."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.at, self.goal = rng.integers(0, SIDE, (2, 2)).tolist()
        self.turn, self.done = 0, False

    def seen(self) -> np.ndarray:
        return np.array([*self.at, *self.goal], np.float32) / (SIDE - 1)

    def mask(self) -> np.ndarray:
        if self.done:
            return np.zeros(STOP + 1, np.int8)
        x, y = self.at
        inside = [x > 0, x < SIDE - 1, y > 0, y < SIDE - 1]
        return np.array([*inside, self.at == self.goal], np.int8)

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated."""
        if not self.mask()[action]:
            raise Forbidden(f"action {action} is not allowed at {self.at}, goal {self.goal}")
        self.turn += 1
        if action == STOP:
            self.done = True
            return 1.0, True, False
        self.at = [self.at[0] + MOVES[action][0], self.at[1] + MOVES[action][1]]
        return -COST, False, self.turn == LIMIT


class Strict(gym.Env[Any, int]):
    """The mask is in `info`, or with `inside` a key of the observation."""

    def __init__(self, inside: bool = False) -> None:
        self.inside, self.action_space = inside, gym.spaces.Discrete(STOP + 1)
        seen = gym.spaces.Box(0, 1, (4,))
        self.observation_space = (
            gym.spaces.Dict({"seen": seen, "action_mask": gym.spaces.MultiBinary(STOP + 1)})
            if inside
            else seen
        )

    def told(self) -> tuple[Any, dict[str, Any]]:
        mask = {"action_mask": self.walk.mask()}
        return ({"seen": self.walk.seen(), **mask}, {}) if self.inside else (self.walk.seen(), mask)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.walk = Walk(self.np_random)
        return self.told()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self.walk.step(int(action))
        obs, info = self.told()
        return obs, reward, terminated, truncated, info


class Walkers:
    """Two walkers, each on a grid of its own, in PettingZoo's parallel form; who has stopped is
    gone."""

    possible_agents: ClassVar[list[str]] = ["one", "two"]

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Box(0, 1, (4,))

    def action_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Discrete(STOP + 1)

    def reset(
        self, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        rng, self.agents = np.random.default_rng(seed), list(self.possible_agents)
        self.walks = {agent: Walk(rng) for agent in self.agents}
        return self.told(self.agents)

    def told(self, agents: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            {agent: self.walks[agent].seen() for agent in agents},
            {agent: {"action_mask": self.walks[agent].mask()} for agent in agents},
        )

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        steps = {agent: self.walks[agent].step(action) for agent, action in actions.items()}
        rewards, ends, cuts = ({a: s[k] for a, s in steps.items()} for k in range(3))
        self.agents = [agent for agent in actions if not (ends[agent] or cuts[agent])]
        obs, infos = self.told(list(actions))
        return obs, rewards, ends, cuts, infos

    def close(self) -> None:
        """Nothing is held open."""


gym.register("Strict-v0", Strict)
