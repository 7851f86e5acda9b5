"""A look at the data before the first update: what is wrong there no loss will show."""

import numpy as np

from tenfold.errors import UserError
from tenfold.memory.replay import TERMINATED, Replay
from tenfold.memory.team import TeamReplay

ROWS = 10_000  # looked at, at most


def first_look(replay: Replay | TeamReplay) -> str:
    """One sentence about the rows that can be drawn; rows that cannot be right are an error."""
    parts = replay.each if isinstance(replay, TeamReplay) else [replay]
    places = [np.flatnonzero(part.ready)[:ROWS // len(parts)] for part in parts]
    obs, reward, action, kind = (np.concatenate([getattr(part, name)[place] for part, place in zip(parts, places, strict=True)])
                                 for name in ("obs", "reward", "action", "kind"))
    words = (f"first batch: {len(obs):,} rows; observations {obs.min():.4g} to {obs.max():.4g}, deviation {obs.std():.4g}; "
             f"rewards {reward.min():.4g} to {reward.max():.4g}; {np.mean(kind == TERMINATED):.1%} terminal; "
             f"{len(np.unique(action))} distinct actions")
    if not np.isfinite(obs).all() or not np.isfinite(reward).all():
        raise UserError(f"The learner was given rows that nobody wrote ({words}): please report this.")
    if len(obs) > 1 and (obs == obs[0]).all():
        raise UserError(f"All observations of the first {len(obs):,} steps are identical ({words}): the environment shows "
                        "nothing to learn from, or its observations do not arrive.")
    return words
