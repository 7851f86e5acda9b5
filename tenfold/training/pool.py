"""Processes that work through a list of tasks, one after another each.

Each talks through a pipe of its own: unlike the locks of a queue, pipes have no names that could be
left behind, whoever is killed.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from signal import SIGINT
from typing import Any

from tenfold.core.processes import Interrupt, enter, how_it_ended, leave, signal_name, spawning

POLL = 0.5  # seconds between looks at the progress
FAREWELL = 3.0  # seconds for a process to end before it is killed
# of a task: an error's sentence or "", and the signal that cut it short or 0
Work = Callable[..., tuple[str, int]]


class Worker:
    """A process that does one task after another."""

    def __init__(self, number: int, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.talk, there = context.Pipe()
        self.process = context.Process(
            target=enter, name=f"worker {number}", args=(leave, serve, work, there)
        )
        self.task: int | None = None
        self.began = self.told = False
        with spawning():
            self.process.start()
        there.close()

    def give(self, number: int, task: tuple[Any, ...]) -> None:
        self.task = number
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send(task)

    def tell_to_stop(self) -> None:
        """Once: it saves what it is at, where a second signal would end it at once."""
        if not self.told and self.process.pid:
            self.told = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, SIGINT)

    def answer(self) -> str | None:
        """What was wrong with its task, or ""; None: it has only begun."""
        try:
            said = self.talk.recv()
        except (EOFError, OSError):
            self.process.join(FAREWELL)  # its pipe may end a moment before it does
            code = self.process.exitcode
            how = "no longer answers" if code is None else how_it_ended(code, self.began)
            return "" if self.told else f"its process {how}"
        if not self.began:
            self.began = True
            return None
        error, cut_short = said
        return error or (
            f"its process was stopped by {signal_name(cut_short)}"
            if cut_short and not self.told
            else ""
        )

    def end(self) -> None:
        """It ends when nobody talks to it any more."""
        self.talk.close()
        self.process.join(FAREWELL)
        self.process.kill()
        self.process.join()
        self.process.close()


def serve(work: Work, talk: Connection) -> None:
    """The life of a worker. Its group is its own, so that Ctrl-C comes from its parent only."""
    os.setpgrp()
    with contextlib.suppress(EOFError, OSError):  # the parent has no more for it to do, or is gone
        talk.send("began")
        while True:
            talk.send(work(*talk.recv()))


class Pool:
    """`run` works through the tasks. `errors` are then the sentences of those that failed, by their
    place in the list. After an error or a signal no task is begun, and those under way are told to
    stop."""

    def __init__(self, work: Work, tasks: Sequence[tuple[Any, ...]]) -> None:
        self.work, self.count, self.tasks = work, len(tasks), iter(enumerate(tasks))
        self.pool: list[Worker] = []
        self.errors: dict[int, str] = {}
        self.done, self.stopping = 0, False

    def run(self, workers: int, look: Callable[[int], None]) -> int:
        """The signal that stopped it, or 0. `look` is told every now and then how many tasks are
        done."""
        with Interrupt(self.stop) as interrupt:
            try:
                for number in range(min(workers, self.count)):
                    self.pool.append(Worker(number, self.work))
                    self.give_next(self.pool[-1])
                if self.stopping:
                    self.stop()  # it may have come while one of them was starting
                while busy := {
                    worker.talk: worker for worker in self.pool if worker.task is not None
                }:
                    for talk in wait(list(busy), POLL):
                        self.hear(busy[talk])  # type: ignore[index]
                    look(self.done)
            finally:
                while self.pool:
                    self.pool.pop().end()
        return interrupt.signal

    def give_next(self, worker: Worker) -> None:
        """A task, where there is one. A worker that is told to stop just then leaves without it."""
        worker.task = None
        if not self.stopping and (task := next(self.tasks, None)):
            worker.give(*task)

    def hear(self, worker: Worker) -> None:
        """Takes an answer, and gives the next task for it."""
        error = worker.answer()
        if error is None:
            return
        if error and worker.task is not None:
            self.errors[worker.task] = error
            self.stop()
        self.done += 1
        self.give_next(worker)

    def stop(self) -> None:
        """Also as a signal's handler, between any two lines."""
        self.stopping = True
        for worker in self.pool:
            worker.tell_to_stop()
