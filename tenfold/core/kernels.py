"""How every compiled function is compiled: once, kept on disk, with NumPy's rules of arithmetic;
the clock that such functions look at, and schedules as they read them: four numbers (kind, start,
end, steps) instead of an object."""

import math
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tenfold.core.pairs import pair


def kernel(function: Any = None, **options: Any) -> Any:
    """Numba's `njit` with our options, and more of them where a function asks. The wrapper for
    calls from C, which nobody makes, is not compiled."""
    ours: dict[str, Any] = {"error_model": "numpy", "no_cfunc_wrapper": True} | options

    def compiled(function: Any) -> Any:
        try:
            return njit(cache=True, **ours)(function)
        except RuntimeError:  # neither the package's folder nor the user's can be written to
            return njit(**ours)(function)

    return compiled(function) if function else compiled


def look_at_clock(typing_context: Any) -> Any:
    """The machine's monotonic clock, inside a kernel; a look at it takes some 25 ns."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number, whole = ir.IntType(32), ir.IntType(64)
        moment = ir.ArrayType(whole, 2)  # seconds, nanoseconds
        timespec = cgutils.alloca_once(builder, moment)
        kind = ir.FunctionType(number, [number, moment.as_pointer()])
        look = cgutils.get_or_insert_function(builder.module, kind, "clock_gettime")
        builder.call(look, [ir.Constant(number, time.CLOCK_MONOTONIC), timespec])
        seconds, rest = (builder.extract_value(builder.load(timespec), part) for part in (0, 1))
        return builder.add(builder.mul(seconds, ir.Constant(whole, 10**9)), rest)

    return types.int64(), build


nanoseconds: Any = intrinsic(look_at_clock)


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


def schedule_at_reference(numbers, offset, step):
    kind, start, end, steps = numbers[offset : offset + 4]
    if kind == CONSTANT:
        return start
    done = min(step / steps, 1.0)
    if kind == LINEAR:
        return start + (end - start) * done
    return start * math.exp(math.log(end / start) * done)


@pair(schedule_at_reference, schedule_examples, rtol=1e-15)
@kernel
def schedule_at(numbers, offset, step):
    """The value at an environment step of the schedule whose four numbers begin at `offset`."""
    kind, start, end, steps = (
        numbers[offset],
        numbers[offset + 1],
        numbers[offset + 2],
        numbers[offset + 3],
    )
    if kind == CONSTANT:
        return start
    done = min(step / steps, 1.0)
    return (
        start + (end - start) * done
        if kind == LINEAR
        else start * math.exp(math.log(end / start) * done)
    )
