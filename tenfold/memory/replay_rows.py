"""Rows of a replay memory: what a row holds, how a step of environments is stored, and which rows
make a batch: uniform over those that are ready, or by priority.

Each environment has a ring of L rows. The row at `head` is pending: it holds the current
observation and waits for its action. A step completes it and writes the next observation into the
following row. At an episode's end that following row keeps the TRUE final observation (kind FINAL,
never sampled) and the new episode starts one row later:

    row        0     1     2     3      4     5
    obs        s0    s1    s2    s_T    s0'   s1'
    kind       STEP  STEP  TERM  FINAL  STEP  PENDING

A row is `ready` once its n-step return can be computed: n rows were completed, or its episode ended
before that. Where a network sees the last k frames, a row still holds one frame; the k − 1 oldest
rows, whose earlier frames are overwritten, are not ready. Masks of allowed actions lie in rows as
observations do, `[rows, 0]` where the environment offers none.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.ops.sampling import find_into, make_tree, put, put_one, sum_above

PENDING, STEP, TERMINATED, TRUNCATED, FINAL = range(5)


class Stored(NamedTuple):
    """The rows of all environments, one ring after another."""

    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    kind: np.ndarray


@kernel
def copy_row(target, row, source, other):
    """target[row] = source[other]; a loop compiles in a seventh of an assignment's time."""
    for j in range(source.shape[1]):
        target[row, j] = source[other, j]


@kernel
def copy_action(target, row, source, other):
    """As `copy_row`, of one number or several."""
    if target.ndim == 1:
        target[row] = source[other]
    else:
        copy_row(target, row, source, other)


@kernel
def set_ready(row, ready, count, tree, priority):
    if not ready[row]:
        ready[row] = True
        count[0] += 1
        if tree.size > 2:
            put_one(tree, row, priority)


@kernel
def clear_row(h, base, length, frames, kind, ready, count, tree):
    """Row h of a ring is about to be written. Of what is left the row k − 1 further on is now the
    last without all its frames."""
    kind[base + h % length] = PENDING
    row = base + (h + frames - 1) % length
    if ready[row]:
        ready[row] = False
        count[0] -= 1
        if tree.size > 2:
            put_one(tree, row, 0.0)


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
    first_env,
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
        env = first_env + i
        base, h = env * length, head[env]
        if skipped[i]:  # no transition: only the observation to act on has changed
            copy_row(obs, base + h % length, new_obs, i)
            continue
        row = base + h % length
        ended = terminated[i] or truncated[i]
        copy_action(action, row, new_action, i)
        reward[row] = new_reward[i]
        kind[row] = TERMINATED if terminated[i] else TRUNCATED if truncated[i] else STEP
        first = max(start[env], h - n_step + 1)
        if ended:
            for k in range(first, h + 1):
                set_ready(base + k % length, ready, count, tree, top[0])
        elif h - n_step + 1 >= start[env]:
            set_ready(base + first % length, ready, count, tree, top[0])
        h += 1
        clear_row(h, base, length, frames, kind, ready, count, tree)
        copy_row(obs, base + h % length, final_obs if ended else new_obs, i)
        if ended:
            kind[base + h % length] = FINAL
            h += 1
            clear_row(h, base, length, frames, kind, ready, count, tree)
            copy_row(obs, base + h % length, new_obs, i)
            start[env] = h
        head[env] = h


@kernel
def add_masks(mask, head, first_env, terminated, truncated, skipped, new_mask, final_mask):
    """The masks of the observations that `add_rows` is about to write, in the same rows."""
    length = mask.shape[0] // head.size
    for i in range(skipped.size):
        env = first_env + i
        base, h = env * length, head[env]
        if not skipped[i]:
            h += 1
            if terminated[i] or truncated[i]:
                copy_row(mask, base + h % length, final_mask, i)
                h += 1
        copy_row(mask, base + h % length, new_mask, i)


class ReplayExample(NamedTuple):
    """A memory for the pairs of drawing and gathering."""

    stored: Stored
    ready: np.ndarray
    head: np.ndarray
    counts: np.ndarray
    n_step: int
    frames: int


def stored_examples(rng: np.random.Generator, dtype: str) -> Iterator[ReplayExample]:
    """Memories filled with short random episodes: before and after the ring wraps, one environment
    and three, n = 1, 3, 7, frames."""
    for envs, capacity, steps, n_step, frames in (
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
        ready, head = np.zeros(capacity, np.bool_), np.zeros(envs, np.int64)
        start, count = np.zeros(envs, np.int64), np.zeros(2, np.int64)
        for _ in range(steps):
            ends = rng.random((2, envs)) < 0.08
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
                rng.integers(0, 5, envs),
                rng.normal(size=envs),
                ends[0],
                ends[1],
                np.zeros(envs, np.bool_),
                rng.integers(0, 99, (envs, 2)).astype(dtype),
                rng.integers(0, 99, (envs, 2)).astype(dtype),
            )
        yield ReplayExample(stored, ready, head, count, n_step, frames)


ATTEMPTS = 64  # draws for one item before it walks on to the next ready row instead


