"""Runs as tasks of a Ray cluster: what `pool.Pool` does with the cores of this machine.

Ray would begin a lost task anew with what it was given at first. So it has no retries of its own
here: a run whose machine is gone is given to another one, with the files that have come from it,
and goes on from its last checkpoint.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError, described
from tenfold.core.processes import Interrupt
from tenfold.core.ray_cluster import Head, connect, differing, disconnect, require_ray
from tenfold.runs.folder import trusted_modules
from tenfold.training.away import Packer, Parcel, away, unpack
from tenfold.training.pool import POLL, Pool, Tasks, Work

ATTEMPTS = 4  # of a run that never comes any further
FAREWELL = 60.0  # seconds for runs to be saved after a signal
COUNTS = 5.0  # seconds between counts of the cluster's cores
LONGEST = 5.0  # seconds to hear a bell that rings
IN_FLIGHT = 2  # parcels of a run that nobody has taken yet


@dataclass
class Errand:
    """A task under way."""

    name: Any
    task: tuple[Any, ...]
    parcels: Any  # Ray's generator of them
    attempts: int = 1
    where: str = ""  # "" as long as it waits for a machine


class RayPool:
    """Works through tasks whose first two parts are a run's settings and its folder here, the last
    whether its modules are trusted. With `shared`, machines write into that folder themselves."""

    def __init__(
        self,
        work: Work,
        tasks: Sequence[tuple[Any, ...]] | Tasks,
        address: str = "",
        shared: bool = False,
        say: Callable[[str], None] = lambda words: print(words, file=sys.stderr),
    ) -> None:
        self.ray = require_ray()
        self.work, self.tasks = work, tasks if isinstance(tasks, Tasks) else Tasks(tasks)
        self.address, self.shared, self.say = address, shared, say
        self.errands: list[Errand] = []
        self.done, self.stopping, self.lost = 0, False, 0
        self.counted, self.cores = 0.0, 1.0
        self.told: set[str] = set()

    @property
    def errors(self) -> dict[Any, str]:
        return self.tasks.errors

    def run(self, workers: int, look: Callable[[int], None]) -> int:
        """The signal that stopped it, or 0; `workers` at a time (0: as many as there are cores)."""
        connect(self.address)
        try:
            self.bell = self.hang_bell()
            self.rung = self.bell.wait.remote()
            self.head = Head()
            with Interrupt(self.stop) as interrupt:
                self.carry_out(workers, look)
            return interrupt.signal
        finally:
            for errand in self.errands:
                with contextlib.suppress(Exception):
                    self.ray.cancel(errand.parcels, force=True)
            disconnect()

    def hang_bell(self) -> Any:
        """On this machine, which is lost only with this process."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        here = self.ray.get_runtime_context().get_node_id()
        strategy = NodeAffinitySchedulingStrategy(here, soft=False)
        return self.ray.remote(num_cpus=0, scheduling_strategy=strategy)(Bell).remote()

    def stop(self) -> None:
        """Also as a signal's handler, between any two lines: what follows is done by the loop."""
        self.stopping = True

    def carry_out(self, workers: int, look: Callable[[int], None]) -> None:
        ray, deadline = self.ray, 0.0
        while True:
            if self.stopping and not deadline:
                deadline = time.monotonic() + FAREWELL
                self.bell.ring.remote()
                self.call_off()
            self.employ(workers)
            if not self.errands or (deadline and time.monotonic() > deadline):
                return
            by_parcels = {errand.parcels: errand for errand in self.errands}
            for ready in ray.wait(list(by_parcels), timeout=POLL)[0]:
                self.hear(by_parcels[ready])
            self.head.require()
            look(self.done)

    def call_off(self) -> None:
        """Those that wait for a machine."""
        for errand in [one for one in self.errands if not one.where]:
            self.ray.cancel(errand.parcels)
            self.errands.remove(errand)

    def employ(self, workers: int) -> None:
        while not self.stopping and len(self.errands) < (workers or self.room()):
            if not (found := self.tasks.next()):
                return
            self.errands.append(Errand(*found, None))
            self.send(self.errands[-1])

    def room(self) -> int:
        """How many runs the cluster has cores for, now: machines come and go. (A head that is gone
        would be waited for.)"""
        if time.monotonic() - self.counted > COUNTS and self.head.there():
            self.counted = time.monotonic()
            self.cores = self.ray.cluster_resources().get("CPU", 1.0)
        return max(int(self.cores), 1)

    def send(self, errand: Errand) -> None:
        settings, path, *more, trust = errand.task
        trust = trust or trusted_modules(Path(path), settings)
        cores, gpus = needs(settings)
        if self.head.there():
            self.require_room(cores, gpus)
        there = Parcel() if self.shared else Packer(Path(path)).pack()
        task = self.ray.remote(
            num_cpus=cores,
            num_gpus=gpus,
            max_retries=0,
            scheduling_strategy="SPREAD",
            num_returns="streaming",
            _generator_backpressure_num_objects=IN_FLIGHT,
        )(errand_of)
        errand.where, given = "", (settings, path, *more, trust)
        errand.parcels = task.remote(self.work, given, there, self.shared, [self.rung])

    def require_room(self, cores: int, gpus: int) -> None:
        """Refuses what no machine of the cluster could ever do, which Ray would wait for."""
        nodes = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        most = max((node.get("CPU", 0) for node in nodes), default=0)
        if cores > most:
            raise UserError(
                f"A run needs {cores} cores (threads, and actors in processes), and the largest "
                f"machine of the Ray cluster has {most:.0f}: lower them, or add a larger one."
            )
        if gpus and not any(node.get("GPU", 0) for node in nodes):
            raise ConfigError("device", "= cuda, but no machine of the Ray cluster has a GPU.")

    def hear(self, errand: Errand) -> None:
        """Takes a parcel, or the news that the machine is gone."""
        errors: Any = self.ray.exceptions
        try:
            parcel: Parcel = self.ray.get(next(errand.parcels))
        except StopIteration:
            self.try_again(errand, "its process ended without a word")
        except errors.RayTaskError as error:
            self.end(errand, f"it could not be begun there ({described(error.cause)}).")
        except errors.RayError as error:
            self.try_again(errand, f"{errand.where or 'the cluster'}: {type(error).__name__}")
        else:
            self.take(errand, parcel)

    def take(self, errand: Errand, parcel: Parcel) -> None:
        if parcel.begun:
            errand.where, there = parcel.begun
            words = differing(errand.where, there)
            if words and words not in self.told:
                self.told.add(words)
                self.say(f"Note: {words}.")
        if any(name.startswith("checkpoints/") for name, _, _ in parcel.files):
            errand.attempts = 1  # it has come further
        unpack(Path(errand.task[1]), parcel)
        if parcel.answer:
            self.end(errand, parcel.answer[0])

    def end(self, errand: Errand, error: str) -> None:
        self.errands.remove(errand)
        self.done += 1
        if not self.tasks.ended(errand.name, error):
            self.stop()

    def try_again(self, errand: Errand, how: str) -> None:
        """On another machine, from what has come from this one."""
        self.lost += 1
        if self.stopping:
            self.errands.remove(errand)
        elif errand.attempts == ATTEMPTS:
            self.end(errand, f"its machine was lost {ATTEMPTS} times in a row ({how}).")
        else:
            errand.attempts += 1
            self.say(f"Note: {Path(errand.task[1]).name} was lost ({how}), and goes on elsewhere.")
            self.send(errand)


