"""Parts of agents' settings: schedules, replay memory.

No torch here, so that help and errors appear at once.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self

from tenfold.config.agent_config import EVALUATION_SHARE
from tenfold.config.networks import ActorCriticNet
from tenfold.config.notation import show
from tenfold.config.schema import (
    Config,
    Count,
    Limits,
    NotNegative,
    Option,
    Positive,
    Share,
    Whole,
)
from tenfold.core.errors import ConfigError, UserError, told_of
from tenfold.core.registry import OWN, import_by_name

if TYPE_CHECKING:
    from tenfold.config.run import Run

# schedules: settings that change while a run goes on, pure functions of the environment step


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


Schedule = NotNegative | Linear | Exponential | Custom


def value_at(schedule: Schedule, step: int) -> float:
    """A schedule is a pure function of the environment step; a number is constant."""
    return schedule.at(step) if isinstance(schedule, Option) else schedule


def exceeds(schedule: Schedule, limit: float) -> bool:
    """Whether a schedule is known to exceed a limit; custom ones cannot be bounded in advance."""
    if isinstance(schedule, Custom):
        return False
    top = max(schedule.start, schedule.end) if isinstance(schedule, Option) else schedule
    return top > limit


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


# replay memory

MOST_EVALUATED = 1 / 2  # steps of evaluations to one of training, however dear training is


@dataclass(frozen=True)
class Uniform(Option):
    """Every stored transition is equally likely."""


@dataclass(frozen=True)
class Prioritized(Option):
    """P(i) ~ (|TD error| + eps)^alpha, corrected by importance weights (N P(i))^-beta."""

    alpha: Share = 0.6
    beta: Schedule = Linear(0.4, 1.0, 50_000)
    eps: Positive = 1e-6

    def check(self) -> None:
        if exceeds(self.beta, 1):
            raise ConfigError(
                "beta", f"= {show(self.beta)} is out of range: it must stay between 0 and 1."
            )


class OffPolicyConfig:
    """Checks of replay settings: `capacity` rows, batches of `batch_size` x `accumulate` rows,
    returns of `n_step` steps, `frames` per observation. Comes before AgentConfig among the bases of
    a class that has these fields."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"eval_every": 10_000})
    # steps of evaluations in a tenth of the time of an update
    steps_to_update: ClassVar[float] = 3 / 20

    def check(self: Any) -> None:
        if self.batch_size * self.accumulate > self.capacity:
            times = f" x accumulate = {self.accumulate}" if "accumulate" in vars(self) else ""
            raise ConfigError(
                "batch_size",
                f"= {self.batch_size}{times} is more than capacity = {self.capacity}: a batch "
                "must fit into the replay memory.",
            )
        if self.n_step + self.frames + 1 > self.capacity:
            raise ConfigError(
                "n_step",
                f"= {self.n_step} does not fit: it must be at most capacity - frames - 1 = "
                f"{self.capacity - self.frames - 1}.",
            )

    def check_run(self: Any, run: "Run") -> None:
        super().check_run(run)  # pyright: ignore[reportAttributeAccessIssue]  # AgentConfig's
        if run.overlap and (run.actors > 1 or run.where in ("processes", "ray")):
            raise ConfigError(
                "overlap", "= true is for one actor in the learner's process: others have ahead."
            )
        rows = self.capacity // run.lanes
        if rows < self.n_step + self.frames + 1:
            raise ConfigError(
                "num_envs",
                f"= {run.lanes // run.actors} leaves {rows} rows of replay for each environment, "
                f"too few for agent.n_step = {self.n_step}: raise agent.capacity or lower "
                "num_envs.",
            )

    @property
    def evaluation_share(self: Any) -> float:
        share = EVALUATION_SHARE + self.steps_to_update * self.updates / self.every
        return min(share, MOST_EVALUATED)

    def first_update(self: Any, run: "Run") -> tuple[int, str]:
        starts = self.learning_starts
        return starts + 1, f"agent.learning_starts = {starts:,}"

    @property
    def priorities(self: Any) -> Prioritized | None:
        """The prioritisation of replay; None: uniform."""
        return self.replay if isinstance(self.replay, Prioritized) else None


@dataclass(frozen=True)
class ActorCriticConfig(OffPolicyConfig):
    """The common settings of sac and td3."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType(
        {"env": "Pendulum-v1", "eval_every": 10_000}
    )
    steps_to_update: ClassVar[float] = 1 / 2  # updates of three networks
    accumulate: ClassVar[int] = 1  # a batch is learned from as a whole
    frames: ClassVar[int] = 1

    gamma: Share = 0.99
    """discount of the next step's value"""
    lr: Schedule = 3e-4
    """learning rate of Adam, for the policy and the critics: a number, linear(start, end, steps),
    exponential(start, end, steps) or a function of one's own"""
    adam_eps: Positive = 1e-8
    """Adam's denominator offset"""
    weight_decay: NotNegative = 0.0
    """share of every parameter, times lr, that a step takes away besides (AdamW)"""
    batch_size: Count = 256
    """transitions per gradient update"""
    capacity: Count = 1_000_000
    """rows of replay memory; an episode of T steps takes T + 1 (its true final observation has a
    row)"""
    learning_starts: Whole = 100
    """environment steps before the first update; until then actions are drawn uniformly"""
    every: Count = 1
    """environment steps between rounds of updates"""
    updates: Count = 1
    """gradient updates per round, run as one call"""
    tau: Annotated[float, Limits(0, 1, above=True)] = 0.005
    """how far target networks move towards the learned ones after an update"""
    n_step: Count = 1
    """rewards summed before bootstrapping, cut at the episode's end"""
    normalize_obs: bool = False
    """observations are shifted and scaled by their running mean and deviation, which the checkpoint
    keeps; the replay memory holds them as they are"""
    replay: Uniform | Prioritized = Uniform()
    """uniform, or prioritized(alpha, beta, eps)"""
    net: ActorCriticNet = field(default_factory=ActorCriticNet)
    """policy and critics are such networks, one each"""
