"""Chance among the choices that a policy of any shop has: what `best of N` is to be compared with.

The rule `random` lets every free machine start some waiting job at once, and never leaves one idle.
Few schedules are like that, and they are short on the whole. A policy of any shop chooses among
more, at each dispatch among Giffler and Thompson's set, without which some optimal schedules cannot
be made. Drawn from evenly, that set gives longer schedules than the rule: what a policy's samples
are better by than these it has learned.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform
from tenfold.domains.jobshop.dispatch import batch, dispatched, opened, seen
from tenfold.domains.jobshop.instances import Instance, random_shop, turned
from tenfold.domains.jobshop.orders import require_draws


def active_orders_reference(instance: Instance, streams: np.ndarray) -> np.ndarray:
    """Orders [N, operations] by what may be dispatched, as the policy sees it."""
    shops, orders = batch([instance]), []
    for stream in streams:
        floor, order = opened(shops, 1), []
        for n in range(instance.operations):
            options = seen(shops, floor).allowed[0, 0].nonzero().ravel().tolist()
            order.append(options[int(uniform(stream, np.array([n]))[0] * len(options))])
            floor = dispatched(shops, floor, torch.tensor([[order[-1]]]))
        orders.append(order)
    return np.array(orders, np.int64).reshape(len(streams), instance.operations)


def shops_and_streams(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    odd = Instance.of_jobs(
        "odd", [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)]], machines=4
    )
    for instance in (odd, random_shop(rng, 1, 1), random_shop(rng, 6, 4, 1, 9)):
        yield instance, np.array([key(seed, Purpose.RANDOM_POLICY) for seed in (0, 7)], np.uint64)


@pair(
    active_orders_reference,
    shops_and_streams,
    dtypes=("int64",),
    name="envs.jobshop.active_orders",
)
def active_orders(instance: Instance, streams: np.ndarray) -> np.ndarray:
    orders = np.empty((len(streams), instance.operations), np.int64)
    tables = instance.machine, instance.duration, instance.lengths
    fill_active_orders(*tables, instance.machines, streams, orders)
    return orders


@kernel
def fill_active_orders(machine, duration, lengths, machines, streams, orders):
    """Of all next operations the one that would end first; on its machine, any of those that could
    start before that."""
    jobs = len(lengths)
    following, ready = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    free, options = np.zeros(machines, np.int64), np.zeros(jobs, np.int64)
    for i in range(len(orders)):
        following[:], ready[:], free[:] = 0, 0, 0
        for n in range(orders.shape[1]):
            first, first_end = -1, 0
            for j in range(jobs):
                if following[j] < lengths[j]:
                    k = following[j]
                    end = max(ready[j], free[machine[j, k]]) + duration[j, k]
                    if first < 0 or end < first_end:
                        first, first_end = j, end
            where, count = machine[first, following[first]], 0
            for j in range(jobs):
                here = following[j] < lengths[j] and machine[j, following[j]] == where
                if here and (j == first or max(ready[j], free[where]) < first_end):
                    options[count] = j
                    count += 1
            j = options[int(draw_uniform(streams[i], n) * count)]
            end = max(ready[j], free[where]) + duration[j, following[j]]
            ready[j] = free[where] = end
            following[j] += 1
            orders[i, n] = j


def chance_player(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
    """A player: every second sample is of the shop backwards, as a policy's is."""
    require_draws(instances, samples, seed)
    count = max(samples, 1)
    streams = np.array([key(seed + n, Purpose.RANDOM_POLICY) for n in range(count)], np.uint64)
    backwards = count // 2
    found = []
    for instance in instances:
        ahead = active_orders(instance, streams[backwards:])
        back = active_orders(turned(instance), streams[:backwards])[:, ::-1]
        found.append([*ahead, *back])
    return found
