"""Schedules of job shops: an independent check, schedules as orders of jobs, and Gantt charts.

A schedule says when each operation starts. `check_schedule` shares nothing with the simulator in
`rules.py` but the instance's two tables.

A dispatch order names a job once for each of its operations. From left to right the job's next
operation is appended to its machine's queue, and starts as early as that allows:

    start = max(end of the job's operation before, end of the machine's operation before)

Such schedules are called semi-active; some order gives an optimal one.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from tenfold.core.errors import UserError
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair
from tenfold.domains.jobshop.instances import Instance, odd_shop, random_shop
from tenfold.runs.charts import new_figure


class Scheduled(NamedTuple):
    """An operation on its machine from `start` to before `end`."""

    job: int
    operation: int
    machine: int
    start: int
    end: int


Schedule = list[Scheduled]


class Infeasible(UserError, ValueError):
    """A schedule that breaks a rule of the shop; the message names the first violation."""


# the check


def check_schedule(instance: Instance, schedule: Iterable[tuple[int, int, int, int, int]]) -> int:
    """The makespan of a schedule that keeps every rule of the shop; `Infeasible` names the first
    one broken otherwise.

    The rules: each operation exactly once, on its machine, for its duration, from time 0 on; the
    operations of a job one after another; on a machine never two at a time.
    """
    intervals: dict[tuple[int, int], tuple[int, int]] = {}
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
        if (job, operation) in intervals:
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
        intervals[job, operation] = start, end
        on_machine[machine].append((start, end, what))
    for job in range(instance.jobs):
        for operation in range(instance.lengths[job]):
            if (job, operation) not in intervals:
                raise Infeasible(f"The operation {operation} of job {job} is missing.")
            start, before = intervals[job, operation][0], intervals[job, max(operation - 1, 0)][1]
            if operation and start < before:
                raise Infeasible(
                    f"The operation {operation} of job {job} starts at {start}, before the job's "
                    f"operation {operation - 1} ends at {before}."
                )
    for machine, runs in enumerate(on_machine):
        runs.sort()
        for (_, end, first), (start, _, second) in pairwise(runs):
            if start < end:
                raise Infeasible(
                    f"On machine {machine} the {second} starts at {start}, while the {first} runs "
                    f"until {end}."
                )
    return max(end for _, end in intervals.values())


def check_starts(instance: Instance, start: np.ndarray) -> np.ndarray:
    """Makespans [N] of many schedules given by starts [N, jobs, K], after the same check:
    `Infeasible` names the first schedule that breaks a rule, in the words of `check_schedule`."""
    exists = instance.machine >= 0
    ends = start + instance.duration
    wrong = (start < 0)[:, exists].any(1)
    wrong |= ((start[:, :, 1:] < ends[:, :, :-1]) & exists[:, 1:]).any((1, 2))
    for m in range(instance.machines):
        here = instance.machine == m
        begin, until = start[:, here], ends[:, here]
        by_start = np.lexsort((until, begin), axis=1)
        begin, until = (np.take_along_axis(a, by_start, 1) for a in (begin, until))
        wrong |= (begin[:, 1:] < until[:, :-1]).any(1)
    if wrong.any():
        i = int(wrong.argmax())
        check_schedule(instance, schedule_of_starts(instance, start[i]))
        raise Infeasible(f"Schedule {i} of {instance.name} is refused by one check only.")
    return ends[:, exists].max(1)


def schedule_of_starts(instance: Instance, start: np.ndarray) -> Schedule:
    """The schedule of starts [jobs, K], in the order of starts."""
    operations = [
        Scheduled(j, k, machine, int(start[j, k]), int(start[j, k]) + duration)
        for j in range(instance.jobs)
        for k, (machine, duration) in enumerate(instance.job(j))
    ]
    return sorted(operations, key=lambda s: (s.start, s.machine))


def starts_of_schedule(instance: Instance, schedule: Schedule) -> np.ndarray:
    """Starts [jobs, K] of operations, −1 for those that are not scheduled."""
    start = np.full(instance.machine.shape, -1)
    for s in schedule:
        start[s.job, s.operation] = s.start
    return start


# dispatch orders


def schedule_of_order(instance: Instance, order: Sequence[int] | np.ndarray) -> Schedule:
    """The semi-active schedule of an order, in that order."""
    next_op, ready, free = [0] * instance.jobs, [0] * instance.jobs, [0] * instance.machines
    schedule: Schedule = []
    for j in checked_orders(instance, [order])[0].tolist():
        k = next_op[j]
        machine, duration = int(instance.machine[j, k]), int(instance.duration[j, k])
        start = max(ready[j], free[machine])
        ready[j] = free[machine] = start + duration
        next_op[j] += 1
        schedule.append(Scheduled(j, k, machine, start, start + duration))
    return schedule


def checked_orders(instance: Instance, orders: Sequence[Any]) -> np.ndarray:
    """Orders [N, operations] as an array; refuses those that do not name every job as often as it
    has operations."""
    try:
        values = np.asarray(orders)
        array = values.astype(np.int64)
    except (TypeError, ValueError) as error:  # orders of different lengths, or no numbers
        raise UserError(
            f"Dispatch orders of {instance.name} cannot be read as rows of job numbers: {error}."
        ) from None
    if array.ndim != 2 or array.shape[1] != instance.operations:
        raise UserError(
            f"A dispatch order of {instance.name} names a job for each of its "
            f"{instance.operations} operations, and these have the shape {array.shape}."
        )
    if (array != values).any():
        raise UserError(
            f"A dispatch order of {instance.name} names jobs by whole numbers, and not by "
            f"{values[array != values][0]}."
        )
    expected = np.repeat(np.arange(instance.jobs), instance.lengths)
    wrong = np.flatnonzero((np.sort(array, 1) != expected).any(1))
    if len(wrong):
        raise UserError(
            f"Dispatch order {wrong[0]} of {instance.name} does not name each job once for each of "
            "its operations."
        )
    return array


# when operations start, for many orders


def starts_reference(
    machine: np.ndarray, duration: np.ndarray, machines: int, orders: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Starts [N, jobs, K] (−1 where there is no operation) and makespans [N] of orders."""
    instance = Instance("orders", machine, duration, machines)
    start = np.full((len(orders), *machine.shape), -1)
    makespan = np.zeros(len(orders), np.int64)
    for i, order in enumerate(orders):
        schedule = schedule_of_order(instance, order)
        start[i] = starts_of_schedule(instance, schedule)
        makespan[i] = max(s.end for s in schedule)
    return start, makespan


