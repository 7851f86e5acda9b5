"""Schedules inside compiled code: four numbers (kind, start, end, steps) instead of an object."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.core.kernels import kernel
from tenfold.core.pairs import pair

KINDS = ("constant", "linear", "exponential")
CONSTANT, LINEAR, EXPONENTIAL = range(3)


def as_numbers(schedule: Any) -> tuple[float, float, float, float]:
    """Of a number, or of a schedule with `kind`, `start`, `end` and `steps` (tenfold.Linear,
    tenfold.Exponential)."""
    if isinstance(schedule, int | float):
        return CONSTANT, schedule, schedule, 1
    return KINDS.index(schedule.kind), schedule.start, schedule.end, schedule.steps


def schedule_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for numbers in (
        (CONSTANT, 0.25, 0.25, 1),
        (LINEAR, 1.0, 0.1, 100),
        (EXPONENTIAL, 1.0, 0.01, 300),
    ):
        for step in (0, 1, 57, 100, 10**9):
            yield np.array((7, *numbers)), 1, step


def schedule_at_reference(numbers, place, step):
    kind, start, end, steps = numbers[place : place + 4]
    if kind == CONSTANT:
        return start
    done = min(step / steps, 1.0)
    if kind == LINEAR:
        return start + (end - start) * done
    return start * math.exp(math.log(end / start) * done)


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
