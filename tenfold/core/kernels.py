"""How every compiled function is compiled: once, kept on disk, with NumPy's rules of arithmetic;
and what such functions share: the clock, schedules as numbers instead of objects, and exponential,
logarithm and tanh that vectorise in loops."""

import math
import time
from collections.abc import Iterator, Sequence
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


KINDS = ("constant", "linear", "exponential", "table")
CONSTANT, LINEAR, EXPONENTIAL, TABLE = range(4)
SCHEDULE = 5  # numbers in front: kind, start, end, steps, after; or kind, points, where they are


def as_numbers(schedule: Any) -> tuple[float, ...]:
    """Of a number, or of a schedule (tenfold.Linear, tenfold.Exponential, tenfold.Table). The
    points of a table follow, all steps, then all values."""
    if isinstance(schedule, int | float):
        return CONSTANT, schedule, schedule, 1, 0
    if schedule.kind == KINDS[TABLE]:
        return TABLE, len(schedule.steps), SCHEDULE, 0, 0, *schedule.steps, *schedule.values
    kind = KINDS.index(schedule.kind)
    return kind, schedule.start, schedule.end, schedule.steps, schedule.after


def side_by_side(schedules: Sequence[Any]) -> list[float]:
    """The numbers of several schedules: SCHEDULE of each, then the points of those with some."""
    fronts, points = [], []
    for place, schedule in enumerate(schedules):
        front, more = as_numbers(schedule)[:SCHEDULE], as_numbers(schedule)[SCHEDULE:]
        if more:
            front = TABLE, front[1], SCHEDULE * (len(schedules) - place) + len(points), 0, 0
        fronts += front
        points += more
    return fronts + points


def schedule_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    for numbers in (
        (CONSTANT, 0.25, 0.25, 1, 0),
        (LINEAR, 1.0, 0.1, 100, 0),
        (LINEAR, 1.0, 0.1, 43, 57),
        (EXPONENTIAL, 1.0, 0.01, 300, 0),
        (TABLE, 1, SCHEDULE, 0, 0, 30, 0.5),
        (TABLE, 2, SCHEDULE, 0, 0, 1, 100, 1.0, 0.1),
        (TABLE, 5, SCHEDULE, 0, 0, 0, 1, 50, 57, 99, 1.0, 0.1, 3.0, 0.0, 0.5),
    ):
        for step in (0, 1, 37, 57, 98, 100, 10**9):
            yield np.array((7, *numbers)), 1, step


def schedule_at_reference(numbers, offset, step):
    kind, start, end, steps, after = numbers[offset : offset + SCHEDULE]
    if kind == CONSTANT:
        return start
    if kind == TABLE:
        points = numbers[offset + int(end) :][: 2 * int(start)].reshape(2, -1)
        return float(np.interp(step, *points))
    done = min(max(step - after, 0) / steps, 1.0)
    if kind == LINEAR:
        return start + (end - start) * done
    return start * math.exp(math.log(end / start) * done)


@pair(schedule_at_reference, schedule_examples, rtol=1e-15)
@kernel
def schedule_at(numbers, offset, step):
    """The value at an environment step of the schedule whose numbers begin at `offset`."""
    kind, start, end, steps = (
        numbers[offset],
        numbers[offset + 1],
        numbers[offset + 2],
        numbers[offset + 3],
    )
    if kind == CONSTANT:
        return start
    if kind == TABLE:
        return table_at(numbers[offset + int(end) :], int(start), step)
    done = min(max(step - numbers[offset + 4], 0.0) / steps, 1.0)
    return (
        start + (end - start) * done
        if kind == LINEAR
        else start * math.exp(math.log(end / start) * done)
    )


@kernel
def table_at(points, count, step):
    """The value at a step between `count` steps, whose values follow them."""
    low, high = 0, count
    while low < high:  # the first step behind this one
        middle = (low + high) // 2
        if points[middle] > step:
            high = middle
        else:
            low = middle + 1
    if low == 0 or low == count:
        return points[count + min(low, count - 1)]
    done = (step - points[low - 1]) / (points[low] - points[low - 1])
    start, end = points[count + low - 1], points[count + low]
    return start + (end - start) * done


# exponential, logarithm and tanh of float32, without a call of the mathematics library


