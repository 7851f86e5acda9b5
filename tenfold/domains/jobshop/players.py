"""Players of any shop: dispatching rules, random dispatching, a solver.

A `Player` makes dispatch orders (`schedule`) of any shop: (instances, samples, seed) -> for each
instance as many orders as samples; with 0 samples one order, its best guess. An agent whose policy
plays shops of any size has a method `player()` that returns one.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.core.random import Purpose, draw_uniform, key, uniform
from tenfold.domains.jobshop.instances import Instance, odd_shop, random_shop, reversed_shop
from tenfold.domains.jobshop.reading import read_instance
from tenfold.domains.jobshop.rules import (
    DURATION,
    TAIL,
    advance,
    allow,
    begin,
    row_size,
    shop_of,
    views,
)
from tenfold.domains.jobshop.schedule import Schedule, orders_of_starts, starts_of_schedule
from tenfold.envs.arguments import as_whole, shorten

Player = Callable[[Sequence[Instance], int, int], list[list[np.ndarray]]]


def require_draws(instances: Any, samples: Any, seed: Any) -> None:
    """Refuses arguments that no player can play."""
    if isinstance(instances, str | Instance) or not all(isinstance(i, Instance) for i in instances):
        raise UserError(
            "A player is given a list of shops: ten.read_instance(name or file) reads each."
        )
    count = as_whole(samples)
    if count is None or count < 0:
        raise UserError(
            f"samples must be a whole number from 0 (its best guess) on, and not "
            f"{shorten(samples)}."
        )
    first = as_whole(seed)
    if first is None or first < 0:
        raise UserError(f"seed must be a whole number from 0 on, and not {shorten(seed)}.")


# dispatching rules


class Waiting(NamedTuple):
    """A job that waits at a free machine, as rules get it."""

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
    """Schedules a shop by a rule: every free machine starts the waiting job with the smallest
    number, the first of equals. Machines never idle."""
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
                k, chance = int(env.next_op[j]), float(uniform(stream, np.array([draws]))[0])
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


# the rules compiled, as players

SPT, MWKR, FIFO, MOPNR, RANDOM = range(5)  # in the order of RULES


def rule_starts_reference(instance: Instance, rule: str, seeds: Sequence[int]) -> np.ndarray:
    """Starts [N, jobs, K] of the rule's schedules with these seeds."""
    schedules = [dispatch(instance, rule, seed) for seed in seeds]
    return np.stack([starts_of_schedule(instance, schedule) for schedule in schedules])


