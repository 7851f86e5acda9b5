"""An algorithm of one's own: networks, how they act, and what they learn from a rollout.

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
evaluation, checkpoints, exact resume, seeds, actors, the report and the metrics come with it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tenfold.config.agent import AgentConfig
from tenfold.config.options import value_at
from tenfold.core import protocols
from tenfold.core.protocols import EnvSpec
from tenfold.core.random import Purpose, fill_normal, fill_uniform, key

if TYPE_CHECKING:
    from tenfold.algorithms.own_learner import OwnActing, OwnAgent, OwnLearner
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
        room = np.empty((len(self.address), size), np.float32)
        return self.fill(fill_normal, Purpose.NOISE_ACT, room)

    def fill(self, how: Any, purpose: Purpose, room: np.ndarray) -> torch.Tensor:
        stream = key(self.seed, purpose, self.member + (self.calls << 48))
        self.calls += 1  # a second call in one action draws other numbers
        for row, address in zip(room, self.address.tolist(), strict=True):
            how(stream, address * row.size, row)
        return torch.from_numpy(room).float().to(self.device)


class Algorithm:
    """Derive from it, and write `config`, `build`, `act` and `round`."""

    config: type[AgentConfig] = AgentConfig
    horizon = 128  # steps of every environment in a rollout, where the settings have no `horizon`
    spec: EnvSpec
    settings: Any
    agent: "OwnAgent"

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
    def family(cls, name: str) -> "OwnFamily":
        """As the package sees it, under the name module:Name."""
        return OwnFamily(cls, name)


class OwnFamily(protocols.Algorithm):
    """How the parts of a run are made for an algorithm of one's own."""

    on_policy = normalises = True

    def __init__(self, kind: type[Algorithm], name: str) -> None:
        self.kind, self.name, self.config = kind, name, kind.config

    def make_agent(self, run: "Run", spec: EnvSpec) -> "OwnAgent":
        from tenfold.algorithms.own_learner import OwnAgent

        return OwnAgent(self.kind(), run, spec)

    def exported(self, agent: "OwnAgent", sample: bool) -> Any:
        from tenfold.algorithms.own_learner import OwnPolicy

        return OwnPolicy(agent, sample)

    def make_learner(self, run: "Run") -> "OwnLearner":
        from tenfold.algorithms.own_learner import OwnLearner

        return OwnLearner(run)

    def row_fields(self, run: "Run", envs: "Environments") -> dict[str, Any]:
        from tenfold.algorithms.own_learner import action_form

        shape, dtype = action_form(envs.action_space, run.env)
        return {"action": ((envs.num_envs, *shape), dtype)}

    def make_acting(self, run: "Run", agent: "OwnAgent", envs: "Environments") -> "OwnActing":
        from tenfold.algorithms.own_learner import OwnActing

        return OwnActing(agent, envs)
