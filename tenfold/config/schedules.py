"""Settings that change while a run goes on: pure functions of the environment step.

No torch here, so that help and errors appear at once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self

from tenfold.config.notation import show
from tenfold.config.schema import Config, Count, NotNegative, Option, Positive
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.registry import OWN, own


@dataclass(frozen=True)
class Linear(Option):
    """From `start` to `end` in a straight line over `steps` environment steps, then constant."""

    start: NotNegative
    end: NotNegative
    steps: Count

    kind: ClassVar[str] = "linear"  # for compiled code

    def at(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)


@dataclass(frozen=True)
class Exponential(Option):
    """From `start` to `end` by equal factors over `steps` environment steps, then constant."""

    start: Positive
    end: Positive
    steps: Count

    kind: ClassVar[str] = "exponential"

    def at(self, step: int) -> float:
        return self.start * math.exp(math.log(self.end / self.start) * min(step / self.steps, 1.0))


@dataclass(frozen=True)
class Custom(Option):
    """A function of one's own, of the step and these numbers: `my_module:my_schedule(0.1, 10k)` is
    `my_schedule(step, 0.1, 10000.0)`. Its module is imported when it is first asked."""

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
        found = own(self.function)
        if not callable(found):
            raise UserError(f"{self.function} is not a function, which a schedule must be.")
        return found

    def at(self, step: int) -> float:
        given = ", ".join(map(show, (step, *self.arguments)))
        with told_of(f"{self.function}({given})"):
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
        given = ", ".join(map(show, self.arguments))
        return f"{self.function}({given})" if given else self.function


Schedule = NotNegative | Linear | Exponential | Custom


def value_at(schedule: Schedule, step: int) -> float:
    """A schedule is a pure function of the environment step; a number is constant."""
    return schedule.at(step) if isinstance(schedule, Option) else schedule


def exceeds(schedule: Schedule, limit: float) -> bool:
    """Whether it is known to go above a limit; of one's own nobody knows before it is asked."""
    if isinstance(schedule, Custom):
        return False
    top = max(schedule.start, schedule.end) if isinstance(schedule, Option) else schedule
    return top > limit


def custom_schedule(config: Config, prefix: str = "agent.") -> str:
    """The dotted name of the first setting that is a schedule of one's own, which only Python can
    ask; "" where there is none. It is asked once, so that a wrong one is refused before a run
    begins."""
    for f in fields(config):
        value = getattr(config, f.name)
        if isinstance(value, Custom):
            value.at(0)
            return prefix + f.name
        below = custom_schedule(value, f"{prefix}{f.name}.") if isinstance(value, Config) else ""
        if below:
            return below
    return ""
