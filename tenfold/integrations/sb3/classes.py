"""The eight classes: what differs between them beside their arguments (`signatures`)."""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature
from typing import Any, ClassVar, TypeVar

import gymnasium as gym

from tenfold.core.errors import ConfigError
from tenfold.integrations.sb3 import persistence
from tenfold.integrations.sb3.buffers import ReplayView, RolloutView
from tenfold.integrations.sb3.callbacks import Schedule
from tenfold.integrations.sb3.model import SB3Model
from tenfold.integrations.sb3.saving import load_replay
from tenfold.integrations.sb3.signatures import CONSTRUCTORS, learn_arguments, signature

Kind = TypeVar("Kind", bound=type[SB3Model])


def with_signatures(kind: Kind) -> Kind:
    """Gives a class the arguments of Stable-Baselines3's of the same name, for help and editors."""
    kind.class_name = name = kind.__name__
    kind.__init__ = showing(kind.__init__, signature(CONSTRUCTORS[name]))  # type: ignore[method-assign]
    kind.learn = showing(kind.learn, signature(learn_arguments(name)))  # type: ignore[method-assign]
    return kind


def showing(method: Callable[..., Any], form: Signature) -> Callable[..., Any]:
    """A method that shows this signature."""

    @wraps(method)
    def call(self: Any, *positional: Any, **named: Any) -> Any:
        return method(self, *positional, **named)

    first = Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)
    call.__signature__ = form.replace(parameters=[first, *form.parameters.values()])  # type: ignore[attr-defined]
    return call


class OnPolicyModel(SB3Model):
    """PPO and its kin."""

    on_policy = True
    action_spaces = (
        gym.spaces.Box,
        gym.spaces.Discrete,
        gym.spaces.MultiDiscrete,
        gym.spaces.MultiBinary,
    )

    @property
    def rollout_buffer(self) -> RolloutView | None:
        return RolloutView(self.learner) if self.learner else None


class ReplayModel(SB3Model):
    """Algorithms with a replay memory."""

    on_policy = False
    action_spaces = (gym.spaces.Box,)
    stores_scaled = True
    draws_actions: ClassVar[bool] = False  # whether the policy is drawn from
    save_replay_buffer = persistence.save_replay_buffer

    def load_replay_buffer(self, path: Any, truncate_last_traj: bool = True) -> None:
        """Takes over a saved replay memory. Episodes in it that had not ended go on nowhere."""
        if not truncate_last_traj:
            raise ConfigError(
                "truncate_last_traj",
                "= False is not possible: the environments are elsewhere now; leave it out.",
            )
        self.open_learner(Schedule(None, self.n_envs), restart=False)
        load_replay(path, self.learner)

    @property
    def replay_buffer(self) -> ReplayView | None:
        return ReplayView(self.learner) if self.learner else None


class ExplorationRate:
    """The share of random actions, as an attribute."""

    action_spaces = (gym.spaces.Discrete,)
    stores_scaled = False
    num_timesteps: int
    agent: Any
    rate: tuple[int, float] | None = None  # set by the script, and at which step

    @property
    def exploration_rate(self) -> float:
        """Before training 0."""
        if self.rate is not None and self.rate[0] == self.num_timesteps:
            return self.rate[1]
        if not self.num_timesteps:
            return 0.0
        return float(self.agent.exploring(self.num_timesteps)["epsilon"])

    @exploration_rate.setter
    def exploration_rate(self, rate: float) -> None:
        self.rate = self.num_timesteps, float(rate)


@with_signatures
class PPO(OnPolicyModel):
    """Proximal policy optimisation."""


@with_signatures
class MaskablePPO(OnPolicyModel):
    """PPO whose policy leaves out the actions that `action_masks()` of the environment forbids."""

    action_spaces = (gym.spaces.Discrete, gym.spaces.MultiDiscrete, gym.spaces.MultiBinary)
    masking = True
    use_masking = True

    def train(self, *, use_masking: bool, **arguments: Any) -> None:  # type: ignore[override]
        """Without `use_masking` every action is allowed."""
        self.use_masking = use_masking
        super().train(**arguments)

    def open_learner(self, schedule: Schedule, restart: bool) -> None:
        if self.source:
            self.source.mask(self.use_masking)
        super().open_learner(schedule, restart)

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> Any:
        """As PPO's, of the actions that are allowed."""
        return self.predictor(observation, state, episode_start, deterministic, action_masks)


@with_signatures
class RecurrentPPO(OnPolicyModel):
    """PPO whose policy remembers."""


@with_signatures
class DQN(ExplorationRate, ReplayModel):
    """Q-learning with a replay memory and a target network."""


@with_signatures
class QRDQN(ExplorationRate, ReplayModel):
    """Q-learning of quantiles of the return."""


@with_signatures
class SAC(ReplayModel):
    """Soft actor-critic."""

    draws_actions = True

    def make_agent(self, total: int = 1_000_000) -> None:
        super().make_agent(total)
        self.target_entropy = float(self.agent.target_entropy)

    @property
    def log_ent_coef(self) -> Any:
        """The logarithm of the temperature, as a tensor."""
        return self.agent.log_alpha.detach()


@with_signatures
class TD3(ReplayModel):
    """Twin delayed deterministic policy gradient."""


@with_signatures
class DDPG(ReplayModel):
    """Deep deterministic policy gradient."""
