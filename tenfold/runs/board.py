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
from itertools import count, groupby
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


def varint(number: int) -> bytes:
    """A whole number in ten bytes, however small: so all events of a kind are of the same
    length."""
    number &= (1 << 64) - 1
    return bytes([*(number >> 7 * place & 127 | 128 for place in range(9)), number >> 63])


def short(length: int) -> bytes:
    """The length of a part, in five bytes."""
    return bytes([*(length >> 7 * place & 127 | 128 for place in range(4)), length >> 28])


@cache
def event_of(kind: str, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The record of a row with these numbers, all 0, and the places of the numbers in it."""
    summary, places = b"", []
    for name in names:
        tag = f"{kind}/{name}".encode()
        value = b"\x0a" + short(len(tag)) + tag + b"\x15" + bytes(4)
        summary += b"\x0a" + short(len(value)) + value
        places.append(len(summary) - 4)
    head = TIMED + bytes(8) + STEP + bytes(10) + b"\x2a" + short(len(summary))
    numbers = np.array(places, np.int64)[:, None] + np.arange(4) + LENGTH + len(head)
    return record(head + summary), numbers


TIMED, STEP = b"\x09", b"\x10"
LENGTH = 12  # bytes before an event: its length and the checksum of that
TIME_AT, STEP_AT = LENGTH + 1, LENGTH + 10


def record(event: bytes) -> np.ndarray:
    """An event in its frame, the checksum behind it still 0."""
    length = struct.pack("<Q", len(event))
    before = length + struct.pack("<I", masked(np.frombuffer(length, np.uint8)))
    return np.frombuffer(before + event + bytes(4), np.uint8)


@kernel
def masked(content):
    """The checksum as the format has it."""
    crc = np.uint64(crc32c(content))
    return np.uint32(((crc >> np.uint64(15)) | (crc << np.uint64(17))) + np.uint64(0xA282EAD8))


@kernel
def sign(records):
    """The checksum of every record, into its last four bytes."""
    end = records.shape[1] - 4
    for i in range(len(records)):
        crc = masked(records[i, LENGTH:end])
        for place in range(4):
            records[i, end + place] = crc >> np.uint32(8 * place) & np.uint32(255)


def as_bytes(numbers: Any, kind: str) -> np.ndarray:
    with np.errstate(over="ignore"):  # beyond float32 is infinite
        array = np.array(numbers, kind)
    return array.view(np.uint8).reshape(*array.shape, array.itemsize)


class Board:
    """The event file of a run, made when it is first written to. Rows wait in memory until
    `flush`."""

    def __init__(self, folder: Path, purge_step: int | None = None) -> None:
        """What a run wrote from `purge_step` on, before it was resumed, does not count."""
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}"
        self.path = folder / f"{name}.{os.getpid()}.{next(NUMBERS):06d}"
        self.waiting: list[tuple[float, dict[str, Any]]] = []
        began = TIMED + struct.pack("<d", time.time())
        self.first = [began + VERSION]
        if purge_step is not None:
            self.first.append(began + STEP + varint(purge_step) + START)

    def add(self, row: dict[str, Any]) -> None:
        """The numbers of a row of the metrics."""
        self.waiting.append((time.time(), row))

    def flush(self) -> None:
        """Raises OSError where the disk refuses."""
        parts = [record(event)[None].copy() for event in self.first]
        for key, those in groupby(self.waiting, key=lambda one: shape_of(one[1])):
            parts.append(self.records(*key, list(those)))
        for part in parts:
            sign(part)
        self.path.parent.mkdir(exist_ok=True)
        with open(self.path, "ab") as file:
            file.write(b"".join(part.tobytes() for part in parts))
        self.waiting, self.first = [], []

    def records(self, kind: str, names: tuple[str, ...], rows: list[Any]) -> np.ndarray:
        """Of rows of a kind with the same numbers."""
        template, places = event_of(kind, names)
        found = np.tile(template, (len(rows), 1))
        found[:, TIME_AT : TIME_AT + 8] = as_bytes([when for when, _ in rows], "<f8")
        steps = b"".join(varint(row["step"]) for _, row in rows)
        found[:, STEP_AT : STEP_AT + 10] = np.frombuffer(steps, np.uint8).reshape(-1, 10)
        if names:
            numbers = [[row[name] for name in names] for _, row in rows]
            found[:, places] = as_bytes(numbers, "<f4")
        return found


def shape_of(row: dict[str, Any]) -> tuple[str, tuple[str, ...]]:
    """Kind and names of the numbers of a row."""
    names = [n for n, value in row.items() if isinstance(value, int | float) and n != "step"]
    return row["kind"], tuple(names)
