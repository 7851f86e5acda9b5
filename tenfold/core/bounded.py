"""Actions of real numbers within bounds, as agents with critics have them."""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from tenfold.core.errors import CheckpointError, EnvironmentFault
from tenfold.core.random import uniform


def action_kind(space: gym.Space[Any]) -> str:
    """In words, for whoever has the wrong one."""
    kinds = {
        "Box": "continuous",
        "Discrete": "discrete",
        "MultiDiscrete": "several discrete",
        "MultiBinary": "several binary",
    }
    return kinds.get(type(space).__name__, type(space).__name__)


@dataclass(frozen=True)
class BoundedActions:
    """Actions of real numbers: each −1 … 1 for the agent and in memory, `low` … `high` for the
    environment."""

    space: spaces.Box
    low: np.ndarray
    high: np.ndarray

    @property
    def reals(self) -> int:
        return len(self.low)

    def for_env(self, action: np.ndarray) -> np.ndarray:
        """Numbers [B, D] as the environments' actions [B, …]."""
        share = (np.asarray(action, np.float64) + 1) / 2
        found = self.low + share * (self.high - self.low)
        # rounding must not carry one over its bound
        found = np.clip(found, self.low, self.high).astype(self.space.dtype)
        return found.reshape(-1, *self.space.shape)

    def random(
        self, stream: np.uint64, address: np.ndarray, mask: np.ndarray | None = None
    ) -> np.ndarray:
        """Uniformly random actions for the environment, draw number `address` [B] of the
        stream."""
        counter = address[:, None] * self.reals + np.arange(self.reals)
        return self.for_env(2 * uniform(stream, counter) - 1)

    def check_stored(self, action: np.ndarray) -> None:
        """Refuses rows of a checkpoint that hold none of these."""
        if not (np.abs(action) <= 1).all():
            raise CheckpointError("the replay memory holds actions that are not between -1 and 1.")


def refuse_empty(space: spaces.Box, name: str) -> None:
    """Actions without a number in them are nothing to learn."""
    if not np.size(space.low):
        raise EnvironmentFault(f"{name} has actions without a number in them: {space}.")


def bounded_actions(
    space: gym.Space[Any], name: str, agent: str, needed: str = "continuous ones (a Box)"
) -> BoundedActions:
    """The actions of an agent that chooses real numbers within bounds; any other space is refused
    with the agent that fits."""
    if not isinstance(space, spaces.Box):
        fitting = "dqn, sac or ppo" if isinstance(space, spaces.Discrete) else "ppo"
        raise EnvironmentFault(
            f"{name} has {action_kind(space)} actions ({space}), and {agent} needs {needed}: train "
            f"it with {fitting}."
        )
    if not np.issubdtype(space.dtype, np.floating):
        raise EnvironmentFault(
            f"{name} has a Box of whole numbers as actions ({space}), and {agent} needs real ones: "
            "wrap the environment so that they are floats."
        )
    refuse_empty(space, name)
    low, high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
    if not np.isfinite([*low, *high]).all():
        raise EnvironmentFault(
            f"{name} has actions without bounds ({space}), and {agent} needs finite ones: give its "
            "action space bounds, or train ppo."
        )
    return BoundedActions(space, low, high)
