"""A team of threads: every index once, whatever the number of threads."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from numba import cfunc, types

from tenfold.core import threads as module
from tenfold.core.native import c_function, give_way, load, store
from tenfold.core.threads import ThreadTeam, run_work, set_team_limit, team_for, team_threads


@cfunc(types.void(types.int64, types.int64))
def count_index(address, index):
    store(address + 8 * index, load(address + 8 * index) + index + 1)


COUNT: int = count_index.address  # type: ignore[attr-defined]


@pytest.fixture
def team():
    team = ThreadTeam()
    yield team
    team.close()
    assert not any(thread.is_alive() for thread in team.threads)


@pytest.mark.parametrize("threads", [1, 3])
def test_every_index_is_done_once_in_each_of_many_pieces_of_work(
    team: ThreadTeam, threads: int
) -> None:
    team.grow(threads)
    rng = np.random.default_rng(0)
    for count in rng.integers(0, 40, 300).tolist():  # more threads than indices, and fewer
        done = np.zeros(40, np.int64)
        run_work(team.address, threads + 1, COUNT, done.ctypes.data, count)
        expected = np.where(np.arange(40) < count, np.arange(40) + 1, 0)
        np.testing.assert_array_equal(done, expected)


def test_threads_that_sleep_wake_for_work(team: ThreadTeam) -> None:
    team.grow(2)
    done = np.zeros(8, np.int64)
    for round_number in range(3):
        for thread in team.threads:
            thread.join(0.05)  # longer than they spin
        run_work(team.address, 3, COUNT, done.ctypes.data, 8)
        np.testing.assert_array_equal(done, (round_number + 1) * (np.arange(8) + 1))


this_thread = c_function("gettid", 0)


@cfunc(types.void(types.int64, types.int64))
def note_thread(address, index):
    """Which thread does it; long enough for others to take some too."""
    for _ in range(2000):
        give_way()
    store(address + 8 * index, this_thread())


NOTE: int = note_thread.address  # type: ignore[attr-defined]


@pytest.mark.parametrize("threads", [1, 2])
def test_work_is_done_by_no_more_threads_than_it_may_take(team: ThreadTeam, threads: int) -> None:
    """Whatever other work has started."""
    team.grow(3)
    doers = np.zeros(32, np.int64)
    for _ in range(5):
        run_work(team.address, threads, NOTE, doers.ctypes.data, 32)
        assert len(set(doers.tolist())) <= threads


def test_without_a_team_the_caller_does_all() -> None:
    done = np.zeros(5, np.int64)
    assert team_for(1) == 0
    run_work(0, 1, COUNT, done.ctypes.data, 5)
    np.testing.assert_array_equal(done, np.arange(5) + 1)


def test_threads_are_as_many_as_cores_or_as_asked_and_no_more_than_indices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.setattr(module, "LIMITS", {})
    monkeypatch.setattr(module, "SHARED", [])
    assert (team_threads(1), team_threads(5), team_threads(64)) == (1, 5, 16)
    set_team_limit(3)
    assert (team_threads(1), team_threads(64)) == (1, 3)
    set_team_limit(0)
    assert team_threads(64) == 16
    monkeypatch.setattr(module.multiprocessing, "parent_process", object)
    assert team_threads(64) == 1  # an actor's process shares the machine with the others


SCRIPT = """
import numpy as np
from tenfold.core.threads import set_team_limit
from tenfold.envs.making import make_environments
set_team_limit(3)
envs = make_environments("InvertedPendulum-v5", 4, 0)
envs.step(np.zeros((4, 1), np.float32))
print("stepped", flush=True)
{end}
"""


@pytest.mark.parametrize("end", ["", "import time; time.sleep(60)"])
def test_a_process_with_a_team_ends_and_hears_a_signal(end: str) -> None:
    command = [sys.executable, "-c", SCRIPT.format(end=end)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "stepped\n"
        if end:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == (-signal.SIGTERM if end else 0)
