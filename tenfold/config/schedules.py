"""Schedules: settings that change while a run goes on, pure functions of the environment step.

No torch here, so that help and errors appear at once.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, NotNegative, Option, Positive, Whole
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.registry import OWN, import_by_name


@dataclass(frozen=True)
class Linear(Option):
    """From `start` to `end` in a straight line over `steps` environment steps, then constant; the
    line begins at step `after`."""

    start: NotNegative
    end: NotNegative
    steps: Count
    after: Whole = 0

    kind: ClassVar[str] = "linear"  # for compiled code

    def at(self, step: int) -> float:
        done = max(step - self.after, 0) / self.steps
        return self.start + (self.end - self.start) * min(done, 1.0)

    @property
    def last(self) -> int:
        """The step from which it is constant."""
        return self.steps + self.after

    @property
    def top(self) -> float:
        return max(self.start, self.end)

    def __str__(self) -> str:
        """As it was written before there was `after`, where that is 0."""
        return super().__str__().replace(", after=0)", ")")


@dataclass(frozen=True)
class Exponential(Option):
    """From `start` to `end` by equal factors over `steps` environment steps, then constant."""

    start: Positive
    end: Positive
    steps: Count

    kind: ClassVar[str] = "exponential"
    after: ClassVar[int] = 0

    def at(self, step: int) -> float:
        return self.start * math.exp(math.log(self.end / self.start) * min(step / self.steps, 1.0))

    @property
    def last(self) -> int:
        """The step from which it is constant."""
        return self.steps

    @property
    def top(self) -> float:
        return max(self.start, self.end)


@dataclass(frozen=True)
class Table(Option):
    """These `values` at these environment `steps`, straight lines between them, constant before the
    first and behind the last: `table(0:1e-3, 10k:1e-4, 50k:0)`."""

    steps: tuple[Whole, ...]
    values: tuple[NotNegative, ...]

    kind: ClassVar[str] = "table"

    @classmethod
    def notation(cls) -> str:
        return "table(step:value, ...)"

    @classmethod
    def called(cls, word: str, positional: list[str], named: dict[str, str]) -> Self:
        points = [point.partition(":") for point in positional]
        if named or not all(colon for _, colon, _ in points):
            raise ConfigError("", "is written as step:value, such as table(0:1e-3, 10k:1e-4).")
        return cls(
            tuple(step for step, _, _ in points),  # type: ignore[arg-type]  # converted, as all
            tuple(value for _, _, value in points),  # type: ignore[arg-type]
        )

    def check(self) -> None:
        if not len(self.steps) == len(self.values) > 0:
            raise ConfigError("steps", "and values are as many as each other, and at least one.")
        if any(one >= next_one for one, next_one in pairwise(self.steps)):
            raise ConfigError("steps", "of a table must rise from one to the next.")

    def at(self, step: int) -> float:
        steps, values, k = self.steps, self.values, bisect_right(self.steps, step)
        if k in (0, len(steps)):
            return values[min(k, len(steps) - 1)]
        done = (step - steps[k - 1]) / (steps[k] - steps[k - 1])
        return values[k - 1] + (values[k] - values[k - 1]) * done

    @property
    def last(self) -> int:
        """The step from which it is constant."""
        return self.steps[-1]

    @property
    def end(self) -> float:
        return self.values[-1]

    @property
    def top(self) -> float:
        return max(self.values)

    def __str__(self) -> str:
        points = zip(self.steps, self.values, strict=True)
        return f"table({', '.join(f'{step}:{show(value)}' for step, value in points)})"


@dataclass(frozen=True)
class Custom(Option):
    """A user's function of the step and these numbers: `my_module:my_schedule(0.1, 10k)` is
    `my_schedule(step, 0.1, 10000.0)`. Its module is imported on first use."""

    from_module: ClassVar[bool] = True

    function: str
    arguments: tuple[float, ...] = ()

    @classmethod
    def notation(cls) -> str:
        return "module:function(numbers)"

    @classmethod
    def called(cls, word: str, positional: list[str], named: dict[str, str]) -> Self:
        if named:
            raise ConfigError(next(iter(named)), "cannot be given by its name: numbers only.")
        return cls(word, tuple(positional))  # type: ignore[arg-type]  # converted like all others

    def check(self) -> None:
        if not OWN.fullmatch(self.function):
            raise ConfigError("function", f"= {self.function} is not written as module:function.")

    @cached_property
    def itself(self) -> Callable[..., Any]:
        function = import_by_name(self.function)
        if not callable(function):
            raise UserError(f"{self.function} is not a function, which a schedule must be.")
        return function

    def at(self, step: int) -> float:
        arguments = ", ".join(map(show, (step, *self.arguments)))
        with told_of(f"{self.function}({arguments})"):
            value = self.itself(step, *self.arguments)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not (math.isfinite(number) and number >= 0):
            raise UserError(
                f"{self} gave {value!r:.40} at step {step:,}: a schedule gives a number that is at "
                "least 0."
            )
        return number

    def __str__(self) -> str:
        arguments = ", ".join(map(show, self.arguments))
        return f"{self.function}({arguments})" if arguments else self.function


Schedule = NotNegative | Linear | Exponential | Table | Custom


def value_at(schedule: Schedule, step: int) -> float:
    """A schedule is a pure function of the environment step; a number is constant."""
    return schedule.at(step) if isinstance(schedule, Option) else schedule


def exceeds(schedule: Schedule, limit: float) -> bool:
    """Whether a schedule is known to exceed a limit; custom ones cannot be bounded in advance."""
    if isinstance(schedule, Custom):
        return False
    return (schedule.top if isinstance(schedule, Option) else schedule) > limit


def custom_schedule(config: Config, prefix: str = "agent.") -> str:
    """The dotted name of the first setting that is a custom schedule, which only Python can
    evaluate; "" without one. It is evaluated once, so that errors appear before a run begins."""
    for f in fields(config):
        value = getattr(config, f.name)
        if isinstance(value, Custom):
            value.at(0)
            return prefix + f.name
        below = custom_schedule(value, f"{prefix}{f.name}.") if isinstance(value, Config) else ""
        if below:
            return below
    return ""


# schedules of other libraries

ASKED = 65  # places at which a function is compared with a straight line
STRAIGHT = 1e-9  # of its largest value: how far it may be from one


def callable_table(
    function: Callable[[float], float], total: int, steps: Sequence[int]
) -> float | Linear | Table:
    """A function of the progress that remains, 1 at the start and 0 at step `total`, as a schedule
    with its values at these rising `steps`: a number or `linear` where it is one, else a table.
    Negative values count as 0."""

    def value(step: float) -> float:
        number = float(function(1 - step / total))
        if not math.isfinite(number):
            raise ConfigError("", f"gave {number} at step {step:,.0f}: a schedule gives numbers.")
        return max(number, 0.0)

    last = steps[-1]
    places = [last * k / (ASKED - 1) for k in range(ASKED)]
    values = [value(step) for step in places]
    for end in (total, last):
        line = Linear(value(0), value(end), end)
        far = max(abs(line.at(step) - number) for step, number in zip(places, values, strict=True))  # type: ignore[arg-type]
        if far <= STRAIGHT * max(values):
            return line if line.start != line.end else line.start
    return Table(tuple(steps), tuple(map(value, steps)))