def draw_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for memory in stored_examples(rng, "float32"):
        stream = key(int(rng.integers(99)), Purpose.REPLAY)
        for drawn, size in ((5, 33), (0, 1)):
            count = np.array([memory.counts[0], drawn])
            yield stream, count, memory.ready, memory.head, np.zeros(size, np.int64)


def draw_ready_reference(stream, count, ready, head, row):
    """Uniform over ready rows: draw among the used rows of all lanes until one is ready."""
    length = len(ready) // len(head)
    used = min(int(head.max()) + 1, length)
    for item in range(len(row)):
        for attempt in range(ATTEMPTS):
            counter = (count[1] * len(row) + item) * ATTEMPTS + attempt
            choice = int(uniform_reference(stream, np.array([counter]))[0] * used * len(head))
            row[item] = choice // used * length + choice % used
            if ready[row[item]]:
                break
        while not ready[row[item]]:
            row[item] = (row[item] + 1) % len(ready)
    count[1] += 1
    return row, count


@pair(draw_ready_reference, draw_examples)
@kernel
def draw_ready(stream, count, ready, head, row):
    length, used = ready.size // head.size, 0
    for lane in range(head.size):  # head.max() takes a second to compile
        used = max(used, head[lane] + 1)
    used = min(used, length)
    for item in range(row.size):
        candidate = 0
        for attempt in range(ATTEMPTS):
            choice = int(
                draw_uniform(stream, (count[1] * row.size + item) * ATTEMPTS + attempt)
                * used
                * head.size
            )
            # a division costs as much as a cache miss; the first lane needs none
            candidate = choice if choice < used else choice // used * length + choice % used
            if ready[candidate]:
                break
        while not ready[candidate]:
            candidate = (candidate + 1) % ready.size
        row[item] = candidate
    count[1] += 1
    return row, count


def prioritized_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for leaves, size, beta in ((1, 1, 1.0), (100, 32, 0.4), (1000, 33, 1.0), (77, 8, 0.0)):
        tree = make_tree(leaves)
        put(tree, np.arange(leaves), rng.integers(0, 20, leaves).astype(np.float64))
        put(tree, np.zeros(1, np.int64), np.ones(1))
        yield (
            key(leaves, Purpose.REPLAY),
            np.array([0, 7]),
            tree,
            beta,
            np.zeros(size, np.int64),
            np.zeros(size),
            np.zeros(size, np.float32),
        )


def draw_prioritized_reference(stream, count, tree, beta, row, priority, weight):
    """Item i falls uniformly into the i-th of `size` equal parts of the total mass. w = (N·P)^−β
    over its largest."""
    leaf, size = tree[len(tree) // 2 :], len(row)
    u = uniform_reference(stream, count[1] * size + np.arange(size))
    row[:] = np.searchsorted(
        np.cumsum(leaf), (np.arange(size) + u) / size * leaf.sum(), side="right"
    )
    priority[:] = leaf[row]
    w = (np.count_nonzero(leaf) * priority / leaf.sum()) ** -beta
    weight[:] = w / w.max()
    count[1] += 1
    return row, priority, weight, count


@pair(draw_prioritized_reference, prioritized_examples, rtol=1e-6)
@kernel
def draw_prioritized(stream, count, tree, beta, row, priority, weight):
    least, mass = np.inf, priority
    for item in range(row.size):
        mass[item] = (item + draw_uniform(stream, count[1] * row.size + item)) / row.size * tree[1]
    find_into(tree, mass, row)
    for item in range(row.size):
        priority[item] = tree[tree.size // 2 + row[item]]
        least = min(least, priority[item])
    for item in range(row.size):  # N and the total cancel: w_i / max w = (p_min / p_i)^β
        weight[item] = (least / priority[item]) ** beta
    count[1] += 1
    return row, priority, weight, count


def priority_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for leaves, size in ((1, 1), (50, 32)):
        yield (
            make_tree(leaves),
            np.ones(1),
            rng.integers(0, leaves, size),
            rng.normal(size=size).astype(dtype),
            0.6,
            1e-6,
        )


def set_priorities_reference(tree, top, row, error, alpha, eps):
    for leaf, e in zip(row, error, strict=True):
        priority = (abs(float(e)) + eps) ** alpha
        tree[len(tree) // 2 + leaf] = priority
        top[0] = max(top[0], priority)
    for node in range(len(tree) // 2 - 1, 0, -1):
        tree[node] = tree[2 * node] + tree[2 * node + 1]
    return tree, top


@pair(set_priorities_reference, priority_examples, rtol=1e-12)
@kernel
def set_priorities(tree, top, row, error, alpha, eps):
    """p = (|TD error| + ε)^α for each row; of equal rows the last one counts."""
    for item in range(row.size):
        priority = (abs(np.float64(error[item])) + eps) ** alpha
        tree[tree.size // 2 + row[item]] = priority
        top[0] = max(top[0], priority)
    sum_above(tree, row)
    return tree, top


@kernel
def write_priorities(tree, top, row, error, alpha, eps):
    """`set_priorities`, called from Python: an array returned costs a call 0.2 µs."""
    set_priorities(tree, top, row, error, alpha, eps)
