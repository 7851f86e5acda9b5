"""What compiled rounds with a replay memory share (`engines.fused`): storing a step, which updates
are due, and drawing a batch."""

import numpy as np

from tenfold.core.kernels import kernel, schedule_at
from tenfold.core.tables import open_table
from tenfold.core.work import block_size, bounds_of, pieces_of, share_work
from tenfold.engines.fused import (
    DISCOUNT,
    DUE,
    FIRST_NUMBER,
    REWARD,
    ROUNDS,
    STEP,
    WEIGHT,
    one_round,
)
from tenfold.memory.replay_gather import drawn_returns, gather_items, gather_masks
from tenfold.memory.replay_rows import Stored, add_masks, add_rows, draw_prioritized, draw_ready
from tenfold.ops.moments import EPSILON, norm_columns, norm_scale, norm_update

ONE_FRAME, FIRST_LANE = np.int64(1), np.int64(0)  # typed, as in `engines.fused`


@kernel(inline="always")
def replay_round(store, update, act, stages, table, step):
    """`one_round` with a replay memory; `store` is `store_in_replay`, or more than that."""
    m_obs, m_action, e_action, e_obs, _ = step
    memory, acting = (m_obs, m_action), (e_action, e_obs)
    return one_round(store, update, act, stages, table, step, memory, acting)


@kernel(inline="always")
def store_in_replay(table, step):
    """The step just made, into the memory. Running statistics take in what is acted on next, steps
    and rounds are counted, and updates become due; none before learning starts, or where the memory
    has no rows."""
    m_obs, m_action, e_action, e_obs, e_final_obs = step
    a = open_table(table)
    if a.m_mask.shape[1]:
        ended = a.e_terminated, a.e_truncated
        add_masks(a.m_mask, a.m_head, FIRST_LANE, *ended, a.e_skipped, a.e_mask, a.e_final_mask)
    add_rows(
        m_obs,
        m_action,
        a.m_reward,
        a.m_kind,
        a.m_ready,
        a.m_head,
        a.m_start,
        a.m_count,
        a.m_tree,
        a.m_top,
        a.n_step,
        ONE_FRAME,
        FIRST_LANE,
        e_action,
        a.e_reward,
        a.e_terminated,
        a.e_truncated,
        a.e_skipped,
        e_obs,
        e_final_obs,
    )
    counter = a.counter
    if a.norm.shape[1]:
        norm_update(a.norm_count, a.norm[0], a.norm[1], e_obs)
        norm_scale(a.norm_count, a.norm[1], EPSILON, a.norm[2])
    before = counter[STEP]
    for i in range(a.e_skipped.size):
        counter[STEP] += not a.e_skipped[i]
    counter[ROUNDS] += 1
    due = updates_due(table, before)
    counter[DUE] = due if counter[STEP] > a.learning_starts and a.m_count[0] > 0 else 0


@kernel(inline="always")
def updates_due(table, before):
    """As `OffPolicyConfig.updates_due`, from step `before` to now."""
    a = open_table(table)
    step, since = a.counter[STEP], a.since
    if a.every_episodes == 0:
        rounds = step // a.every - before // a.every
        return rounds * (a.every if a.updates < 0 else a.updates)
    since[0] += step - before
    since[1] += a.e_terminated[0] or a.e_truncated[0]
    if since[1] < a.every_episodes:
        return 0
    due = since[0] if a.updates < 0 else a.updates
    since[:] = 0
    return due


@kernel
def gather_block(index, table, block, m_obs, m_action, action):
    """Some items of a batch, as networks take them."""
    a = open_table(table)
    first, count = bounds_of(index, a.row.size, block)
    gather_items(
        first,
        first + count,
        a.row,
        a.m_ready.size // a.m_head.size,
        a.n_step,
        a.gamma,
        a.obs_scale,
        Stored(m_obs, m_action, a.m_reward, a.m_kind),
        a.inputs[0],
        action,
        a.items[REWARD],
        a.items[DISCOUNT],
        a.inputs[1],
    )


@kernel(inline="always")
def draw_batch(table, key, m_obs, m_action, action):
    """Draws rows of the memory, by priorities or all alike, and gathers them as networks take them:
    `inputs` [2, features, B], `items`, and `action`. Of the items' weights those of uniform replay
    stay as they are."""
    a = open_table(table)
    if a.prioritized:
        beta = schedule_at(a.beta, FIRST_NUMBER, a.counter[STEP])
        draw_prioritized(key, a.m_count, a.m_tree, beta, a.row, a.draw, a.items[WEIGHT])
    else:
        draw_ready(key, a.m_count, a.m_ready, a.m_head, a.row)
    length, block = a.m_ready.size // a.m_head.size, block_size(a.team, a.row.size)
    blocks = pieces_of(a.row.size, block)
    share_work(a.team, blocks, gather_block, (table, block, m_obs, m_action, action))
    if a.norm.shape[1]:  # the memory has observations as environments show them
        for k in range(2):
            norm_columns(a.inputs[k, : a.norm.shape[1]], a.norm, a.norm_clip)
    if a.reward_moments.size:
        drawn_returns(
            a.row,
            length,
            a.n_step,
            a.gamma,
            a.m_reward,
            a.m_kind,
            a.reward_moments[2, 0],
            a.reward_limit[0],
            a.items[REWARD],
        )
    if a.m_mask.shape[1]:
        gather_masks(a.row, length, a.n_step, a.m_kind, a.m_mask, a.next_mask)
