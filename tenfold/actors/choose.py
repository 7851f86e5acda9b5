"""Where a run's actors act, and why there."""

import os
import statistics
from dataclasses import replace
from time import perf_counter

import numpy as np

from tenfold.actors.actor import make_agent, sample_actor
from tenfold.actors.inline import Crew
from tenfold.config.run import Run
from tenfold.core.processes import within

# seconds of an actor's round, acting and stepping, from which a process of its own pays
PAYS = 300e-6
LOOK = 0.3  # seconds for finding out
# seconds at least for a step then, however little patience: the first compiles kernels
COMPILING = 60.0


def make_crew(run: Run) -> tuple[Crew | None, str]:
    """The run's actors, and one sentence about where they are; None: a single one, which the place
    itself is."""
    if run.where == "processes":
        return in_processes(
            run
        ), f"{run.actors} actor{'s' * (run.actors > 1)} in processes, as asked"
    if run.actors == 1:
        return None, ""
    if run.where == "serial":
        return Crew(run), f"{run.actors} actors in this process, as asked"
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return Crew(run), f"{run.actors} actors in this process: there is one core"
    seconds = round_seconds(run)
    words = (
        f"an actor's round takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * PAYS:,.0f} "
        "us on"
    )
    if seconds < PAYS:
        return Crew(run), f"{run.actors} actors in this process: {words}"
    return in_processes(run), f"{run.actors} actors in processes: {words}"


def in_processes(run: Run) -> Crew:
    from tenfold.actors.processes import ProcessCrew  # here: a serial run needs none of it

    return ProcessCrew(run)


def round_seconds(run: Run) -> float:
    """The median time in which an actor chooses actions and steps its environments."""
    actor = sample_actor(run)
    actor.follow(make_agent(replace(run, device="cpu"), actor.envs))
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
