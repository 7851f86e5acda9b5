"""What spawned children run in the tests of shared memory. Imports NumPy only, so that a child
starts in a moment."""

import os
import signal
import time

import numpy as np

from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedBuffer, SharedEvent, SharedWeights

ROW = {"number": ((), np.int64), "values": ((250,), np.float32), "flags": ((3, 5), np.bool_)}


class Copies(Ring):
    """Rows copied in and out."""

    def empty_row(self) -> dict[str, np.ndarray]:
        return {name: np.zeros(shape, dtype) for name, (shape, dtype) in self.schema.items()}

    def write(self, fields: dict[str, np.ndarray], timeout: float | None = None) -> bool:
        slot = self.slot(timeout)
        for name, view in (slot or {}).items():
            view[...] = fields[name]
        if slot:
            self.publish()
        return slot is not None

    def read(self, out: dict[str, np.ndarray], timeout: float | None = None) -> bool:
        row = self.peek(timeout)
        for name, view in (row or {}).items():
            out[name][...] = view
        if row:
            self.release()
        return row is not None


def fill(row: dict[str, np.ndarray], number: int) -> None:
    """Row `number`, into arrays of the schema."""
    row["number"][...] = number
    row["values"][...] = number % 1000
    row["flags"][...] = number % 2


def echo_poison(segment: SharedBuffer, done: SharedEvent) -> None:
    """Tells what it sees at the start, then leaves its mark."""
    words = segment.counters()
    words[1] = words[0]
    words[0] = os.getpid()
    done.give()


def give_later(bell: SharedEvent, seconds: float) -> None:
    time.sleep(seconds)
    bell.give()


def write_numbers(ring: Ring, first: int, count: int) -> None:
    for number in range(first, first + count):
        row = ring.slot(timeout=30)
        assert row is not None
        fill(row, number)
        ring.publish()


def write_for(ring: Copies, seconds: float) -> None:
    """At full speed, one row copied in, one in place."""
    end, number, row = time.monotonic() + seconds, 0, ring.empty_row()
    while time.monotonic() < end:
        for _ in range(50):
            fill(row, number)
            if not ring.write(row, timeout=30):
                return
            slot = ring.slot(timeout=30)
            if slot is None:
                return
            fill(slot, number + 1)
            ring.publish()
            number += 2


def die_while_writing(ring: Ring, whole: int) -> None:
    """Publishes `whole` rows and is killed in the middle of the next."""
    write_numbers(ring, 0, whole)
    row = ring.slot()
    assert row is not None
    row["values"][:100] = -1
    os.kill(os.getpid(), signal.SIGKILL)


def read_slowly(ring: Copies, wait: float, count: int) -> None:
    time.sleep(wait)
    row = ring.empty_row()
    for _ in range(count):
        assert ring.read(row, timeout=30)


def publish_for(weights: SharedWeights, seconds: float) -> None:
    """Every element of version v is v, published at step 10·v."""
    flat = np.empty(weights.shape, np.float32)
    end, version = time.monotonic() + seconds, weights.newest
    while time.monotonic() < end:
        for _ in range(50):
            flat.fill(version + 1)
            version = weights.publish(flat, 10 * (version + 1))


def die_while_publishing(weights: SharedWeights) -> None:
    flat = np.full(weights.shape, 1, np.float32)
    weights.publish(flat, 10)
    lock, copy = weights.places[0]
    weights.counters[lock] = 3  # version 2 is being written
    copy[: copy.size // 2] = 2
    os.kill(os.getpid(), signal.SIGKILL)
