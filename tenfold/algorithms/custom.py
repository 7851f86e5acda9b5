"""Custom algorithms: networks, how they act, and what they learn from a rollout.

    class Reinforce(ten.Algorithm):
        config = Config

        def build(self, spec, config):
            self.policy = ten.nets.mlp(spec.layout.size, (64, 64), spec.options)

        def act(self, obs, draw):
            return ten.ops.categorical_sample(self.policy(obs), draw)

        def round(self, rollout):
            …
            return self.step(loss)

`tenfold train my_module:Reinforce --env CartPole-v1` trains it. Flags and help for its settings,
evaluation, checkpoints, exact resume, seeds, actors, the report and the metrics come with it. One
that learns from a replay memory derives from `OffPolicy`, and writes `update(batch)` in place of
`round(rollout)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.config.agent_config import AgentConfig
from tenfold.config.options import ActorCriticConfig
from tenfold.config.schedules import value_at
from tenfold.core import protocols
from tenfold.core.protocols import EnvSpec
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key
from tenfold.core.registry import deferred

if TYPE_CHECKING:
    from tenfold.algorithms.custom_learner import CustomActing, CustomAgent
    from tenfold.algorithms.custom_off_policy import CustomOffPolicyAgent
    from tenfold.config.run import Run
    from tenfold.envs.adapter import Environments

Metrics = Mapping[str, float | torch.Tensor]  # of a round, for the log


@dataclass(frozen=True)
class Rollout:
    """T steps of B environments as tensors [T, B, …].

    `next_obs` is the TRUE next observation, at an episode's end its last one. `terminated` and
    `truncated` are never the same: value counts beyond a time limit. `boundary` is 1 where an
    episode ended for any reason; `weight` is 0 for rows that are no transition.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    terminated: torch.Tensor
    truncated: torch.Tensor
    boundary: torch.Tensor
    weight: torch.Tensor
    next_obs: torch.Tensor


class Draw:
    """Random numbers for B rows, each by its own address, so that a run can be repeated and
    resumed."""

    def __init__(self, seed: int, member: int, address: np.ndarray, device: torch.device) -> None:
        self.seed, self.member, self.address, self.device = seed, member, address, device
        self.calls = 0

    def uniform(self, size: int = 1) -> torch.Tensor:
        """[B, size] in [0, 1)."""
        return self.fill(fill_uniform, Purpose.ACTION, np.empty((len(self.address), size)))

    def normal(self, size: int = 1) -> torch.Tensor:
        """[B, size] from the standard normal distribution."""
        out = np.empty((len(self.address), size), np.float32)
        return self.fill(fill_normal, Purpose.NOISE_ACT, out)

    def fill(self, fill: Any, purpose: Purpose, out: np.ndarray) -> torch.Tensor:
        stream = key(self.seed, purpose, self.member + (self.calls << 48))
        self.calls += 1  # a second call in one action draws other numbers
        for row, address in zip(out, self.address.tolist(), strict=True):
            fill(stream, address * row.size, row)
        return torch.from_numpy(out).float().to(self.device)


class Algorithm:
    """Derive from it, and write `config`, `build`, `act` and `round`."""

    config: type[AgentConfig] = AgentConfig
    horizon = 128  # steps of every environment in a rollout, where the settings have no `horizon`
    spec: EnvSpec
    settings: Any
    agent: "CustomAgent"

    def build(self, spec: EnvSpec, config: Any) -> None:
        """Makes the networks, as attributes. Random numbers of torch are seeded by the run. What is
        to be saved besides parameters is a buffer of a network (`register_buffer`)."""
        raise NotImplementedError("write it")

    def act(self, obs: torch.Tensor, draw: Draw | None) -> torch.Tensor:
        """Actions [B] (0 … n − 1) or [B, D] for observations [B, …]; without `draw` the best ones.
        The same function explores, evaluates and is loaded."""
        raise NotImplementedError("write it")

    def round(self, rollout: Rollout) -> Metrics:
        """Learns from a rollout; returns numbers for the log. Torch's random numbers are seeded."""
        raise NotImplementedError("write it")

    def exploring(self, step: int) -> dict[str, float]:
        """For the log: what sets the exploration at this step."""
        return {}

    def step(self, loss: torch.Tensor, **more: float | torch.Tensor) -> Metrics:
        """One update: gradient, clipping by settings.clip_norm if there is one, Adam with
        settings.lr."""
        return {"loss": loss.detach(), "grad_norm": self.agent.learn(loss), **more}

    def now(self, schedule: Any) -> float:
        """The number that a schedule among the settings has at this step."""
        return value_at(schedule, self.agent.at)

    @classmethod
    def configured(cls, **settings: Any) -> AgentConfig:
        """Its settings, for `ten.Run(agent=Reinforce.configured(lr=1e-3))`."""
        return cls.config(name=f"{cls.__module__}:{cls.__qualname__}", **settings)

    @classmethod
    def family(cls, name: str) -> "CustomFamily":
        """The class as the registry has algorithms, under the name module:Name."""
        return CustomFamily(cls, name)


