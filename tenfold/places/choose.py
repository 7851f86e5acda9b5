"""Where a run's actors act, and why there."""

import os
import statistics
from time import perf_counter

import numpy as np

from tenfold.errors import ConfigError
from tenfold.places.actor import Actor
from tenfold.places.crew import Crew
from tenfold.settings import PPO, Run
from tenfold.spaces import policy_actions

PAYS = 300e-6  # seconds of a round of an actor's environments from which a process of its own pays
LOOK = 0.3  # seconds for finding out


def make_crew(run: Run) -> tuple[Crew | None, str]:
    """The run's actors, and one sentence about where they are; None: a single one, which the place itself is."""
    normalises = isinstance(run.agent, PPO) and run.agent.normalize_obs
    if run.where == "processes" and normalises:
        raise ConfigError("agent.normalize_obs", "= true learns from every step before the next one, so actors cannot be in "
                          "processes of their own: use --where serial, or leave it out.")
    if run.where == "processes":
        return in_processes(run), f"{run.actors} actor{'s' * (run.actors > 1)} in processes, as asked"
    if run.actors == 1:
        return None, ""
    if run.where == "serial":
        return Crew(run), f"{run.actors} actors in this process, as asked"
    cores = len(os.sched_getaffinity(0))
    if normalises or cores == 1:
        why = "observations are normalised as they come" if normalises else "there is one core"
        return Crew(run), f"{run.actors} actors in this process: {why}"
    seconds = round_seconds(run)
    words = f"a step of an actor's environments takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * PAYS:,.0f} us on"
    if seconds < PAYS:
        return Crew(run), f"{run.actors} actors in this process: {words}"
    return in_processes(run), f"{run.actors} actors in processes: {words}"


def in_processes(run: Run) -> Crew:
    from tenfold.places.processes import ProcessCrew  # here: a serial run needs none of it
    return ProcessCrew(run)


def round_seconds(run: Run) -> float:
    """The median time of a step of one actor's environments, by random actions."""
    envs = Actor(run, 0).envs
    rng, found = np.random.default_rng(0), []
    actions = policy_actions(envs.action_space, run.env)
    low, high = (np.nan_to_num(bound, posinf=1, neginf=-1) for bound in (np.array(actions.low), np.array(actions.high)))
    end = perf_counter() + LOOK
    while len(found) < 3 or (perf_counter() < end and len(found) < 1000):
        chosen = np.stack([rng.integers(0, n, envs.num_envs) for n in actions.sizes], -1) if actions.sizes else np.zeros(
            (envs.num_envs, 0), np.int64)
        real = low + (high - low) * rng.random((envs.num_envs, len(low)))
        action = actions.for_env(chosen, real)
        start = perf_counter()
        envs.step(action)
        found.append(perf_counter() - start)
    envs.close()
    return statistics.median(found)
