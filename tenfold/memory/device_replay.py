"""Batches of a replay memory whose observations lie on a device: rows are drawn here, by the same
draws as ever, and instead of observations their places are sent there.

`DeviceReplay` holds the observations of all rows, once, in the type they have here; rows that were
written since it was last asked follow in pinned buffers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.memory.replay import Replay
from tenfold.memory.staging import StagingBuffer

LEAST = 16  # rows that go at once
WORDS = {8: np.int64, 4: np.int32, 2: np.int16, 1: np.uint8}  # that a row is copied by


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
        self.obs_words = [memory.obs.view(word) for memory in self.memories]
        rows, width = len(self.memories) * self.rows, self.obs_words[0].shape[1]
        # the last row is nobody's
        self.table = torch.zeros(rows + 1, width, dtype=tensor_type(word), device=device)
        self.numbers = self.table.view(tensor_type(obs.dtype))  # the same, number by number
        self.room = min(self.rows, max(LEAST, 4 * len(self.memories[0].head)))
        shapes = {"place": ((self.room,), np.int64), "row": ((self.room, width), word)}
        self.parcel = StagingBuffer(device, shapes, depth=2)
        self.parcel.on_device[0]["place"].fill_(rows)
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
        np.take(self.obs_words[number], written, axis=0, out=here["row"][:count], mode="clip")

    def go(self) -> None:
        """Rows that were filled in, to the device and to their places."""
        self.parcel.send()
        self.put()

    def put(self) -> None:
        """Rows that have arrived, to their places."""
        arrived = self.parcel.on_device[0]
        self.table.index_put_((arrived["place"],), arrived["row"])

    def at(self, places: torch.Tensor) -> torch.Tensor:
        """The observations at `places`, numbers behind one another in the last dimension."""
        rows = self.table.index_select(0, places.flatten()).view(self.numbers.dtype)
        return rows.view(*places.shape, -1)


def tensor_type(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
