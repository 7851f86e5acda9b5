"""Rows of a replay memory: what each holds, and how a step of environments is written.

Each environment has a lane of L rows, a ring of its own. The row at `head` is pending: it holds the
current observation and waits for its action. A step completes it and writes the next observation
into the following row. At an episode's end that following row keeps the TRUE final observation
(kind FINAL, never sampled) and the new episode starts one row later:

    row        0     1     2     3      4     5
    obs        s0    s1    s2    s_T    s0'   s1'
    kind       STEP  STEP  TERM  FINAL  STEP  PENDING

A row is `ready` once its n-step return can be computed: n rows were completed, or its episode ended
before that.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.ops.sampling import make_tree, put_one

PENDING, STEP, TERMINATED, TRUNCATED, FINAL = range(5)


class Stored(NamedTuple):
    """The rows of all lanes, one after another."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    kind: np.ndarray


@kernel
def copy_row(target, place, source, other):
    """target[place] = source[other]; a loop compiles in a seventh of an assignment's time."""
    for j in range(source.shape[1]):
        target[place, j] = source[other, j]


@kernel
def copy_action(target, place, source, other):
    """As `copy_row`, of one number or several."""
    if target.ndim == 1:
        target[place] = source[other]
    else:
        copy_row(target, place, source, other)


@kernel
def set_ready(place, ready, count, tree, priority):
    if not ready[place]:
        ready[place] = True
        count[0] += 1
        if tree.size > 2:
            put_one(tree, place, priority)


@kernel
def clear_row(h, base, length, frames, kind, ready, count, tree):
    """Row h of a lane is about to be written. Of what is left the row k − 1 further on is now the
    last without all its frames."""
    kind[base + h % length] = PENDING
    place = base + (h + frames - 1) % length
    if ready[place]:
        ready[place] = False
        count[0] -= 1
        if tree.size > 2:
            put_one(tree, place, 0.0)


@kernel
def add_rows(
    obs,
    action,
    reward,
    kind,
    ready,
    head,
    start,
    count,
    tree,
    top,
    n_step,
    frames,
    first_lane,
    new_action,
    new_reward,
    terminated,
    truncated,
    skipped,
    new_obs,
    final_obs,
):
    length = obs.shape[0] // head.size
    for i in range(skipped.size):
        lane = first_lane + i
        base, h = lane * length, head[lane]
        if skipped[i]:  # no transition: only the observation to act on has changed
            copy_row(obs, base + h % length, new_obs, i)
            continue
        place = base + h % length
        ended = terminated[i] or truncated[i]
        copy_action(action, place, new_action, i)
        reward[place] = new_reward[i]
        kind[place] = TERMINATED if terminated[i] else TRUNCATED if truncated[i] else STEP
        first = max(start[lane], h - n_step + 1)
        if ended:
            for row in range(first, h + 1):
                set_ready(base + row % length, ready, count, tree, top[0])
        elif h - n_step + 1 >= start[lane]:
            set_ready(base + first % length, ready, count, tree, top[0])
        h += 1
        clear_row(h, base, length, frames, kind, ready, count, tree)
        copy_row(obs, base + h % length, final_obs if ended else new_obs, i)
        if ended:
            kind[base + h % length] = FINAL
            h += 1
            clear_row(h, base, length, frames, kind, ready, count, tree)
            copy_row(obs, base + h % length, new_obs, i)
            start[lane] = h
        head[lane] = h


class Example(NamedTuple):
    """A memory for the pairs of drawing and gathering."""

    stored: Stored
    ready: np.ndarray
    head: np.ndarray
    counts: np.ndarray
    n_step: int
    frames: int


def stored_examples(rng: np.random.Generator, dtype: str) -> Iterator[Example]:
    """Memories filled with short random episodes: before and after the ring wraps, one lane and
    three, n = 1, 3, 7, frames."""
    for lanes, capacity, steps, n_step, frames in (
        (1, 64, 40, 1, 1),
        (1, 64, 200, 3, 1),
        (3, 90, 100, 7, 1),
        (2, 40, 300, 3, 1),
        (1, 64, 30, 1, 4),
        (2, 60, 300, 3, 5),
    ):
        stored = Stored(
            rng.integers(0, 99, (capacity, 2)).astype(dtype),
            np.zeros(capacity, np.int32),
            np.zeros(capacity, np.float32),
            np.zeros(capacity, np.uint8),
        )
        ready, head = np.zeros(capacity, np.bool_), np.zeros(lanes, np.int64)
        start, count = np.zeros(lanes, np.int64), np.zeros(2, np.int64)
        for _ in range(steps):
            ends = rng.random((2, lanes)) < 0.08
            add_rows(
                *stored,
                ready,
                head,
                start,
                count,
                make_tree(0),
                np.ones(1),
                n_step,
                frames,
                0,
                rng.integers(0, 5, lanes),
                rng.normal(size=lanes),
                ends[0],
                ends[1],
                np.zeros(lanes, np.bool_),
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
            )
        yield Example(stored, ready, head, count, n_step, frames)
