"""Masks that leave an agent without an action, as errors that say where."""

from tenfold.core.errors import EnvironmentFault
from tenfold.envs.adapter import Environments

NOTHING_ALLOWED = (
    "the action mask allows no action; only an observation in which an episode terminates may have "
    "such a mask."
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
