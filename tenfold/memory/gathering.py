"""Batches from a replay memory: next observations and n-step returns are found by index.

Where a network sees the last k frames, rows still hold one frame each: `stack_frames` puts them
together from the row and those before it in its episode, for the learner and for whoever acts. The
k − 1 oldest rows, whose frames are gone, are not ready.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.memory.rows import (
    FINAL,
    PENDING,
    STEP,
    TERMINATED,
    TRUNCATED,
    copy_action,
    stored_examples,
)

SIZE, GAMMA = 33, 0.9  # of the examples


def gather_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for stored, ready, head, _, n_step, frames in stored_examples(rng, dtype):
        yield (
            rng.choice(np.flatnonzero(ready), SIZE),
            len(ready) // len(head),
            n_step,
            frames,
            GAMMA,
            stored,
            np.zeros((SIZE, 2 * frames), dtype),
            np.zeros(SIZE, np.int64),
            np.zeros(SIZE, np.float32),
            np.zeros(SIZE, np.float32),
            np.zeros((SIZE, 2 * frames), dtype),
        )


def stack_reference(obs, kind, lane, length, place, frames):
    """The row's frame after the k − 1 before it; before an episode's first frame comes that frame
    again."""
    found = [obs[place]]
    while len(found) < frames:
        before = lane + (place - lane - 1) % length
        place = place if kind[before] in (FINAL, PENDING) else before
        found.insert(0, obs[place])
    return np.concatenate(found)


def gather_reference(
    row,
    length,
    n_step,
    frames,
    gamma,
    stored,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    """R = Σ_{j<k} γ^j r_{t+j} and the observation k steps later, k = n or the steps to the
    episode's end if fewer."""
    obs, action, reward, kind = stored
    for item, place in enumerate(row):
        lane, at = place // length * length, place % length
        path = [lane + (at + j) % length for j in range(n_step)]
        ends = [j for j, p in enumerate(path) if kind[p] in (TERMINATED, TRUNCATED)]
        k = ends[0] + 1 if ends else n_step
        out_obs[item], out_action[item] = (
            stack_reference(obs, kind, lane, length, place, frames),
            action[place],
        )
        out_reward[item] = sum(gamma**j * float(reward[path[j]]) for j in range(k))
        out_discount[item] = 0.0 if kind[path[k - 1]] == TERMINATED else gamma**k
        out_next[item] = stack_reference(obs, kind, lane, length, lane + (at + k) % length, frames)
    return out_obs, out_action, out_reward, out_discount, out_next


@kernel
def stack_frames(obs, kind, lane, length, place, frames, out, item):
    """The frame of row `place` and the k − 1 before it in its episode into out[item], oldest
    first."""
    size, flat = obs.shape[1], out[item]
    for j in range(frames - 1, -1, -1):
        frame, seen = obs[place], flat[j * size : (j + 1) * size]
        # between two views of one dimension: a copy of whole words, seven times as fast as by two
        # indices
        for c in range(size):
            seen[c] = frame[c]
        if j:
            before = place - 1 if place > lane else lane + length - 1
            place = before if kind[before] != FINAL and kind[before] != PENDING else place


@kernel
def ahead(place, lane, length, n_step, gamma, reward, kind):
    """The n-step return from row `place` on, the discount after it and the row of the observation
    there."""
    total, discount = 0.0, 1.0
    for _ in range(n_step):
        total += discount * reward[place]
        discount *= gamma
        what = kind[place]
        place = place + 1 if place + 1 < lane + length else lane
        if what == TERMINATED:
            discount = 0.0
        if what != STEP:
            break
    return total, discount, place


@pair(gather_reference, gather_examples, rtol=1e-6, atol=1e-6, dtypes=("float32", "uint8"))
@kernel
def gather(
    row,
    length,
    n_step,
    frames,
    gamma,
    stored,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    obs, action, reward, kind = stored
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        stack_frames(obs, kind, lane, length, place, frames, out_obs, item)
        copy_action(out_action, item, action, place)
        out_reward[item], out_discount[item], place = ahead(
            place, lane, length, n_step, gamma, reward, kind
        )
        stack_frames(obs, kind, lane, length, place, frames, out_next, item)
    return out_obs, out_action, out_reward, out_discount, out_next


def columns_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for row, length, n_step, frames, gamma, stored, seen, *rest, _ in gather_examples(rng, dtype):
        if frames == 1:
            columns = np.zeros((2, *seen.shape[::-1]), np.float32)
            yield row, length, n_step, gamma, 0.5, stored, columns[0], *rest, columns[1]


def gather_columns_reference(
    row,
    length,
    n_step,
    gamma,
    scale,
    stored,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    rows = np.zeros((2, *out_obs.shape[::-1]), stored.obs.dtype)
    gather_reference(
        row,
        length,
        n_step,
        1,
        gamma,
        stored,
        rows[0],
        out_action,
        out_reward,
        out_discount,
        rows[1],
    )
    return (
        rows[0].T * np.float32(scale),
        out_action,
        out_reward,
        out_discount,
        rows[1].T * np.float32(scale),
    )


@kernel
def put_action(action, place, out, item):
    """Of a row, as a whole number or as a column."""
    if action.ndim == 1:
        out[item] = action[place]
    else:
        for d in range(action.shape[1]):
            out[d, item] = action[place, d]


@pair(gather_columns_reference, columns_examples, rtol=1e-6, atol=1e-6, dtypes=("float32", "uint8"))
@kernel
def gather_columns(
    row,
    length,
    n_step,
    gamma,
    scale,
    stored,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    """`gather` of single frames as networks take them: observations as columns [features, B],
    scaled; actions of real numbers as columns [D, B] too."""
    obs, action, reward, kind = stored
    factor = np.float32(scale)
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        for j in range(obs.shape[1]):
            out_obs[j, item] = obs[place, j] * factor
        put_action(action, place, out_action, item)
        out_reward[item], out_discount[item], place = ahead(
            place, lane, length, n_step, gamma, reward, kind
        )
        for j in range(obs.shape[1]):
            out_next[j, item] = obs[place, j] * factor
    return out_obs, out_action, out_reward, out_discount, out_next
