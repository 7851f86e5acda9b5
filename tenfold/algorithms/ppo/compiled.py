"""The compiled engine of policy gradients: a minibatch's forward passes, loss, gradient, clipping
and Adam as one pure function through torch.compile. Any network on the CPU; opt-in, since compiling
takes long. Acting stays as in the plain engine."""

import shutil
from typing import Any

import torch
from torch import nn
from torch.func import functional_call, grad_and_value

from tenfold.algorithms.ppo.agent import PPOAgent, Tensors
from tenfold.algorithms.ppo.plain import PlainPPO
from tenfold.config.schedules import value_at
from tenfold.core.errors import ConfigError
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import Rollout
from tenfold.ops.adam import BETA1, BETA2
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.surrogate import KL


class CompiledPPO(PlainPPO):
    """As the plain engine, but gradient and step are one compiled call."""

    def __init__(self, agent: PPOAgent, rollout: Rollout, envs: Environments) -> None:
        super().__init__(agent, rollout, envs)
        if not shutil.which("g++"):
            raise ConfigError(
                "engine",
                "= compiled needs a C++ compiler, and g++ is not installed: use auto, fused or "
                "plain.",
            )
        if agent.device.type != "cpu":
            raise ConfigError(
                "engine",
                f"= compiled runs on the CPU, and the networks are on {agent.device.type}: use "
                "plain.",
            )
        self.step_parts = torch.compile(pure_update(agent), fullgraph=True, dynamic=False)

    def warm_up(self) -> None:
        """Compiles on rows of zeros; what it returns is thrown away. Minibatches may have two
        sizes."""
        self.rollout.weight[:] = 1
        for part in sorted(
            {self.bounds[p + 1] - self.bounds[p]: p for p in range(len(self.bounds) - 1)}.values()
        ):
            self.call(self.minibatch(part), torch.tensor([1e-3, 0.1, 0.1]))
        self.rollout.weight[:] = 0

    def call(self, batch: Tensors, numbers: torch.Tensor) -> Any:
        agent = self.agent
        return self.step_parts(agent.online.flat, agent.mean, agent.square, batch, numbers)

    def update_once(self, part: int, step: int) -> float:
        agent, config = self.agent, self.agent.config
        agent.count[0] += 1
        numbers = torch.tensor(
            [value_at(config.lr, step), 1 - BETA1**agent.updates, (1 - BETA2**agent.updates) ** 0.5]
        )
        *new, statistics = self.call(self.minibatch(part), numbers)
        for own, value in zip(
            (agent.online.flat, agent.mean, agent.square, agent.online.flat_grad), new, strict=True
        ):
            own.copy_(value)
        added = statistics.tolist()
        self.sums += added
        return added[KL]


class Loss(nn.Module):
    """An agent's loss as a module, so that its parameters can be given. Nothing is checked: acting
    did that."""

    def __init__(self, agent: PPOAgent) -> None:
        super().__init__()
        self.online = agent.online
        self.judge = PPOAgent.__new__(PPOAgent)
        self.judge.__dict__ |= agent.__dict__
        if agent.heads:
            self.judge.heads = MaskedHeads(agent.actions.sizes, "absent", check=False)

    def forward(self, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        return self.judge.loss(batch)


def pure_update(agent: PPOAgent) -> Any:
    """(parameters, moments, minibatch, numbers) -> (parameters, moments, gradient, statistics)."""
    config, module = agent.config, Loss(agent)
    places, used = {}, 0
    for name, parameter in agent.online.named_parameters():
        places[f"online.{name}"] = (used, used + parameter.numel(), parameter.shape)
        used += parameter.numel()

    def loss(flat: torch.Tensor, batch: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        return functional_call(
            module,
            {name: flat[a:b].view(shape) for name, (a, b, shape) in places.items()},
            (batch,),
        )

    def update(
        flat: torch.Tensor,
        mean: torch.Tensor,
        square: torch.Tensor,
        batch: Tensors,
        numbers: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        gradient, (_, statistics) = grad_and_value(loss, has_aux=True)(flat, batch)
        norm = gradient.norm()
        if config.clip_norm:
            gradient = gradient * (config.clip_norm / (norm + 1e-6)).clamp(max=1.0)
        mean = torch.lerp(mean, gradient, 1 - BETA1)
        square = square * BETA2 + gradient * gradient * (1 - BETA2)
        flat = flat - numbers[0] / numbers[1] * mean / (
            square.sqrt() / numbers[2] + config.adam_eps
        )
        return flat, mean, square, gradient, torch.cat([statistics, norm[None], torch.ones(1)])

    return update
