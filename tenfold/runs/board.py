"""TensorBoard's event files: numbers over steps, one event a row.

The format is TFRecord: length, its checksum, the event, its checksum; an event is a small protocol
buffer (tensorboard/compat/proto/event.proto). TensorBoard's own writer takes 50 µs a number and a
thread a file; a run has hundreds of rows, and hundreds of runs may be trained at once.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

POLYNOMIAL = 0x82F63B78  # of CRC-32C, reversed
VERSION = b"\x1a\x0dbrain.Event:2"
START = b"\x3a\x02\x08\x01"  # a session begins: what stands at this step or later does not count
NUMBERS = count()  # of the files of this process


def crc32c_reference(content: np.ndarray) -> int:
    """Bit by bit."""
    crc = 0xFFFFFFFF
    for byte in content.tolist():
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def some_bytes(rng: np.random.Generator, dtype: str) -> Iterator[tuple[np.ndarray]]:
    for size in (0, 1, 8, 333):
        yield (rng.integers(256, size=size).astype(np.uint8),)


def table() -> np.ndarray:
    """The checksums of single bytes."""
    found = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        found = (found >> 1) ^ np.where(found & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    return found


TABLE = table()


@pair(crc32c_reference, some_bytes, name="runs.board.crc32c")
@kernel
def crc32c(content):
    crc = np.uint32(0xFFFFFFFF)
    for byte in content:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> np.uint32(8))
    return np.uint32(crc ^ np.uint32(0xFFFFFFFF))


def masked(content: bytes) -> bytes:
    """The checksum as the format has it."""
    crc = int(crc32c(np.frombuffer(content, np.uint8)))
    turned = ((crc >> 15) | (crc << 17)) + 0xA282EAD8
    return struct.pack("<I", turned & 0xFFFFFFFF)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


@cache
def before_number(tag: str) -> bytes:
    """A value of the summary up to its number, which takes four bytes."""
    name = tag.encode()
    value = b"\x0a" + varint(len(name)) + name + b"\x15"
    return b"\x0a" + varint(len(value) + 4) + value


def number(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


class Board:
    """The event file of a run, made when it is first written to. Events wait in memory until
    `flush`."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """What a run wrote from `purge_step` on, before it was resumed, does not count."""
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self.path = folder / f"{name}.{os.getpid()}.{next(NUMBERS)}"
        self.waiting: list[bytes] = []
        self.event(VERSION)
        if purge_step is not None:
            self.event(b"\x10" + varint(purge_step) + START)

    def event(self, content: bytes) -> None:
        event = b"\x09" + struct.pack("<d", time.time()) + content
        length = struct.pack("<Q", len(event))
        self.waiting += (length, masked(length), event, masked(event))

    def add(self, row: dict[str, Any]) -> None:
        """The numbers of a row of the metrics."""
        kind = row["kind"]
        summary = b"".join(
            before_number(f"{kind}/{name}") + number(value)
            for name, value in row.items()
            if isinstance(value, int | float) and name != "step"
        )
        self.event(b"\x10" + varint(row["step"]) + b"\x2a" + varint(len(summary)) + summary)

    def flush(self) -> None:
        """Raises OSError where the disk refuses."""
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(b"".join(self.waiting))
        self.waiting = []
