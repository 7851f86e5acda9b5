"""The learner's parameters for everyone: one flat float32 vector in shared memory, two copies, a
version.

Version v lies in copy v mod 2. The learner writes v + 1 into the other copy, and only then says so;
whoever is reading v goes on undisturbed. A reader so slow that v + 2 is begun meanwhile sees it by
the copy's lock (2v when it holds version v, odd while it is written) and reads again. This relies
on x86-64's order of stores, like `memory.ring`.
"""

from typing import Any

import numpy as np

from tenfold.memory.shared import LINE, Segment, aligned, check_ordering

WORD = 8
FLOAT = np.dtype(np.float32)
VERSION = 0  # the newest version that can be read; 0: none yet
LOCK, STEP = 0, 1  # words of a copy, from its own line on
TRIES = 10_000  # then the learner does nothing but publish, and that is a mistake


class Weights:
    """Parameters of `shape` (the flat buffer's), with the global step at which they were
    published."""

    def __init__(self, shape: int | tuple[int, ...]) -> None:
        check_ordering()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        self.bytes = aligned(4 * int(np.prod(self.shape)))
        self.segment = Segment(3 * LINE + 2 * self.bytes, "weights")
        self._map()
        self.words[VERSION] = 0
        for lock, _ in self.places:
            self.words[lock] = self.words[lock + STEP] = 0

    def _map(self) -> None:
        self.words = self.segment.words()
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
        return self.words[VERSION]

    def publish(self, flat: np.ndarray, step: int) -> int:
        """Makes `flat` the newest version, at global step `step`; returns the version."""
        if flat.shape != self.shape or flat.dtype != FLOAT:
            raise ValueError(
                f"weights are {flat.dtype} of shape {flat.shape}, and float32 of shape "
                f"{self.shape} is published."
            )
        words = self.words
        version = words[VERSION] + 1
        lock, copy = self.places[version & 1]
        words[lock] = 2 * version - 1
        copy[...] = flat
        words[lock + STEP] = step
        words[lock] = 2 * version
        words[VERSION] = version
        return version

    def read(self, into: np.ndarray) -> tuple[int, int] | None:
        """(version, step) of the newest parameters, copied into `into`; None when they are those
        read last."""
        words = self.words
        version = words[VERSION]
        if version == self.version:
            return None
        if into.shape != self.shape or into.dtype != FLOAT:
            raise ValueError(
                f"weights of shape {self.shape} in float32 cannot be read into {into.dtype} of "
                f"shape {into.shape}."
            )
        for _ in range(TRIES):
            lock, copy = self.places[version & 1]
            if words[lock] == 2 * version:
                into[...] = copy
                step = words[lock + STEP]
                if words[lock] == 2 * version:
                    self.version, self.step = version, step
                    return version, step
            version = words[VERSION]
        raise RuntimeError(
            f"Weights changed {TRIES:,} times while they were read: publish them less often."
        )

    def close(self) -> None:
        self.places = []
        self.words.release()
        self.segment.close()
