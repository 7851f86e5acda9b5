"""What the compiled rounds of all agents with a replay memory share: how networks see rows, what a
stored step counts for."""

import numpy as np

from tenfold.algorithms.agent import FlatAgent
from tenfold.core.kernels import kernel
from tenfold.engines.fusing import DUE, ROUNDS, STEP, turn_rows
from tenfold.ops.moments import EPSILON, norm_columns, norm_scale, norm_update


def statistics(agent: FlatAgent) -> dict[str, np.ndarray]:
    """Of observations: how many were seen, and their moments [3, features]; [3, 0] where they are
    not normalised."""
    if agent.norm is None:
        return {"norm_count": np.zeros(1, np.int64), "norm": np.zeros((3, 0))}
    return {"norm_count": agent.norm.count, "norm": agent.norm.moments}


def scale_of(agent: FlatAgent) -> float:
    """By which what is seen is multiplied first."""
    return 1.0 if agent.norm else agent.layout.scale


def clip_of(agent: FlatAgent) -> float:
    """Where normalised observations are cut."""
    return agent.norm.clip if agent.norm else 0.0


@kernel(inline="always")
def see_rows(rows, scale, norm, clip, inputs):
    """Rows [B, features] as networks take them, by the statistics as they are now."""
    turn_rows(rows, scale, inputs)
    if norm.shape[1]:
        norm_columns(inputs, norm, clip)


@kernel(inline="always")
def norm_batch(inputs, norm, clip):
    """Observations and next observations [2, features and more, B], likewise: the memory has them
    as environments show them."""
    if norm.shape[1]:
        for k in range(2):
            norm_columns(inputs[k, : norm.shape[1]], norm, clip)


@kernel(inline="always")
def count_stored(counter, skipped, e_obs, norm_count, norm, every, updates, starts, rows):
    """After a step was stored: running statistics take in what is acted on next, steps and rounds
    are counted, and `updates` become due every `every` steps; none up to step `starts`, or where
    the memory has no rows."""
    if norm.shape[1]:
        norm_update(norm_count, norm[0], norm[1], e_obs)
        norm_scale(norm_count, norm[1], EPSILON, norm[2])
    before = counter[STEP]
    for i in range(skipped.size):
        counter[STEP] += not skipped[i]
    counter[ROUNDS] += 1
    due = (counter[STEP] // every - before // every) * updates
    counter[DUE] = due if counter[STEP] > starts and rows > 0 else 0
