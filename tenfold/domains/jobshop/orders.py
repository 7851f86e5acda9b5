"""Dispatch orders: schedules as sequences of job numbers, and those who make them.

An order names a job once for each of its operations. From left to right the job's next operation
is put behind what its machine already has, and begins as early as that allows:

    start = max(end of the job's operation before, end of the machine's operation before)

Such schedules are called semi-active; some order gives an optimal one. A `Player` makes orders of
any shop: (instances, samples, seed) -> for each instance as many orders as samples; with 0 samples
one order, the one it holds for best. An agent whose policy plays shops of any size has a method
`player()` that returns one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.domains.jobshop.instances import Instance, random_shop
from tenfold.domains.jobshop.schedule import Schedule, Scheduled
from tenfold.envs.arguments import as_whole, shown

Player = Callable[[Sequence[Instance], int, int], list[list[np.ndarray]]]


def require_draws(instances: Any, samples: Any, seed: Any) -> None:
    """Refuses what no player can play."""
    if isinstance(instances, str | Instance) or not all(isinstance(i, Instance) for i in instances):
        raise UserError(
            "A player is given a list of shops: ten.read_instance(name or file) reads each."
        )
    count = as_whole(samples)
    if count is None or count < 0:
        raise UserError(
            f"samples must be a whole number from 0 (its best guess) on, and not {shown(samples)}."
        )
    first = as_whole(seed)
    if first is None or first < 0:
        raise UserError(f"seed must be a whole number from 0 on, and not {shown(seed)}.")


@runtime_checkable
class PlaysAnyShop(Protocol):
    """An agent whose policy knows no sizes."""

    def player(self) -> Player: ...


def schedule_of_order(instance: Instance, order: Sequence[int] | np.ndarray) -> Schedule:
    """The semi-active schedule of an order, in that order."""
    following, ready, free = [0] * instance.jobs, [0] * instance.jobs, [0] * instance.machines
    made: Schedule = []
    for j in checked_orders(instance, [order])[0].tolist():
        k = following[j]
        machine, duration = int(instance.machine[j, k]), int(instance.duration[j, k])
        start = max(ready[j], free[machine])
        ready[j] = free[machine] = start + duration
        following[j] += 1
        made.append(Scheduled(j, k, machine, start, start + duration))
    return made


def checked_orders(instance: Instance, orders: Sequence[Any]) -> np.ndarray:
    """Orders [N, operations] that name every job as often as it has operations."""
    try:
        given = np.asarray(orders)
        found = given.astype(np.int64)
    except (TypeError, ValueError) as error:  # orders of different lengths, or no numbers
        raise UserError(
            f"Dispatch orders of {instance.name} cannot be read as rows of job numbers: {error}."
        ) from None
    if found.ndim != 2 or found.shape[1] != instance.operations:
        raise UserError(
            f"A dispatch order of {instance.name} names a job for each of its "
            f"{instance.operations} operations, and these have the shape {found.shape}."
        )
    if (found != given).any():
        raise UserError(
            f"A dispatch order of {instance.name} names jobs by whole numbers, and not by "
            f"{given[found != given][0]}."
        )
    expected = np.repeat(np.arange(instance.jobs), instance.lengths)
    wrong = np.flatnonzero((np.sort(found, 1) != expected).any(1))
    if len(wrong):
        raise UserError(
            f"Dispatch order {wrong[0]} of {instance.name} does not name each job once for each of "
            "its operations."
        )
    return found


# when operations start, for many orders


def starts_reference(
    machine: np.ndarray, duration: np.ndarray, machines: int, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Starts [N, jobs, K] (−1 where there is no operation) and makespans [N] of orders."""
    instance = Instance("orders", machine, duration, machines)
    start = np.full((len(orders), *machine.shape), -1)
    makespan = np.zeros(len(orders), np.int64)
    for i, order in enumerate(orders):
        for s in schedule_of_order(instance, order):
            start[i, s.job, s.operation] = s.start
            makespan[i] = max(makespan[i], s.end)
    return start, makespan


def random_orders(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    odd = Instance.of_jobs(
        "odd", [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)]], machines=4
    )
    for instance, count in (
        (odd, 7),
        (random_shop(rng, 1, 1), 1),
        (random_shop(rng, 6, 4), 5),
        (random_shop(rng, 3, 9), 0),
    ):
        jobs = np.repeat(np.arange(instance.jobs), instance.lengths)
        orders = rng.permuted(np.tile(jobs, (count, 1)), axis=1)
        yield instance.machine, instance.duration, instance.machines, orders


@pair(starts_reference, random_orders, dtypes=("int64",), name="envs.jobshop.starts_of_orders")
@kernel
def starts_of_orders(machine, duration, machines, orders):
    count, (jobs, longest) = len(orders), machine.shape
    start = np.full((count, jobs, longest), -1)
    makespan = np.zeros(count, np.int64)
    following, ready, free = (
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.int64),
        np.zeros(machines, np.int64),
    )
    for i in range(count):
        following[:], ready[:], free[:] = 0, 0, 0
        for o in range(orders.shape[1]):
            j = orders[i, o]
            k = following[j]
            m = machine[j, k]
            begun = max(ready[j], free[m])
            start[i, j, k] = begun
            ready[j] = free[m] = begun + duration[j, k]
            following[j] += 1
            makespan[i] = max(makespan[i], ready[j])
    return start, makespan


def starts(instance: Instance, orders: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """When operations start [N, jobs, K], and makespans [N], of orders [N, operations]."""
    found = checked_orders(instance, orders)
    return starts_of_orders(instance.machine, instance.duration, instance.machines, found)


def orders_of_starts(instance: Instance, start: np.ndarray) -> np.ndarray:
    """Orders [N, operations] by when operations start [N, jobs, K]; of those that start together,
    what takes no time comes first."""
    there = instance.machine >= 0
    begun = start[:, there]
    ends = begun + instance.duration[there]
    job, operation = (np.broadcast_to(a, begun.shape) for a in np.nonzero(there))
    return np.take_along_axis(job, np.lexsort((job, operation, ends, begun), axis=1), 1)


def order_of_schedule(instance: Instance, schedule: Schedule) -> np.ndarray:
    """The order of a schedule's starts; played again it is at least as short."""
    start = np.full((1, *instance.machine.shape), -1)
    for s in schedule:
        start[0, s.job, s.operation] = s.start
    return orders_of_starts(instance, start)[0]
