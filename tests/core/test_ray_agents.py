"""Ray's agents end with the process that started Ray, however it ends."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tenfold.core.ray_cluster import START, Ending, children, fields

STARTS_RAY = """
from tenfold.core.ray_cluster import connect
connect()
print("started", flush=True)
import time
time.sleep(100)
"""


def test_only_processes_that_were_there_then_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id may have become another process's meanwhile."""
    with subprocess.Popen(["sleep", "100"]) as agent, subprocess.Popen(["sleep", "100"]) as other:
        real = fields(other.pid)
        assert {agent.pid, other.pid} <= set(children(int(real[1])))

        def earlier(pid: int) -> list[str]:
            found = fields(pid)
            if pid == other.pid:
                found[START] = str(int(found[START]) - 1)
            return found

        monkeypatch.setattr("tenfold.core.ray_cluster.fields", earlier)
        ending = Ending(iter([agent.pid, other.pid, 2**22 + 1]))
        assert agent.poll() is None
        ending.now()
        assert agent.wait(10) == -9 and other.poll() is None
        other.kill()


@pytest.mark.slow
def test_nothing_of_ray_is_left_when_the_process_that_started_it_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_RAY],
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    ) as process:
        assert process.stdout and process.stdout.readline() == "started\n"
        everyone = [
            pid for pid in map(int, filter(str.isdigit, listed())) if in_session(pid, process.pid)
        ]
        assert len(everyone) > 4  # the head, the raylet, two agents
        process.kill()
        process.wait()
        end = time.monotonic() + 5
        while left := [pid for pid in everyone if in_session(pid, process.pid)]:
            assert time.monotonic() < end, left
            time.sleep(0.1)


def listed() -> list[str]:
    return [path.name for path in Path("/proc").iterdir()]


def in_session(pid: int, session: int) -> bool:
    """Whether a process of this session is there, and no zombie."""
    state, _, _, its, *_ = fields(pid) or ["Z", "", "", ""]
    return its == str(session) and state != "Z"