@dataclass(frozen=True)
class Transitions:
    """A batch of B transitions from the replay memory, as tensors [B, …].

    `reward` is the sum of n_step discounted rewards, `discount` what the value of `next_obs` counts
    for: γⁿ, 0 where the episode terminated, never at a time limit. `weight` corrects for
    priorities; else it is 1.
    """

    obs: torch.Tensor
    action: torch.Tensor
    reward: torch.Tensor
    discount: torch.Tensor
    next_obs: torch.Tensor
    weight: torch.Tensor


class OffPolicySettings(ActorCriticConfig, AgentConfig):
    """The settings of a custom off-policy algorithm, which derive from it: batches, the
    replay memory, when updates are made, the learning rate."""


class OffPolicy(Algorithm):
    """Derive from it, and write `config`, `build`, `act` and `update`. Actions are 0 … n − 1, or
    numbers from −1 to 1, which are scaled to the environment's bounds; until learning starts they
    are uniformly random."""

    config: type[AgentConfig] = OffPolicySettings
    agent: "CustomOffPolicyAgent"  # type: ignore[assignment]

    def update(self, batch: Transitions) -> Metrics:
        """Learns from a batch; returns numbers for the log, and as `td_error` [B] what priorities
        are made of. Torch's random numbers are seeded."""
        raise NotImplementedError("write it")

    def step(self, loss: torch.Tensor, *modules: Any, **more: float | torch.Tensor) -> Metrics:
        """A step of Adam by a loss, for these networks alone (none: for all), all others as they
        are: settings.lr, clipped by settings.clip_norm if there is one."""
        return {"loss": loss.detach(), "grad_norm": self.agent.learn(loss, modules), **more}

    @torch.no_grad()
    def follow(self, target: Any, online: Any, tau: float) -> None:
        """A target network moves towards a learned one: θ' ← θ' + τ(θ − θ')."""
        flat, place_of = self.agent.online.flat, self.agent.place_of
        flat[place_of(target)].lerp_(flat[place_of(online)], tau)

    @classmethod
    def family(cls, name: str) -> "CustomOffPolicyFamily":  # type: ignore[override]
        return CustomOffPolicyFamily(cls, name)


class CustomFamily(protocols.AlgorithmSpec):
    """A custom algorithm as the registry has algorithms: how the parts of a run are made."""

    on_policy = normalises = True
    make_learner = deferred("tenfold.algorithms.custom_learner:CustomLearner")
    exported = deferred("tenfold.algorithms.custom_learner:CustomPolicy")

    def __init__(self, kind: type[Algorithm], name: str) -> None:
        self.kind, self.name, self.config = kind, name, kind.config

    def make_agent(self, run: "Run", spec: EnvSpec) -> "CustomAgent":
        from tenfold.algorithms.custom_learner import CustomAgent

        return CustomAgent(self.kind(), run, spec)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        from tenfold.algorithms.custom_learner import action_form

        shape, dtype = action_form(envs.action_space, run.env)
        return {"action": ((envs.num_envs, *shape), dtype)}

    def make_acting(self, run: "Run", agent: "CustomAgent", envs: "Environments") -> "CustomActing":
        from tenfold.algorithms.custom_learner import CustomActing

        return CustomActing(agent, envs)


class CustomOffPolicyFamily(protocols.AlgorithmSpec):
    """What `CustomFamily` is, for an off-policy algorithm."""

    make_learner = deferred("tenfold.algorithms.off_policy:OffPolicyLearner")
    overlaps = True
    exported = deferred("tenfold.algorithms.custom_off_policy:CustomOffPolicyModule")

    def __init__(self, kind: type[OffPolicy], name: str) -> None:
        self.kind, self.name, self.config = kind, name, kind.config

    def make_agent(self, run: "Run", spec: EnvSpec) -> "CustomOffPolicyAgent":
        from tenfold.algorithms.custom_off_policy import CustomOffPolicyAgent
        from tenfold.algorithms.off_policy_settings import check_spec

        check_spec(run, spec)
        return CustomOffPolicyAgent(self.kind(), run, spec)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        from tenfold.algorithms.custom_off_policy import actions_of

        reals, lanes = actions_of(envs.action_space, run.env, self.name).reals, envs.num_envs
        return {"action": ((lanes, reals), "float32") if reals else ((lanes,), "int64")}

    def make_acting(self, run: "Run", agent: Any, envs: "Environments") -> Any:
        from tenfold.algorithms.off_policy import OffPolicyActing

        return OffPolicyActing(agent, envs)
