"""Replay memory: every observation is stored once; next observations and n-step returns are found
by index when sampling.

Each environment has a lane of L rows, a ring of its own. The row at `head` is pending: it holds the
current observation and waits for its action. A step completes it and writes the next observation
into the following row. At an episode's end that following row keeps the TRUE final observation
(kind FINAL, never sampled) and the new episode starts one row later:

    row        0     1     2     3      4     5
    obs        s0    s1    s2    s_T    s0'   s1'
    kind       STEP  STEP  TERM  FINAL  STEP  PENDING

A row is `ready` once its n-step return can be computed: n rows were completed, or its episode ended
before that.

Where a network sees the last k frames, rows still hold one frame each: `stack_frames` puts them
together from the row and those before it in its episode, for the learner and for whoever acts. The
k − 1 oldest rows, whose frames are gone, are not ready.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.core.spaces import ObsLayout
from tenfold.core.system import require_memory
from tenfold.ops.sumtree import find_into, make_tree, put, put_one, sum_above

PENDING, STEP, TERMINATED, TRUNCATED, FINAL = range(5)
ATTEMPTS = 64  # draws for one item before it walks on to the next ready row instead
ROW_BYTES = 4 + 4 + 1 + 1  # action, reward, kind, ready


class ReplaySettings(Protocol):
    """What a replay memory needs to know of its agent's settings."""

    @property
    def capacity(self) -> int: ...
    @property
    def n_step(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def frames(self) -> int: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def accumulate(self) -> int: ...
    @property
    def priorities(self) -> Any: ...  # alpha, beta and eps of prioritised replay; None: uniform


@dataclass(frozen=True)
class Batch:
    """Arrays that every `sample` overwrites. `discount` is γⁿ, 0 where the episode terminated
    within the n steps."""

    row: np.ndarray
    obs: np.ndarray
    action: np.ndarray
    reward: np.ndarray
    discount: np.ndarray
    next_obs: np.ndarray
    weight: np.ndarray


def replay_bytes(config: ReplaySettings, layout: ObsLayout, num_envs: int) -> int:
    """Memory the replay will take, batches aside."""
    rows = config.capacity // num_envs * num_envs
    tree = make_tree(1).itemsize * 2 * (1 << (rows - 1).bit_length()) if config.priorities else 0
    return rows * (layout.size * layout.dtype.itemsize + ROW_BYTES) + tree


class Replay:
    """Rows of all environments, allocated once. Uniform or prioritised, by the agent's settings."""

    def __init__(
        self, config: ReplaySettings, layout: ObsLayout, num_envs: int, seed: int, member: int = 0
    ) -> None:
        """`member`: which agent of a world."""
        require_memory(replay_bytes(config, layout, num_envs))
        self.lane_rows = config.capacity // num_envs
        self.n_step, self.gamma, self.layout, self.frames = (
            config.n_step,
            config.gamma,
            layout,
            config.frames,
        )
        rows, size = self.lane_rows * num_envs, config.batch_size * config.accumulate
        self.obs = np.zeros((rows, layout.size), layout.dtype)
        self.action = np.zeros(rows, np.int32)
        self.reward = np.zeros(rows, np.float32)
        self.kind = np.zeros(rows, np.uint8)
        self.ready = np.zeros(rows, np.bool_)
        # counts rows ever used; its place in the lane is head % L
        self.head = np.zeros(num_envs, np.int64)
        self.start = np.zeros(num_envs, np.int64)  # head at the start of the current episode
        self.count = np.zeros(2, np.int64)  # ready rows, batches drawn so far
        self.priorities = config.priorities
        self.tree = make_tree(rows if self.priorities else 0)
        self.top = np.ones(1)  # the largest priority so far, given to new rows
        self.stream = key(seed, Purpose.REPLAY, member)
        self.draw = np.zeros(size)  # scratch
        shape = (
            (size, *layout.shape) if config.frames == 1 else (size, config.frames, *layout.shape)
        )
        self.use(
            Batch(
                np.zeros(size, np.int64),
                np.zeros(shape, layout.dtype),
                np.zeros(size, np.int64),
                np.zeros(size, np.float32),
                np.zeros(size, np.float32),
                np.zeros(shape, layout.dtype),
                np.ones(size, np.float32),
            )
        )

    @property
    def each(self) -> "list[Replay]":
        """The memories it is made of: itself."""
        return [self]

    def use(self, batch: Batch) -> None:
        """Batches are written into these arrays from now on."""
        self.batch = batch
        self.flat_obs, self.flat_next_obs = (
            array.reshape(len(array), -1) for array in (batch.obs, batch.next_obs)
        )

    def begin(self, obs: np.ndarray) -> None:
        """The first observations, one for each lane."""
        self.obs[self.head % self.lane_rows + np.arange(len(obs)) * self.lane_rows] = obs.reshape(
            len(obs), -1
        )

    def add(
        self,
        action: np.ndarray,
        reward: np.ndarray,
        terminated: np.ndarray,
        truncated: np.ndarray,
        skipped: np.ndarray,
        obs: np.ndarray,
        final_obs: np.ndarray,
        first: int = 0,
    ) -> None:
        """One step of the environments whose lanes begin with `first`: all of them, or an actor's.
        `obs` is what each acts on next; `final_obs` counts where an episode ended."""
        add_rows(
            self.obs,
            self.action,
            self.reward,
            self.kind,
            self.ready,
            self.head,
            self.start,
            self.count,
            self.tree,
            self.top,
            self.n_step,
            self.frames,
            first,
            action,
            reward,
            terminated,
            truncated,
            skipped,
            obs.reshape(-1, self.layout.size),
            final_obs.reshape(-1, self.layout.size),
        )

    def cut(self, obs: np.ndarray, first: int = 0) -> None:
        """Ends the running episodes of the lanes from `first` on as if by a time limit and begins
        others at `obs` (after a resume that is not exact, or an actor's death)."""
        lanes = first + np.arange(len(obs))
        last = lanes * self.lane_rows + (self.head[lanes] - 1) % self.lane_rows
        pending = lanes * self.lane_rows + self.head[lanes] % self.lane_rows
        running = self.head[lanes] > self.start[lanes]
        self.head[lanes] -= running  # take the last step back and store it again as truncated
        self.count[0] -= int(self.ready[last][running].sum())
        self.ready[last[running]] = False
        if self.priorities:
            put(self.tree, last[running], np.zeros(int(running.sum())))
        self.add(
            self.action[last],
            self.reward[last].astype(np.float64),
            np.zeros_like(running),
            running,
            ~running,
            obs,
            self.obs[pending],
            first,
        )

    def sample(self, beta: float = 1.0) -> Batch:
        """A batch in the preallocated arrays; the next call overwrites it."""
        b = self.batch
        sample_rows(
            self.stream,
            self.count,
            self.tree,
            beta,
            self.ready,
            self.head,
            self.draw,
            self.n_step,
            self.frames,
            self.gamma,
            self.obs,
            self.action,
            self.reward,
            self.kind,
            b.row,
            b.weight,
            self.flat_obs,
            b.action,
            b.reward,
            b.discount,
            self.flat_next_obs,
        )
        return b

    def prioritise(self, error: np.ndarray) -> None:
        """New priorities for the rows of the last batch, from their TD errors."""
        assert self.priorities
        write_priorities(
            self.tree, self.top, self.batch.row, error, self.priorities.alpha, self.priorities.eps
        )

    @property
    def rows(self) -> int:
        """Transitions that can be drawn."""
        return int(self.count[0])

    def state(self) -> dict[str, np.ndarray]:
        """Everything but observations, actions and rewards, which `written` gives piece by
        piece."""
        size = self.tree.size // 2
        return {
            "kind": self.kind,
            "ready": self.ready,
            "head": self.head,
            "start": self.start,
            "count": self.count,
            "top": self.top,
            "leaves": self.tree[size:],
        }

    def written(self, since: np.ndarray) -> dict[str, np.ndarray]:
        """The rows written after the heads were at `since`, with the places they belong to."""
        places = []
        for lane, (old, new) in enumerate(zip(since, self.head, strict=True)):
            # one row further than needed at the left, since the row pending then was completed
            # later
            places.append(
                lane * self.lane_rows
                + np.arange(max(old, new - self.lane_rows + 1), new + 1) % self.lane_rows
            )
        place = np.concatenate(places)
        return {
            "place": place,
            "obs": self.obs[place],
            "action": self.action[place],
            "reward": self.reward[place],
        }

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        for name in ("obs", "action", "reward"):
            getattr(self, name)[rows["place"]] = rows[name]

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name, own in self.state().items():
            if own.shape != state[name].shape:
                raise UserError(
                    f"The saved replay's {name} has shape {state[name].shape}, and this one's has "
                    f"{own.shape}."
                )
        for name in ("kind", "ready", "head", "start", "count", "top"):
            getattr(self, name)[:] = state[name]
        put(self.tree, np.arange(self.tree.size // 2), state["leaves"])


# kernels


@kernel
def copy_row(target, place, source, other):
    """target[place] = source[other]; a loop compiles in a seventh of an assignment's time."""
    for j in range(source.shape[1]):
        target[place, j] = source[other, j]


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
        action[place] = new_action[i]
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


class ExampleSettings(NamedTuple):
    capacity: int
    n_step: int
    frames: int
    gamma: float = 0.9
    batch_size: int = 33
    accumulate: int = 1
    priorities: None = None


def stored_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
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
        layout = ObsLayout((2,), np.dtype(dtype), (2,), 1.0)
        memory = Replay(
            ExampleSettings(capacity, n_step, frames),
            layout,
            lanes,
            int(rng.integers(99)),
        )
        memory.begin(rng.integers(0, 99, (lanes, 2)).astype(dtype))
        for _ in range(steps):
            ends = rng.random((2, lanes)) < 0.08
            memory.add(
                rng.integers(0, 5, lanes),
                rng.normal(size=lanes),
                ends[0],
                ends[1],
                np.zeros(lanes, np.bool_),
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
                rng.integers(0, 99, (lanes, 2)).astype(dtype),
            )
        yield (memory,)


def draw_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (memory,) in stored_examples(rng, "float32"):
        yield (
            memory.stream,
            np.array([memory.count[0], 5]),
            memory.ready,
            memory.head,
            np.zeros(33, np.int64),
        )
        yield (
            memory.stream,
            np.array([memory.count[0], 0]),
            memory.ready,
            memory.head,
            np.zeros(1, np.int64),
        )


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


def gather_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (memory,) in stored_examples(rng, dtype):
        b = memory.sample()
        yield (
            b.row,
            memory.lane_rows,
            memory.n_step,
            memory.frames,
            memory.gamma,
            memory.obs,
            memory.action,
            memory.reward,
            memory.kind,
            memory.flat_obs,
            b.action,
            b.reward,
            b.discount,
            memory.flat_next_obs,
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
    obs,
    action,
    reward,
    kind,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    """R = Σ_{j<k} γ^j r_{t+j} and the observation k steps later, k = n or the steps to the
    episode's end if fewer."""
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
    obs,
    action,
    reward,
    kind,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        stack_frames(obs, kind, lane, length, place, frames, out_obs, item)
        out_action[item] = action[place]
        out_reward[item], out_discount[item], place = ahead(
            place, lane, length, n_step, gamma, reward, kind
        )
        stack_frames(obs, kind, lane, length, place, frames, out_next, item)
    return out_obs, out_action, out_reward, out_discount, out_next


def columns_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for (
        row,
        length,
        n_step,
        frames,
        gamma,
        obs,
        *rest,
        seen,
        action,
        reward,
        discount,
        _,
    ) in gather_examples(rng, dtype):
        if frames == 1:
            columns = np.zeros((2, *seen.shape[::-1]), np.float32)
            yield (
                row,
                length,
                n_step,
                gamma,
                0.5,
                obs,
                *rest,
                columns[0],
                action,
                reward,
                discount,
                columns[1],
            )


def gather_columns_reference(
    row,
    length,
    n_step,
    gamma,
    scale,
    obs,
    action,
    reward,
    kind,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    rows = np.zeros((2, *out_obs.shape[::-1]), obs.dtype)
    gather_reference(
        row,
        length,
        n_step,
        1,
        gamma,
        obs,
        action,
        reward,
        kind,
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


@pair(gather_columns_reference, columns_examples, rtol=1e-6, atol=1e-6, dtypes=("float32", "uint8"))
@kernel
def gather_columns(
    row,
    length,
    n_step,
    gamma,
    scale,
    obs,
    action,
    reward,
    kind,
    out_obs,
    out_action,
    out_reward,
    out_discount,
    out_next,
):
    """`gather` of single frames as networks take them: observations as columns [features, B],
    scaled."""
    factor = np.float32(scale)
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        for j in range(obs.shape[1]):
            out_obs[j, item] = obs[place, j] * factor
        out_action[item] = action[place]
        out_reward[item], out_discount[item], place = ahead(
            place, lane, length, n_step, gamma, reward, kind
        )
        for j in range(obs.shape[1]):
            out_next[j, item] = obs[place, j] * factor
    return out_obs, out_action, out_reward, out_discount, out_next


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
        obs,
        action,
        reward,
        kind,
        out_obs,
        out_action,
        out_reward,
        out_discount,
        out_next,
    )


@kernel
def write_priorities(tree, top, row, error, alpha, eps):
    set_priorities(tree, top, row, error, alpha, eps)
