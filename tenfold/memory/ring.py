"""A bounded queue of typed rows from ONE process to ONE other, in shared memory, without a lock.

    ring = Ring({"obs": ((4,), np.float32)}, rows=64)    # in the parent; to a child by spawn
    slot = ring.slot(timeout=5); …; ring.publish()       # the producer fills the slot's arrays,
                                                         # and sleeps while the ring is full
    row = ring.peek(timeout=5); …; ring.release()        # the consumer reads them in place

Row r lies in slot r mod rows. The producer marks the slot as being written, fills it, stores the
slot's sequence number r + 1 and then the count of published rows; the consumer reads them in the
opposite order. That is enough where stores are seen in the order in which they were made and loads
are not reordered: x86-64 (TSO). A memcpy by string or streaming instructions is complete before a
store that follows it. On other machines `Ring` refuses.

The numbers in memory are the truth; the bells only wake. So a process killed at any point leaves a
ring that another can go on with (`take_over`): the row it was writing was never published.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tenfold.core.errors import ConfigError, UserError
from tenfold.memory.shared import LINE, SharedBuffer, SharedEvent, aligned, check_ordering

Schema = Mapping[str, tuple[tuple[int, ...], DTypeLike]]
Row = dict[str, np.ndarray]

WORD = 8
# published by the producer, released by the consumer; each on a line of its own
HEAD, TAIL = 0, LINE // WORD
SLOTS = 2 * LINE  # where the first slot begins
WRITING = 1 << 63  # in place of a sequence number


class TornRow(RuntimeError):
    """A row changed while it was read: two producers, or memory that somebody else wrote to."""


class Ring:
    """`rows` slots of the fields of `schema`."""

    def __init__(self, schema: Schema, rows: int) -> None:
        check_ordering()
        if rows < 1 or not schema:
            raise ConfigError("rows", "of a ring and its fields must be at least one.")
        self.schema = {
            name: (tuple(shape), checked_dtype(name, dtype))
            for name, (shape, dtype) in schema.items()
        }
        self.rows = rows
        self._place()
        self.segment = SharedBuffer(SLOTS + rows * self.stride, f"a ring of {rows} rows")
        self.data, self.space = SharedEvent(), SharedEvent()
        self.counters = self.segment.counters()
        self.counters[HEAD] = self.counters[TAIL] = 0
        for sequence in self.sequences:
            self.counters[sequence] = 0

    def _place(self) -> None:
        """Where fields begin within a slot, each on its own cache line; and the words of the slots'
        sequence numbers."""
        self.offsets: dict[str, int] = {}
        self.stride = LINE
        for name, (shape, dtype) in self.schema.items():
            self.offsets[name] = self.stride
            self.stride += aligned(int(np.prod(shape)) * dtype.itemsize)
        self.low = min(self.rows - 1, self.rows * 3 // 4)  # so few rows wake a producer that waits
        self.sequences = [(SLOTS + slot * self.stride) // WORD for slot in range(self.rows)]

    def __getstate__(self) -> dict[str, Any]:
        return {
            name: getattr(self, name) for name in ("schema", "rows", "segment", "data", "space")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._place()
        self.counters = self.segment.counters()

    def _views(self, slot: int, writeable: bool) -> Row:
        start = SLOTS + slot * self.stride
        row = {
            name: self.segment.array(start + self.offsets[name], *self.schema[name])
            for name in self.schema
        }
        for view in row.values():
            view.flags.writeable = writeable
        return row

    @cached_property
    def _writable(self) -> list[Row]:
        return [self._views(slot, True) for slot in range(self.rows)]

    @cached_property
    def _readable(self) -> list[Row]:
        return [self._views(slot, False) for slot in range(self.rows)]

    def available(self) -> int:
        """Rows published and not yet released; no system call."""
        return self.counters[HEAD] - self.counters[TAIL]

    @property
    def published(self) -> int:
        """Rows published since the ring was made."""
        return self.counters[HEAD]

    def fileno(self) -> int:
        """Ready when rows may be available: for `wait_for` over many rings. Then `peek` with
        timeout 0 until it gives None."""
        return self.data.fd

    # the producer

    def require(self, schema: Schema, whose: str) -> None:
        require_same(self.schema, schema, whose)

    def slot(self, timeout: float | None = None) -> Row | None:
        """The next slot's arrays, to fill in place before `publish`; None when the ring stayed
        full.

        Who finds it full sleeps until a quarter is free, or the time is up and a slot is: to be
        woken for every row would cost more than the row.
        """
        counters, head, rows, low = self.counters, self.counters[HEAD], self.rows, self.low
        if head - counters[TAIL] >= rows:
            self.space.until(lambda: head - counters[TAIL] <= low, timeout)
            if head - counters[TAIL] >= rows:
                return None
        counters[self.sequences[head % rows]] = WRITING
        return self._writable[head % rows]

    def publish(self) -> None:
        counters, head = self.counters, self.counters[HEAD]
        sequence = self.sequences[head % self.rows]
        if counters[sequence] != WRITING:
            raise RuntimeError("publish() comes after slot(), once for each.")
        counters[sequence] = head + 1
        counters[HEAD] = head + 1
        self.data.give()

    def take_over(self) -> int:
        """In place of a process that died: completes what it had published, wakes the other side,
        returns the rows published.

        Whoever held this end must be dead. The row it was writing is lost, and no other.
        """
        head = self.counters[HEAD]
        # it died between the two stores
        if self.counters[self.sequences[head % self.rows]] == head + 1:
            self.counters[HEAD] = head = head + 1
        self.data.give()
        self.space.give()
        return head

    # the consumer

    def peek(self, timeout: float | None = None) -> Row | None:
        """The oldest row in place, read-only, valid until `release`; None when nothing came."""
        counters, tail = self.counters, self.counters[TAIL]
        if counters[HEAD] == tail and not self.data.until(lambda: counters[HEAD] != tail, timeout):
            return None
        self._check_sequence(tail)
        return self._readable[tail % self.rows]

    def release(self) -> None:
        """Gives the slot of the row peeked at back to the producer, after a last look at its
        sequence number."""
        tail = self.counters[TAIL]
        self._check_sequence(tail)
        self.counters[TAIL] = tail + 1
        # an old count of published rows only rings once too often
        if self.counters[HEAD] - tail - 1 <= self.low:
            self.space.give()

    def _check_sequence(self, tail: int) -> None:
        sequence = self.counters[self.sequences[tail % self.rows]]
        if sequence != tail + 1:
            raise TornRow(
                f"Row {tail} of a ring of {self.rows} was overwritten while it was read (its slot "
                f"says {'being written' if sequence == WRITING else sequence}, not {tail + 1}): "
                "two producers write to it, or release() came without a row."
            )

    def close(self) -> None:
        """Lets go of memory and bells. Views that somebody kept stay valid, and keep the memory."""
        for name in ("_writable", "_readable"):
            vars(self).pop(name, None)
        self.counters.release()
        self.segment.close()
        self.data.close()
        self.space.close()


def checked_dtype(name: str, dtype: DTypeLike) -> np.dtype:
    checked = np.dtype(dtype)
    if checked.hasobject:
        raise ConfigError(
            name,
            "is of Python objects, which cannot lie in shared memory: give it a number's dtype.",
        )
    return checked


def require_same(agreed: Schema, schema: Schema, whose: str) -> None:
    """Refuses a producer whose rows have other fields: they would be stretched or converted on
    their way."""
    for name, (shape, dtype) in schema.items():
        field = agreed.get(name)
        if field is None or (tuple(field[0]), np.dtype(field[1])) != (
            tuple(shape),
            np.dtype(dtype),
        ):
            had = f"{field[0]} of {np.dtype(field[1])}" if field else "not there"
            raise UserError(
                f"{whose} is not the same each time it is made: its {name} is {tuple(shape)} "
                f"of {np.dtype(dtype)} here, and was {had} where the run began."
            )
