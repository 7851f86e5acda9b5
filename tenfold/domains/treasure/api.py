"""Gridworlds with PettingZoo's parallel API."""

from typing import Any, ClassVar

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import Purpose, key
from tenfold.domains.treasure.kernels import begin, turn
from tenfold.domains.treasure.lanes import observe_all
from tenfold.domains.treasure.rules import Rules, rules_of
from tenfold.domains.treasure.view import inner, picture, picture_text

try:
    from pettingzoo import ParallelEnv
except ModuleNotFoundError:  # everything here works without it; only the base class is missing
    ParallelEnv = object


class TreasureHunt(ParallelEnv):  # type: ignore[misc,valid-type]
    """A gridworld by name, with arguments in call notation, or by its rules. After `reset(seed=s)`
    it plays the epochs of world 0 of seed s, one with each further `reset()`."""

    metadata: ClassVar[dict[str, Any]] = {
        "name": "treasure_hunt_v0",
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 7,
        "is_parallelizable": True,
    }

    def __init__(
        self, world: str | Rules = "tenfold/Treasure-v0", render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise EnvironmentFault(
                f"render_mode = {render_mode} cannot be: it is ansi or rgb_array."
            )
        self.rules = rules = world if isinstance(world, Rules) else rules_of(world)
        self.render_mode = render_mode
        self.possible_agents = [f"agent_{a}" for a in range(rules.agents)]
        self.agents: list[str] = []
        self.observation_spaces = {
            agent: rules.observation_space() for agent in self.possible_agents
        }
        self.action_spaces = {agent: rules.action_space() for agent in self.possible_agents}
        self.rule, self.template, self.value, self.gaps, self.shares = rules.tables()
        self.board, self.at = rules.board(), np.zeros((rules.agents, 2), np.int64)
        self.order = np.zeros(rules.agents, np.int64)
        self.stream: np.uint64 | None = None
        self.episode, self.length = 0, 0

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        self.episode, self.length = self.episode + 1, 0
        if seed is not None or self.stream is None:
            own = int(np.random.default_rng().integers(2**62)) if seed is None else seed
            self.stream, self.episode = key(own, Purpose.EPISODE), 0
        begin(
            self.rule,
            self.template,
            self.gaps,
            self.shares,
            self.board,
            self.at,
            self.stream,
            self.episode,
        )
        self.agents = list(self.possible_agents)
        return self.seen(), {agent: {} for agent in self.agents}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Every agent must act; after the last turn of an epoch all are truncated and gone."""
        if not self.agents:
            raise EnvironmentFault("This epoch is over: call reset() to begin one.")
        if set(actions) != set(self.agents):
            raise EnvironmentFault(
                f"Actions came from {', '.join(sorted(actions)) or 'nobody'}, and the agents are "
                f"{', '.join(self.agents)}."
            )
        for agent, action in actions.items():
            if not self.action_spaces[agent].contains(action):
                raise EnvironmentFault(
                    f"{agent} cannot do {action!r}: actions are 0 up, 1 down, 2 left, 3 right."
                )
        self.length += 1
        reward = np.zeros(self.rules.agents)
        turn(
            self.rule,
            self.value,
            self.gaps,
            self.shares,
            self.board,
            self.at,
            self.stream,
            self.episode,
            self.length,
            np.array([int(actions[agent]) for agent in self.agents]),
            reward,
            self.order,
        )
        going, over = self.agents, self.length == self.rules.turns
        self.agents = [] if over else list(going)
        return (
            self.seen(),
            dict(zip(going, reward.tolist(), strict=True)),
            dict.fromkeys(going, False),
            dict.fromkeys(going, over),
            {agent: {} for agent in going},
        )

    def seen(self) -> dict[str, Any]:
        obs = np.zeros((self.rules.agents, self.rules.channels * self.rules.side**2), np.uint8)
        observe_all(self.rules.radius, self.board[None], self.at[None], obs)
        return dict(zip(self.possible_agents, obs, strict=True))

    def state(self) -> np.ndarray:
        """The whole board, agents marked: what a central critic may see."""
        return inner(self.rules, self.board).copy()

    def render(self) -> str | np.ndarray | None:
        """The board as text or as RGB."""
        if self.render_mode is None:
            return None
        return (picture_text if self.render_mode == "ansi" else picture)(
            self.rules, self.board, self.at
        )

    def close(self) -> None:
        """Nothing is held open."""


def parallel_env(world: str = "tenfold/Treasure-v0", **options: Any) -> TreasureHunt:
    """PettingZoo's usual name of a constructor."""
    return TreasureHunt(world, **options)
