"""Where masks of allowed actions come from."""

from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.spaces import PolicyActions

MASK = "action_mask"


def offers_mask(offered: Any) -> bool:
    """Whether an observation space, an observation or an info has a mask."""
    return MASK in (
        offered.spaces
        if isinstance(offered, gym.spaces.Dict)
        else offered
        if isinstance(offered, dict)
        else ()
    )


class MaskReader:
    """Where an environment's action mask comes from: `info["action_mask"]`, or the key
    `action_mask` of a Dict observation, which is then no part of what the network sees."""

    def __init__(self, observation_space: Any, actions: PolicyActions) -> None:
        self.actions, self.observation_space, self.in_obs = actions, observation_space, False
        if isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces:
            self.in_obs = True
            self.observation_space = gym.spaces.Dict(
                {k: space for k, space in observation_space.items() if k != MASK}
            )

    def read(self, obs: Any, info: dict[str, Any], name: str) -> np.ndarray | None:
        """The mask as booleans [options], None where there is none; one of the wrong size or kind
        is refused."""
        given = obs.get(MASK) if self.in_obs else info.get(MASK)
        if given is None:
            return None
        if type(given) is np.ndarray and given.size == self.actions.options:
            found = given.astype(np.bool_)  # as nearly all are: the rest takes ten times as long
            if given.dtype == np.bool_ or (given == found).all():
                return found.ravel()
        parts = (
            [np.ravel(part) for part in given]
            if isinstance(given, list | tuple) and len(given)
            else [np.ravel(given)]
        )
        flat = np.concatenate(parts)
        if flat.size != self.actions.options:
            raise EnvironmentFault(
                f"{name} gives an action mask of {flat.size} numbers, and its actions have "
                f"{self.actions.options} options."
            )
        if flat.dtype != np.bool_ and not np.isin(flat, (0, 1)).all():
            raise EnvironmentFault(
                f"{name} gives an action mask with {flat[~np.isin(flat, (0, 1))][0]} at place "
                f"{int(np.argmin(np.isin(flat, (0, 1))))}: it must be 0 or 1 everywhere."
            )
        return flat.astype(np.bool_)
