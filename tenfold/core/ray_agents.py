"""What Ray leaves behind when the process that started it is killed: the kernel ends the head and
the raylet with it, but the raylet's agents look for the head for a minute. A process that does
nothing but wait ends them."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

# in a process of its own: until its input ends, which it does with whoever holds the other end,
# then the processes named by id and start time
ENDING = """
import os, sys
sys.stdin.read()
for named in sys.argv[1:]:
    pid, start = named.split(":")
    try:
        with open(f"/proc/{pid}/stat") as file:
            if file.read().rpartition(")")[2].split()[19] == start:
                os.kill(int(pid), 9)
    except OSError:
        pass
"""
PARENT, START = 1, 19  # fields of /proc/PID/stat behind the name


def fields(pid: int) -> list[str]:
    """Of /proc/PID/stat, behind the name; none where there is no such process."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
    return []


def children(parent: int) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        if fields(int(name))[PARENT : PARENT + 1] == [str(parent)]:
            yield int(name)


class Ending:
    """Ends processes when this one has ended, however it did, or when `now` is called."""

    def __init__(self, pids: Iterator[int]) -> None:
        named = [f"{pid}:{stat[START]}" for pid in pids if (stat := fields(pid))]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", ENDING, *named],
            stdin=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is not for it
        )

    def now(self) -> None:
        self.process.communicate()


def ending_with_us(raylet: int) -> Ending | None:
    """The agents of a raylet; None where there is no /proc to find them by."""
    return Ending(children(raylet)) if sys.platform == "linux" else None
