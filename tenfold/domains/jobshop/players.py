"""Dispatching rules as players of any shop."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key
from tenfold.domains.jobshop.instances import Instance, random_shop
from tenfold.domains.jobshop.orders import Player, orders_of_starts, require_draws
from tenfold.domains.jobshop.rules import (
    DURATION,
    TAIL,
    advance,
    allow,
    begin,
    parts,
    row_size,
    shop_of,
)
from tenfold.domains.jobshop.schedule import RULES, dispatch

SPT, MWKR, FIFO, MOPNR, RANDOM = range(5)
CODES = dict(zip(RULES, (SPT, MWKR, FIFO, MOPNR, RANDOM), strict=True))


def dispatched_reference(instance: Instance, rule: str, seeds: Sequence[int]) -> np.ndarray:
    """Starts [N, jobs, K] of the schedules that a rule makes with these seeds."""
    start = np.full((len(seeds), *instance.machine.shape), -1)
    for i, seed in enumerate(seeds):
        for s in dispatch(instance, rule, seed):
            start[i, s.job, s.operation] = s.start
    return start


def shops_and_rules(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    odd = Instance.of_jobs(
        "odd", [[(0, 2), (1, 0), (0, 3), (2, 1), (0, 0)], [(1, 4)], [(2, 0), (0, 0)]], machines=4
    )
    for rule in RULES:
        yield odd, rule, [0, 5, 6] if rule == "random" else [0]
        yield random_shop(rng, 7, 4, 1, 6), rule, [3]


@pair(dispatched_reference, shops_and_rules, dtypes=("int64",), name="envs.jobshop.dispatched")
def dispatched(instance: Instance, rule: str, seeds: Sequence[int]) -> np.ndarray:
    rows = np.zeros((len(seeds), row_size(instance)), np.int64)
    streams = np.array([key(seed, Purpose.RANDOM_POLICY) for seed in seeds], np.uint64)
    mask = np.zeros(instance.machines * (instance.jobs + 1), np.bool_)
    action = np.zeros(instance.machines, np.int64)
    dispatch_all(shop_of(instance)[0], CODES[rule], streams, rows, mask, action)
    size = instance.machine.size
    return rows[:, -size:].reshape(len(seeds), *instance.machine.shape)


@kernel
def dispatch_all(routes, rule, streams, rows, mask, action):
    """Plays a rule in every row: each free machine starts the waiting job with the smallest number,
    the first of equals."""
    _, jobs, longest = routes.shape
    for i in range(len(rows)):
        row, draws, done = rows[i], 0, False
        begin(row, jobs, longest, 0)
        following, ready, _, _ = parts(row, jobs, longest)
        allow(routes, row, mask)
        while not done:
            for m in range(len(action)):
                action[m], least = jobs, np.inf
                for j in range(jobs):
                    if mask[m * (jobs + 1) + j]:
                        k = following[j]
                        if rule == SPT:
                            number = np.float64(routes[DURATION, j, k])
                        elif rule == MWKR:
                            number = -np.float64(routes[DURATION, j, k] + routes[TAIL, j, k])
                        elif rule == FIFO:
                            number = np.float64(ready[j])
                        elif rule == MOPNR:
                            left = 0
                            for later in range(k, longest):
                                left += routes[0, j, later] >= 0
                            number = -np.float64(left)
                        else:
                            number = draw_uniform(streams[i], draws)
                        draws += 1
                        if number < least:
                            action[m], least = j, number
            done = advance(routes, row, action, mask)


def rule_player(rule: str) -> Player:
    """A rule of `RULES` as a player. But for `random`, all samples would be alike: there is
    one."""

    def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
        require_draws(instances, samples, seed)
        count = max(samples, 1) if rule == "random" else 1
        return [
            list(orders_of_starts(each, dispatched(each, rule, range(seed, seed + count))))
            for each in instances
        ]

    return play
