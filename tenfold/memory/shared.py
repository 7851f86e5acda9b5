"""Memory, events and weights that processes share: anonymous, handed to spawned children by handle,
freed with the last process that holds them.

A `SharedBuffer` is a mapped memfd. It has no name, so a killed process leaves nothing in /dev/shm.
A `SharedEvent` is an eventfd: a waiting process sleeps in the kernel. Both travel in the arguments
of a spawned Process and nowhere else.

Arrays on a buffer are made by `SharedBuffer.array` (np.frombuffer): they keep the mapping open, so
it cannot vanish under them. Never use np.ndarray(buffer=…) or torch.frombuffer on it: they do not,
and crash the process after `close`; torch.from_numpy of an array made here is safe.

`SharedWeights` is one flat float32 vector with a version number, in two copies. Version v lies in
copy v mod 2. The learner writes v + 1 into the other copy and publishes the number afterwards, so a
reader of v is not disturbed. A reader so slow that v + 2 is begun meanwhile sees it by the copy's
lock (2v when it holds version v, odd while it is written) and reads again. This relies on x86-64's
order of stores, like `memory.ring`.
"""

import fcntl
import math
import mmap
import os
import platform
import select
import time
from collections.abc import Callable, Iterable, Mapping
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from tenfold.core.errors import UserError
from tenfold.core.system import require_memory

LINE = 64  # bytes of a cache line: what two processes write lies on different ones
POISON = 0xFF  # NaN as a float, −1 as an integer: what was never written shows
# machines on which stores are seen in the order in which they were made
ORDERED = ("x86_64", "AMD64")


