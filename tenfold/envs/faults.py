"""What an environment does wrong, as one sentence for the person who wrote it."""

import contextlib
import traceback
from typing import Any

from tenfold.core.errors import EnvironmentFault, described, raised

CALLERS: set[str] = set()  # files whose code takes what an environment returns


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
