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


# rewards


@dataclass(frozen=True)
class Sign(Option):
    """Rewards for learning are -1, 0 or 1."""


@dataclass(frozen=True)
class Drawn(Option):
    """Rewards are normalised when a replay memory is drawn from."""


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


@dataclass(frozen=True)
class Episodes(Option):
    """Updates are due when `n` episodes have ended; for one environment."""

    n: Count = 1


EPISODE_STEPS = 100  # of an episode, where costs are estimated and nobody knows its length


class OffPolicyConfig:
    """Checks of replay settings: `capacity` rows, returns of `n_step` steps, `frames` per
    observation; and when updates are due. Comes before AgentConfig among the bases of a class that
    has these fields."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"eval_every": 10_000})
    has_replay: ClassVar[bool] = True
    # steps of evaluations in a tenth of the time of an update
    steps_to_update: ClassVar[float] = 3 / 20

    def check_run(self: Any, run: "Run") -> None:
        super().check_run(run)  # pyright: ignore[reportAttributeAccessIssue]  # AgentConfig's
        if run.overlap and (run.actors > 1 or run.where in ("processes", "ray")):
            raise ConfigError(
                "overlap", "= true is for one actor in the learner's process: others have ahead."
            )
        if isinstance(self.every, Episodes) and run.lanes > 1:
            raise ConfigError(
                "agent.every",
                f"= {self.every} is for one environment, and there are {run.lanes}: count steps, "
                "or set num_envs and actors to 1.",
            )

    def lane_rows(self: Any, lanes: int) -> int:
        """Rows of replay for each environment: at least those that one return needs."""
        return max(self.capacity // lanes, self.n_step + self.frames + 1)

    def updates_due(self: Any, before: int, step: int, since: Any) -> int:
        """Updates that became due from one step to another. `since`: steps and episodes that were
        stored since updates were last due by episodes; they begin anew where they are now."""
        if not isinstance(self.every, Episodes):
            rounds = step // self.every - before // self.every
            return rounds * (self.every if self.updates < 0 else self.updates)
        if since[1] < self.every.n:
            return 0
        due = int(since[0]) if self.updates < 0 else self.updates
        since[:] = 0
        return due

    def usual_updates(self: Any, lanes: int) -> int:
        """Updates of a round that has any; 0 where that depends on the length of episodes."""
        if isinstance(self.every, Episodes):
            return max(self.updates, 0)
        return self.updates_due(0, max(lanes, self.every) // self.every * self.every, ())

    @property
    def evaluation_share(self: Any) -> float:
        by_episodes = isinstance(self.every, Episodes)
        steps = self.every.n * EPISODE_STEPS if by_episodes else self.every
        updates = 1 if self.updates < 0 else self.updates / steps
        return min(EVALUATION_SHARE + self.steps_to_update * updates, MOST_EVALUATED)

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
    """rows of replay memory, those that one return of each environment needs at least; an episode
    of T steps takes T + 1 (its true final observation has a row)"""
    learning_starts: Whole = 100
    """environment steps before the first update; until then actions are drawn uniformly"""
    every: Count | Episodes = 1
    """environment steps between rounds of updates, or episodes(n)"""
    updates: Annotated[int, Limits(-1)] = 1
    """gradient updates per round, run as one call; -1: as many as environment steps since the last
    round; 0: none"""
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
