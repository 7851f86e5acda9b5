"""Which rows of a replay memory make a batch: uniform over those that are ready, or by priority."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.memory.gathering import gather
from tenfold.memory.rows import Stored, stored_examples
from tenfold.ops.sampling import find_into, make_tree, put, sum_above

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
        place = 0
        for attempt in range(ATTEMPTS):
            choice = int(
                draw_uniform(stream, (count[1] * row.size + item) * ATTEMPTS + attempt)
                * used
                * head.size
            )
            # a division costs as much as a cache miss; the first lane needs none
            place = choice if choice < used else choice // used * length + choice % used
            if ready[place]:
                break
        while not ready[place]:
            place = (place + 1) % ready.size
        row[item] = place
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
    for place, e in zip(row, error, strict=True):
        priority = (abs(float(e)) + eps) ** alpha
        tree[len(tree) // 2 + place] = priority
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


# called from Python: an array returned costs a call 0.2 µs


@kernel
def sample_rows(
    stream,
    count,
    tree,
    beta,
    ready,
    head,
    draw,
    n_step,
    frames,
    gamma,
    obs,
    action,
    reward,
    kind,
    out_row,
    out_weight,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    if tree.size > 2:
        draw_prioritized(stream, count, tree, beta, out_row, draw, out_weight)
    else:
        draw_ready(stream, count, ready, head, out_row)
    gather(
        out_row,
        ready.size // head.size,
        n_step,
        frames,
        gamma,
        Stored(obs, action, reward, kind),
        out_obs,
        out_action,
        out_reward,
        out_discount,
        out_next,
    )


@kernel
def write_priorities(tree, top, row, error, alpha, eps):
    set_priorities(tree, top, row, error, alpha, eps)
