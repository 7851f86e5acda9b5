"""How long steps and episodes of a single environment are, where a run asks for another length:
actions that are repeated, a time limit of one's own. What an adapter of many shows in another form
is in `actors.wrapping`."""

import math
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import gymnasium as gym
import numpy as np
from gymnasium.wrappers import TimeLimit

from tenfold.core.errors import EnvironmentFault
from tenfold.envs.arguments import read_whole
from tenfold.envs.faults import CALLERS
from tenfold.envs.masks import offers_mask

CALLERS.add(__file__)
MOST_STEPS = 10**9


class ActionRepeat(gym.Wrapper[Any, Any, Any, Any]):
    """An action is played `times` times, its rewards added up; it stops where the episode ends."""

    def __init__(self, env: gym.Env[Any, Any], times: int) -> None:
        super().__init__(env)
        self.times = times

    def reset(self, **asked: Any) -> tuple[Any, dict[str, Any]]:
        obs, info = self.env.reset(**asked)
        if offers_mask(obs) or offers_mask(info):
            raise EnvironmentFault(
                f"{self.env.spec.id if self.env.spec else self.env} offers an action mask, and an "
                f"action that is repeated may be forbidden in between: leave action_repeat = "
                f"{self.times} out."
            )
        return obs, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        total, times = 0.0, 0
        while True:
            # an environment may write into what it is given
            given = action.copy() if isinstance(action, np.ndarray) else action
            obs, reward, terminated, truncated, info = self.env.step(given)
            total, times = total + float(reward), times + 1
            ended = terminated or truncated
            if ended or times == self.times or terminated is None or truncated is None:
                return obs, total, terminated, truncated, info


# of each limit that is lifted, what it was and how many have lifted it
LIFTED: WeakKeyDictionary[TimeLimit, tuple[Any, int]] = WeakKeyDictionary()


def limits_of(env: Any) -> list[TimeLimit]:
    """The time limits among an environment's wrappers."""
    limits = []
    while isinstance(env, gym.Wrapper):
        limits += [env] if isinstance(env, TimeLimit) else []
        env = env.env
    return limits


def lift_limits(env: Any) -> None:
    """The environment's own time limits end no episode from now on: another one is set around them.
    `restore_limits` sets them again, once it was called as often."""
    for limit in limits_of(env):
        steps, users = LIFTED.get(limit, (limit._max_episode_steps, 0))
        LIFTED[limit], limit._max_episode_steps = (steps, users + 1), math.inf  # type: ignore[assignment]


def restore_limits(env: Any) -> None:
    for limit in limits_of(env):
        steps, users = LIFTED.pop(limit, (limit._max_episode_steps, 1))
        if users > 1:
            LIFTED[limit] = steps, users - 1
        else:
            limit._max_episode_steps = steps


@dataclass(frozen=True)
class Steps:
    """How long steps and episodes are, as arguments of an environment's name say."""

    repeat: int = 1
    limit: int | None = None  # in steps of the agent, of which each may be several of these

    @classmethod
    def taken_from(cls, arguments: dict[str, Any]) -> Self:
        """Takes its own arguments out."""
        found = {
            field: read_whole(key, arguments.pop(key), 1, MOST_STEPS)
            for field, key in (("repeat", "action_repeat"), ("limit", "max_episode_steps"))
            if arguments.get(key) is not None
        }
        return cls(**found)

    def wrapped(self, env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
        env = ActionRepeat(env, self.repeat) if self.repeat > 1 else env
        return TimeLimit(env, self.limit) if self.limit else env
