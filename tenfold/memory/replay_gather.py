"""Batches of a replay memory: next observations and n-step returns are found by index."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.memory.replay_rows import (
    FINAL,
    PENDING,
    STEP,
    TERMINATED,
    TRUNCATED,
    copy_action,
    copy_row,
    draw_prioritized,
    draw_ready,
    stored_examples,
)

SIZE, GAMMA = 33, 0.9  # of the examples


def gather_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for stored, ready, head, _, n_step, frames in stored_examples(rng, dtype):
        row = rng.choice(np.flatnonzero(ready), SIZE)
        indices, returns = np.zeros((2, SIZE, frames), np.int64), np.zeros((2, SIZE), np.float32)
        action = np.zeros(SIZE, np.int64)
        length = len(ready) // len(head)
        yield row, length, n_step, GAMMA, 7, *stored[1:], indices, action, *returns


def frames_reference(kind, start, length, row, frames):
    """The row after the k − 1 before it; before an episode's first row stands that row again."""
    rows = [row]
    while len(rows) < frames:
        before = start + (row - start - 1) % length
        row = row if kind[before] in (FINAL, PENDING) else before
        rows.insert(0, row)
    return rows


def gather_rows_reference(
    row, length, n_step, gamma, first, action, reward, kind, indices, *outputs
):
    """R = Σ_{j<k} γ^j r_{t+j} and the observation k steps later, k = n or the steps to the
    episode's end if fewer."""
    out_action, out_reward, out_discount = outputs
    for item, t in enumerate(row):
        start, at = t // length * length, t % length
        path = [start + (at + j) % length for j in range(n_step + 1)]
        ends = [j for j, p in enumerate(path[:-1]) if kind[p] in (TERMINATED, TRUNCATED)]
        k = ends[0] + 1 if ends else n_step
        out_action[item] = action[t]
        out_reward[item] = sum(gamma**j * float(reward[path[j]]) for j in range(k))
        out_discount[item] = 0.0 if kind[path[k - 1]] == TERMINATED else gamma**k
        for which, observed in enumerate((t, path[k])):
            rows = frames_reference(kind, start, length, observed, indices.shape[2])
            indices[which, item] = np.add(rows, first)
    return indices, out_action, out_reward, out_discount


@kernel
def frame_before(kind, start, length, row):
    """The row before this one in its episode; of an episode's first row that row itself. The ring
    begins at `start`."""
    before = row - 1 if row > start else start + length - 1
    return before if kind[before] != FINAL and kind[before] != PENDING else row


@kernel
def frame_rows(kind, start, length, row, first, out):
    """Indices of the rows whose frames a network sees at `row`, oldest first, counted from
    `first`."""
    for j in range(out.size - 1, -1, -1):
        out[j] = first + row
        if j:
            row = frame_before(kind, start, length, row)


@kernel
def copy_frame(obs, row, out, item, j):
    """obs[row] as frame j of out[item]."""
    size = obs.shape[1]
    source, target = obs[row], out[item][j * size : (j + 1) * size]
    # between two views of one dimension: a copy of whole words, seven times as fast as by two
    # indices
    for c in range(size):
        target[c] = source[c]


@kernel
def n_step_return(row, start, length, n_step, gamma, reward, kind):
    """The n-step return from `row` on, the discount after it and the row of the observation
    there."""
    total, discount = 0.0, 1.0
    for _ in range(n_step):
        total += discount * reward[row]
        discount *= gamma
        what = kind[row]
        row = row + 1 if row + 1 < start + length else start
        if what == TERMINATED:
            discount = 0.0
        if what != STEP:
            break
    return total, discount, row


@pair(gather_rows_reference, gather_examples, rtol=1e-6, atol=1e-6)
@kernel
def gather_rows(
    row,
    length,
    n_step,
    gamma,
    first,
    action,
    reward,
    kind,
    indices,
    out_action,
    out_reward,
    out_discount,
):
    """A batch without its observations: `indices` [2, B, frames] of the rows of those of s and s',
    in a table in which row 0 of this memory is number `first`."""
    single = indices.shape[2] == 1  # written at once: views take as long as all the rest
    for item in range(row.size):
        t = row[item]
        start = 0 if t < length else t // length * length
        if single:
            indices[0, item, 0] = first + t
        else:
            frame_rows(kind, start, length, t, first, indices[0, item])
        copy_action(out_action, item, action, t)
        out_reward[item], out_discount[item], t = n_step_return(
            t, start, length, n_step, gamma, reward, kind
        )
        if single:
            indices[1, item, 0] = first + t
        else:
            frame_rows(kind, start, length, t, first, indices[1, item])
    return indices, out_action, out_reward, out_discount


def return_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for row, length, n_step, gamma, _, _, reward, kind, *_ in gather_examples(rng, dtype):
        rewards = rng.normal(size=len(reward)).astype(np.float32)
        yield row, length, n_step, gamma, rewards, kind, 1.7, 1.2, np.zeros(len(row), np.float32)


def drawn_returns_reference(row, length, n_step, gamma, reward, kind, scale, limit, out):
    """The returns of `gather_rows` of rewards that are scaled, then clipped to ±limit."""
    unused = np.zeros((2, max(len(row), len(kind))))
    indices, scaled = np.zeros((2, len(row), 1), np.int64), np.clip(reward * scale, -limit, limit)
    outputs = unused[0], out, unused[1]
    gather_rows_reference(row, length, n_step, gamma, 0, unused[0], scaled, kind, indices, *outputs)
    return out


