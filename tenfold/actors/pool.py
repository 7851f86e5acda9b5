"""Actor pools in the learner's process, and the choice of a pool for a run.

`InProcessPool`: one actor that uses the learner's own engine; nothing is copied. `SerialActors`:
several actors, stepped one after another, each with its own random draws: the reference of
`actors.process_pool`.
"""

import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
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
    part_of,
    sample_actor,
)
from tenfold.actors.wrappers import RewardTransformEnvs, environments_of
from tenfold.config.run import Run
from tenfold.core.processes import within
from tenfold.core.protocols import ActorPool
from tenfold.core.registry import algorithm
from tenfold.core.system import Clock
from tenfold.memory.frames import FrameStack
from tenfold.ops.rewards import RewardForm

Explore = Callable[[int, int], np.ndarray]  # step, rounds -> the environments' actions


class InProcessPool:
    """The learner's own environments, stepped by the learner's own engine."""

    direct, asynchronous = True, False

    def __init__(self, run: Run) -> None:
        self.envs: Any = environments_of(run)
        self.notices: list[str] = []

    def reward_by(self, form: RewardForm) -> None:
        """Steps bring rewards in this form from now on."""
        self.envs = RewardTransformEnvs(self.envs, form)

    def follow(self, agent: Any, explore: Explore) -> np.ndarray:
        """Begins: `explore` gives actions for the rows that are returned, of every round anew."""
        self.explore = explore
        self.seen = FrameStack(agent.frames // self.envs.layout.frames, self.envs)
        return self.seen.rows

    def collect(self, step: int, rounds: int, left: int, clock: Clock) -> Iterator[TransitionBatch]:
        """One step of all environments; its row is what they and the engine hold already."""
        action = self.explore(step, rounds)
        clock.lap("act")
        self.envs.step(action)
        clock.lap("env")
        yield TransitionBatch(0, 0, {}, finished=self.envs.finished)
        self.seen.step()

    def rounds_until(self, step: int, end: int) -> int:
        return 1

    def hold(self) -> int:
        return 0

    def settle(self) -> Iterator[TransitionBatch]:
        return iter(())

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        """It acts by the learner's own networks."""

    def report(self) -> dict[str, float]:
        return {}

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        return {"envs": self.envs.state(), "frames": self.seen.state()}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        exact = self.envs.restore(state["envs"])
        self.seen.restore(state.get("frames", {}), exact)
        return exact

    def close(self) -> None:
        self.envs.close()


class SerialActors:
    """Actors that act when the learner asks, all of them once a round."""

    direct, asynchronous = False, False

    def __init__(self, run: Run) -> None:
        self.run = run
        self.notices: list[str] = []  # about actors that were lost and replaced
        self.actors = [Actor(run, index) for index in range(run.actors)]
        self.envs = StackedEnvs(self.actors[0].envs, run.actors)
        self.rows = [
            {name: np.zeros(shape, dtype) for name, (shape, dtype) in actor.schema().items()}
            for actor in self.actors
        ]
        self.spent = np.zeros((run.actors, 3))  # seconds of each actor, by ACT, ENV and WAIT
        # of the rows since the last report, in versions and seconds
        self.ages: list[tuple[int, float]] = []

    def foresee(self, run: Run) -> None:
        """Instead of actors here: what those elsewhere will bring, by one that is made and left."""
        self.run, probe = run, sample_actor(run)
        self.envs, self.schema = StackedEnvs(probe.envs, run.actors), probe.schema()
        self.worlds = probe.envs.worlds
        probe.envs.close()
        self.spent, self.ages, self.notices = np.zeros((run.actors, 3)), [], []
        # rows of all actors make one row of a rollout
        self.rollouts = algorithm(run.agent.name).on_policy
        self.together = self.rollouts or run.steps_ahead == 0  # a round is a row of every actor
        self.asynchronous = not self.together
        self.began: list[TransitionBatch] = []  # of actors that were started again

    def begins(self, index: int) -> TransitionBatch:
        """What is seen first by an actor that was started again."""
        first, seen = index * self.worlds, {"obs": self.envs.obs}
        if self.envs.mask is not None:
            seen["mask"] = self.envs.mask
        own = {
            name: self.envs.lanes(each, first, self.worlds).reshape(-1, *each.shape[1:]).copy()
            for name, each in seen.items()
        }
        return TransitionBatch(index, first, own, begins=True)

    def follow(self, agent: Any, explore: Explore) -> None:
        """Begins, with this agent's networks."""
        for actor in self.actors:
            actor.follow(agent)
        self.see_first()

    def see_first(self) -> None:
        for actor in self.actors:
            self.see(actor.first, actor.envs.obs, actor.envs.mask)

    def see(self, first: int, obs: np.ndarray, mask: np.ndarray | None) -> None:
        """What will be acted on next."""
        self.envs.put(first, "obs", obs)
        if mask is not None:
            self.envs.put(first, "mask", mask)

    def collect(self, step: int, rounds: int, left: int, clock: Clock) -> Iterator[TransitionBatch]:
        """A row of every actor. `left`: rounds that may be played until the learner publishes
        again, or the run ends."""
        for part in self.parts(step, left):
            clock.lap("wait")
            yield part

    def parts(self, step: int, left: int) -> Iterator[TransitionBatch]:
        for actor, row in zip(self.actors, self.rows, strict=True):
            actor.advance(step, row)
            self.spent[actor.index] = actor.seconds
            self.see(actor.first, row["obs"], row.get("mask"))
            yield TransitionBatch(actor.index, actor.first, row)

    def rounds_until(self, step: int, end: int) -> int:
        """Rounds that all actors play from one step to another, at least one."""
        return max(-((step - end) // self.envs.worlds), 1)

    def hold(self) -> int:
        """Brings actors to rest where they are, and says how many rounds the furthest is ahead."""
        return 0

    def settle(self) -> Iterator[TransitionBatch]:
        """Brings actors to rest; what they were ahead by comes out."""
        return iter(())

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        """Actors act by what the agent has learned now: here by its own networks."""
        clock.start()
        clock.lap("publish")

    def report(self) -> dict[str, float]:
        """For the metrics: where actors' time goes, and how old the policies were that acted since
        the last report."""
        total = float(self.spent.sum()) or 1.0
        shares = {
            f"actors_{name}": float(self.spent[:, place].sum()) / total
            for place, name in ((ACT, "act"), (ENV, "env"), (WAIT, "wait"))
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

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        found = {
            f"{actor.index}.{name}": value
            for actor in self.actors
            for name, value in actor.state().items()
        }
        return {"envs": found}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        """Goes on with what the agent has learned by `step`. False where environments could not be
        restored exactly."""
        exact = [actor.restore(part_of(state["envs"], f"{actor.index}.")) for actor in self.actors]
        self.see_first()
        return all(exact)

    def close(self) -> None:
        for actor in self.actors:
            actor.envs.close()


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
        return InProcessPool(run), ""
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
    words = (
        f"an actor's round takes {1e6 * seconds:,.0f} us, and processes pay from {1e6 * PAYS:,.0f} "
        "us on"
    )
    if seconds < PAYS:
        return SerialActors(run), f"{run.actors} actors in this process: {words}"
    return in_processes(run), f"{run.actors} actors in processes: {words}"


def in_processes(run: Run) -> SerialActors:
    from tenfold.actors.process_pool import ProcessPool  # here: a serial run needs none of it

    return ProcessPool(run)


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
