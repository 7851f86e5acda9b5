"""Batches of a replay memory whose observations lie on a device: rows are drawn here, by the same
draws as ever, and instead of observations their places are sent there.

`DeviceReplay` holds the observations of all rows, once, in the type they have here; rows that were
written since it was last asked follow in pinned buffers.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.memory.gathering import ahead, gather_examples, gather_reference
from tenfold.memory.replay import Replay
from tenfold.memory.rows import FINAL, PENDING
from tenfold.memory.sampling import draw_prioritized, draw_ready
from tenfold.memory.staging import StagingBuffer

LEAST = 16  # rows that go at once
WORDS = {8: np.int64, 4: np.int32, 2: np.int16, 1: np.uint8}  # that a row is copied by


def place_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for row, length, n_step, frames, gamma, stored, _, *rest, _ in gather_examples(rng, dtype):
        places = np.zeros((2, len(row), frames), np.int64)
        yield row, length, n_step, frames, gamma, 7, *stored[1:], places, *rest


def gather_row_indices_reference(
    row,
    length,
    n_step,
    frames,
    gamma,
    first,
    action,
    reward,
    kind,
    places,
    out_action,
    out_reward,
    out_discount,
):
    """A batch of rows whose observations are the rows' own numbers."""
    numbers = np.arange(first, first + len(kind))[:, None]
    gather_reference(
        row,
        length,
        n_step,
        frames,
        gamma,
        (numbers, action, reward, kind),
        places[0],
        out_action,
        out_reward,
        out_discount,
        places[1],
    )
    return places, out_action, out_reward, out_discount


@kernel
def frame_rows(kind, lane, length, place, first, out):
    """Where the frame of row `place` and those before it in its episode lie, oldest first."""
    for j in range(out.size - 1, -1, -1):
        out[j] = first + place
        if j:
            before = place - 1 if place > lane else lane + length - 1
            place = before if kind[before] != FINAL and kind[before] != PENDING else place


@pair(gather_row_indices_reference, place_examples, rtol=1e-6, atol=1e-6)
@kernel
def gather_row_indices(
    row,
    length,
    n_step,
    frames,
    gamma,
    first,
    action,
    reward,
    kind,
    places,
    out_action,
    out_reward,
    out_discount,
):
    """`gather` without the observations: the places [2, B, frames] of those of s and s', in a table
    in which row 0 of this memory is number `first`."""
    for item in range(row.size):
        place = row[item]
        lane = 0 if place < length else place // length * length
        frame_rows(kind, lane, length, place, first, places[0, item])
        out_action[item] = action[place]
        out_reward[item], out_discount[item], place = ahead(
            place, lane, length, n_step, gamma, reward, kind
        )
        frame_rows(kind, lane, length, place, first, places[1, item])
    return places, out_action, out_reward, out_discount


@kernel
def draw_row_indices(
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
    out_row,
    places,
    out_action,
    out_reward,
    out_discount,
    out_weight,
):
    if tree.size > 2:
        draw_prioritized(stream, count, tree, beta, out_row, draw, out_weight)
    else:
        draw_ready(stream, count, ready, head, out_row)
    gather_row_indices(
        out_row,
        ready.size // head.size,
        n_step,
        places.shape[2],
        gamma,
        first,
        action,
        reward,
        kind,
        places,
        out_action,
        out_reward,
        out_discount,
    )


def sample_row_indices(replay: Replay, beta: float, first: int, out: Sequence[np.ndarray]) -> None:
    """The next batch of a memory, by the draws of `Replay.sample`; its rows are noted for
    `prioritise`. `out`: places [2, B, frames], action, reward, discount and weight."""
    draw_row_indices(
        replay.stream,
        replay.count,
        replay.tree,
        beta,
        replay.ready,
        replay.head,
        replay.draw,
        replay.n_step,
        replay.gamma,
        first,
        replay.action,
        replay.reward,
        replay.kind,
        replay.batch.row,
        *out,
    )


@kernel
def note_written(since, head, length, out):
    """Places of the rows that were written after the heads were at `since`, into `out`; returns how
    many. The row at a head may have been written again."""
    count = 0
    for lane in range(head.size):
        for h in range(max(since[lane], head[lane] - length + 1), head[lane] + 1):
            out[count] = lane * length + h % length
            count += 1
        since[lane] = head[lane]
    return count


class DeviceReplay:
    """The observations of some memories of one size in one table on a device, a row each, as words
    of up to 8 bytes: copying these is faster."""

    def __init__(self, memories: Sequence[Replay], device: torch.device) -> None:
        self.memories = list(memories)
        obs = self.memories[0].obs
        row_bytes = obs.shape[1] * obs.itemsize
        word = next(WORDS[size] for size in WORDS if row_bytes % size == 0)
        self.rows = len(obs)
        self.words = [memory.obs.view(word) for memory in self.memories]
        rows, width = len(self.memories) * self.rows, self.words[0].shape[1]
        # the last row is nobody's
        self.table = torch.zeros(rows + 1, width, dtype=tensor_type(word), device=device)
        self.numbers = self.table.view(tensor_type(obs.dtype))  # the same, number by number
        self.room = min(self.rows, max(LEAST, 4 * len(self.memories[0].head)))
        shapes = {"place": ((self.room,), np.int64), "row": ((self.room, width), word)}
        self.parcel = StagingBuffer(device, shapes, depth=2)
        self.parcel.there[0]["place"].fill_(rows)
        self.since = [np.zeros_like(memory.head) for memory in self.memories]
        self.writes = [-1] * len(self.memories)
        self.written = np.zeros(self.rows, np.int64)  # scratch

    def forget(self) -> None:
        """All rows may be others."""
        for number, since in enumerate(self.since):
            since[:], self.writes[number] = 0, -1

    def follow(self, go: Callable[[], None]) -> None:
        """Sends what is new; `go` does what the method of this name does."""
        for number, memory in enumerate(self.memories):
            if self.writes[number] == memory.writes:
                continue
            self.writes[number], since = memory.writes, self.since[number]
            if (memory.head < since).any():
                since[:] = 0
            count = note_written(since, memory.head, memory.lane_rows, self.written)
            for start in range(0, count, self.room):
                self.fill(number, self.written[start : min(start + self.room, count)])
                go()

    def fill(self, number: int, written: np.ndarray) -> None:
        """These rows of memory `number` are the next to go."""
        count = len(written)
        (here,) = self.parcel.open()
        np.add(written, number * self.rows, out=here["place"][:count])
        here["place"][count:] = len(self.table) - 1
        np.take(self.words[number], written, axis=0, out=here["row"][:count], mode="clip")

    def go(self) -> None:
        """Rows that were filled in, to the device and to their places."""
        self.parcel.send()
        self.put()

    def put(self) -> None:
        """Rows that have arrived, to their places."""
        there = self.parcel.there[0]
        self.table.index_put_((there["place"],), there["row"])

    def at(self, places: torch.Tensor) -> torch.Tensor:
        """The observations at `places`, numbers behind one another in the last dimension."""
        found = self.table.index_select(0, places.flatten()).view(self.numbers.dtype)
        return found.view(*places.shape, -1)


def tensor_type(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
