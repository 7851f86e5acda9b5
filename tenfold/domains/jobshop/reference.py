"""The job shop of `rules` in plain Python, from its definitions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.pairs import pair
from tenfold.domains.jobshop.instances import Instance, lower_bound, odd_shop
from tenfold.domains.jobshop.reading import read_instance
from tenfold.domains.jobshop.rules import BOUND, TIME, allow, begin, row_size, shop_of, views
from tenfold.domains.jobshop.shops import JobShopEnvironments


def options_reference(instance: Instance, row: np.ndarray) -> list[list[int]]:
    """The legal options of each machine."""
    next_op, ready, free, _ = views.py_func(row, instance.jobs, instance.machine.shape[1])
    options = []
    for m in range(instance.machines):
        waiting = [
            j
            for j in range(instance.jobs)
            if next_op[j] < instance.lengths[j]
            and instance.machine[j, next_op[j]] == m
            and ready[j] <= row[TIME]
        ]
        idle = [instance.jobs] if worth_waiting_reference(instance, row, m, waiting) else []
        options.append(waiting + idle if waiting and free[m] <= row[TIME] else [])
    return options


def worth_waiting_reference(
    instance: Instance, row: np.ndarray, m: int, waiting: list[int]
) -> bool:
    """Whether machine m may idle: an operation runs, and another job may arrive before the first of
    the waiting ones could have ended."""
    next_op, ready, free, _ = views.py_func(row, instance.jobs, instance.machine.shape[1])
    if not waiting or max(free) <= row[TIME]:
        return False
    end = min(max(ready[j], free[m]) + instance.duration[j, next_op[j]] for j in waiting)
    for j in set(range(instance.jobs)) - set(waiting):
        arrival = max(ready[j], row[TIME])
        for machine, duration in instance.job(j)[next_op[j] :]:
            if machine == m and arrival < end:
                return True
            arrival = max(arrival, free[machine]) + duration
    return False


def observe_reference(instance: Instance, row: np.ndarray) -> np.ndarray:
    """The observation, part by part from its definition; sets the row's bound."""
    next_op, ready, free, _ = views.py_func(row, instance.jobs, instance.machine.shape[1])
    time, unit, longest = int(row[TIME]), lower_bound(instance), int(instance.duration.max())
    J, M = instance.jobs, instance.machines
    d = [[duration for _, duration in instance.job(j)] for j in range(J)]
    earliest: dict[tuple[int, int], int] = {}
    for j in range(J):
        at = max(ready[j], time)
        for k in range(next_op[j], len(d[j])):
            earliest[j, k] = max(at, free[instance.machine[j, k]])
            at = earliest[j, k] + d[j][k]
    of_job = [
        earliest[j, len(d[j]) - 1] + d[j][-1] if next_op[j] < len(d[j]) else ready[j]
        for j in range(J)
    ]
    remaining = [[(j, k) for j, k in earliest if instance.machine[j, k] == m] for m in range(M)]
    of_machine = [
        min(earliest[o] for o in ops)
        + sum(d[j][k] for j, k in ops)
        + min(sum(d[j][k + 1 :]) for j, k in ops)
        if ops
        else free[m]
        for m, ops in enumerate(remaining)
    ]
    row[BOUND] = bound = max(of_job + of_machine)
    waits = [[(j, k) for j, k in ops if k == next_op[j] and ready[j] <= time] for ops in remaining]
    obs = [time / unit, (bound - unit) / unit]
    for j in range(J):
        left = d[j][next_op[j] :]
        obs += [
            sum(left) / unit,
            len(left) / max(map(len, d)),
            max(ready[j] - time, 0) / longest,
            max(time - ready[j], 0) / unit if left else 0,
            (bound - of_job[j]) / unit,
            left[0] / longest if left else 0,
        ]
    for m in range(M):
        obs += [
            max(free[m] - time, 0) / longest,
            sum(d[j][k] for j, k in remaining[m]) / unit,
            len(waits[m]) / J,
            (bound - of_machine[m]) / unit,
            bool(waits[m]) and free[m] <= time,
        ]
    for m in range(M):
        ops = dict(reversed(remaining[m]))  # of several visits the first
        for j in range(J):
            waiting = (j, ops.get(j)) in waits[m]
            obs += [
                waiting,
                d[j][ops[j]] / longest if waiting else 0,
                j in ops,
                (earliest[j, ops[j]] - time) / unit if j in ops else 0,
            ]
    return np.array(obs, np.float32)


