"""A replay memory's observations on a device: the same batches as the memory's own, whatever was
written, cut or loaded since."""

from typing import Any

import numpy as np
import pytest
import torch

from tenfold.algorithms.dqn_settings import DQN
from tenfold.core.layout import ObsLayout
from tenfold.memory.device_replay import DeviceReplay
from tenfold.memory.replay import Replay

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
        own = mirror.numbers[number * mirror.rows : (number + 1) * mirror.rows].numpy()
        assert np.array_equal(own, each.obs)
    sent = mirror.parcel.count
    mirror.follow(mirror.go)
    assert mirror.parcel.count == sent
