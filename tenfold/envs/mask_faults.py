"""Masks that leave an agent without an action, and those that an agent cannot use, as errors that
say where."""

from collections.abc import Callable

import numpy as np

from tenfold.core.errors import EnvironmentFault
from tenfold.core.masks import MaskForm
from tenfold.envs.adapter import Environments

NOTHING_ALLOWED = (
    "the action mask allows no action; only an observation in which an episode terminates may have "
    "such a mask."
)


def refuse_choiceless(form: MaskForm, mask: np.ndarray, place: Callable[[int], str]) -> None:
    """Before a policy acts: masks [B, options] that leave no option of a choice. `place` says where
    a row is from."""
    if found := form.empty(mask):
        row, choice = found
        raise no_option(place(row), form, choice)


def no_option(place: str, form: MaskForm, choice: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"{place}: the action mask allows no {form.option_of(choice)}; mend the mask, or set "
        "agent.on_empty to absent."
    )


def require_final_masks(envs: Environments) -> None:
    """Refuses environments of one's own that give masks, but none of the last observations."""
    if envs.mask is not None and envs.final_mask is None:
        raise EnvironmentFault(
            f"{envs.name} has masks, but none of the observations that episodes are cut at, which "
            "dqn learns from: make both by `make_masks`, and fill `note_final_mask`."
        )


def refuse_stuck(envs: Environments, lane: int | None = None) -> None:
    """Before acting: an observation in which nothing is allowed; `lane`, where it is known which
    (-1: none)."""
    if lane is None:
        if envs.mask is None or (there := envs.mask.any(1)).all():
            return
        lane = int(there.argmin())
    if lane >= 0:
        raise EnvironmentFault(f"{envs.place(lane)}: {NOTHING_ALLOWED}")


def refuse_dead_end(envs: Environments) -> None:
    """After a step: an episode that was cut, not terminated, where nothing is allowed."""
    if envs.dead_end:
        raise EnvironmentFault(
            f"{envs.dead_end}: the episode was cut at an observation whose action mask allows no "
            "action or is missing, and what follows it counts: give a mask there, or terminate."
        )
