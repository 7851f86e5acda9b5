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

    walks: dict[str, Any]
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


ARM = gym.spaces.Tuple([gym.spaces.Discrete(3, start=-1), gym.spaces.MultiDiscrete([2, 4])])
PARTS = gym.spaces.Dict(
    {"arm": ARM, "lamps": gym.spaces.MultiBinary(2), "push": gym.spaces.Box(-1, 1, (1,))}
)


def some(rng: np.random.Generator, options: int) -> np.ndarray:
    """A mask that allows something."""
    mask = (rng.random(options) < 0.5).astype(np.int8)
    mask[rng.integers(options)] = 1
    return mask


class Robot:
    """An action of every kind; masks in the form that Gymnasium's `sample` takes: nested as the
    space is, a tuple for MultiDiscrete, 0, 1 and 2 (either) for MultiBinary, None for Box. Where
    the target is, and what is allowed of the choices, is seen."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.turn = rng, 0
        self.move()

    def move(self) -> None:
        turn, grip, lamp = some(self.rng, 3), some(self.rng, 2), some(self.rng, 4)
        # at times nothing is said of a part
        reach = None if self.rng.random() < 0.2 else (grip, lamp)
        lamps = self.rng.integers(0, 3, 2).astype(np.int8)
        self.mask = {"arm": (turn, reach), "lamps": lamps, "push": None}
        self.target = float(self.rng.uniform(-1, 1))

    def seen(self) -> np.ndarray:
        return np.array([self.target, *self.mask["arm"][0], *self.mask["lamps"]], np.float32)

    def step(self, action: dict[str, Any]) -> tuple[float, bool, bool]:
        """Reward, terminated, truncated."""
        (turn, reach), lamps = action["arm"], action["lamps"]
        masks, wanted = self.mask["arm"], self.mask["lamps"]
        allowed = [masks[0][int(turn) + 1] == 1, *((wanted == 2) | (wanted == lamps))]
        if masks[1] is not None:
            allowed += [own[choice] == 1 for own, choice in zip(masks[1], reach, strict=True)]
        if not all(allowed):
            raise Forbidden(f"action {action} is not allowed by {self.mask}")
        reward = -abs(float(action["push"][0]) - self.target) + 0.5 * (int(turn) == 1)
        self.turn += 1
        self.move()
        return reward, self.rng.random() < 0.05, self.turn == LIMIT


class Nested(gym.Env[Any, Any]):
    """A robot alone; its mask in `info`, or with `inside` a key of the observation, where every
    part of it has an array."""

    action_space = PARTS

    def __init__(self, inside: bool = False) -> None:
        bits, self.inside = gym.spaces.MultiBinary, inside
        seen = gym.spaces.Box(-2, 2, (6,))
        arm = gym.spaces.Tuple([bits(3), gym.spaces.Tuple([bits(2), bits(4)])])
        mask = gym.spaces.Dict({"arm": arm, "lamps": gym.spaces.Box(0, 2, (2,), np.int8)})
        self.observation_space = (
            gym.spaces.Dict({"seen": seen, "action_mask": mask}) if inside else seen
        )

    def told(self) -> tuple[Any, dict[str, Any]]:
        robot = self.robot
        if not self.inside:
            return robot.seen(), {"action_mask": robot.mask}
        turn, reach = robot.mask["arm"]
        whole = (turn, reach or (np.ones(2, np.int8), np.ones(4, np.int8)))
        mask = {"arm": whole, "lamps": robot.mask["lamps"]}
        return {"seen": robot.seen(), "action_mask": mask}, {}

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.robot = Robot(self.np_random)
        return self.told()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self.robot.step(action)
        obs, info = self.told()
        return obs, reward, terminated, truncated, info


class Robots(Walkers):
    """Two robots, each by itself."""

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Box(-2, 2, (6,))

    def action_space(self, agent: str) -> gym.Space[Any]:
        return PARTS

    def reset(
        self, seed: int | None = None, options: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        rng, self.agents = np.random.default_rng(seed), list(self.possible_agents)
        self.walks = {agent: Robot(rng) for agent in self.agents}
        return self.told(self.agents)

    def told(self, agents: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return (
            {agent: self.walks[agent].seen() for agent in agents},
            {agent: {"action_mask": self.walks[agent].mask} for agent in agents},
        )


gym.register("Strict-v0", Strict)
gym.register("Nested-v0", Nested)
