"""Where a run's actors act, and why there."""

import os
import statistics
from dataclasses import replace
from time import perf_counter

import numpy as np

from tenfold.actors.actor import sample_actor
from tenfold.actors.pools import Direct, Inline
from tenfold.config.run import Run
from tenfold.core.processes import within
from tenfold.core.protocols import ActorPool

# seconds of an actor's round, acting and stepping, from which a process of its own pays
PAYS = 300e-6
LOOK = 0.3  # seconds for finding out
# seconds at least for a step then, however little patience: the first compiles kernels
COMPILING = 60.0


def make_pool(run: Run) -> tuple[ActorPool, str]:
    """The run's actors, and one sentence about where they are, if there are several."""
    if run.where == "processes":
        many = "s" * (run.actors > 1)
        return in_processes(run), f"{run.actors} actor{many} in processes, as asked"
    if run.actors == 1:
        return Direct(run), ""
    if run.where == "serial":
        return Inline(run), f"{run.actors} actors in this process, as asked"
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return Inline(run), f"{run.actors} actors in this process: there is one core"
    seconds = round_seconds(run)
    words = (
        f"an actor's round takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * PAYS:,.0f} "
        "us on"
    )
    if seconds < PAYS:
        return Inline(run), f"{run.actors} actors in this process: {words}"
    return in_processes(run), f"{run.actors} actors in processes: {words}"


def in_processes(run: Run) -> Inline:
    from tenfold.actors.processes import Processes  # here: a serial run needs none of it

    return Processes(run)


def round_seconds(run: Run) -> float:
    """The median time in which an actor chooses actions and steps its environments."""
    actor = sample_actor(run)
    actor.follow(actor.algorithm.make_agent(replace(run, device="cpu"), actor.envs.spec))
    row = {name: np.zeros(shape, dtype) for name, (shape, dtype) in actor.schema().items()}
    found: list[float] = []
    end = perf_counter() + LOOK
    while len(found) < 5 or (perf_counter() < end and len(found) < 1000):
        start = perf_counter()
        with within(max(run.patience, COMPILING), f"{run.env} has not finished a step"):
            actor.advance(run.steps, row)  # exploring as little as it will
        found.append(perf_counter() - start)
    actor.envs.close()
    return statistics.median(found)
