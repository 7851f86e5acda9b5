"""Batches on their way from the host to a device.

A copy that does not block the host must start in pinned memory, and that memory must not be written
to again before the copy has happened. So a batch goes through one of a few pinned slots, and a slot
waits for the event of its last copies before it is filled anew. The arrays a batch came from may be
overwritten as soon as `send` returns.

On the CPU there is nothing to copy: what is sent is the rows themselves, good until their arrays
are written to.

`DeviceReplay` keeps the observations of a replay memory on the device, once, in the type they have
on the host: the same draws select rows here, and their indices are sent instead of observations.
Rows written since the last batch follow in pinned buffers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.memory.replay import Replay

Tensors = dict[str, torch.Tensor]
DEPTH = 3  # slots: one being filled, one on its way, one whose kernels run


class PinnedSlot:
    """Pinned buffers by name, and the event after which they may be written to again."""

    def __init__(self) -> None:
        self.buffers: Tensors = {}
        self.sent: Any = None


class Staging:
    """Sends batches to one device, in the order of its current stream."""

    def __init__(self, device: str | torch.device, depth: int = DEPTH) -> None:
        self.device = torch.device(device)
        self.slots = [PinnedSlot() for _ in range(depth)]
        self.count = 0

    @property
    def needed(self) -> bool:
        return self.device.type == "cuda"

    def send(self, rows: Tensors, index: torch.Tensor | None = None) -> Tensors:
        """`rows` on the device, of all or, where there is an `index`, of those rows; what is there
        already stays there."""
        if not self.needed:
            return rows if index is None else {name: value[index] for name, value in rows.items()}
        slot = self.slots[self.count % len(self.slots)]
        self.count += 1
        if slot.sent is not None:
            slot.sent.synchronize()
        copies = {}
        for name, value in rows.items():
            if value.device.type == self.device.type:
                copies[name] = value if index is None else value[index]
                continue
            shape = value.shape if index is None else (len(index), *value.shape[1:])
            buffer = self.buffer(slot, name, shape, value.dtype)
            if index is None:
                buffer.copy_(value)
            else:
                torch.index_select(value, 0, index, out=buffer)
            copies[name] = self.upload(buffer)
        slot.sent = self.mark()
        return copies

    def buffer(self, slot: PinnedSlot, name: str, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        """The slot's memory of this name, as this shape; a larger one where it does not fit."""
        size = torch.Size(shape).numel()
        buffer = slot.buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != dtype:
            buffer = slot.buffers[name] = self.allocate(size, dtype)
        return buffer[:size].view(shape)

    # what a device does; tests put a slow one in its place

    def allocate(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=True)

    def upload(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.to(self.device, non_blocking=True)

    def mark(self) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event


Shapes = dict[str, tuple[tuple[int, ...], Any]]  # shape and NumPy type by name
ALIGNED = 16  # bytes


class StagingBuffer:
    """Arrays of fixed shapes that always arrive at the same place on a device, all in one copy:
    `on_device[k]` are those of the k-th of `count` equal parts, by name, for work that was recorded
    with them.

    `open` gives the arrays to write to, part by part; `send` lets the first of them go. A buffer on
    its way is not given out again before it has arrived; on the CPU the same is done without
    pinned memory.
    """

    def __init__(
        self, device: str | torch.device, shapes: Shapes, count: int = 1, depth: int = DEPTH
    ) -> None:
        self.device, self.count = torch.device(device), 0
        starts, self.part_bytes = {}, 0
        for name, (shape, dtype) in shapes.items():
            starts[name] = self.part_bytes
            size = math.prod(shape) * np.dtype(dtype).itemsize
            self.part_bytes += -(-size // ALIGNED) * ALIGNED
        self.buffer = torch.zeros(count * self.part_bytes, dtype=torch.uint8, device=self.device)
        self.slots = [self.allocate(len(self.buffer)) for _ in range(depth)]
        self.sent: list[Any] = [None] * depth  # events
        sizes = [self.part_bytes * k for k in range(1, count + 1)]
        self.ways = [[(self.buffer[:size], slot[:size]) for size in sizes] for slot in self.slots]

        def views(buffer: torch.Tensor, part: int) -> Tensors:
            arrays = {}
            for name, (shape, dtype) in shapes.items():
                first = part * self.part_bytes + starts[name]
                size = math.prod(shape) * np.dtype(dtype).itemsize
                kind = torch.from_numpy(np.empty(0, dtype)).dtype
                arrays[name] = buffer[first : first + size].view(kind).view(shape)
            return arrays

        self.on_device = [views(self.buffer, part) for part in range(count)]
        self.arrays: list[list[dict[str, np.ndarray]]] = [
            [{k: v.numpy() for k, v in views(slot, part).items()} for part in range(count)]
            for slot in self.slots
        ]

    def open(self) -> list[dict[str, np.ndarray]]:
        """Arrays to write to, of every part; what they held is that of some earlier time."""
        if self.sent[self.slot_index] is not None:
            self.sent[self.slot_index].synchronize()
        return self.arrays[self.slot_index]

    @property
    def slot_index(self) -> int:
        """Of the buffer whose turn it is."""
        return self.count % len(self.slots)

    def send(self, count: int = 1) -> None:
        """What was written, on its way, the first so many parts."""
        self.upload(*self.ways[self.slot_index][count - 1])
        self.gone()

    def gone(self) -> None:
        """The copy was asked for, here or by a graph that it is a part of."""
        self.sent[self.slot_index] = self.mark(self.sent[self.slot_index])
        self.count += 1

    # what a device does; tests put a slow one in its place

    def allocate(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.uint8, pin_memory=self.device.type == "cuda")

    def upload(self, target: torch.Tensor, source: torch.Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def mark(self, event: Any) -> Any:
        """An event after what was asked for so far: this one, or where there is none a new one."""
        if self.device.type != "cuda":
            return None
        event = event or torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event


# the observations of a replay memory on a device


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
        self.elements = self.table.view(tensor_type(obs.dtype))  # the same, number by number
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
        rows = self.table.index_select(0, places.flatten()).view(self.elements.dtype)
        return rows.view(*places.shape, -1)


def tensor_type(dtype: Any) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype)).dtype
