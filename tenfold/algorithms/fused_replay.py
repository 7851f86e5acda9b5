"""What the compiled rounds of all agents with a replay memory share: settings as numbers, the draw
of a batch's rows, how networks see rows, what a stored step counts for."""

from typing import Any

import numpy as np

from tenfold.core.kernels import as_numbers, kernel, schedule_at
from tenfold.engines.fusing import DUE, ROUNDS, STEP, turn_rows
from tenfold.memory.sampling import draw_prioritized, draw_ready
from tenfold.ops.mlp import ACTIVATIONS
from tenfold.ops.moments import EPSILON, norm_columns, norm_scale, norm_update

# places in `rule`, the settings as numbers; a schedule takes four
(
    ACTIVATION,
    ADAM_EPS,
    PRIORITIZED,
    ALPHA,
    PRIORITY_EPS,
    N_STEP,
    GAMMA,
    SCALE,
    NORM_CLIP,
    STARTS,
    EVERY,
    PER_ROUND,
) = range(12)
# typed: Numba compiles a function once more for each literal number it is called with
LR, BETA = np.int64(12), np.int64(16)
BEHIND = 20  # from here on an algorithm's own settings


def replay_rules(agent: Any, size: int) -> np.ndarray:
    """The settings as numbers, with room for an algorithm's own."""
    config, rule, priorities = agent.config, np.zeros(size), agent.config.priorities
    values = {
        ACTIVATION: ACTIVATIONS[config.net.activation],
        ADAM_EPS: config.adam_eps,
        N_STEP: config.n_step,
        GAMMA: config.gamma,
        SCALE: 1.0 if agent.norm else agent.layout.scale,
        NORM_CLIP: agent.norm.clip if agent.norm else 0,
        STARTS: config.learning_starts,
        EVERY: config.every,
        PER_ROUND: config.updates,
    }
    if priorities:
        values |= {PRIORITIZED: True, ALPHA: priorities.alpha, PRIORITY_EPS: priorities.eps}
        rule[BETA : BETA + 4] = as_numbers(priorities.beta)
    rule[LR : LR + 4] = as_numbers(config.lr)
    rule[list(values)] = list(values.values())
    return rule


def statistics(agent: Any) -> dict[str, np.ndarray]:
    """Of observations: how many were seen, and their moments [3, features]; [3, 0] where they are
    not normalised."""
    if agent.norm is None:
        return {"norm_count": np.zeros(1, np.int64), "norm": np.zeros((3, 0))}
    return {"norm_count": agent.norm.count, "norm": agent.norm.moments}


@kernel(inline="always")
def draw_rows(stream, step, rule, m_count, m_tree, m_ready, m_head, row, draw, weight):
    """Rows of the memory for a batch, by priorities or all alike, into `row`. Of `weight` those of
    uniform replay stay as they are."""
    if rule[PRIORITIZED]:
        beta = schedule_at(rule, BETA, step)
        draw_prioritized(stream, m_count, m_tree, beta, row, draw, weight)
    else:
        draw_ready(stream, m_count, m_ready, m_head, row)


@kernel(inline="always")
def see_rows(rows, rule, norm, inputs):
    """Rows [B, features] as networks take them, by the statistics as they are now."""
    turn_rows(rows, rule[SCALE], inputs)
    if norm.shape[1]:
        norm_columns(inputs, norm, rule[NORM_CLIP])


@kernel(inline="always")
def norm_batch(inputs, rule, norm):
    """Observations and next observations [2, features and more, B], likewise: the memory has them
    as environments show them."""
    if norm.shape[1]:
        for k in range(2):
            norm_columns(inputs[k, : norm.shape[1]], norm, rule[NORM_CLIP])


@kernel(inline="always")
def count_stored(counter, rule, skipped, e_obs, norm_count, norm, rows):
    """After a step was stored: running statistics take in what is acted on next, steps and rounds
    are counted, and updates become due; none before learning starts, or where the memory has no
    rows."""
    if norm.shape[1]:
        norm_update(norm_count, norm[0], norm[1], e_obs)
        norm_scale(norm_count, norm[1], EPSILON, norm[2])
    before = counter[STEP]
    for i in range(skipped.size):
        counter[STEP] += not skipped[i]
    counter[ROUNDS] += 1
    every = int(rule[EVERY])
    due = (counter[STEP] // every - before // every) * int(rule[PER_ROUND])
    counter[DUE] = due if counter[STEP] > rule[STARTS] and rows > 0 else 0
