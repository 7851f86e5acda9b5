"""Batches that go to a device are never torn."""

from typing import Any

import pytest
import torch
from staging_stress import stress

from tenfold.memory.staging import Staging


def test_on_the_cpu_the_rows_themselves_are_sent_and_arrive_whole() -> None:
    staging = Staging("cpu")
    rows = {"obs": torch.arange(6.0).view(3, 2)}
    assert staging.send(rows) is rows
    assert staging.send(rows, torch.tensor([2, 0]))["obs"].tolist() == [[4, 5], [0, 1]]
    stress(staging, 400)


class Event:
    """Copies that have been asked for and happen when someone waits for them."""

    def __init__(self, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self.copies = copies

    def synchronize(self) -> None:
        for there, here in self.copies:
            there.copy_(here)
        self.copies.clear()


class SlowDevice(Staging):
    """A device whose copies happen as late as they are allowed to."""

    needed = True  # type: ignore[assignment]

    def __init__(self, depth: int) -> None:
        super().__init__("cpu", depth)
        self.device = torch.device("meta")  # so that nothing counts as being there already
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.events: list[Event] = []

    def allocate(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype)

    def upload(self, buffer: torch.Tensor) -> torch.Tensor:
        self.asked.append((torch.full_like(buffer, -7), buffer))
        return self.asked[-1][0]

    def mark(self) -> Any:
        self.events.append(Event(self.asked))
        self.asked = []
        return self.events[-1]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_slot_is_not_written_to_before_its_copies_have_happened(depth: int) -> None:
    device, source, arrived = SlowDevice(depth), torch.zeros(5), []
    for number in range(20):
        arrived.append(device.send({"row": source.fill_(number)})["row"])
        source.fill_(-1)
    for event in device.events:
        event.synchronize()
    assert [row.tolist() for row in arrived] == [[float(number)] * 5 for number in range(20)]


def test_a_slot_grows_and_keeps_types_apart() -> None:
    device = SlowDevice(1)
    for size, dtype in ((2, torch.float32), (9, torch.float32), (4, torch.int64), (3, torch.bool)):
        row = device.send({"row": torch.ones(size, dtype=dtype)})["row"]
        device.events[-1].synchronize()
        assert row.dtype == dtype and row.tolist() == [1] * size
