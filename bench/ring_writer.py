"""The writing process of bench/rings.py; it imports NumPy only."""

from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedEvent, wait_for


def row_of(size: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """A transition of `size` bytes: mostly its observation."""
    return {
        "obs": (((size - 16) // 4,), np.float32),
        "action": ((), np.int64),
        "reward": ((), np.float32),
        "discount": ((), np.float32),
    }


def write_rows(
    ring: Ring, pipe: Connection, by_ring: SharedEvent, by_pipe: SharedEvent, count: int
) -> None:
    """`count` rows by the way that is asked for, whenever it is; ends when neither was for a
    minute."""
    row = {name: np.full(shape, len(name), dtype) for name, (shape, dtype) in ring.schema.items()}
    while True:
        if by_ring.take():
            for _ in range(count):
                for name, view in (ring.slot() or {}).items():
                    view[...] = row[name]
                ring.publish()
        elif by_pipe.take():
            for _ in range(count):
                pipe.send(row)
        elif not wait_for([by_ring, by_pipe], 60):
            return
