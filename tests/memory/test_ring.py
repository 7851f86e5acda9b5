"""The ring: what goes in comes out, nothing is converted, nobody waits awake, no row is torn, no
death spoils it."""

import gc
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from typing import Any

import memory_children as children
import numpy as np
import pytest

from tenfold.core.errors import ConfigError, UserError
from tenfold.memory.ring import HEAD, WRITING, TornRow
from tenfold.memory.shared import wait_for

Ring = children.Copies
SPAWN = SpawnContext()
PAIR = {"obs": ((4,), np.float32), "reward": ((), np.float32)}


def start(target: Callable[..., None], *arguments: Any) -> Any:
    process = SPAWN.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def pair_of(number: float) -> dict[str, np.ndarray]:
    return {"obs": np.full(4, number, np.float32), "reward": np.array(10 * number, np.float32)}


def assert_row(row: dict[str, np.ndarray], number: int) -> None:
    assert row["number"] == number
    assert (row["values"] == number % 1000).all() and (row["flags"] == number % 2).all()


def test_rows_come_out_of_another_process_as_they_went_in() -> None:
    """20 rows through 3 slots: around the ring more than six times."""
    ring = Ring(children.ROW, rows=3)
    writer = start(children.write_numbers, ring, 0, 20)
    row = ring.empty_row()
    for number in range(20):
        assert ring.read(row, timeout=30)
        assert_row(row, number)
    assert not ring.read(row, timeout=0) and ring.available() == 0 and ring.published == 20
    writer.join(30)
    assert writer.exitcode == 0
    ring.close()


def test_fields_lie_on_cache_lines_of_their_own_and_start_as_poison() -> None:
    ring = Ring(
        {
            "obs": ((3,), np.float64),
            "mask": ((2, 5), np.bool_),
            "none": ((0,), np.float32),
            "reward": ((), np.float32),
        },
        rows=5,
    )
    for _ in range(5):
        slot = ring.slot(timeout=0)
        assert slot is not None
        assert all(value.ctypes.data % 64 == 0 for name, value in slot.items() if name != "none")
        assert (
            np.isnan(slot["obs"]).all()
            and np.isnan(slot["reward"])
            and (slot["mask"].view(np.uint8) == 255).all()
        )
        ring.publish()


def test_a_schema_that_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="note is of Python objects"):
        Ring({"note": ((), object)}, 2)
    for schema, rows in ((PAIR, 0), ({}, 3)):
        with pytest.raises(ConfigError, match="at least one"):
            Ring(schema, rows)
    with pytest.raises(UserError, match="a ring of 1000000000 rows needs"):
        monkeypatch.setattr(
            Ring, "_place", lambda ring: vars(ring).update(stride=10_000, sequences=[])
        )
        Ring(PAIR, 10**9)


def test_a_full_ring_blocks_and_wakes_its_producer(sleeps: list[tuple[float, bool]]) -> None:
    ring = Ring(children.ROW, rows=4)
    children.write_numbers(ring, 0, 4)
    assert not ring.write(ring.empty_row(), timeout=0.05)
    assert 1 <= len(sleeps) <= 2 and 0 < sleeps[0][0] <= 50  # asked for once, and slept
    assert ring.slot(timeout=0) is None and ring.available() == 4
    reader = start(children.read_slowly, ring, 0.2, 6)
    sleeps.clear()
    children.write_numbers(ring, 4, 2)
    assert 1 <= len(sleeps) <= 3 and all(woken for _, woken in sleeps)
    reader.join(30)
    assert reader.exitcode == 0 and ring.available() == 0


def test_a_producer_is_woken_when_a_quarter_is_free_or_its_time_is_up() -> None:
    ring, row = Ring(PAIR, rows=8), pair_of(0)
    for number in range(8):
        ring.write(pair_of(number))
    assert ring.slot(timeout=0) is None
    assert ring.read(row) and wait_for([ring.space], 0) == []
    assert ring.read(row) and wait_for([ring.space], 0) == [ring.space]
    assert ring.write(row, 0) and ring.write(row, 0) and ring.slot(timeout=0) is None
    reader = threading.Timer(0.1, ring.read, (row,))
    reader.start()
    # only one slot is free: no bell, yet nobody is refused
    assert ring.slot(timeout=0.5) is not None
    reader.join()


def test_an_empty_ring_lets_its_consumer_sleep(sleeps: list[tuple[float, bool]]) -> None:
    """It looks twice, however long it waits: what that costs is a row of bench/rings.py."""
    ring = Ring(PAIR, rows=4)
    ring.write(pair_of(1))
    assert ring.read(pair_of(0)) and ring.peek(timeout=0) is None
    sleeps.clear()
    assert not ring.read(pair_of(0), timeout=0.1)
    assert 1 <= len(sleeps) <= 2 and 0 < sleeps[0][0] <= 100


def test_one_waits_for_many_rings_and_reads_those_that_are_ready() -> None:
    rings = [Ring(PAIR, rows=8) for _ in range(3)]
    rings[1].write(pair_of(1))
    rings[1].write(pair_of(2))
    row = rings[1].empty_row()
    assert wait_for(rings, 5) == [rings[1]]
    assert rings[1].read(row, 0)
    assert wait_for(rings, 5) == [rings[1]]  # one is left: still ready
    assert rings[1].read(row, 0) and row["reward"] == 20
    assert not rings[1].read(row, 0)
    assert wait_for(rings, 0) == []


