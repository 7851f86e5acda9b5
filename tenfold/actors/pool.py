"""Actor pools in the learner's process, and the choice of a pool for a run.

`InProcessPool`: one actor that uses the learner's own engine; nothing is copied. `SerialActors`:
several actors, stepped one after another, each with its own random draws: the reference of
`actors.process_pool`.
"""

import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import (
    ACT,
    ENV,
    WAIT,
    Actor,
    StackedEnvs,
    TransitionBatch,
    sample_actor,
    with_prefix,
)
from tenfold.actors.lane_workers import environments_by_cost
from tenfold.actors.wrappers import RewardTransformEnvs, environments_of
from tenfold.config.run import Run
from tenfold.core.processes import within
from tenfold.core.protocols import ActorPool
from tenfold.core.registry import algorithm
from tenfold.core.system import Clock
from tenfold.envs.adapter import Environments
from tenfold.memory.frames import FrameStack
from tenfold.ops.rollouts import RewardForm

Explore = Callable[[int, int], np.ndarray]  # step, rounds -> the environments' actions


class InProcessPool:
    """The learner's own environments, stepped by the learner's own engine."""

    direct, asynchronous = True, False
    halves: Any = None  # the engine, where it acts for half of the environments while others step

    def __init__(self, run: Run) -> None:
        self.envs: Any = environments_of(run, make=partial(environments_by_cost, run))
        self.notices: list[str] = []

    def reward_by(self, form: RewardForm) -> None:
        """Steps bring rewards in this form from now on."""
        self.envs = RewardTransformEnvs(self.envs, form)

    def bind_agent(self, agent: Any, explore: Explore) -> np.ndarray:
        """Starts: `explore` returns actions for the rows that this returns, in every round."""
        self.explore = explore
        self.stack = FrameStack(agent.frames // self.envs.layout.frames, self.envs)
        return self.stack.rows

    def collect(self, step: int, rounds: int, left: int, clock: Clock) -> Iterator[TransitionBatch]:
        """One step of all environments; its row is what they and the engine hold already."""
        if self.halves:
            self.step_halves(rounds, clock)
        else:
            action = self.explore(step, rounds)
            clock.lap("act")
            self.envs.step(action)
            clock.lap("env")
        yield TransitionBatch(0, 0, {}, finished=self.envs.finished)
        self.stack.step()

    def step_halves(self, rounds: int, clock: Clock) -> None:
        """The same, where nobody waits for environments that step while there is a half to act
        for."""
        for half in range(2):
            action = self.halves.act(half, rounds)
            clock.lap("act")
            self.envs.start(half, action)
            clock.lap("env")
        for half in range(2):
            self.envs.finish(half)
            clock.lap("env")
            self.halves.look_ahead(half, rounds)
            clock.lap("act")

    def rounds_until(self, step: int, end: int) -> int:
        return 1

    def pause(self) -> int:
        return 0

    def drain(self) -> Iterator[TransitionBatch]:
        return iter(())

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        """It acts by the learner's own networks."""

    def report(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        return {"envs": self.envs.state(), "frames": self.stack.state()}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        exact = self.envs.restore(state["envs"])
        self.stack.restore(state.get("frames", {}), exact)
        return exact

    def close(self) -> None:
        self.envs.close()


class PoolBase:
    """What pools of several actors share: the latest step of all their environments, and what the
    metrics say about actors."""

    direct, asynchronous = False, False

    def prepare(self, run: Run, envs: Environments) -> None:
        """`envs`: those of one actor."""
        self.run, self.worlds = run, envs.worlds
        self.notices: list[str] = []  # about actors that were lost and replaced
        self.envs = StackedEnvs(envs, run.actors)
        self.spent = np.zeros((run.actors, 3))  # seconds of each actor, by ACT, ENV and WAIT
        # of the rows since the last report, in versions and seconds
        self.ages: list[tuple[int, float]] = []

    def write_first(self, first: int, obs: np.ndarray, mask: np.ndarray | None) -> None:
        """The observations that an actor acts on next."""
        self.envs.write(first, "obs", obs)
        if mask is not None:
            self.envs.write(first, "mask", mask)

    def collect(self, step: int, rounds: int, left: int, clock: Clock) -> Iterator[TransitionBatch]:
        """A row of every actor. `left`: rounds that may be played until the learner publishes
        again, or the run ends."""
        for batch in self.batches(step, left):
            clock.lap("wait")
            yield batch

    def batches(self, step: int, left: int) -> Iterator[TransitionBatch]:
        raise NotImplementedError

    def rounds_until(self, step: int, end: int) -> int:
        """Rounds that all actors play from one step to another, at least one."""
        return max(-((step - end) // self.envs.worlds), 1)

    def pause(self) -> int:
        """Pauses all actors; returns the largest number of buffered rounds."""
        return 0

    def drain(self) -> Iterator[TransitionBatch]:
        """Pauses all actors; yields the rows that are buffered."""
        return iter(())

    def report(self) -> dict[str, float]:
        """For the metrics: where actors' time goes, and how old the policies were that acted since
        the last report."""
        total = float(self.spent.sum()) or 1.0
        shares = {
            f"actors_{name}": float(self.spent[:, column].sum()) / total
            for column, name in ((ACT, "act"), (ENV, "env"), (WAIT, "wait"))
        }
        if not self.ages:
            return shares
        versions, seconds = np.array(self.ages).T
        self.ages.clear()
        return shares | {
            "policy_age": float(versions.mean()),
            "policy_age_most": float(versions.max()),
            "policy_age_seconds": float(seconds.mean()),
        }


def joined_states(states: Sequence[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The states of all actors, each name behind its actor's index."""
    return {
        f"{index}.{name}": value
        for index, state in enumerate(states)
        for name, value in state.items()
    }


class SerialActors(PoolBase):
    """Actors in the learner's process, which all act once a round."""

    def __init__(self, run: Run) -> None:
        self.actors = [Actor(run, index) for index in range(run.actors)]
        self.prepare(run, self.actors[0].envs)
        self.rows = [empty_row(actor) for actor in self.actors]

    def bind_agent(self, agent: Any, explore: Explore) -> None:
        """Starts with this agent's networks."""
        for actor in self.actors:
            actor.bind_agent(agent)
        self.write_all_first()

    def write_all_first(self) -> None:
        for actor in self.actors:
            self.write_first(actor.first, actor.envs.obs, actor.envs.mask)

    def batches(self, step: int, left: int) -> Iterator[TransitionBatch]:
        for actor, row in zip(self.actors, self.rows, strict=True):
            actor.advance(step, row)
            self.spent[actor.index] = actor.seconds
            self.write_first(actor.first, row["obs"], row.get("mask"))
            yield TransitionBatch(actor.index, actor.first, row)

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        """Actors use the learner's own networks."""
        clock.start()
        clock.lap("publish")

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        return {"envs": joined_states([actor.state() for actor in self.actors])}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        """False where environments could not be restored exactly."""
        exact = [
            actor.restore(with_prefix(state["envs"], f"{actor.index}.")) for actor in self.actors
        ]
        self.write_all_first()
        return all(exact)

    def close(self) -> None:
        for actor in self.actors:
            actor.envs.close()


def empty_row(actor: Actor) -> dict[str, np.ndarray]:
    return {name: np.zeros(shape, dtype) for name, (shape, dtype) in actor.schema().items()}


# seconds of an actor's round, acting and stepping, from which a process of its own pays
PAYS = 300e-6
LOOK = 0.3  # seconds for finding out
# seconds at least for a step then, however little patience: the first compiles kernels
COMPILING = 60.0


def make_pool(run: Run) -> tuple[ActorPool, str]:
    """The run's actors, and one sentence about where they are, if there are several."""
    if run.where == "ray":
        from tenfold.actors.ray_pool import RayPool  # here: others need no Ray

        return RayPool(run), f"{run.actors} actor{'s' * (run.actors > 1)} on Ray, as asked"
    if run.where == "processes":
        many = "s" * (run.actors > 1)
        return in_processes(run), f"{run.actors} actor{many} in processes, as asked"
    if run.actors == 1:
        pool = InProcessPool(run)
        return pool, pool.envs.form
    if run.where == "serial":
        return SerialActors(run), f"{run.actors} actors in this process, as asked"
    if run.steps_ahead and not algorithm(run.agent.name).on_policy:
        return in_processes(run), f"{run.actors} actors in processes, as ahead = {run.ahead} asks"
    return by_cost(run)


def by_cost(run: Run) -> tuple[ActorPool, str]:
    """Actors in step with the learner, here or in processes: what is learned is the same, so that a
    measurement may decide."""
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        return SerialActors(run), f"{run.actors} actors in this process: there is one core"
    seconds = round_seconds(run)
    reason = (
        f"an actor's round takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * PAYS:,.0f} "
        "us on"
    )
    if seconds < PAYS:
        return SerialActors(run), f"{run.actors} actors in this process: {reason}"
    return in_processes(run), f"{run.actors} actors in processes: {reason}"


def in_processes(run: Run) -> ActorPool:
    from tenfold.actors.process_pool import ProcessPool  # here: a serial run needs none of it

    return ProcessPool(run)


def round_seconds(run: Run) -> float:
    """The median time in which an actor chooses actions and steps its environments."""
    actor = sample_actor(run)
    actor.bind_agent(actor.algorithm.make_agent(replace(run, device="cpu"), actor.envs.spec))
    row, times = empty_row(actor), list[float]()
    end = perf_counter() + LOOK
    while len(times) < 5 or (perf_counter() < end and len(times) < 1000):
        start = perf_counter()
        with within(max(run.patience, COMPILING), f"{run.env} has not finished a step"):
            actor.advance(run.steps, row)  # exploring as little as it will
        times.append(perf_counter() - start)
    actor.envs.close()
    return statistics.median(times)
