"""The functions of `dispatch` in plain Python: one shop, one schedule, one job at a time."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.pairs import pair
from tenfold.domains.jobshop.dispatch import (
    FEATURES,
    STATIC,
    apply_dispatch,
    batch,
    empty_floor,
    makespan_bound,
    operation_features,
    view_floor,
)
from tenfold.domains.jobshop.instances import Instance, odd_shop, random_shop


class PlainFloor:
    """One partial schedule of one shop."""

    def __init__(self, instance: Instance) -> None:
        self.jobs = [instance.job(j) for j in range(instance.jobs)]
        self.next_op, self.ready = [0] * instance.jobs, [0] * instance.jobs
        self.free = [0] * instance.machines

    def dispatch(self, j: int) -> None:
        machine, duration = self.jobs[j][self.next_op[j]]
        self.ready[j] = self.free[machine] = max(self.ready[j], self.free[machine]) + duration
        self.next_op[j] += 1

    def left(self, machine: int) -> int:
        """Work of a machine that is not scheduled yet."""
        return sum(
            duration
            for job, k in zip(self.jobs, self.next_op, strict=True)
            for m, duration in job[k:]
            if m == machine
        )

    def tail(self, j: int) -> int:
        """Work of a job from its next operation on."""
        return sum(duration for _, duration in self.jobs[j][self.next_op[j] :])

    def start(self, j: int) -> int:
        return max(self.ready[j], self.free[self.jobs[j][self.next_op[j]][0]])

    def makespan_bound(self) -> int:
        over = [self.next_op[j] == len(job) for j, job in enumerate(self.jobs)]
        ends = [
            self.ready[j] if over[j] else self.start(j) + self.tail(j)
            for j in range(len(self.jobs))
        ]
        return max(ends + [free + self.left(m) for m, free in enumerate(self.free)])

    def allowed(self) -> list[int]:
        """Giffler and Thompson's candidates: on the machine of the operation that would end first,
        those that could start before that end; that operation is always one."""
        waiting = [j for j, job in enumerate(self.jobs) if self.next_op[j] < len(job)]
        if not waiting:
            return []
        coming = {j: self.jobs[j][self.next_op[j]] for j in waiting}
        first = min(waiting, key=lambda j: self.start(j) + coming[j][1])
        end, machine = self.start(first) + coming[first][1], coming[first][0]
        return [
            j for j in waiting if j == first or (coming[j][0] == machine and self.start(j) < end)
        ]

    def features(self) -> np.ndarray:
        features = np.zeros((len(self.jobs), FEATURES))
        every = [duration for job in self.jobs for _, duration in job]
        unit, total = sum(every) / len(every), len(every)
        loads = [0] * len(self.free)
        for job in self.jobs:
            for m, duration in job:
                loads[m] += duration
        bound = max([sum(d for _, d in job) for job in self.jobs] + loads)
        waiting = [j for j, job in enumerate(self.jobs) if self.next_op[j] < len(job)]
        allowed, end_of_all = self.allowed(), self.makespan_bound()
        coming = {j: self.jobs[j][self.next_op[j]] for j in waiting}
        for j in waiting:
            machine, p = coming[j]
            job, k, start, tail = self.jobs[j], self.next_op[j], self.start(j), self.tail(j)
            ends = [self.start(i) + coming[i][1] for i in waiting]
            rivals = [coming[i][1] for i in waiting if coming[i][0] == machine]
            steps = len(job) - k
            last = k + 1 == len(job)
            then, then_p = (-1, 0) if last else job[k + 1]
            then_free, then_left = (0, 0) if last else (self.free[then], self.left(then))
            mean_tail = sum(map(self.tail, waiting)) / len(waiting)
            gap = min(max(then_free - start - p, -4 * unit), 4 * unit)
            features[j] = (
                p / unit,
                (start - min(map(self.start, waiting))) / unit,
                (start + p - min(ends)) / unit,
                (start - self.free[machine]) / unit,
                (start - self.ready[j]) / unit,
                (tail - p) / bound,
                (start + tail - end_of_all) / bound,
                (tail - mean_tail) / unit / np.sqrt(steps),
                self.left(machine) / bound,
                (self.free[machine] + self.left(machine) - end_of_all) / bound,
                steps / len(job),
                len(rivals) / len(waiting),
                (sum(rivals) - p) / unit / len(rivals),
                (p - np.mean([coming[i][1] for i in allowed])) / unit,
                len(allowed) / len(waiting),
                then_p / unit,
                gap / unit,
                then_left / bound,
                (then_free + then_left - end_of_all) / bound,
                (end_of_all - bound) / bound,
                sum(len(self.jobs[i]) - self.next_op[i] for i in waiting) / total,
                j in allowed,
            )
        return features


def view_floor_reference(
    instances: Sequence[Instance], orders: np.ndarray
) -> tuple[np.ndarray, ...]:
    """After orders [dispatches, N, S]: features [N, S, J, FEATURES], which jobs may be dispatched
    [N, S, J], the bound on the makespan [N, S]. Missing jobs are 0."""
    _, N, S = orders.shape
    J = max(one.jobs for one in instances)
    features, allowed = np.zeros((N, S, J, FEATURES)), np.zeros((N, S, J), np.bool_)
    bound = np.zeros((N, S))
    for i, s in np.ndindex(N, S):
        floor = PlainFloor(instances[i])
        for j in orders[:, i, s]:
            if floor.next_op[j] < len(floor.jobs[j]):
                floor.dispatch(j)
        features[i, s, : instances[i].jobs] = floor.features()
        allowed[i, s, floor.allowed()] = True
        bound[i, s] = floor.makespan_bound()
    return features, allowed, bound


def partial_orders(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """From no dispatch to nearly all, in shops of one size and of several."""
    for shops, schedules, shares in (
        ([random_shop(rng, 1, 1)], 1, (0, 1)),
        ([random_shop(rng, 5, 4), random_shop(rng, 5, 4)], 3, (0, 0.4, 0.8)),
        ([odd_shop(), random_shop(rng, 4, 6, 1, 5)], 2, (0, 0.3, 1)),
    ):
        jobs = [np.repeat(np.arange(one.jobs), one.lengths) for one in shops]
        most = max(map(len, jobs))
        for share in shares:
            orders = np.zeros((round(share * most), len(shops), schedules), np.int64)
            for i, s in np.ndindex(len(shops), schedules):
                drawn = rng.permutation(jobs[i])[: len(orders)]
                orders[: len(drawn), i, s] = drawn
            yield shops, orders


@pair(view_floor_reference, partial_orders, rtol=1e-5, atol=1e-5, name="envs.jobshop.seen")
def view_floor_after(instances: Sequence[Instance], orders: np.ndarray) -> tuple[np.ndarray, ...]:
    """`view_floor` and `makespan_bound` after orders."""
    shops = batch(instances)
    floor = empty_floor(shops, orders.shape[2])
    for job in torch.from_numpy(orders):
        floor = apply_dispatch(shops, floor, job)
    now = view_floor(shops, floor)
    bound = makespan_bound(shops, floor).squeeze(2)
    return now.features.numpy(), now.allowed.numpy(), bound.numpy()


def operation_features_reference(instances: Sequence[Instance]) -> np.ndarray:
    """[N, J, K, STATIC]: features of an operation, 0 where there is none."""
    J, K = (max(size) for size in zip(*(one.machine.shape for one in instances), strict=True))
    features = np.zeros((len(instances), J, K, STATIC))
    for i, one in enumerate(instances):
        jobs = [one.job(j) for j in range(one.jobs)]
        every = [operation for job in jobs for operation in job]
        work = [sum(d for _, d in job) for job in jobs]
        load = [sum(d for m, d in every if m == machine) for machine in range(one.machines)]
        crowd = [sum(m == machine for m, _ in every) for machine in range(one.machines)]
        unit, bound = sum(d for _, d in every) / len(every), max(work + load)
        for j, job in enumerate(jobs):
            for k, (m, d) in enumerate(job):
                features[i, j, k] = (
                    d / unit,
                    sum(d for _, d in job[:k]) / bound,
                    sum(d for _, d in job[k + 1 :]) / bound,
                    work[j] / bound,
                    load[m] / bound,
                    k / len(job),
                    d / max(load[m], 1e-6) * crowd[m],
                    d / max(work[j], 1e-6) * len(job),
                    1,
                )
    return features


def some_shops(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for shops, _ in partial_orders(rng, dtype):
        yield (shops,)


@pair(operation_features_reference, some_shops, rtol=1e-5, atol=1e-6, name="envs.jobshop.described")
def operation_features_all(instances: Sequence[Instance]) -> np.ndarray:
    """`operation_features` of instances."""
    return operation_features(batch(instances)).numpy()
