"""Where masks of allowed actions come from."""

from typing import Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.masks import MASK, MaskForm
from tenfold.core.protocols import EnvSpec
from tenfold.core.spaces import PolicyActions


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
    `action_mask` of a Dict observation, which is then no part of what the network sees. Its form
    is said in `core.masks`."""

    def __init__(self, observation_space: Any, actions: PolicyActions) -> None:
        self.actions, self.observation_space, self.in_obs = actions, observation_space, False
        self.form = MaskForm(actions)
        if isinstance(observation_space, gym.spaces.Dict) and MASK in observation_space.spaces:
            self.in_obs = True
            self.observation_space = gym.spaces.Dict(
                {k: space for k, space in observation_space.items() if k != MASK}
            )

    def read(self, obs: Any, info: dict[str, Any]) -> np.ndarray | None:
        """The mask as booleans [options], None where there is none; MaskError where it does not
        fit the actions."""
        given = obs.get(MASK) if self.in_obs else info.get(MASK)
        if given is None:
            return None
        found = self.form.read(given)
        return found if self.form.options else None


def refuse_undeclared(obs: Any, space: Any, place: str) -> None:
    """An observation with a mask that its space does not tell of, so that nobody would see it."""
    if offers_mask(obs) and not offers_mask(space):
        raise EnvironmentFault(
            f"{place}: the observation has a key {MASK}, and its space has none: add it to the "
            'space, or give the mask as info["action_mask"].'
        )


def refuse_unread(spec: EnvSpec, who: str, reads_masks: bool) -> None:
    """Environments that offer masks, to an agent that does not read them."""
    if not reads_masks and (spec.unread_mask or spec.masked):
        raise unusable(spec.name, who, spec.action_space)


def unusable(env: str, who: str, space: Any) -> EnvironmentFault:
    """An environment with masks, to an agent that cannot use any."""
    return EnvironmentFault(
        f"{env} offers an action mask, which {who} cannot use: {instead(space)}."
    )


def instead(space: Any) -> str:
    """What to do about a mask of these actions."""
    if isinstance(space, gym.spaces.Discrete):
        return "train dqn or ppo"
    if isinstance(space, gym.spaces.Box):
        return "leave the mask out, since real numbers have no options to forbid"
    return "train ppo"