def aligned(size: int) -> int:
    """`size` rounded up to whole cache lines."""
    return -(-size // LINE) * LINE


def check_ordering() -> None:
    """Sequence numbers tell the truth only where stores are seen in order (x86-TSO); elsewhere they
    would need a lock."""
    if platform.machine() not in ORDERED:
        raise UserError(
            "Actors and learner over shared memory rely on the store order of x86-64, and this "
            f"machine is a {platform.machine()}: run them in one process (serial)."
        )


class SharedBuffer:
    """`size` bytes (rounded up to cache lines), zero-copy in every process that was handed it;
    filled with POISON."""

    def __init__(self, size: int, purpose: str = "actors and learner") -> None:
        self.size = aligned(max(size, 1))
        require_memory(self.size, f"Shared memory for {purpose}", "the number of rows or of actors")
        self.fd = os.memfd_create("tenfold", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        fcntl.fcntl(
            self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
        )
        self.map: mmap.mmap | None = mmap.mmap(self.fd, self.size)
        self.array(0, (self.size,), np.uint8).fill(POISON)

    @classmethod
    def attach(cls, handle: Any, size: int) -> Self:
        """In the child: the same memory, by the descriptor it inherited."""
        self = cls.__new__(cls)
        self.fd, self.size = handle.detach(), size
        self.map = mmap.mmap(self.fd, size)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedBuffer.attach, (handle_of(self.fd, "A Segment"), self.size)

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """A view from byte `offset` on. It keeps the memory mapped as long as it lives."""
        count = int(np.prod(shape))
        if count == 0:
            return np.empty(shape, dtype)
        return np.frombuffer(self.mapping(), dtype, count, offset).reshape(shape)

    def counters(self) -> memoryview:
        """All of it as 64-bit numbers: one of them is read or stored in 40 ns here, against 100
        through NumPy, and at once."""
        return memoryview(self.mapping()).cast("B").cast("Q")

    def mapping(self) -> mmap.mmap:
        if self.map is None:
            raise ValueError("This shared memory was closed.")
        return self.map

    def close(self) -> bool:
        """Lets go of the memory. False: arrays on it still live, and the last of them takes the
        mapping along; no crash."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        mapped, self.map = self.map, None
        try:
            if mapped is not None:
                mapped.close()
        except BufferError:
            return False
        return True

    def __del__(self) -> None:
        if hasattr(self, "map"):
            self.close()


class SharedLanes:
    """The arrays of a schema, (shape, dtype) by name, in one buffer; each begins on a cache line of
    its own, and with zeros."""

    def __init__(self, schema: Mapping[str, tuple[tuple[int, ...], DTypeLike]], use: str) -> None:
        self.schema = {name: (shape, np.dtype(dtype)) for name, (shape, dtype) in schema.items()}
        sizes = [math.prod(shape) * dtype.itemsize for shape, dtype in self.schema.values()]
        self.buffer = SharedBuffer(sum(map(aligned, sizes)), use)
        self._map()
        for array in self.arrays.values():
            array.fill(0)

    def _map(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        offset = 0
        for name, (shape, dtype) in self.schema.items():
            self.arrays[name] = self.buffer.array(offset, shape, dtype)
            offset += aligned(self.arrays[name].nbytes)

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "buffer": self.buffer}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    def close(self) -> None:
        """Lets go of the memory, which lives on as long as one of the arrays does."""
        self.arrays = {}
        self.buffer.close()


class SharedEvent:
    """A bell that one process rings and another waits for, asleep. What counts is told elsewhere;
    the bell only wakes."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @classmethod
    def attach(cls, handle: Any) -> Self:
        self = cls.__new__(cls)
        self.fd = handle.detach()
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedEvent.attach, (handle_of(self.fd, "A Signal"),)

    def fileno(self) -> int:
        return self.fd

    def give(self) -> None:
        os.eventfd_write(self.fd, 1)

    def count(self) -> int:
        """Empties it; how often it was rung."""
        try:
            return os.eventfd_read(self.fd)
        except BlockingIOError:
            return 0

    def take(self) -> bool:
        """Empties it; whether it was rung."""
        return self.count() > 0

    def until(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Sleeps until `ready()`, which whoever gives this bell made true before; False after
        `timeout` seconds.

        The bell is emptied before the condition is looked at, so that no change is slept through; a
        bell emptied in vain is rung again, for those who poll it.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.take()
            if ready():
                self.give()
                return True
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                return False
            wait_for([self], left)
            if ready():
                return True

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        if hasattr(self, "fd"):
            self.close()


def wait_for(things: Iterable[Any], timeout: float | None) -> list[Any]:
    """Those that are ready to read (signals, rings, sentinels of processes), asleep until one is or
    `timeout` seconds passed."""
    poll = select.poll()
    by_fd: dict[int, Any] = {}
    for thing in things:
        fd = thing if isinstance(thing, int) else thing.fileno()
        by_fd[fd] = thing
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(None if timeout is None else max(0.0, timeout * 1000))]


def handle_of(fd: int, what: str) -> Any:
    """A descriptor for the child that is being started; anywhere else there is nobody to hand it
    to."""
    if get_spawning_popen() is None:
        raise RuntimeError(
            f"{what} is shared memory, never a value: hand it to a child in the arguments of its "
            "Process (start method spawn) instead of pickling or copying it."
        )
    if fd < 0:
        raise ValueError(f"{what} was closed before it was handed to a child.")
    return reduction.DupFd(fd)


WORD = 8
FLOAT = np.dtype(np.float32)
VERSION = 0  # the newest version that can be read; 0: none yet
LOCK, STEP = 0, 1  # words of a copy, from its own line on
TRIES = 10_000  # then the learner does nothing but publish, and that is a mistake


class SharedWeights:
    """Parameters of `shape` (the flat buffer's), with the global step at which they were
    published."""

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        check_ordering()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.bytes = aligned(4 * int(np.prod(self.shape)))
        self.segment = SharedBuffer(3 * LINE + 2 * self.bytes, "weights")
        self._map()
        self.counters[VERSION] = 0
        for lock, _ in self.places:
            self.counters[lock] = self.counters[lock + STEP] = 0

    def _map(self) -> None:
        self.counters = self.segment.counters()
        # of each copy: its first word, its parameters
        self.places = [
            (
                (1 + copy) * LINE // WORD,
                self.segment.array(3 * LINE + copy * self.bytes, self.shape, np.float32),
            )
            for copy in (0, 1)
        ]
        self.version = self.step = 0  # what this process read last

    def __getstate__(self) -> dict[str, Any]:
        return {"shape": self.shape, "bytes": self.bytes, "segment": self.segment}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._map()

    @property
    def newest(self) -> int:
        """The version that `read` would give."""
        return self.counters[VERSION]

    def publish(self, flat: np.ndarray, step: int) -> int:
        """Makes `flat` the newest version, at global step `step`; returns the version."""
        if flat.shape != self.shape or flat.dtype != FLOAT:
            raise ValueError(
                f"weights are {flat.dtype} of shape {flat.shape}, and float32 of shape "
                f"{self.shape} is published."
            )
        counters = self.counters
        version = counters[VERSION] + 1
        lock, copy = self.places[version & 1]
        counters[lock] = 2 * version - 1
        copy[...] = flat
        counters[lock + STEP] = step
        counters[lock] = 2 * version
        counters[VERSION] = version
        return version

    def read(self, into: np.ndarray) -> tuple[int, int] | None:
        """(version, step) of the newest parameters, copied into `into`; None when they are those
        read last."""
        counters = self.counters
        version = counters[VERSION]
        if version == self.version:
            return None
        if into.shape != self.shape or into.dtype != FLOAT:
            raise ValueError(
                f"weights of shape {self.shape} in float32 cannot be read into {into.dtype} of "
                f"shape {into.shape}."
            )
        for _ in range(TRIES):
            lock, copy = self.places[version & 1]
            if counters[lock] == 2 * version:
                into[...] = copy
                step = counters[lock + STEP]
                if counters[lock] == 2 * version:
                    self.version, self.step = version, step
                    return version, step
            version = counters[VERSION]
        raise RuntimeError(
            f"Weights changed {TRIES:,} times while they were read: publish them less often."
        )

    def close(self) -> None:
        self.places = []
        self.counters.release()
        self.segment.close()