def random_orders(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for instance, count in (
        (odd_shop(), 7),
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
    next_op, ready, free = (
        np.zeros(jobs, np.int64),
        np.zeros(jobs, np.int64),
        np.zeros(machines, np.int64),
    )
    for i in range(count):
        next_op[:], ready[:], free[:] = 0, 0, 0
        for o in range(orders.shape[1]):
            j = orders[i, o]
            k = next_op[j]
            m = machine[j, k]
            begin = max(ready[j], free[m])
            start[i, j, k] = begin
            ready[j] = free[m] = begin + duration[j, k]
            next_op[j] += 1
            makespan[i] = max(makespan[i], ready[j])
    return start, makespan


def starts(instance: Instance, orders: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Starts [N, jobs, K] and makespans [N] of orders [N, operations]."""
    array = checked_orders(instance, orders)
    return starts_of_orders(instance.machine, instance.duration, instance.machines, array)


def orders_of_starts(instance: Instance, start: np.ndarray) -> np.ndarray:
    """Orders [N, operations] of starts [N, jobs, K]; of operations that start together, those
    without duration come first."""
    exists = instance.machine >= 0
    begin = start[:, exists]
    ends = begin + instance.duration[exists]
    job, operation = (np.broadcast_to(a, begin.shape) for a in np.nonzero(exists))
    return np.take_along_axis(job, np.lexsort((job, operation, ends, begin), axis=1), 1)


# Gantt charts


SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def gantt_text(schedule: Schedule, width: int = 100) -> str:
    """A row for each machine, a letter for each job, dots where the machine is idle. Where a letter
    stands for more than one time unit it shows the middle of that span, so an operation shorter
    than a letter may be hidden."""
    if not schedule:
        return "nothing is scheduled yet"
    span, machines = max(s.end for s in schedule), max(s.machine for s in schedule) + 1
    label = len(f"machine {machines - 1} ")
    room = max(width - label - 2, 8)
    columns = span * (room // span) if span <= room else room
    rows = [["·"] * columns for _ in range(machines)]
    for job, _, machine, start, end in schedule:
        for c in range(columns):
            if start <= (c + 0.5) * span / columns < end:
                rows[machine][c] = SYMBOLS[job] if job < len(SYMBOLS) else "#"
    chart = [f"{f'machine {m} ':<{label}}|{''.join(row)}|" for m, row in enumerate(rows)]
    axis = "0" + f"{span}".rjust(columns)
    return "\n".join([*chart, " " * label + axis])


def gantt_figure(schedule: Schedule, title: str = "") -> Any:
    """The Gantt chart as a Matplotlib figure; bars are labelled and coloured by job."""
    from matplotlib import colormaps

    span, machines = (
        max((s.end for s in schedule), default=1),
        max((s.machine for s in schedule), default=0) + 1,
    )
    jobs = max((s.job for s in schedule), default=0) + 1
    colours: Any = colormaps["tab10" if jobs <= 10 else "tab20" if jobs <= 20 else "turbo"]
    figure = new_figure(10, 1.2 + 0.45 * machines)
    figure.set_dpi(110)
    axes = figure.add_subplot()
    for job, _, machine, start, end in schedule:
        colour = colours(job) if jobs <= 20 else colours(job / jobs)
        axes.broken_barh(
            [(start, end - start)],
            (machine - 0.4, 0.8),
            facecolors=[colour],
            edgecolors=["black"],
            linewidth=0.5,
        )
        if end - start >= span / 60:  # room for a number
            axes.text(
                (start + end) / 2,
                machine,
                f"{job}",
                ha="center",
                va="center",
                fontsize=8,
                clip_on=True,
            )
    axes.set(
        xlim=(0, span),
        ylim=(machines - 0.5, -0.5),
        yticks=range(machines),
        xlabel="time",
        ylabel="machine",
        title=title or f"{jobs} jobs, makespan {span}",
    )
    return figure


def render_gantt(schedule: Schedule, title: str, mode: str | None) -> Any:
    """The Gantt chart as RGB [H, W, 3] in mode `rgb_array`, else as text."""
    if mode != "rgb_array":
        return gantt_text(schedule)
    figure = gantt_figure(schedule, title)
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