def test_a_row_is_written_and_read_in_place() -> None:
    ring = Ring(PAIR, rows=2)
    slot = ring.slot()
    assert slot is not None and ring.available() == 0
    slot["obs"][:] = 3
    slot["reward"][...] = 4
    ring.publish()
    with pytest.raises(RuntimeError, match=r"publish\(\) comes after slot"):
        ring.publish()
    seen = ring.peek()
    assert seen is not None and (seen["obs"] == 3).all() and seen["reward"] == 4
    with pytest.raises(ValueError, match="read-only"):
        seen["obs"][0] = 1
    ring.release()
    with pytest.raises(TornRow, match="without a row"):
        ring.release()


def test_a_row_is_announced_only_after_it_is_there() -> None:
    """The order of stores is the whole protocol: mark, fields, sequence number, count, bell."""
    ring = Ring({"reward": ((), np.float32)}, rows=2)
    view, bell, log = ring.slot(), ring.data, []

    class Words:
        """The ring's own, with every store noted beside what a reader would then see."""

        def __getitem__(self, at: int) -> int:
            return counters[at]

        def __setitem__(self, at: int, value: int) -> None:
            counters[at] = value
            assert view is not None
            log.append((at, value, float(view["reward"]), bool(wait_for([bell], 0))))

    counters, ring.counters = ring.counters, Words()  # type: ignore[assignment]
    sequence = ring.sequences[0]
    ring.write({"reward": np.array(5, np.float32)})
    assert log[0][:2] == (sequence, WRITING) and np.isnan(log[0][2])
    assert log[1:] == [(sequence, 1, 5.0, False), (HEAD, 1, 5.0, False)] and wait_for(
        [bell], 0
    ) == [bell]
    ring.counters = counters


def test_a_row_that_changes_while_it_is_read_is_an_error() -> None:
    ring = Ring(PAIR, rows=2)
    ring.write(pair_of(1))
    assert ring.peek() is not None
    ring.counters[HEAD] = 0  # a second producer, which knows nothing of the first
    assert ring.slot() is not None
    with pytest.raises(
        TornRow,
        match=r"Row 0 of a ring of 2 was overwritten while it was read \(its slot says being written, not 1",
    ):
        ring.release()


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.slow)])
def test_no_row_is_torn_at_full_speed(seconds: float) -> None:
    """Two writers, each with its ring, and one reader: every row whole, in order, none lost."""
    rings = [Ring(children.ROW, rows=7) for _ in range(2)]
    writers = [start(children.write_for, ring, seconds) for ring in rings]
    row, read = rings[0].empty_row(), [0, 0]
    end = time.monotonic() + seconds + 30
    while time.monotonic() < end and (
        any(w.is_alive() for w in writers) or any(r.available() for r in rings)
    ):
        for ring in wait_for(rings, 0.2):
            which = rings.index(ring)
            while ring.read(row, timeout=0):
                assert_row(row, read[which])
                read[which] += 1
    assert [w.exitcode for w in writers] == [0, 0]
    assert read == [ring.published for ring in rings] and min(read) > 3 * 7  # rounds of the ring


def test_a_killed_producer_leaves_whole_rows_and_another_goes_on() -> None:
    ring = Ring(children.ROW, rows=4)
    killed = start(children.die_while_writing, ring, 3)
    killed.join(30)
    assert killed.exitcode == -9 and ring.available() == 3
    row = ring.empty_row()
    for number in range(3):
        assert ring.read(row, timeout=0)
        assert_row(row, number)
    assert not ring.read(row, timeout=0.05)  # what it was writing was never published
    assert ring.take_over() == 3
    successor = start(children.write_numbers, ring, 3, 10)
    for number in range(3, 13):
        assert ring.read(row, timeout=30)
        assert_row(row, number)
    successor.join(30)
    assert successor.exitcode == 0


def test_a_row_that_was_whole_but_not_announced_is_kept_by_the_successor() -> None:
    """Killed between the two stores of publishing, and before the bell: also with a single slot."""
    for rows in (1, 4):
        ring = Ring(PAIR, rows=rows)
        ring.write(pair_of(7))
        ring.counters[HEAD] = 0
        ring.data.take()
        assert ring.available() == 0 and wait_for([ring], 0) == []
        assert ring.take_over() == 1 and wait_for([ring], 0) == [ring]
        row = ring.empty_row()
        assert ring.read(row, timeout=0) and row["reward"] == 70
        assert (
            ring.write(pair_of(8), timeout=0) and ring.read(row, timeout=0) and row["reward"] == 80
        )


def test_closing_leaves_no_descriptor() -> None:
    gc.collect()  # children of other tests, whose descriptors would be closed meanwhile
    before, files = len(os.listdir("/proc/self/fd")), os.listdir("/dev/shm")
    ring = Ring(PAIR, rows=2)
    ring.write(pair_of(5))
    kept = ring.peek()
    assert kept is not None and os.listdir("/dev/shm") == files
    ring.close()
    assert (kept["obs"] == 5).all()  # whoever kept a view may still look
    del kept
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (((1, 4), np.float32), "its obs is (1, 4) of float32 here, and was (4,) of float32"),
        (((4,), np.float64), "its obs is (4,) of float64 here, and was (4,) of float32"),
    ],
)
def test_a_producer_whose_rows_have_another_shape_or_type_is_refused(
    field: tuple[Any, Any], words: str
) -> None:
    ring = Ring({"obs": ((4,), np.float32)}, 2)
    ring.require({"obs": ((4,), np.float32)}, "Mine-v0")
    with pytest.raises(UserError) as refused:
        ring.require({"obs": field}, "Mine-v0")
    assert words in str(refused.value)
    with pytest.raises(UserError, match=r"its more is .* was not there where the run began"):
        ring.require({"more": field}, "Mine-v0")
    ring.close()
