"""What an environment does wrong, as one sentence for the person who wrote it: what its code
raises, and masks that leave an agent without an action or that an agent cannot use."""

import contextlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tenfold.core.errors import EnvironmentFault, described, raised
from tenfold.core.masks import MaskForm

if TYPE_CHECKING:
    from tenfold.envs.adapter import Environments

CALLERS: set[str] = set()  # files whose code takes what an environment returns
NOTHING_ALLOWED = (
    "the action mask allows no action; only an observation in which an episode terminates may have "
    "such a mask."
)


def fault_of(location: str, what: str, error: BaseException) -> EnvironmentFault:
    """What an environment's own code raised, and where; or what cannot be done with what it
    returned."""
    if is_old_style(what, error):
        return old_style(location)
    if traceback.extract_tb(error.__traceback__)[-1].filename in CALLERS:
        return EnvironmentFault(
            f"{location}: what {what} returned cannot be used: {described(error)}."
        )
    return EnvironmentFault(f"{location}: {what} {raised(error)}.")


def is_old_style(what: str, error: BaseException) -> bool:
    """Whether reset or step went wrong as the older interface does, here or in one of Gymnasium's
    wrappers."""
    if what == "step":
        return isinstance(error, ValueError) and "expected 5, got 4" in str(error)
    return isinstance(error, TypeError) and "unexpected keyword argument 'seed'" in str(error)


def old_style(location: str) -> EnvironmentFault:
    return EnvironmentFault(
        f"{location}: this is an environment in the style of Gym before 0.26 (reset returns the "
        "observation alone, or step four values): let reset(seed=…) return (obs, info) and step "
        "(obs, reward, terminated, truncated, info), or wrap it in shimmy's GymV21CompatibilityV0."
    )


def is_flag(value: Any) -> bool:
    """Whether an end of an episode is told as true or false, in any form: not as NaN, None or a
    word."""
    try:
        return bool(value == 0 or value == 1)
    except (ValueError, TypeError):  # several of them
        return False


def put_away(env: Any) -> None:
    """Closes an environment. One that cannot even do that has done all that was asked of it:
    nothing is lost."""
    with contextlib.suppress(Exception):
        env.close()


# masks


def refuse_choiceless(form: MaskForm, mask: np.ndarray, locate: Callable[[int], str]) -> None:
    """Before a policy acts: masks [B, options] that leave no option of a choice. `place` says where
    a row is from."""
    if no_choice := form.empty(mask):
        row, choice = no_choice
        raise no_option(locate(row), form, choice)


def no_option(location: str, form: MaskForm, choice: int) -> EnvironmentFault:
    return EnvironmentFault(
        f"{location}: the action mask allows no {form.option_of(choice)}; mend the mask, or set "
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
        if envs.mask is None or (allowed := envs.mask.any(1)).all():
            return
        lane = int(allowed.argmin())
    if lane >= 0:
        raise EnvironmentFault(f"{envs.location(lane)}: {NOTHING_ALLOWED}")


def refuse_dead_end(envs: "Environments") -> None:
    """After a step: an episode that was cut, not terminated, where nothing is allowed."""
    if envs.dead_end:
        raise EnvironmentFault(
            f"{envs.dead_end}: the episode was cut at an observation whose action mask allows no "
            "action or is missing, and what follows it counts: give a mask there, or terminate."
        )
