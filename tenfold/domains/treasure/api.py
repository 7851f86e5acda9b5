"""Gridworlds with PettingZoo's parallel API."""

from typing import Any, ClassVar

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.random import Purpose, key
from tenfold.domains.treasure.play import TreasureWorlds
from tenfold.domains.treasure.rules import Rules, inside, picture, picture_text, rules_of

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
        self.inner = TreasureWorlds("", 1, 0, rules=rules)
        self.seeded = False

    def observation_space(self, agent: str) -> Any:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Any:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        inner = self.inner
        inner.episode[0] += 1
        if seed is not None or not self.seeded:
            epoch_seed = int(np.random.default_rng().integers(2**62)) if seed is None else seed
            inner.streams[0], inner.episode[0], self.seeded = (
                key(epoch_seed, Purpose.EPISODE),
                0,
                True,
            )
        inner.begin(0)
        self.agents = list(self.possible_agents)
        return self.observe(), {agent: {} for agent in self.agents}

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
        inner, going = self.inner, self.agents
        inner.length[0] += 1
        inner.action[:] = [int(actions[agent]) for agent in going]
        inner.turn(0)
        inner.see_again()
        over = bool(inner.length[0] == self.rules.turns)
        self.agents = [] if over else list(going)
        return (
            self.observe(),
            dict(zip(going, inner.reward.tolist(), strict=True)),
            dict.fromkeys(going, False),
            dict.fromkeys(going, over),
            {agent: {} for agent in going},
        )

    def observe(self) -> dict[str, Any]:
        return dict(zip(self.possible_agents, self.inner.obs.copy(), strict=True))

    def state(self) -> np.ndarray:
        """The whole board with agents marked, for central critics."""
        return inside(self.rules, self.inner.boards[0]).copy()

    def render(self) -> str | np.ndarray | None:
        """The board as text or as RGB."""
        if self.render_mode is None:
            return None
        draw = picture_text if self.render_mode == "ansi" else picture
        return draw(self.rules, self.inner.boards[0], self.inner.at[0])

    def close(self) -> None:
        """Does nothing: no resource is open."""


def parallel_env(world: str = "tenfold/Treasure-v0", **options: Any) -> TreasureHunt:
    """PettingZoo's conventional name of a constructor."""
    return TreasureHunt(world, **options)
