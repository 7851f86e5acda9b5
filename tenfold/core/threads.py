"""A team of threads inside compiled code: `run_work` has a function called for every index of some
work, by this thread and by the team's, without Python and without its lock.

Threads enter a kernel once and stay there: between two pieces of work they wait for a moment, then
sleep. Indices are taken one by one from a shared counter, so which thread does an index varies, and
what it does must not depend on that. There is one team in a process, which all use in turn.
"""

import atexit
import multiprocessing
import os
import threading

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.native import (
    add,
    call,
    cond_broadcast,
    cond_init,
    cond_wait,
    give_way,
    load,
    mutex_init,
    mutex_lock,
    mutex_unlock,
    pause,
    store,
)

# Byte offsets of a team's words, each on a cache line of its own: the number of the work, its next
# index beside its count (count · 2³² + index), indices done, the work's function and argument,
# threads asleep, whether they are to end, how many do this work; then the lock and the condition,
# with room for what any system's take.
NUMBER, NEXT, DONE, FUNCTION, ARGUMENT, ASLEEP, STOP, THREADS = range(0, 512, 64)
LOCK, CONDITION, BYTES = 512, 640, 768
COUNT_BITS, INDEX = 32, (1 << 32) - 1
# pauses before a thread without work sleeps, some 100 to 400 µs: it stays awake from one piece of
# work to the next and over a step of an environment; and before the one that calls gives way
SPINS, CALLER_SPINS = 10_000, 2_000


@kernel
def do_indices(team):
    """Takes indices of the work until none is left. The count is read with the index: the work
    cannot change before an index below its count is done."""
    while True:
        ticket = add(team + NEXT, 1)
        index = ticket & INDEX
        if index >= ticket >> COUNT_BITS:
            return
        call(load(team + FUNCTION), load(team + ARGUMENT), index)
        add(team + DONE, 1)


@kernel(nogil=True)
def serve(team, number):
    """The life of a thread: its share of all work that takes so many, until STOP."""
    last_number = load(team + NUMBER)
    while load(team + STOP) == 0:
        spins = 0
        while load(team + NUMBER) == last_number and spins < SPINS:
            pause()
            spins += 1
        if load(team + NUMBER) == last_number:
            mutex_lock(team + LOCK)
            add(team + ASLEEP, 1)
            while load(team + NUMBER) == last_number:
                cond_wait(team + CONDITION, team + LOCK)
            add(team + ASLEEP, -1)
            mutex_unlock(team + LOCK)
        last_number = load(team + NUMBER)
        if number < load(team + THREADS):
            do_indices(team)


@kernel
def begin_work(team):
    """Wakes the threads."""
    add(team + NUMBER, 1)
    if load(team + ASLEEP) > 0:
        mutex_lock(team + LOCK)
        cond_broadcast(team + CONDITION)
        mutex_unlock(team + LOCK)


@kernel
def run_work(team, threads, function, argument, count):
    """Calls `function(argument, index)`, by its address, for every index below `count`, on so many
    threads, of which this is one. Team 0 has no others: indices are then done in order."""
    if team == 0 or count < 2:
        for index in range(count):
            call(function, argument, index)
        return
    store(team + FUNCTION, function)
    store(team + ARGUMENT, argument)
    store(team + THREADS, threads)
    store(team + DONE, 0)
    store(team + NEXT, count << COUNT_BITS)
    begin_work(team)
    do_indices(team)
    spins = 0
    while load(team + DONE) < count:
        pause()
        spins += 1
        if spins > CALLER_SPINS:
            give_way()


@kernel
def open_team(team):
    mutex_init(team + LOCK, 0)
    cond_init(team + CONDITION, 0)


class ThreadTeam:
    """Threads beside the one that calls; `address` is what `run_work` takes."""

    def __init__(self) -> None:
        self.room = np.zeros(BYTES // 8 + 8, np.int64)
        self.address = self.room.ctypes.data + -self.room.ctypes.data % 64
        self.threads: list[threading.Thread] = []
        open_team(self.address)

    def grow(self, threads: int) -> None:
        """So many threads beside this one, at least."""
        while len(self.threads) < threads:
            arguments = self.address, len(self.threads) + 1  # number 0 is the one that calls
            thread = threading.Thread(target=serve, args=arguments, daemon=True)
            self.threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Ends the threads."""
        self.room[(self.address - self.room.ctypes.data + STOP) // 8] = 1
        begin_work(self.address)
        for thread in self.threads:
            thread.join()


TEAMS: list[ThreadTeam] = []  # of this process: one at most
ENVIRONMENTS, UPDATES = "environments", "updates"
LIMITS: dict[str, int] = {}  # how many threads a run asked for, by their use
SHARED: list[str] = []  # by whom: this process shares its machine with others that work as well


def set_team_limit(threads: int, use: str = ENVIRONMENTS) -> None:
    """How many threads of a team do work of a kind from now on; 0: as many as there are cores."""
    LIMITS[use] = threads


def team_threads(count: int, use: str = ENVIRONMENTS) -> int:
    """Threads for so many indices of work. Processes that another one of ours has started share the
    machine and have one each."""
    alone = multiprocessing.parent_process() is None and not SHARED
    most = LIMITS.get(use) or (len(os.sched_getaffinity(0)) if alone else 1)
    return max(1, min(most, count))


def asked_for(use: str) -> bool:
    """Whether a run says how many threads it takes."""
    return LIMITS.get(use, 0) > 0


def share_machine(whose: str) -> None:
    """From now on this process has one thread for work, where a run asks for no more."""
    SHARED[:] = [whose]


def team_for(threads: int) -> int:
    """The address of the process's team, with so many threads together with the one that calls; 0
    where that is all."""
    if threads < 2:
        return 0
    if not TEAMS:
        TEAMS.append(ThreadTeam())
        atexit.register(close_team)
    TEAMS[0].grow(threads - 1)
    return TEAMS[0].address


def close_team() -> None:
    """Ends the process's team, before it forks or exits."""
    while TEAMS:
        TEAMS.pop().close()
