"""Shared memory and signals: by handle only, poison before the first write, nothing left behind,
asleep while waiting."""

import os
import threading
from collections.abc import Callable
from multiprocessing.context import SpawnContext
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import memory_children as children
import numpy as np
import pytest

from tenfold.core import system
from tenfold.core.errors import UserError
from tenfold.core.system import container_room
from tenfold.memory import shared
from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedBuffer, SharedEvent, SharedWeights, wait_for

SPAWN = SpawnContext()


def start(target: Callable[..., None], *arguments: Any) -> Any:
    process = SPAWN.Process(target=target, args=arguments, daemon=True)
    process.start()
    return process


def descriptors() -> set[str]:
    """What is open here and is ours: memfds and eventfds, by descriptor and kind."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{fd}")
        except FileNotFoundError:
            continue  # the folder listing's own
        if "memfd:tenfold" in kind or "eventfd" in kind:
            found.add(f"{fd} {kind}")
    return found


def test_a_child_sees_poison_and_the_parent_what_the_child_wrote() -> None:
    segment, done = SharedBuffer(4096), SharedEvent()
    assert np.isnan(segment.array(0, (1024,), np.float32)).all()
    assert (segment.array(0, (512,), np.int64) == -1).all()
    child = start(children.echo_poison, segment, done)
    assert wait_for([done], 30) and done.take()
    child.join(30)
    words = segment.counters()
    assert words[1] == 2**64 - 1 and words[0] == child.pid
    assert child.exitcode == 0


def test_it_is_never_passed_by_value() -> None:
    for shared_thing in (
        SharedBuffer(64),
        SharedEvent(),
        Ring(children.ROW, 2),
        SharedWeights(3),
    ):
        with pytest.raises(
            RuntimeError, match="never a value: hand it to a child in the arguments of its Process"
        ):
            ForkingPickler.dumps(shared_thing)


def test_closing_leaves_no_descriptor_and_no_file() -> None:
    before, files = descriptors(), os.listdir("/dev/shm")
    segment, signal = SharedBuffer(10_000), SharedEvent()
    assert len(descriptors() - before) == 3  # the memory, its mapping, the signal
    assert os.listdir("/dev/shm") == files
    assert segment.close()
    signal.close()
    assert descriptors() == before
    with pytest.raises(ValueError, match="closed"):
        segment.array(0, (1,), np.uint8)


def test_an_array_outlives_the_segment_that_was_closed_under_it() -> None:
    before = descriptors()
    segment = SharedBuffer(4096)
    kept = segment.array(64, (10,), np.float32)
    part = kept[2:5]
    kept[:] = 7
    assert not segment.close()
    del kept
    assert (part == 7).all()
    part[:] = 8
    del part
    assert descriptors() == before


def test_what_is_dropped_is_closed() -> None:
    before = descriptors()
    SharedBuffer(100)
    SharedEvent()
    assert descriptors() == before


def test_it_cannot_be_resized() -> None:
    segment = SharedBuffer(4096)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 100)
    with pytest.raises(PermissionError):
        os.ftruncate(segment.fd, 8192)


def test_more_than_is_free_is_refused_with_both_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"a ring needs 1,000,000,000,000 bytes and [\d,]+ are free on this machine"
    ):
        SharedBuffer(10**12, "a ring")
    monkeypatch.setattr(system, "container_room", lambda: 1_500_000)
    with pytest.raises(
        UserError, match="200,000,000 bytes and 1,500,000 are free in this container"
    ):
        SharedBuffer(200_000_000)


def test_a_containers_limit_is_read_in_both_versions(tmp_path: Path) -> None:
    """The tightest of the groups above counts; what the page cache holds can be had back."""

    def group(folder: Path, names: tuple[str, str, str], limit: str, usage: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in zip(
            names,
            (limit, str(usage), "anon 5\ninactive_file 30\ntotal_inactive_file 30"),
            strict=True,
        ):
            (folder / name).write_text(text)

    two, one = (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat"),
    )
    group(tmp_path / "v2/a/b", two, "max", 900)
    group(tmp_path / "v2/a", two, "1000", 900)
    (tmp_path / "v2/self").write_text("0::/a/b\n")
    assert container_room(tmp_path / "v2/self", tmp_path / "v2") == 1000 - 900 + 30
    group(tmp_path / "v1/memory", one, "5000", 1000)
    (tmp_path / "v1/self").write_text("4:cpu,memory:/docker/of-the-host\n1:pids:/x\n")
    assert container_room(tmp_path / "v1/self", tmp_path / "v1") == 5000 - 1000 + 30
    assert container_room(tmp_path / "nothing", tmp_path) is None


def test_a_machine_without_store_order_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match=r"aarch64: run them in one process \(serial\)"):
        shared.check_ordering()


def test_a_bell_rung_twice_is_emptied_at_once() -> None:
    bell = SharedEvent()
    bell.give()
    bell.give()
    assert [bell.take() for _ in range(2)] == [True, False]


def test_only_the_ready_are_returned_and_nothing_after_the_timeout(
    sleeps: list[tuple[float, bool]],
) -> None:
    first, second = SharedEvent(), SharedEvent()
    assert wait_for([first, second], 0) == []
    second.give()
    assert wait_for([first, second], 5) == [second]
    assert wait_for([first.fd, second.fd], 5) == [second.fd]
    assert not wait_for([first], 0.05) and sleeps[-1] == (50, False)


def test_who_waits_sleeps_and_wakes(sleeps: list[tuple[float, bool]]) -> None:
    """Once: what waiting costs is a row of bench/rings.py."""
    signal = SharedEvent()
    waker = threading.Thread(target=children.give_later, args=(signal, 0.1))
    waker.start()
    assert wait_for([signal], 30) and signal.take()
    assert sleeps == [(30_000, True)]
    waker.join()


def test_a_bell_rung_between_two_looks_is_not_slept_through(
    sleeps: list[tuple[float, bool]],
) -> None:
    bell = SharedEvent()
    seen: list[bool] = []

    def ready() -> bool:
        """False when first asked, though it has become true by the time the question is
        answered."""
        seen.append(len(seen) > 0)
        if len(seen) == 1:
            bell.give()
        return seen[-1]

    assert bell.until(ready, timeout=20) and len(seen) == 2
    assert [woken for _, woken in sleeps] == [True]
    # taken in vain, so rung again: more may have come than was looked for
    assert wait_for([bell], 0) == [bell]
    assert not bell.until(lambda: False, timeout=0) and wait_for([bell], 0) == []