def shops_and_rules(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for rule in RULES:
        yield odd_shop(), rule, [0, 5, 6] if rule == "random" else [0]
        yield random_shop(rng, 7, 4, 1, 6), rule, [3]


@pair(rule_starts_reference, shops_and_rules, dtypes=("int64",), name="envs.jobshop.dispatched")
def rule_starts(instance: Instance, rule: str, seeds: Sequence[int]) -> np.ndarray:
    rows = np.zeros((len(seeds), row_size(instance)), np.int64)
    streams = np.array([key(seed, Purpose.RANDOM_POLICY) for seed in seeds], np.uint64)
    mask = np.zeros(instance.machines * (instance.jobs + 1), np.bool_)
    action = np.zeros(instance.machines, np.int64)
    dispatch_all(shop_of(instance)[0], list(RULES).index(rule), streams, rows, mask, action)
    size = instance.machine.size
    return rows[:, -size:].reshape(len(seeds), *instance.machine.shape)


@kernel
def dispatch_all(routes, rule, streams, rows, mask, action):
    """`dispatch` for every row."""
    _, jobs, longest = routes.shape
    for i in range(len(rows)):
        row, draws, done = rows[i], 0, False
        begin(row, jobs, longest, 0)
        next_op, ready, _, _ = views(row, jobs, longest)
        allow(routes, row, mask)
        while not done:
            for m in range(len(action)):
                action[m], least = jobs, np.inf
                for j in range(jobs):
                    if mask[m * (jobs + 1) + j]:
                        k = next_op[j]
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
    """A rule of `RULES` as a player. Only `random` has several samples; the others always make the
    same schedule."""

    def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
        require_draws(instances, samples, seed)
        count = max(samples, 1) if rule == "random" else 1
        return [
            list(orders_of_starts(instance, rule_starts(instance, rule, range(seed, seed + count))))
            for instance in instances
        ]

    return play


# chance among active schedules


def active_orders_reference(instance: Instance, streams: np.ndarray) -> np.ndarray:
    """Orders [N, operations] drawn from the policy's candidates."""
    import torch

    from tenfold.domains.jobshop.dispatch import apply_dispatch, batch, empty_floor, view_floor

    shops, orders = batch([instance]), []
    for stream in streams:
        floor, order = empty_floor(shops, 1), []
        for n in range(instance.operations):
            options = view_floor(shops, floor).allowed[0, 0].nonzero().ravel().tolist()
            order.append(options[int(uniform(stream, np.array([n]))[0] * len(options))])
            floor = apply_dispatch(shops, floor, torch.tensor([[order[-1]]]))
        orders.append(order)
    return np.array(orders, np.int64).reshape(len(streams), instance.operations)


def shops_and_streams(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for instance in (odd_shop(), random_shop(rng, 1, 1), random_shop(rng, 6, 4, 1, 9)):
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
    """Giffler and Thompson's rule: of all next operations the one that would end first; on its
    machine, any of those that could start before that."""
    jobs = len(lengths)
    next_op, ready = np.zeros(jobs, np.int64), np.zeros(jobs, np.int64)
    free, options = np.zeros(machines, np.int64), np.zeros(jobs, np.int64)
    for i in range(len(orders)):
        next_op[:], ready[:], free[:] = 0, 0, 0
        for n in range(orders.shape[1]):
            first, first_end = -1, 0
            for j in range(jobs):
                if next_op[j] < lengths[j]:
                    k = next_op[j]
                    end = max(ready[j], free[machine[j, k]]) + duration[j, k]
                    if first < 0 or end < first_end:
                        first, first_end = j, end
            where, count = machine[first, next_op[first]], 0
            for j in range(jobs):
                here = next_op[j] < lengths[j] and machine[j, next_op[j]] == where
                if here and (j == first or max(ready[j], free[where]) < first_end):
                    options[count] = j
                    count += 1
            j = options[int(draw_uniform(streams[i], n) * count)]
            end = max(ready[j], free[where]) + duration[j, next_op[j]]
            ready[j] = free[where] = end
            next_op[j] += 1
            orders[i, n] = j


def chance_player(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
    """A player that draws uniformly from the candidates; every second sample schedules the reversed
    shop, as a policy's does."""
    require_draws(instances, samples, seed)
    count = max(samples, 1)
    streams = np.array([key(seed + n, Purpose.RANDOM_POLICY) for n in range(count)], np.uint64)
    backwards = count // 2
    orders = []
    for instance in instances:
        ahead = active_orders(instance, streams[backwards:])
        back = active_orders(reversed_shop(instance), streams[:backwards])[:, ::-1]
        orders.append([*ahead, *back])
    return orders


# CP-SAT


MODULE = "ortools.sat.python.cp_model"
INSTALL = 'pip install "tenfold[schedule]"'


def is_installed() -> bool:
    return find_spec("ortools") is not None


def solver_player(seconds: float) -> Player:
    """CP-SAT as a `Player`, on one thread, with so many seconds of wall clock for each instance.
    Where it finds no schedule in time there is no order."""
    if not is_installed():
        raise UserError(f"CP-SAT is part of OR-Tools, which is not installed: {INSTALL}")
    import_module(MODULE)  # now, before anybody's clock runs

    def play(instances: Sequence[Instance], samples: int, seed: int) -> list[list[np.ndarray]]:
        starts = [solve(instance, seconds, seed)[0] for instance in instances]
        return [
            [] if start is None else list(orders_of_starts(instance, start[None]))
            for instance, start in zip(instances, starts, strict=True)
        ]

    return play


def solve(instance: Instance, seconds: float, seed: int = 0) -> tuple[np.ndarray | None, int]:
    """Starts [jobs, K] of the best schedule that CP-SAT finds (None if it finds none), and the
    lower bound that it proves."""
    cp_model: Any = import_module(MODULE)
    model, horizon = cp_model.CpModel(), int(instance.duration.sum())
    end = model.new_int_var(0, horizon, "makespan")
    start_of: dict[tuple[int, int], Any] = {}
    on_machine: list[list[Any]] = [[] for _ in range(instance.machines)]
    for j in range(instance.jobs):
        for k, (machine, duration) in enumerate(instance.job(j)):
            start_of[j, k] = start = model.new_int_var(0, horizon - duration, f"{j} {k}")
            on_machine[machine].append(
                model.new_fixed_size_interval_var(start, duration, f"i{j} {k}")
            )
            if k:
                model.add(start >= start_of[j, k - 1] + int(instance.duration[j, k - 1]))
        last = int(instance.lengths[j]) - 1
        model.add(end >= start_of[j, last] + int(instance.duration[j, last]))
    for intervals in on_machine:
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(seconds, 1e-3)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed % 2**31
    status = solver.solve(model)
    bound = int(np.ceil(solver.best_objective_bound - 1e-6))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None, max(bound, 0)
    start = np.full(instance.machine.shape, -1)
    for (j, k), variable in start_of.items():
        start[j, k] = solver.value(variable)
    return start, bound
