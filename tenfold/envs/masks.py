"""Where masks of allowed actions come from, and errors about those that leave an agent without an
action or that it cannot use."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.masks import MASK, MaskForm
from tenfold.core.protocols import EnvSpec
from tenfold.core.spaces import PolicyActions

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

NOTHING_ALLOWED = (
    "the action mask allows no action; only an observation in which an episode terminates may have "
    "such a mask."
)


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


def refuse_choiceless(form: MaskForm, mask: np.ndarray, place: Callable[[int], str]) -> None:
    """Before a policy acts: masks [B, options] that leave no option of a choice. `place` says where
    a row is from."""
    if empty := form.empty(mask):
        row, choice = empty
        raise no_option(place(row), form, choice)


def no_option(place: str, form: MaskForm, choice: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"{place}: the action mask allows no {form.option_of(choice)}; mend the mask, or set "
        "agent.on_empty to absent."
    )


def require_final_masks(envs: "Environments") -> None:
    """Refuses environments of one's own that give masks, but none of the last observations."""
    if envs.mask is not None and envs.final_mask is None:
        raise EnvironmentFault(
            f"{envs.name} has masks, but none of the observations that episodes are cut at, which "
            "dqn learns from: make both by `make_masks`, and fill `note_final_mask`."
        )


def refuse_stuck(envs: "Environments", lane: int | None = None) -> None:
    """Before acting: an observation in which nothing is allowed; `lane`, where it is known which
    (-1: none)."""
    if lane is None:
        if envs.mask is None or (there := envs.mask.any(1)).all():
            return
        lane = int(there.argmin())
    if lane >= 0:
        raise EnvironmentFault(f"{envs.place(lane)}: {NOTHING_ALLOWED}")


def refuse_dead_end(envs: "Environments") -> None:
    """After a step: an episode that was cut, not terminated, where nothing is allowed."""
    if envs.dead_end:
        raise EnvironmentFault(
            f"{envs.dead_end}: the episode was cut at an observation whose action mask allows no "
            "action or is missing, and what follows it counts: give a mask there, or terminate."
        )
