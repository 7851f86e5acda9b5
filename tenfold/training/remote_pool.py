"""Runs as tasks of a Ray cluster: the counterpart of `worker_pool.Pool`.

Ray would begin a lost task anew with what it was given at first. So it has no retries of its own
here: a run whose machine is gone is given to another one, with the files that have come from it,
and goes on from its last checkpoint.
"""

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.core.errors import ConfigError, UserError, described
from tenfold.core.processes import Interrupt
from tenfold.core.ray_cluster import Head, connect, differing, disconnect, require_ray
from tenfold.runs.folder import trusted_modules
from tenfold.training.remote_run import DeltaPacker, FolderDelta, run_remotely, unpack
from tenfold.training.worker_pool import POLL, Pool, Tasks, Work

ATTEMPTS = 4  # of a run that never comes any further
STOP_TIMEOUT = 60.0  # seconds for runs to be saved after a signal
COUNT_EVERY = 5.0  # seconds between counts of the cluster's cores
SIGNAL_TIMEOUT = 5.0  # seconds to wait for the signal's value
IN_FLIGHT = 2  # deltas of a run that were not received yet


@dataclass
class RemoteTask:
    """A task that is running or waiting on the cluster."""

    name: Any
    task: tuple[Any, ...]
    deltas: Any  # Ray's generator of folder deltas
    attempts: int = 1
    where: str = ""  # "" as long as it waits for a machine


