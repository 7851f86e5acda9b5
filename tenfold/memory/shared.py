"""Memory and signals that processes share: anonymous, handed to spawned children by handle, gone
with the last who holds them.

A `Segment` is a memfd that is mapped: it has no name, so nothing can be left behind in /dev/shm,
whoever is killed. A `Signal` is an eventfd: whoever waits for one sleeps in the kernel. Both travel
in the arguments of a spawned Process and nowhere else.

Arrays on a segment are made by `Segment.array` (np.frombuffer): they hold the mapping open, so it
cannot vanish under them. Never np.ndarray(buffer=…) or torch.frombuffer on it, which do not, and
crash the process after `close`; torch.from_numpy of an array made here is safe.
"""

import fcntl
import mmap
import os
import platform
import select
import time
from collections.abc import Callable, Iterable
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


class Segment:
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
        return Segment.attach, (handle_of(self.fd, "A Segment"), self.size)

    def array(self, offset: int, shape: tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """A view from byte `offset` on. It keeps the memory mapped as long as it lives."""
        count = int(np.prod(shape))
        if count == 0:
            return np.empty(shape, dtype)
        return np.frombuffer(self.mapping(), dtype, count, offset).reshape(shape)

    def words(self) -> memoryview:
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
        held, self.map = self.map, None
        try:
            if held is not None:
                held.close()
        except BufferError:
            return False
        return True

    def __del__(self) -> None:
        if hasattr(self, "map"):
            self.close()


class Signal:
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
        return Signal.attach, (handle_of(self.fd, "A Signal"),)

    def fileno(self) -> int:
        return self.fd

    def give(self) -> None:
        os.eventfd_write(self.fd, 1)

    def take(self) -> bool:
        """Empties it; whether it was rung."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return False
        return True

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