@pair(drawn_returns_reference, return_examples, rtol=1e-6, atol=1e-6)
@kernel
def drawn_returns(row, length, n_step, gamma, reward, kind, scale, limit, out):
    for item in range(row.size):
        t = row[item]
        start = 0 if t < length else t // length * length
        total, discount = 0.0, 1.0
        for _ in range(n_step):
            total += discount * min(max(reward[t] * scale, -limit), limit)
            discount *= gamma
            if kind[t] != STEP:
                break
            t = t + 1 if t + 1 < start + length else start
        out[item] = total
    return out


@kernel
def take_frames(obs, indices, out_obs, out_next):
    """The observations [B, frames · size] at the indices of `gather_rows`."""
    for item in range(indices.shape[1]):
        for j in range(indices.shape[2]):
            copy_frame(obs, indices[0, item, j], out_obs, item, j)
            copy_frame(obs, indices[1, item, j], out_next, item, j)


def columns_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for stored, ready, head, _, n_step, frames in stored_examples(rng, dtype):
        if frames == 1:
            row, columns = rng.choice(np.flatnonzero(ready), SIZE), np.zeros((2, 2, SIZE), "f4")
            returns, action = np.zeros((2, SIZE), np.float32), np.zeros(SIZE, np.int64)
            length = len(ready) // len(head)
            batch = columns[0], action, *returns, columns[1]
            yield row, length, n_step, GAMMA, 0.5, stored, *batch


def gather_columns_reference(row, length, n_step, gamma, scale, stored, *batch):
    indices, outputs = np.zeros((2, len(row), 1), np.int64), batch[1:4]
    gather_rows_reference(row, length, n_step, gamma, 0, *stored[1:], indices, *outputs)
    obs, next_obs = (stored.obs[rows[:, 0]].T * np.float32(scale) for rows in indices)
    return obs, *outputs, next_obs


@kernel
def put_action(action, row, out, item):
    """Of a row, as a whole number or as a column."""
    if action.ndim == 1:
        out[item] = action[row]
    else:
        for d in range(action.shape[1]):
            out[d, item] = action[row, d]


@kernel
def put_column(obs, row, factor, out, item):
    """out[:, item] = obs[row] · factor."""
    for j in range(obs.shape[1]):
        out[j, item] = obs[row, j] * factor


@kernel
def gather_items(
    first,
    last,
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
    """The items first … last − 1 of `gather_columns`."""
    obs, action, reward, kind = stored
    factor = np.float32(scale)
    for item in range(first, last):
        t = row[item]
        start = 0 if t < length else t // length * length
        put_column(obs, t, factor, out_obs, item)
        put_action(action, t, out_action, item)
        out_reward[item], out_discount[item], t = n_step_return(
            t, start, length, n_step, gamma, reward, kind
        )
        put_column(obs, t, factor, out_next, item)


@pair(gather_columns_reference, columns_examples, rtol=1e-6, atol=1e-6, dtypes=("float32", "uint8"))
@kernel
def gather_columns(
    row, length, n_step, gamma, scale, stored, obs, action, reward, discount, following
):
    """Batches of single frames as networks take them: observations as columns [features, B],
    scaled; actions of real numbers as columns [D, B] too."""
    outputs = obs, action, reward, discount, following
    gather_items(0, row.size, row, length, n_step, gamma, scale, stored, *outputs)
    return outputs


def mask_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for row, length, n_step, _, _, _, _, kind, indices, *_ in gather_examples(rng, dtype):
        if indices.shape[2] == 1:
            mask = rng.random((len(kind), 3)) < 0.5
            yield row, length, n_step, kind, mask, np.zeros((len(row), 3), np.bool_)


def gather_masks_reference(row, length, n_step, kind, mask, out):
    """The masks as if they were observations."""
    unused = np.zeros((3, max(len(row), len(kind))))
    indices = np.zeros((2, len(row), 1), np.int64)
    gather_rows_reference(row, length, n_step, 1.0, 0, unused[0], unused[0], kind, indices, *unused)
    return mask[indices[1, :, 0]]


@pair(gather_masks_reference, mask_examples)
@kernel
def gather_masks(row, length, n_step, kind, mask, out):
    """The masks of the states that a batch's returns end in."""
    for item in range(row.size):
        t = row[item]
        start = 0 if t < length else t // length * length
        # any array of numbers will do for rewards, whose sum is not used
        _, _, t = n_step_return(t, start, length, n_step, 1.0, kind, kind)
        copy_row(out, item, mask, t)
    return out


# called from Python: an array returned costs a call 0.2 µs


@kernel
def sample_indices(
    stream,
    count,
    tree,
    beta,
    ready,
    head,
    draw,
    n_step,
    gamma,
    first,
    action,
    reward,
    kind,
    row,
    indices,
    out_action,
    out_reward,
    out_discount,
    out_weight,
):
    """The next batch of a memory, drawn and gathered as by `gather_rows`."""
    if tree.size > 2:
        draw_prioritized(stream, count, tree, beta, row, draw, out_weight)
    else:
        draw_ready(stream, count, ready, head, row)
    length = ready.size // head.size
    batch = indices, out_action, out_reward, out_discount
    gather_rows(row, length, n_step, gamma, first, action, reward, kind, *batch)
