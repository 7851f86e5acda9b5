"""The latest steps of an experiment, and training sequences cut from them.

A row is an observation and the action that followed it. Rows live in a ring that is allocated once:
to append writes one row, to sample gathers rows once, and nothing is ever moved. A sequence never
crosses the border between two episodes: the ring keeps the ends of all whole sequences in a queue,
which an append lengthens and shortens by one at most.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform_reference
from tenfold.core.system import require_memory


def append_reference(obs, action, begins, length, ring, actions, first, ends, counters):
    """Adds one row of every member: obs [M, Y], action [M, A], begins [M]. counters [M, 4]: rows
    written, age in the episode of the last one, ends found, ends that went."""
    for m in range(len(obs)):
        row, capacity = counters[m, 0], ring.shape[1]
        ring[m, row % capacity], actions[m, row % capacity], first[m, row % capacity] = (
            obs[m],
            action[m],
            begins[m],
        )
        counters[m, 1] = 0 if begins[m] else counters[m, 1] + 1
        counters[m, 0] += 1
        if counters[m, 1] >= length - 1:
            ends[m, counters[m, 2] % capacity] = row
            counters[m, 2] += 1
        alive = [
            e
            for e in range(counters[m, 3], counters[m, 2])
            if ends[m, e % capacity] - length + 1 > row - capacity
        ]
        counters[m, 3] = alive[0] if alive else counters[m, 2]
    return ring, actions, first, ends, counters


def append_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, capacity, length in ((1, 5, 2), (3, 9, 4)):
        window = Window(list(range(members)), capacity, length, 2, 1)
        for row in range(3 * capacity):
            begins = np.full(members, row == 0 or rng.random() < 0.2)
            given = (
                rng.normal(size=(members, 2)).astype(dtype),
                rng.normal(size=(members, 1)).astype(dtype),
                begins,
            )
            arrays = window.obs, window.action, window.first, window.ends, window.counters
            yield *given, length, *arrays
            append_reference(*given, length, *arrays)


@pair(append_reference, append_examples)
@kernel
def append(obs, action, begins, length, ring, actions, first, ends, counters):
    capacity = ring.shape[1]
    for m in range(len(obs)):
        row = counters[m, 0]
        place = row % capacity
        for k in range(obs.shape[1]):
            ring[m, place, k] = obs[m, k]
        for k in range(action.shape[1]):
            actions[m, place, k] = action[m, k]
        first[m, place] = begins[m]
        counters[m, 1] = 0 if begins[m] else counters[m, 1] + 1
        counters[m, 0] = row + 1
        if counters[m, 1] >= length - 1:
            ends[m, counters[m, 2] % capacity] = row
            counters[m, 2] += 1
        if (
            counters[m, 3] < counters[m, 2]
            and ends[m, counters[m, 3] % capacity] - length + 1 <= row - capacity
        ):
            counters[m, 3] += 1
    return ring, actions, first, ends, counters


def gather_reference(streams, counter, length, ring, actions, ends, counters, out, acts):
    """Sequences [M, B, T] into out and acts: number b of member m ends at a whole sequence's end
    drawn by counter + b."""
    members, batch = out.shape[:2]
    for m in range(members):
        there = counters[m, 2] - counters[m, 3]
        for b, u in enumerate(uniform_reference(streams[m], counter + np.arange(batch))):
            end = ends[m, (counters[m, 3] + int(u * there)) % ring.shape[1]]
            rows = np.arange(end - length + 1, end + 1) % ring.shape[1]
            out[m, b], acts[m, b] = ring[m, rows], actions[m, rows]
    return out, acts


def gather_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for members, capacity, length in ((1, 6, 2), (3, 40, 5)):
        window = Window(list(range(members)), capacity, length, 2, 1)
        for row in range(2 * capacity):
            window.append(
                rng.normal(size=(members, 2)),
                rng.normal(size=(members, 1)),
                np.full(members, row % 11 == 0),
            )
        out, acts = (
            np.zeros((members, 4, length, 2), dtype),
            np.zeros((members, 4, length, 1), dtype),
        )
        yield (
            window.streams,
            17,
            length,
            window.obs,
            window.action,
            window.ends,
            window.counters,
            out,
            acts,
        )


@pair(gather_reference, gather_examples, dtypes=("float64",))
@kernel
def gather(streams, counter, length, ring, actions, ends, counters, out, acts):
    members, batch = out.shape[:2]
    capacity = ring.shape[1]
    for m in range(members):
        there = counters[m, 2] - counters[m, 3]
        for b in range(batch):
            drawn = int(draw_uniform(streams[m], counter + b) * there)
            first = ends[m, (counters[m, 3] + drawn) % capacity] - length + 1
            for t in range(length):
                row = (first + t) % capacity
                # rows assigned whole take Numba three seconds to compile
                for k in range(ring.shape[2]):
                    out[m, b, t, k] = ring[m, row, k]
                for k in range(actions.shape[2]):
                    acts[m, b, t, k] = actions[m, row, k]
    return out, acts


class Window:
    """The ring of every member; member m draws by its own seed."""

    def __init__(
        self, seeds: list[int], capacity: int, length: int, obs_size: int, action_size: int
    ) -> None:
        if length > capacity:
            raise UserError(
                f"agent.length = {length} is more than agent.window = {capacity}: a sequence must "
                "fit into it."
            )
        members = len(seeds)
        require_memory(
            members * capacity * (obs_size + action_size + 2) * 8,
            "The window of latest steps",
            "agent.window",
        )
        self.capacity, self.length = capacity, length
        # as they came: a small difference of large numbers may be what counts
        self.obs = np.zeros((members, capacity, obs_size))
        self.action = np.zeros((members, capacity, action_size))
        self.first = np.zeros((members, capacity), np.bool_)  # where an episode begins
        self.ends = np.zeros((members, capacity), np.int64)
        self.counters = np.zeros((members, 4), np.int64)
        self.counters[:, 1] = -1
        self.streams = np.array([key(seed, Purpose.REPLAY) for seed in seeds], np.uint64)
        self.drawn = 0

    def append(self, obs: np.ndarray, action: np.ndarray, begins: np.ndarray) -> None:
        """One row of every member; `begins` where the observation is the first one of an
        episode."""
        # one kernel, whatever comes
        obs, action = (np.ascontiguousarray(row, np.float64) for row in (obs, action))
        append(
            obs,
            action,
            begins,
            self.length,
            self.obs,
            self.action,
            self.first,
            self.ends,
            self.counters,
        )

    @property
    def ready(self) -> bool:
        """Whether every member has a whole sequence."""
        return bool((self.counters[:, 2] > self.counters[:, 3]).all())

    @property
    def written(self) -> int:
        """Rows of each member so far, those that are gone included."""
        return int(self.counters[0, 0])

    def places(self) -> np.ndarray:
        """Of the rows that are there, in the order of time."""
        return np.arange(max(self.written - self.capacity, 0), self.written) % self.capacity

    def sample(self, out: np.ndarray, acts: np.ndarray) -> None:
        """Fills out [M, B, T, Y] and acts [M, B, T, A] with sequences, each whole one equally
        likely."""
        gather(
            self.streams,
            self.drawn,
            self.length,
            self.obs,
            self.action,
            self.ends,
            self.counters,
            out,
            acts,
        )
        self.drawn += out.shape[1]

    def state(self) -> dict[str, np.ndarray]:
        return {
            "obs": self.obs,
            "action": self.action,
            "first": self.first,
            "ends": self.ends,
            "counters": self.counters,
            "drawn": np.array(self.drawn),
        }

    def load_state(self, state: dict[str, np.ndarray]) -> None:
        for name in ("obs", "action", "first", "ends", "counters"):
            getattr(self, name)[...] = state[name]
        self.drawn = int(state["drawn"])
