"""A look at the data before the first update: what is wrong there no loss will show."""

from collections.abc import Sequence

import numpy as np

from tenfold.core.errors import UserError
from tenfold.memory.replay import Replay
from tenfold.memory.rollout import Rollout
from tenfold.memory.rows import TERMINATED

ROWS = 10_000  # looked at, at most


def first_look(parts: Sequence[Replay]) -> str:
    """One sentence about the rows that can be drawn; rows that cannot be right are an error."""
    places = [np.flatnonzero(part.ready)[: ROWS // len(parts)] for part in parts]
    obs, reward, action, kind = (
        np.concatenate(
            [getattr(part, name)[place] for part, place in zip(parts, places, strict=True)]
        )
        for name in ("obs", "reward", "action", "kind")
    )
    return judged(obs, reward, kind == TERMINATED, f"{len(np.unique(action))} distinct actions")


def first_rollout(rollout: Rollout) -> str:
    """The same about a full rollout, with its observations as the policy saw them."""
    steps = rollout.weight > 0
    obs, reward, chosen, real = (
        getattr(rollout, name)[steps][:ROWS] for name in ("obs", "reward", "chosen", "real")
    )
    terminal = (rollout.discount[steps] == 0) & (rollout.boundary[steps] == 1)
    actions = []
    if chosen.size:
        actions.append(f"{len(np.unique(chosen, axis=0))} distinct actions")
    if real.size:
        actions.append(f"numbers {real.min():.4g} to {real.max():.4g}, deviation {real.std():.4g}")
    return judged(obs.reshape(len(obs), -1), reward, terminal, "; ".join(actions))


def judged(obs: np.ndarray, reward: np.ndarray, terminal: np.ndarray, actions: str) -> str:
    """The sentence about rows [N, F] of observations and what came of them, or the error."""
    if not len(obs):
        return "first batch: no rows"
    words = (
        f"first batch: {len(obs):,} rows; observations {obs.min():.4g} to {obs.max():.4g}, "
        f"deviation {obs.std():.4g}; rewards {reward.min():.4g} to {reward.max():.4g}; "
        f"{np.mean(terminal):.1%} terminal; {actions}"
    )
    if not np.isfinite(obs).all() or not np.isfinite(reward).all():
        raise UserError(
            f"The learner was given rows that nobody wrote ({words}): please report this."
        )
    if len(obs) > 1 and (obs == obs[0]).all():
        raise UserError(
            f"All observations of the first {len(obs):,} steps are identical ({words}): the "
            "environment shows nothing to learn from, or its observations do not arrive."
        )
    return words
