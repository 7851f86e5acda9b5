"""A pool of processes that work through a list of tasks.

Each talks through a pipe of its own: unlike the locks of a queue, pipes have no names that could be
left behind, whoever is killed.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from signal import SIGINT
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.processes import Interrupt, enter, how_it_ended, leave, signal_name, spawning
from tenfold.core.ray_cluster import require_ray

POLL = 0.5  # seconds between looks at the progress
EXIT_TIMEOUT = 3.0  # seconds for a process to end before it is killed
# of a task: an error's sentence or "", and the signal that cut it short or 0
Work = Callable[..., tuple[str, int]]


class Worker:
    """A process that runs one task after another."""

    def __init__(self, number: int, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child_end = context.Pipe()
        self.process = context.Process(
            target=enter, name=f"worker {number}", args=(leave, serve, work, child_end)
        )
        self.task: Any = None  # its name
        self.began = self.stop_sent = False
        with spawning():
            self.process.start()
        child_end.close()

    def give(self, name: Any, task: tuple[Any, ...]) -> None:
        self.task = name
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.pipe.send(task)

    def send_stop(self) -> None:
        """Sends SIGINT once: the worker then saves its run; a second signal would kill it."""
        if not self.stop_sent and self.process.pid:
            self.stop_sent = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, SIGINT)

    def answer(self) -> str | None:
        """The error of its task, or ""; None if it only reported that it started."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self.process.join(EXIT_TIMEOUT)  # its pipe may end a moment before it does
            code = self.process.exitcode
            how = "no longer answers" if code is None else how_it_ended(code, self.began)
            return "" if self.stop_sent else f"its process {how}"
        if not self.began:
            self.began = True
            return None
        error, cut_short = message
        return error or (
            f"its process was stopped by {signal_name(cut_short)}"
            if cut_short and not self.stop_sent
            else ""
        )

    def end(self) -> None:
        """Closes the pipe, which ends the process, or kills it."""
        self.pipe.close()
        self.process.join(EXIT_TIMEOUT)
        self.process.kill()
        self.process.join()
        self.process.close()


def serve(work: Work, pipe: Connection) -> None:
    """The main function of a worker. It has a process group of its own, so that Ctrl-C reaches only
    its parent."""
    os.setpgrp()
    with contextlib.suppress(EOFError, OSError):  # the parent has no more for it to do, or is gone
        pipe.send("began")
        while True:
            pipe.send(work(*pipe.recv()))


class Tasks:
    """The source of a pool's tasks: a list, worked through until a task fails. `errors` are the
    sentences of failed tasks, by index."""

    def __init__(self, tasks: Sequence[tuple[Any, ...]] = ()) -> None:
        self.left: Iterator[tuple[Any, tuple[Any, ...]]] = iter(enumerate(tasks))
        self.errors: dict[Any, str] = {}

    def next(self) -> tuple[Any, tuple[Any, ...]] | None:
        """The next task and its name; None if there is none now, though there may be after others
        have ended."""
        return next(self.left, None)

    def ended(self, name: Any, error: str) -> bool:
        """Records a task's end; returns whether the others go on."""
        if error:
            self.errors[name] = error
        return not error


class Pool:
    """Runs tasks in worker processes. After an error that ends the pool, or a signal, no task is
    started, and the running ones are told to stop."""

    def __init__(self, work: Work, tasks: Sequence[tuple[Any, ...]] | Tasks) -> None:
        self.work, self.tasks = work, tasks if isinstance(tasks, Tasks) else Tasks(tasks)
        self.workers: list[Worker] = []
        self.begun = self.done = 0
        self.stopping = False

    @property
    def errors(self) -> dict[Any, str]:
        return self.tasks.errors

    def run(self, workers: int, look: Callable[[int], None]) -> int:
        """Returns the signal that stopped it, or 0. `look` is called from time to time with the
        number of tasks done."""
        with Interrupt(self.stop) as interrupt:
            try:
                while True:
                    self.assign_tasks(workers)
                    if self.stopping:
                        self.stop()  # it may have come while one of them was starting
                    busy = {one.pipe: one for one in self.workers if one.task is not None}
                    if not busy:
                        break
                    for pipe in wait(list(busy), POLL):
                        self.take_answer(busy[pipe])  # type: ignore[index]
                    look(self.done)
            finally:
                while self.workers:
                    self.workers.pop().end()
        return interrupt.signal

    def assign_tasks(self, workers: int) -> None:
        """Gives tasks to idle workers, and starts new ones."""
        for worker in self.workers:
            if worker.task is None and not self.give_next(worker):
                return
        while len(self.workers) < workers and not self.stopping:
            if not (task := self.tasks.next()):
                return
            self.workers.append(Worker(self.begun, self.work))
            self.begun += 1
            self.workers[-1].give(*task)

    def give_next(self, worker: Worker) -> bool:
        task = None if self.stopping else self.tasks.next()
        if task:
            worker.give(*task)
        return bool(task)

    def take_answer(self, worker: Worker) -> None:
        """Receives an answer; a worker that died is removed."""
        error = worker.answer()
        if error is None:
            return
        task, worker.task = worker.task, None
        if not self.tasks.ended(task, error):
            self.stop()
        self.done += 1
        if not worker.process.is_alive():
            self.workers.remove(worker)
            worker.end()

    def stop(self) -> None:
        """Stops all workers. May be called as a signal handler, between any two lines."""
        self.stopping = True
        for worker in self.workers:
            worker.send_stop()


@dataclass(frozen=True)
class Executor:
    """Where the runs of an experiment are trained: in processes of this machine, or on a Ray
    cluster, whose machines write into the experiment's folder if their disk is `shared`."""

    ray: bool = False
    address: str = ""
    shared: bool = False

    @classmethod
    def of(cls, run: Run, shared: bool = False) -> "Executor":
        """The executor that the setting `where` of an experiment asks for."""
        if run.where != "ray" and shared:
            raise UserError("--storage is for runs on a Ray cluster: give --where ray as well.")
        if run.where == "ray":
            require_ray()
        return cls(run.where == "ray", run.address, shared)

    def pool(self, work: Work, tasks: Sequence[tuple[Any, ...]] | Tasks) -> Pool:
        if self.ray:
            from tenfold.training.remote_pool import ClusterPool  # it reads this module

            return ClusterPool(work, tasks, self.address, self.shared)
        return Pool(work, tasks)

    def workers(self, jobs: int) -> int:
        """The number of runs at a time: `jobs`, or (0) one per core; of a cluster the cores are
        counted when it is joined."""
        return jobs or (0 if self.ray else len(os.sched_getaffinity(0)))

    def description(self, jobs: int) -> str:
        count = self.workers(jobs)
        on = f"on the Ray cluster {self.address}".rstrip() if self.ray else ""
        return " ".join(filter(None, (f"{count} at a time" if count else "", on)))


LOCAL = Executor()
