"""Schedules inside compiled code: four numbers (kind, start, end, steps) instead of an object."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.config.run import Exponential, Linear, Schedule, value_at
from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

CONSTANT, LINEAR, EXPONENTIAL = range(3)


def as_numbers(schedule: Schedule) -> tuple[float, float, float, float]:
    if isinstance(schedule, Linear | Exponential):
        kind = LINEAR if isinstance(schedule, Linear) else EXPONENTIAL
        return kind, schedule.start, schedule.end, schedule.steps
    return CONSTANT, schedule, schedule, 1


def schedule_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for schedule in (0.25, Linear(1.0, 0.1, 100), Exponential(1.0, 0.01, 300)):
        for step in (0, 1, 57, 100, 10**9):
            yield np.array((7, *as_numbers(schedule))), 1, step


def schedule_at_reference(numbers, place, step):
    kind, start, end, steps = numbers[place : place + 4]
    schedule = (
        start
        if kind == CONSTANT
        else (Linear if kind == LINEAR else Exponential)(start, end, int(steps))
    )
    return value_at(schedule, step)


@pair(schedule_at_reference, schedule_examples, rtol=1e-15)
@kernel
def schedule_at(numbers, place, step):
    """The value at an environment step of the schedule whose four numbers begin at `place`."""
    kind, start, end, steps = (
        numbers[place],
        numbers[place + 1],
        numbers[place + 2],
        numbers[place + 3],
    )
    if kind == CONSTANT:
        return start
    done = min(step / steps, 1.0)
    return (
        start + (end - start) * done
        if kind == LINEAR
        else start * math.exp(math.log(end / start) * done)
    )
