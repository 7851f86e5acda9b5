"""Gridworlds with PettingZoo's parallel API."""

from typing import Any, ClassVar

import numpy as np

from tenfold.envs.treasure_rules import RULES, Rules
from tenfold.envs.treasure_view import picture, picture_text
from tenfold.envs.worlds import TreasureWorlds
from tenfold.errors import EnvironmentFault
from tenfold.ops.random import Purpose, key

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError:  # everything here works without it; only the base class is missing
    ParallelEnv = object


class TreasureHunt(ParallelEnv):  # type: ignore[misc,valid-type]
    """A gridworld by name, with arguments in call notation, or by its rules. After `reset(seed=s)` it plays the epochs of world 0
    of seed s, one with each further `reset()`."""

    metadata: ClassVar[dict[str, Any]] = {"name": "treasure_hunt_v0", "render_modes": ["ansi", "rgb_array"], "render_fps": 7,
                                          "is_parallelizable": True}

    def __init__(self, world: str | Rules = "tenfold/Treasure-v0", render_mode: str | None = None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise EnvironmentFault(f"render_mode = {render_mode} cannot be: it is ansi or rgb_array.")
        own = world if isinstance(world, Rules) else None
        self.worlds = TreasureWorlds("a gridworld of your own" if isinstance(world, Rules) else world, 1, 0, rules=own)
        self.rules, self.render_mode = self.worlds.rules, render_mode
        self.possible_agents = [f"agent_{a}" for a in range(self.rules.agents)]
        self.agents: list[str] = []
        self.seen, self.actions = self.rules.observation_space(), self.rules.action_space()
        self.observation_spaces = dict.fromkeys(self.possible_agents, self.seen)
        self.action_spaces = dict.fromkeys(self.possible_agents, self.actions)
        self.seeded = False

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        if seed is not None or not self.seeded:
            own = int(np.random.default_rng().integers(2**62)) if seed is None else seed
            self.worlds.begin_epoch(key(own, Purpose.EPISODE), 0)
            self.seeded = True
        elif self.agents:  # the end of an epoch has begun the next one already
            self.worlds.begin_epoch(self.worlds.streams[0], int(self.worlds.episode[0]) + 1)
        self.agents = list(self.possible_agents)
        return self.by_agent(self.worlds.obs.copy()), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Every agent must act; after the last turn of an epoch all are truncated and gone."""
        if not self.agents:
            raise EnvironmentFault("This epoch is over: call reset() to begin one.")
        if set(actions) != set(self.agents):
            raise EnvironmentFault(f"Actions came from {', '.join(sorted(actions)) or 'nobody'}, and the agents are "
                                   f"{', '.join(self.agents)}.")
        worlds = self.worlds
        before = worlds.boards[0], worlds.at[0]
        self.last = tuple(part.copy() for part in before)
        worlds.step(np.array([int(actions[agent]) for agent in self.agents]))
        over = bool(worlds.truncated[0])
        seen = self.by_agent((worlds.final_obs if over else worlds.obs).copy())
        results = (seen, self.by_agent(worlds.reward.tolist()), self.by_agent(worlds.terminated.tolist()),
                   self.by_agent(worlds.truncated.tolist()), {agent: {} for agent in self.agents})
        if over:
            self.agents = []
        return results

    def by_agent(self, values: Any) -> dict[str, Any]:
        return dict(zip(self.possible_agents, values, strict=True))

    def render(self) -> str | np.ndarray | None:
        """The board as text or as RGB; after the last turn, of the epoch that comes next."""
        if self.render_mode is None:
            return None
        draw = picture_text if self.render_mode == "ansi" else picture
        return draw(self.rules, self.worlds.boards[0], self.worlds.at[0])

    def state(self) -> np.ndarray:
        """The whole board without its padding, agents marked: what a central critic may see."""
        return self.worlds.boards[0, self.rules.radius:-self.rules.radius, self.rules.radius:-self.rules.radius].copy()

    def close(self) -> None:
        """Nothing is held open."""


def parallel_env(world: str = "tenfold/Treasure-v0", **options: Any) -> TreasureHunt:
    """PettingZoo's usual name of a constructor."""
    assert world in RULES or world
    return TreasureHunt(world, **options)
