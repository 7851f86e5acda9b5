"""What the processes of one trial are, by a mark in their environment: trials beside it, and other
people, are not blamed."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

MARK = "TENFOLD_KILLS_TRIAL"


def read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it ended meanwhile, or is somebody else's
        return b""


def marked(mark: str) -> Iterator[int]:
    """Living processes of a trial."""
    sign = f"{MARK}={mark}\0".encode()
    for name in filter(str.isdigit, os.listdir("/proc")):
        if sign in read(f"/proc/{name}/environ") and state(int(name)) not in ("", "Z", "X"):
            yield int(name)


def state(pid: int) -> str:
    return (
        read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split(maxsplit=1)[0]
        if alive(pid)
        else ""
    )


def alive(pid: int) -> bool:
    return bool(read(f"/proc/{pid}/stat"))


def told(pid: int) -> str:
    return read(f"/proc/{pid}/cmdline").decode(errors="replace").replace("\0", " ")[:160]


def children(mark: str, parent: int) -> list[int]:
    """Workers or actors that were started by the main process, imported or not; the resource
    tracker is neither."""
    found = []
    for pid in marked(mark):
        fields = read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()
        if fields and int(fields[1]) == parent and b"spawn_main" in read(f"/proc/{pid}/cmdline"):
            found.append(pid)
    return sorted(found)


def heeds_signals(pid: int) -> bool:
    """Whether SIGTERM is caught: the interpreter has started, and the first lines of tenfold have
    run."""
    caught = re.search(rb"SigCgt:\s*([0-9a-f]+)", read(f"/proc/{pid}/status"))
    return bool(caught and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1)


def shared_names(pids: list[int]) -> set[str]:
    """Files in /dev/shm that these processes have mapped or open: segments and semaphores that have
    a name."""
    found: set[str] = set()
    for pid in pids:
        found |= {
            line.decode().split()[-1]
            for line in read(f"/proc/{pid}/maps").splitlines()
            if b"/dev/shm/" in line and not line.endswith(b"(deleted)")
        }
    return found


def mapped(pid: int, library: str) -> bool:
    """How far a process has come with its imports."""
    return library.encode() in read(f"/proc/{pid}/maps")