def step_reference(
    instance: Instance, state: np.ndarray, action: np.ndarray
) -> tuple[np.ndarray, ...]:
    """One step of each lane: start the chosen operations, advance from event to event until a
    machine can choose, reset at the end."""
    rows = []
    for row, jobs in zip(state, action, strict=True):
        longest = instance.machine.shape[1]
        next_op, ready, free, start = views.py_func(row, instance.jobs, longest)
        before, done, at_once = int(row[BOUND]), False, False
        for m, options in enumerate(options_reference(instance, row)):
            j = int(jobs[m])
            if j in options and j < instance.jobs:
                start[j * longest + next_op[j]] = row[TIME]
                ready[j] = free[m] = row[TIME] + instance.duration[j, next_op[j]]
                at_once = at_once or instance.duration[j, next_op[j]] == 0
                next_op[j] += 1
        while not done:
            if at_once and any(options_reference(instance, row)):
                break
            at_once = False
            events = [end for end in free if end > row[TIME]]
            done = not events
            row[TIME] = min(events, default=row[TIME])
            if any(options_reference(instance, row)):
                break
        obs = final = observe_reference(instance, row)
        reward, makespan = (
            (before - int(row[BOUND])) / shop_of(instance)[2],
            int(row[TIME]) if done else 0,
        )
        if done:
            begin.py_func(row, instance.jobs, longest, lower_bound(instance))
            obs = observe_reference(instance, row)
        mask = [
            j in options
            for options in options_reference(instance, row)
            for j in range(instance.jobs + 1)
        ]
        rows.append((obs, final if done else np.zeros_like(final), mask, reward, makespan))
    return state, *map(np.array, zip(*rows, strict=True))


def random_playouts(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Every step of whole episodes of random legal play with some idling; the lanes' episodes end
    at different steps."""
    tiny = Instance("1x1", np.array([[0]]), np.array([[3]]))
    flat = Instance("2x3", np.array([[0, 1, 2], [2, 0, 1]]), rng.integers(1, 6, (2, 3)))
    large = read_instance("ft06")
    for instance, lanes, steps in (
        (tiny, 1, 3),
        (tiny, 2, 2),
        (flat, 3, 12),
        (odd_shop(), 3, 25),
        (large, 1, 45),
        (large, 3, 8),
    ):
        state = np.zeros((lanes, row_size(instance)), np.int64)
        for row in state:
            begin.py_func(row, instance.jobs, instance.machine.shape[1], lower_bound(instance))
        for _ in range(steps):
            options = [options_reference(instance, row) for row in state]
            action = np.array(
                [[rng.choice(o) if o else rng.integers(-2, 99) for o in lane] for lane in options]
            )
            yield instance, state.copy(), action
            step_reference(instance, state, action)


@pair(step_reference, random_playouts, dtypes=("int64",), name="envs.jobshop.play_all")
def step_once(instance: Instance, state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, ...]:
    """One step of `JobShopEnvironments` from the same state."""
    envs = JobShopEnvironments(instance.name, len(state), 0, instance)
    envs.states[:] = state
    for row, options in zip(envs.states, envs.options, strict=True):
        allow(envs.routes, row, options)
    envs.step(action)
    return (
        envs.states,
        envs.obs,
        envs.final_obs,
        envs.options,
        envs.reward,
        envs.last_makespan,
    )
