"""Batches that go to a device are never torn."""

from typing import Any

import numpy as np
import pytest
import torch
from staging_stress import stress

from tenfold.algorithms.dqn_settings import DQN
from tenfold.core.layout import ObsLayout
from tenfold.memory.replay import Replay
from tenfold.memory.staging import DeviceReplay, Staging, StagingBuffer


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


class SlowParcel(StagingBuffer):
    """A device whose copies happen as late as they are allowed to."""

    def __init__(self, depth: int) -> None:
        self.asked: list[tuple[torch.Tensor, torch.Tensor]] = []
        super().__init__("cpu", {"row": ((5,), np.float32), "lr": ((), np.float32)}, 2, depth)

    def upload(self, there: torch.Tensor, here: torch.Tensor) -> None:
        self.asked.append((torch.full_like(there, 7), here))

    def mark(self, event: Any) -> Any:
        return Event([self.asked[-1]])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_parcels_arrays_are_not_given_out_before_their_copies_have_happened(depth: int) -> None:
    parcel = SlowParcel(depth)
    for number in range(20):
        for part in parcel.open():
            part["row"][:] = number
        parcel.send(2)
    for _ in range(depth):
        parcel.open()
        parcel.count += 1
    for number, (arrived, _) in enumerate(parcel.asked):
        assert arrived[:20].view(torch.float32).tolist() == [number] * 5


def test_what_a_parcel_holds_arrives_at_the_same_tensors_each_time() -> None:
    parcel = StagingBuffer("cpu", {"index": ((3,), np.int64), "lr": ((), np.float32)}, 2)
    first, second = parcel.on_device
    for number in range(7):
        here = parcel.open()
        for k in range(2):
            here[k]["index"][:], here[k]["lr"][...] = number + k, number / 2
        parcel.send(1 + number % 2)
        assert first["index"].tolist() == [number] * 3 and float(first["lr"]) == number / 2
        # the second part went with every second
        assert second["index"].tolist() == [(number if number % 2 else number - 1) + 1] * 3 * (
            number > 0
        ) + [0] * 3 * (number == 0)


# the observations of a replay memory on a device


LANES = 3


def memory(dtype: str, **settings: Any) -> Replay:
    config = DQN.of({"capacity": 90, "batch_size": 16, **settings})
    return Replay(config, ObsLayout((5,), np.dtype(dtype), (5,), 1.0), LANES, 4)


def played(replay: Replay, rng: np.random.Generator, steps: int) -> None:
    for _ in range(steps):
        seen = rng.integers(0, 99, (2, LANES, 5)).astype(replay.obs.dtype)
        ends = rng.random((3, LANES)) < 0.1
        replay.add(rng.integers(0, 4, LANES), rng.normal(size=LANES), *ends, *seen)


def same_batch(replay: Replay, mirror: DeviceReplay, frames: int) -> None:
    """Drawn from the same counts, once by places and once by the memory itself."""
    mirror.follow(mirror.go)
    counts, tree = replay.count.copy(), replay.tree.copy()
    places = np.zeros((2, 16, frames), np.int64)
    out = [places, np.zeros(16, np.int64), *np.ones((3, 16), np.float32)]
    replay.sample_indices(0.7, 0, out)
    rows = replay.batch.row.copy()
    replay.count[:], replay.tree[:] = counts, tree
    batch = replay.sample(0.7)
    assert np.array_equal(rows, batch.row)
    for own, name in zip(out[1:], ("action", "reward", "discount", "weight"), strict=True):
        assert np.array_equal(own, getattr(batch, name)), name
    seen = mirror.at(torch.from_numpy(places)).numpy().reshape(2, *batch.obs.shape)
    assert seen.dtype == batch.obs.dtype
    assert np.array_equal(seen[0], batch.obs) and np.array_equal(seen[1], batch.next_obs)


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize(
    "settings", [{}, {"n_step": 3, "frames": 4}, {"replay": "prioritized", "frames": 2}], ids=str
)
def test_batches_by_places_are_those_of_the_memory(dtype: str, settings: dict[str, Any]) -> None:
    rng, replay = np.random.default_rng(1), memory(dtype, **settings)
    replay.begin(rng.integers(0, 99, (LANES, 5)).astype(dtype))
    mirror, frames = DeviceReplay([replay], torch.device("cpu")), settings.get("frames", 1)
    for steps in (
        30,
        1,
        1,
        7,
        40,
        200,
    ):  # before and after the ring is full, and more than it holds
        played(replay, rng, steps)
        same_batch(replay, mirror, frames)
    replay.cut(rng.integers(0, 99, (2, 5)).astype(dtype), first=1)
    same_batch(replay, mirror, frames)


def test_a_memory_that_was_loaded_is_sent_anew() -> None:
    rng, replay, other = np.random.default_rng(1), memory("uint8"), memory("uint8")
    mirror = DeviceReplay([replay], torch.device("cpu"))
    played(replay, rng, 50)
    same_batch(replay, mirror, 1)
    played(other, rng, 50)
    replay.load_rows(other.written(np.zeros_like(other.head)))
    replay.load_state(other.state())
    mirror.forget()
    same_batch(replay, mirror, 1)


def test_several_memories_lie_behind_one_another_and_nothing_is_sent_twice() -> None:
    rng, both = np.random.default_rng(1), [memory("uint8"), memory("uint8")]
    mirror = DeviceReplay(both, torch.device("cpu"))
    for each in both:
        played(each, rng, 20)
    mirror.follow(mirror.go)
    for number, each in enumerate(both):
        own = mirror.elements[number * mirror.rows : (number + 1) * mirror.rows].numpy()
        assert np.array_equal(own, each.obs)
    sent = mirror.parcel.count
    mirror.follow(mirror.go)
    assert mirror.parcel.count == sent