class ClusterPool(Pool):
    """Works through tasks that start with a run's settings and its folder here, and end with
    whether its modules are trusted. With `shared`, machines write into that folder themselves."""

    def __init__(
        self,
        work: Work,
        tasks: Sequence[tuple[Any, ...]] | Tasks,
        address: str = "",
        shared: bool = False,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr),
    ) -> None:
        super().__init__(work, tasks)
        self.ray = require_ray()
        self.address, self.shared, self.say = address, shared, say
        self.running_tasks: list[RemoteTask] = []
        self.lost, self.counted, self.cores = 0, 0.0, 1.0
        self.reported: set[str] = set()

    def run(self, workers: int, look: Callable[[int], None]) -> int:
        """Returns the signal that stopped it, or 0; `workers` at a time (0: one per core)."""
        connect(self.address)
        try:
            self.stop_signal = self.start_stop_signal()
            self.stop_ref = self.stop_signal.wait.remote()
            self.head = Head()
            with Interrupt(self.stop) as interrupt:
                self.dispatch(workers, look)
            return interrupt.signal
        finally:
            for running in self.running_tasks:
                with contextlib.suppress(Exception):
                    self.ray.cancel(running.deltas, force=True)
            disconnect()

    def start_stop_signal(self) -> Any:
        """Starts the actor on this machine, so that it is lost only together with this process."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self.ray.get_runtime_context().get_node_id()
        strategy = NodeAffinitySchedulingStrategy(here, soft=False)
        return self.ray.remote(num_cpus=0, scheduling_strategy=strategy)(StopSignal).remote()

    def stop(self) -> None:
        """May be called as a signal handler, between any two lines: the loop does the rest."""
        self.stopping = True

    def dispatch(self, workers: int, look: Callable[[int], None]) -> None:
        ray, deadline = self.ray, 0.0
        while True:
            if self.stopping and not deadline:
                deadline = time.monotonic() + STOP_TIMEOUT
                self.stop_signal.send.remote()
                self.cancel_waiting()
            self.start_tasks(workers)
            if not self.running_tasks or (deadline and time.monotonic() > deadline):
                return
            by_deltas = {running.deltas: running for running in self.running_tasks}
            for ready in ray.wait(list(by_deltas), timeout=POLL)[0]:
                self.receive(by_deltas[ready])
            self.head.require()
            look(self.done)

    def cancel_waiting(self) -> None:
        """Cancels tasks that wait for a machine."""
        for running in [one for one in self.running_tasks if not one.where]:
            self.ray.cancel(running.deltas)
            self.running_tasks.remove(running)

    def start_tasks(self, workers: int) -> None:
        while not self.stopping and len(self.running_tasks) < (workers or self.free_cores()):
            if not (task := self.tasks.next()):
                return
            self.running_tasks.append(RemoteTask(*task, None))
            self.send(self.running_tasks[-1])

    def free_cores(self) -> int:
        """The number of runs the cluster has cores for now: machines come and go. (With its head
        gone the call would block.)"""
        if time.monotonic() - self.counted > COUNT_EVERY and self.head.answers():
            self.counted = time.monotonic()
            self.cores = self.ray.cluster_resources().get("CPU", 1.0)
        return max(int(self.cores), 1)

    def send(self, running: RemoteTask) -> None:
        settings, path, *more, trust = running.task
        trust = trust or trusted_modules(Path(path), settings)
        cores, gpus = needs(settings)
        if self.head.answers():
            self.require_room(cores, gpus)
        files = FolderDelta() if self.shared else DeltaPacker(Path(path)).pack()
        task = self.ray.remote(
            num_cpus=cores,
            num_gpus=gpus,
            max_retries=0,
            scheduling_strategy="SPREAD",
            num_returns="streaming",
            _generator_backpressure_num_objects=IN_FLIGHT,
        )(remote_task)
        running.where, arguments = "", (settings, path, *more, trust)
        running.deltas = task.remote(self.work, arguments, files, self.shared, [self.stop_ref])

    def require_room(self, cores: int, gpus: int) -> None:
        """Refuses runs that no machine of the cluster could hold: Ray would wait forever."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        most = max((node.get("CPU", 0) for node in nodes), default=0)
        if cores > most:
            raise UserError(
                f"A run needs {cores} cores (threads, and actors in processes), and the largest "
                f"machine of the Ray cluster has {most:.0f}: lower them, or add a larger one."
            )
        if gpus and not any(node.get("GPU", 0) for node in nodes):
            raise ConfigError("device", "= cuda, but no machine of the Ray cluster has a GPU.")

    def receive(self, running: RemoteTask) -> None:
        """Receives a delta, or notices that the machine is gone."""
        errors: Any = self.ray.exceptions
        try:
            delta: FolderDelta = self.ray.get(next(running.deltas))
        except StopIteration:
            self.retry(running, "its process ended without a word")
        except errors.RayTaskError as error:
            self.end(running, f"it could not be begun there ({described(error.cause)}).")
        except errors.RayError as error:
            self.retry(running, f"{running.where or 'the cluster'}: {type(error).__name__}")
        else:
            self.apply(running, delta)

    def apply(self, running: RemoteTask, delta: FolderDelta) -> None:
        if delta.started:
            running.where, packages = delta.started
            difference = differing(running.where, packages)
            if difference and difference not in self.reported:
                self.reported.add(difference)
                self.say(f"Note: {difference}.")
        if any(name.startswith("checkpoints/") for name, _, _ in delta.files):
            running.attempts = 1  # it has come further
        unpack(Path(running.task[1]), delta)
        if delta.answer:
            self.end(running, delta.answer[0])

    def end(self, running: RemoteTask, error: str) -> None:
        self.running_tasks.remove(running)
        self.done += 1
        if not self.tasks.ended(running.name, error):
            self.stop()

    def retry(self, running: RemoteTask, how: str) -> None:
        """Starts the task on another machine, from the files that arrived here."""
        self.lost += 1
        if self.stopping:
            self.running_tasks.remove(running)
        elif running.attempts == ATTEMPTS:
            self.end(running, f"its machine was lost {ATTEMPTS} times in a row ({how}).")
        else:
            running.attempts += 1
            self.say(f"Note: {Path(running.task[1]).name} was lost ({how}), and goes on elsewhere.")
            self.send(running)


class StopSignal:
    """A Ray actor whose `wait` returns once `send` was called."""

    def __init__(self) -> None:
        import asyncio

        self.stop_ref = asyncio.Event()

    async def wait(self) -> bool:
        return await self.stop_ref.wait()

    async def send(self) -> None:
        self.stop_ref.set()


def remote_task(
    work: Work, task: tuple[Any, ...], files: FolderDelta, shared: bool, stop_signal: Any
) -> Any:
    """Runs on a machine of the cluster. `stop_signal` is wrapped in a list, so that Ray does not
    wait for its value."""
    import ray
    from ray.exceptions import RayError

    from tenfold.core.threads import share_machine

    share_machine("Ray")  # which gives every task the cores that it asked for

    def stopped() -> bool:
        """Whether the signal was sent; a signal that is lost counts as not sent."""
        if not ray.wait(stop_signal, timeout=0, fetch_local=False)[0]:
            return False
        try:
            return bool(ray.get(stop_signal[0], timeout=SIGNAL_TIMEOUT))
        except RayError:
            return False

    yield from run_remotely(work, task, files, shared, stopped)


def needs(settings: dict[str, Any]) -> tuple[int, int]:
    """The cores and GPUs that a run needs."""
    actors = settings["actors"] if settings["where"] == "processes" else 0
    return max(settings["threads"], 1) + actors, int(settings["device"] == "cuda")
