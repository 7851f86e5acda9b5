"""Batches on their way from the host to a device.

A copy that does not block the host must start in pinned memory, and that memory must not be written
to again before the copy has happened. So a batch goes through one of a few pinned slots, and a slot
waits for the event of its last copies before it is filled anew. The arrays a batch came from may be
overwritten as soon as `send` returns.

On the CPU there is nothing to copy: what is sent is the rows themselves, good until their arrays
are written to.
"""

from typing import Any

import torch

Tensors = dict[str, torch.Tensor]
DEPTH = 3  # slots: one being filled, one on its way, one whose kernels run


class Slot:
    """Pinned buffers by name, and the event after which they may be written to again."""

    def __init__(self) -> None:
        self.buffers: Tensors = {}
        self.sent: Any = None


class Staging:
    """Sends batches to one device, in the order of its current stream."""

    def __init__(self, device: str | torch.device, depth: int = DEPTH) -> None:
        self.device = torch.device(device)
        self.slots = [Slot() for _ in range(depth)]
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
        found = {}
        for name, value in rows.items():
            if value.device.type == self.device.type:
                found[name] = value if index is None else value[index]
                continue
            shape = value.shape if index is None else (len(index), *value.shape[1:])
            buffer = self.buffer(slot, name, shape, value.dtype)
            if index is None:
                buffer.copy_(value)
            else:
                torch.index_select(value, 0, index, out=buffer)
            found[name] = self.upload(buffer)
        slot.sent = self.mark()
        return found

    def buffer(self, slot: Slot, name: str, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        """The slot's memory of this name, as this shape; a larger one where it does not fit."""
        size = torch.Size(shape).numel()
        own = slot.buffers.get(name)
        if own is None or own.numel() < size or own.dtype != dtype:
            own = slot.buffers[name] = self.allocate(size, dtype)
        return own[:size].view(shape)

    # what a device does; tests put a slow one in its place

    def allocate(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, pin_memory=True)

    def upload(self, buffer: torch.Tensor) -> torch.Tensor:
        return buffer.to(self.device, non_blocking=True)

    def mark(self) -> Any:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event