class Bell:
    """An actor of Ray: what `wait` gives is there when somebody rings."""

    def __init__(self) -> None:
        import asyncio

        self.rung = asyncio.Event()

    async def wait(self) -> bool:
        return await self.rung.wait()

    async def ring(self) -> None:
        self.rung.set()


def errand_of(work: Work, task: tuple[Any, ...], there: Parcel, shared: bool, bell: Any) -> Any:
    """On a machine of the cluster; `bell` is a list, so that Ray does not wait for what is in
    it."""
    import ray
    from ray.exceptions import RayError

    def stopped() -> bool:
        """Whether somebody rang: a bell that is gone says nothing."""
        if not ray.wait(bell, timeout=0, fetch_local=False)[0]:
            return False
        try:
            return bool(ray.get(bell[0], timeout=LONGEST))
        except RayError:
            return False

    yield from away(work, task, there, shared, stopped)


def needs(settings: dict[str, Any]) -> tuple[int, int]:
    """Cores and GPUs of a run."""
    actors = settings["actors"] if settings["where"] == "processes" else 0
    return settings["threads"] + actors, int(settings["device"] == "cuda")


@dataclass(frozen=True)
class Place:
    """Where the runs of an experiment are trained: in processes of this machine, or on a Ray
    cluster, whose machines write into the experiment's own folder if their disk is `shared`."""

    ray: bool = False
    address: str = ""
    shared: bool = False

    @classmethod
    def of(cls, run: Run, shared: bool = False) -> "Place":
        """As the setting `where` says of an experiment of several runs."""
        if run.where != "ray" and shared:
            raise UserError("--storage is for runs on a Ray cluster: give --where ray as well.")
        if run.where == "ray":
            require_ray()
        return cls(run.where == "ray", run.address, shared)

    def pool(self, work: Work, tasks: Sequence[tuple[Any, ...]] | Tasks) -> Pool | RayPool:
        if self.ray:
            return RayPool(work, tasks, self.address, self.shared)
        return Pool(work, tasks)

    def workers(self, jobs: int) -> int:
        """How many at a time: `jobs`, or (0) as many as there are cores, which of a cluster is
        known when it is joined."""
        return jobs or (0 if self.ray else len(os.sched_getaffinity(0)))

    def words(self, jobs: int) -> str:
        count = self.workers(jobs)
        on = f"on the Ray cluster {self.address}".rstrip() if self.ray else ""
        return " ".join(filter(None, (f"{count} at a time" if count else "", on)))


HERE = Place()
