"""Parts of agents' settings: replay memory, actors with critics.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tenfold.config.agent_config import EVALUATION_SHARE
from tenfold.config.networks import ActorCriticNet
from tenfold.config.notation import show
from tenfold.config.schedules import Linear, Schedule, exceeds
from tenfold.config.schema import (
    Count,
    Limits,
    NotNegative,
    Option,
    Positive,
    Share,
    Whole,
)
from tenfold.core.errors import ConfigError

if TYPE_CHECKING:
    from tenfold.config.run import Run


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