# e^x = 2^n·e^r, |r| ≤ ½ log 2, and e^r = 1 + r + r²·P(r): the coefficients of Cephes, highest first
EXP_P = tuple(
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)
LOG2_E = np.float32(1.44269504088896341)
# log 2 in two parts: n times the first is exact
HIGH, LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
# between these the result is a normal number
LEAST, MOST = np.float32(-87.33), np.float32(88.37)
ROUNDING = np.float32(3 << 22)  # added to a small number it leaves no place for a fraction
BIAS, PLACES = np.int32(127), np.int32(23)  # of the exponent of a float32
ONE, TWO = np.float32(1), np.float32(2)
# atanh z = z·(1 + z²/3 + z⁴/5 + …): for |z| ≤ 1/3 the first one left out is below rounding
ODD = tuple(np.float32(1 / n) for n in (15, 13, 11, 9, 7, 5, 3))


def exp_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield (np.array([0.0, -0.0, 1e-30, 1, -1, 0.34657, 87, -87, 88.3, np.nan], dtype),)
    yield ((rng.normal(size=1000) * 20).astype(dtype),)


def exp_reference(x):
    return np.exp(x.astype(np.float64))


@pair(exp_reference, exp_examples, rtol=3e-7)
@kernel
def exp_all(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = exp(x[i])
    return out


@kernel(fastmath={"contract"})
def exp(x):
    """e^x; e^LEAST below LEAST, e^MOST above MOST."""
    x = LEAST if x < LEAST else MOST if x > MOST else x
    n = (x * LOG2_E + ROUNDING) - ROUNDING
    r = (x - n * HIGH) - n * LOW
    power = (
        (((EXP_P[0] * r + EXP_P[1]) * r + EXP_P[2]) * r + EXP_P[3]) * r + EXP_P[4]
    ) * r + EXP_P[5]
    scale = np.int32((np.int32(n) + BIAS) << PLACES).view(np.float32)
    return (power * r * r + r + ONE) * scale


def log1p_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield (np.array([0.0, 1e-30, 1e-7, 0.5, 1, np.nan], dtype),)
    yield (rng.random(1000).astype(dtype),)


def log1p_reference(x):
    return np.log1p(x.astype(np.float64))


@pair(log1p_reference, log1p_examples, rtol=3e-7)
@kernel
def log1p_all(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = log1p(x[i])
    return out


@kernel(fastmath={"contract"})
def log1p(x):
    """log(1 + x) of a number between 0 and 1: 2·atanh(x / (2 + x))."""
    z = x / (TWO + x)
    s = z * z
    tail = (((((ODD[0] * s + ODD[1]) * s + ODD[2]) * s + ODD[3]) * s + ODD[4]) * s + ODD[5]) * s
    return TWO * z * ((tail + ODD[6]) * s + ONE)


# tanh x = x·P(x²) / Q(x²) within ±TANH_LAST, beyond which float32 rounds to ±1: the coefficients
# Eigen and XLA use, highest first
TANH_LAST = np.float32(7.90531110763549805)
TANH_P = tuple(
    np.float32(c)
    for c in (
        -2.76076847742355e-16,
        2.00018790482477e-13,
        -8.60467152213735e-11,
        5.12229709037114e-08,
        1.48572235717979e-05,
        6.37261928875436e-04,
        4.89352455891786e-03,
    )
)
TANH_Q = tuple(
    np.float32(c)
    for c in (
        1.19825839466702e-06,
        1.18534705686654e-04,
        2.26843463243900e-03,
        4.89352518554385e-03,
    )
)


def tanh_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    yield (np.array([0.0, -0.0, 1e-30, 0.1, -3, 7.9, 8, -50, np.inf, -np.inf, np.nan], dtype),)
    yield ((rng.normal(size=1000) * 3).astype(dtype),)


def tanh_reference(x):
    return np.tanh(x.astype(np.float64))


@pair(tanh_reference, tanh_examples, rtol=5e-7, atol=1e-12)
@kernel
def tanh_all(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = tanh(x[i])
    return out


@kernel(fastmath={"contract"})
def tanh(x):
    """tanh of a float32; ten times as fast in loops as the library's."""
    x = -TANH_LAST if x < -TANH_LAST else TANH_LAST if x > TANH_LAST else x
    s = x * x
    above = (
        (
            ((((TANH_P[0] * s + TANH_P[1]) * s + TANH_P[2]) * s + TANH_P[3]) * s + TANH_P[4]) * s
            + TANH_P[5]
        )
        * s
        + TANH_P[6]
    ) * x
    return above / (((TANH_Q[0] * s + TANH_Q[1]) * s + TANH_Q[2]) * s + TANH_Q[3])
