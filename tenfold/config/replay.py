"""Settings of agents that learn from a replay memory, and of those among them with an actor and
critics.

No torch here, so that help and errors appear at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tenfold.config.agent import AgentConfig
from tenfold.config.nets import Net
from tenfold.config.notation import show
from tenfold.config.schedules import Linear, Schedule, exceeds
from tenfold.config.schema import Count, Limits, Option, Positive, Share, Whole
from tenfold.core.errors import ConfigError

if TYPE_CHECKING:
    from tenfold.config.run import Run

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
class Replayed(AgentConfig):
    """What holds between the settings of a replay memory: `capacity` rows, batches of `batch_size`
    x `accumulate` of them, returns of `n_step` steps, `frames` of an observation."""

    run_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"eval_every": 10_000})
    # steps of evaluations in a tenth of the time of an update
    steps_to_update: ClassVar[float] = 3 / 20

    def check(self) -> None:
        given: Any = self
        if given.batch_size * given.accumulate > given.capacity:
            times = f" x accumulate = {given.accumulate}" if "accumulate" in vars(self) else ""
            raise ConfigError(
                "batch_size",
                f"= {given.batch_size}{times} is more than capacity = {given.capacity}: a batch "
                "must fit into the replay memory.",
            )
        if given.n_step + given.frames + 1 > given.capacity:
            raise ConfigError(
                "n_step",
                f"= {given.n_step} does not fit: it must be at most capacity - frames - 1 = "
                f"{given.capacity - given.frames - 1}.",
            )

    def check_run(self, run: "Run") -> None:
        super().check_run(run)
        given: Any = self
        rows = given.capacity // (run.num_envs * run.actors)
        if rows < given.n_step + given.frames + 1:
            raise ConfigError(
                "num_envs",
                f"= {run.num_envs} leaves {rows} rows of replay for each environment, too few for "
                f"agent.n_step = {given.n_step}: raise agent.capacity or lower num_envs.",
            )

    @property
    def evaluation_share(self) -> float:
        given: Any = self
        share = super().evaluation_share + self.steps_to_update * given.updates / given.every
        return min(share, MOST_EVALUATED)

    def first_update(self, run: "Run") -> tuple[int, str]:
        starts = self.learning_starts  # type: ignore[attr-defined]
        return starts + 1, f"agent.learning_starts = {starts:,}"

    @property
    def priorities(self) -> Prioritized | None:
        """How transitions are preferred; None: all alike."""
        how = self.replay  # type: ignore[attr-defined]
        return how if isinstance(how, Prioritized) else None


@dataclass(frozen=True)
class ActorCriticNet(Net):
    """The network of a policy, and that of each critic, which reads the action as well."""

    hidden: tuple[Annotated[int, Limits(1, 2**14)], ...] = (256, 256)
    """widths of the fully connected layers, after the convolutions if there are any"""


@dataclass(frozen=True)
class ActorCritic(Replayed):
    """The settings that sac and td3 have in common."""

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
