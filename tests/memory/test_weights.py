"""Weights by version: never mixed, never older than said, and a killed learner leaves the last
whole version."""

import gc
import os
from multiprocessing.context import SpawnContext
from typing import Any

import memory_children as children
import numpy as np
import pytest

from tenfold.memory import shared as module
from tenfold.memory.shared import SharedWeights

SPAWN = SpawnContext()


def test_a_version_is_read_once_with_its_step() -> None:
    weights, into = SharedWeights(5), np.zeros(5, np.float32)
    assert weights.read(into) is None and weights.newest == 0
    assert weights.publish(np.arange(5, dtype=np.float32), step=40) == 1
    assert weights.read(into) == (1, 40) and into.tolist() == [0, 1, 2, 3, 4]
    assert weights.read(into) is None
    for version in (2, 3, 4):
        assert weights.publish(np.full(5, version, np.float32), step=100 * version) == version
    assert weights.read(into) == (4, 400) and (into == 4).all()
    weights.close()


def test_nothing_but_poison_is_there_before_the_first_version() -> None:
    weights = SharedWeights((2, 3))
    assert all(np.isnan(copy).all() and copy.shape == (2, 3) for _, copy in weights.places)


def test_another_shape_or_dtype_is_refused() -> None:
    weights, right = SharedWeights(4), np.zeros(4, np.float32)
    for wrong in (np.zeros((1, 4), np.float32), np.zeros(4), np.zeros(3, np.float32)):
        with pytest.raises(ValueError, match=r"float32 of shape \(4,\) is published"):
            weights.publish(wrong, 0)
        weights.publish(right, 0)
        with pytest.raises(
            ValueError, match=r"weights of shape \(4,\) in float32 cannot be read into"
        ):
            weights.read(wrong)


@pytest.mark.parametrize("seconds", [0.7, pytest.param(5.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("size", [1, 5_000, 300_000])
def test_versions_are_never_mixed_at_full_speed(size: int, seconds: float) -> None:
    """Every element of version v is v, its step is 10·v, and versions only grow."""
    weights, into = SharedWeights(size), np.zeros(size, np.float32)
    learner = SPAWN.Process(target=children.publish_for, args=(weights, seconds), daemon=True)
    learner.start()
    last, reads = 0, 0
    while learner.is_alive() or weights.newest > last:
        for _ in range(20):
            found = weights.read(into)
            if found:
                version, step = found
                assert last < version and step == 10 * version
                assert into[0] == version and (into == into[0]).all()
                last, reads = version, reads + 1
    assert learner.exitcode == 0 and reads > 20 and last == weights.newest


def test_a_reader_that_was_overtaken_reads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 3 goes into the copy of version 1 while that is read: the reader must not return the
    mixture."""
    weights = SharedWeights(4)
    weights.publish(np.full(4, 1, np.float32), 10)

    class Slow(np.ndarray):
        def __setitem__(self, key: Any, value: Any) -> None:
            if weights.newest == 1:  # halfway through the copy
                super().__setitem__(slice(0, 2), value[:2])
                weights.publish(np.full(4, 2, np.float32), 20)
                weights.publish(np.full(4, 3, np.float32), 30)
                super().__setitem__(slice(2, 4), value[2:])
                assert self.tolist() == [1, 1, 3, 3]
            else:
                super().__setitem__(key, value)

    into = np.zeros(4, np.float32).view(Slow)
    assert weights.read(into) == (3, 30) and into.tolist() == [3, 3, 3, 3]
    weights.publish(np.full(4, 4, np.float32), 40)
    weights.counters[weights.places[0][0]] = 11  # version 6 is being written there, and never done
    monkeypatch.setattr(module, "TRIES", 50)
    with pytest.raises(RuntimeError, match="changed 50 times while they were read"):
        weights.read(into)


def test_a_killed_learner_leaves_the_last_whole_version_and_another_goes_on() -> None:
    weights, into = SharedWeights(1000), np.zeros(1000, np.float32)
    learner = SPAWN.Process(target=children.die_while_publishing, args=(weights,), daemon=True)
    learner.start()
    learner.join(30)
    assert learner.exitcode == -9
    assert weights.read(into) == (1, 10) and (into == 1).all()
    assert weights.publish(np.full(1000, 2, np.float32), 20) == 2
    assert weights.read(into) == (2, 20) and (into == 2).all()


def test_closing_leaves_no_descriptor() -> None:
    gc.collect()  # children of other tests, whose descriptors would be closed meanwhile
    before = len(os.listdir("/proc/self/fd"))
    SharedWeights(10).close()
    assert len(os.listdir("/proc/self/fd")) == before
