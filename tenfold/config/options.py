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

# rewards


@dataclass(frozen=True)
class Sign(Option):
    """Rewards for learning are -1, 0 or 1."""


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
