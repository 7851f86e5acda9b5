"""Schedules of job shops: dispatching rules, and an independent check.

A schedule says when each operation starts. `check_schedule` shares nothing with the simulator in
`rules.py` but the instance's two tables.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.random import Purpose, key, uniform
from tenfold.domains.jobshop.instances import Instance
from tenfold.domains.jobshop.reading import read_instance


class Scheduled(NamedTuple):
    """An operation on its machine from `start` to before `end`."""

    job: int
    operation: int
    machine: int
    start: int
    end: int


Schedule = list[Scheduled]


class Infeasible(UserError, ValueError):
    """A schedule that the shop floor does not allow; the sentence names the first violation."""


# dispatching rules


class Waiting(NamedTuple):
    """What a rule sees of a job that waits at a free machine."""

    job: int
    operation: int
    duration: int  # of the operation it waits for
    work: int  # left in the job, this operation included
    left: int  # operations of the job, this one included
    arrived: int  # when it joined the queue
    chance: float  # uniform in [0, 1), drawn anew each time


Rule = Callable[[Waiting], float]
RULES: dict[str, Rule] = {
    "SPT": lambda w: w.duration,  # shortest processing time
    "MWKR": lambda w: -w.work,  # most work remaining
    "FIFO": lambda w: w.arrived,  # first in, first out
    "MOPNR": lambda w: -w.left,  # most operations remaining
    "random": lambda w: w.chance,
}


def dispatch(instance: str | Path | Instance, rule: str | Rule, seed: int = 0) -> Schedule:
    """Every free machine starts the waiting job with the smallest number by the rule, the first of
    equals; none ever idles."""
    from tenfold.domains.jobshop.shops import JobShopEnv  # which imports this module

    if isinstance(rule, str) and rule not in RULES:
        raise UserError(f"There is no rule {rule}: give one of {', '.join(RULES)}, or a function.")
    shop, choose = read_instance(instance), RULES[rule] if isinstance(rule, str) else rule
    env, stream, draws = JobShopEnv(shop), key(seed, Purpose.RANDOM_POLICY), 0
    _, info = env.reset(seed=seed)
    while "schedule" not in info:
        action = np.full(shop.machines, shop.jobs)
        for m, options in enumerate(info["action_mask"].reshape(shop.machines, -1)[:, :-1]):
            queue = []
            for j in np.flatnonzero(options).tolist():
                k, chance = int(env.following[j]), float(uniform(stream, np.array([draws]))[0])
                queue.append(
                    Waiting(
                        j,
                        k,
                        int(shop.duration[j, k]),
                        int(shop.duration[j, k:].sum()),
                        int(shop.lengths[j]) - k,
                        int(env.ready[j]),
                        chance,
                    )
                )
                draws += 1
            if queue:
                action[m] = min(queue, key=choose).job
        info = env.step(action)[-1]
    return info["schedule"]


# the check


def check_schedule(instance: Instance, schedule: Iterable[tuple[int, int, int, int, int]]) -> int:
    """The makespan of a schedule that keeps every rule of the shop; `Infeasible` names the first
    one broken otherwise.

    The rules: each operation exactly once, on its machine, for its duration, from time 0 on; the
    operations of a job one after another; on a machine never two at a time.
    """
    found: dict[tuple[int, int], tuple[int, int]] = {}
    on_machine: list[list[tuple[int, int, str]]] = [[] for _ in range(instance.machines)]
    for row in schedule:
        try:
            job, operation, machine, start, end = row
        except (TypeError, ValueError):
            raise Infeasible(
                f"{row!r:.60} is no row of a schedule: job, operation, machine, start and end."
            ) from None
        what = f"operation {operation} of job {job}"
        if not (0 <= job < instance.jobs and 0 <= operation < instance.lengths[job]):
            raise Infeasible(f"There is no {what} in {instance.name}.")
        if (job, operation) in found:
            raise Infeasible(f"The {what} is scheduled twice.")
        right, long = int(instance.machine[job, operation]), int(instance.duration[job, operation])
        if machine != right:
            raise Infeasible(f"The {what} runs on machine {machine}, and needs machine {right}.")
        if end - start != long:
            raise Infeasible(
                f"The {what} takes {end - start} from {start} to {end}, and its duration is {long}."
            )
        if start < 0:
            raise Infeasible(f"The {what} starts at {start}, before time 0.")
        found[job, operation] = start, end
        on_machine[machine].append((start, end, what))
    for job in range(instance.jobs):
        for operation in range(instance.lengths[job]):
            if (job, operation) not in found:
                raise Infeasible(f"The operation {operation} of job {job} is missing.")
            if operation and found[job, operation][0] < found[job, operation - 1][1]:
                raise Infeasible(
                    f"The operation {operation} of job {job} starts at {found[job, operation][0]}, "
                    f"before the job's operation {operation - 1} ends at "
                    f"{found[job, operation - 1][1]}."
                )
    for machine, runs in enumerate(on_machine):
        runs.sort()
        for (_, end, first), (start, _, second) in pairwise(runs):
            if start < end:
                raise Infeasible(
                    f"On machine {machine} the {second} starts at {start}, while the {first} runs "
                    f"until {end}."
                )
    return max(end for _, end in found.values())


def check_starts(instance: Instance, start: np.ndarray) -> np.ndarray:
    """Makespans [N] of many schedules by when operations start [N, jobs, K], after the same check:
    `Infeasible` names the first schedule that breaks a rule, in the words of `check_schedule`."""
    there = instance.machine >= 0
    ends = start + instance.duration
    wrong = (start < 0)[:, there].any(1)
    wrong |= ((start[:, :, 1:] < ends[:, :, :-1]) & there[:, 1:]).any((1, 2))
    for m in range(instance.machines):
        here = instance.machine == m
        begun, until = start[:, here], ends[:, here]
        place = np.lexsort((until, begun), axis=1)
        begun, until = (np.take_along_axis(a, place, 1) for a in (begun, until))
        wrong |= (begun[:, 1:] < until[:, :-1]).any(1)
    if wrong.any():
        i = int(wrong.argmax())
        check_schedule(instance, scheduled(instance, start[i]))
        raise Infeasible(f"Schedule {i} of {instance.name} is refused by one check only.")
    return ends[:, there].max(1)


def scheduled(instance: Instance, start: np.ndarray) -> Schedule:
    """A schedule by when operations start [jobs, K], in the order of their starts."""
    made = [
        Scheduled(j, k, machine, int(start[j, k]), int(start[j, k]) + duration)
        for j in range(instance.jobs)
        for k, (machine, duration) in enumerate(instance.job(j))
    ]
    return sorted(made, key=lambda s: (s.start, s.machine))
