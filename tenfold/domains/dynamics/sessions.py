"""Several sessions with one dynamics: their channels side by side, and in each episode NaN (not
observed) in those of other sessions.

An encoder's first layer then reads a session by weights of its own, and a decoder's last layer says
it by weights of its own: readouts are per session, and all between them, the dynamics above all, is
shared. Numbers of channels may differ. The encoder reads a channel of another session as its mean
and is told that it is missing, which makes a bias for each session.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenfold.core.errors import UserError
from tenfold.domains.dynamics.missing import widened
from tenfold.domains.dynamics.recording import SAME, Recording


def pooled(paths: Sequence[Path], recordings: Sequence[Recording]) -> Recording:
    """One recording of all sessions, whose actions and time of a step must be alike."""
    first, (_, actions) = recordings[0], recordings[0].sizes
    for path, other in zip(paths, recordings, strict=True):
        if other.sizes[1] != actions:
            raise UserError(
                f"{path} has {other.sizes[1]} actions and {paths[0]} {actions}: sessions share "
                "their dynamics, and so what pushes it; choose the same with --actions."
            )
        if abs(other.dt - first.dt) > SAME * first.dt:
            raise UserError(
                f"{path} has {other.dt:.9g} for a step and {paths[0]} {first.dt:.9g}: sessions "
                "share their dynamics, and so its time; bin them alike."
            )
    sizes = [other.sizes[0] for other in recordings]
    ends = np.cumsum(sizes)
    episodes = tuple(
        (widened(y, end - size, sum(sizes)), a)
        for own, size, end in zip(recordings, sizes, ends.tolist(), strict=True)
        for y, a in own.episodes
    )
    return Recording(episodes, first.dt)
