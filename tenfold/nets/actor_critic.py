"""A policy and the critics that value its actions, on one flat buffer: policy, first critic, second
critic, logarithm of the temperature."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from tenfold.config.options import Net
from tenfold.core.random import Purpose, fill_uniform, key
from tenfold.nets.flat import FlatModule
from tenfold.nets.layers import Layer
from tenfold.nets.policy import Tower


@dataclass(frozen=True)
class Sizes:
    """Sizes of the inputs and outputs of the networks."""

    shape: tuple[int, ...]  # of an observation
    policy_outputs: int  # numbers the policy gives for one
    reals: int  # of an action, which critics read beside it
    values: int  # that a critic has for one
    critics: int = 2
    scale: float = 1.0  # of observations


class Temperature(nn.Module):
    """What entropy is worth, by its logarithm."""

    def __init__(self) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.zeros(1))


class ActorCritics(FlatModule):
    """Observation [B, *shape] and action [B, reals] -> the critics' values [critics, B, values];
    `policy_output`: observation -> [B, policy_outputs]. A target may have critics alone."""

    def __init__(
        self, sizes: Sizes, net: Net, actor: bool = True, temperature: bool = False
    ) -> None:
        super().__init__()
        self.size = sizes
        self.actor: Any = Tower(sizes.shape, sizes.policy_outputs, net) if actor else None
        self.critics = nn.ModuleList(
            Tower(sizes.shape, sizes.values, net, sizes.reals) for _ in range(sizes.critics)
        )
        self.temperature: Any = Temperature() if temperature else None
        self.flatten()
        lengths = [
            (name, sum(p.numel() for p in part.parameters()))
            for name, part in self.named_children()
        ]
        ends = np.cumsum([length for _, length in lengths]).tolist()
        # where each part lies in the flat buffer
        self.places = {
            name: slice(end - length, end)
            for (name, length), end in zip(lengths, ends, strict=True)
        }

    def initialise(self, seed: int, temperature: float = 1.0) -> "ActorCritics":
        """Weights and biases uniform within ±1/√inputs (torch's default)."""
        numbers = fill_uniform(key(seed, Purpose.INIT), 0, np.empty(self.flat.numel()))
        with torch.no_grad():
            self.flat.copy_(torch.from_numpy(numbers))
            for layer in self.modules():
                if isinstance(layer, Layer):
                    for parameter in (layer.weight, layer.bias):
                        parameter.mul_(2).sub_(1).mul_(layer.bound)
            if self.temperature:
                self.temperature.log.fill_(math.log(temperature))
        return self

    def forward(self, obs: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        """The critics' values."""
        x = self.scaled(obs)
        return torch.stack([critic(x, action) for critic in self.critics])

    def policy_output(self, obs: torch.Tensor) -> torch.Tensor:
        """The policy's."""
        return self.actor(self.scaled(obs))

    def first_values(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        """Those of the first critic alone [B, values]."""
        return self.critics[0](self.scaled(obs), action)

    def scaled(self, obs: torch.Tensor) -> torch.Tensor:
        x = obs.to(self.flat.dtype)
        return x * self.size.scale if self.size.scale != 1.0 else x


class StackedTowers(FlatModule):
    """Towers of one shape as one, on a buffer that holds one after another."""

    def __init__(self, network: ActorCritics, net: Net) -> None:
        super().__init__()
        size, critics = network.size, network.places["critics"]
        self.members = self.many = size.critics
        self.towers = Tower(size.shape, size.values, net, size.reals, size.critics)
        buffers = (
            flat[critics].view(size.critics, -1) for flat in (network.flat, network.flat_grad)
        )
        flat, grad = buffers
        kept = flat.clone()
        self.towers.to(flat.device)
        self.flatten(flat, grad).flat.copy_(kept)

    def forward(self, x: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        inputs = (None if t is None else t.expand(self.many, *t.shape) for t in (x, action))
        return self.towers(*inputs)


class Stacked(nn.Module):
    """`ActorCritics` on the very same buffers, whose critics are one product a layer: fewer kernels
    on a GPU."""

    def __init__(self, network: ActorCritics, net: Net) -> None:
        super().__init__()
        self.network, self.critics = network, StackedTowers(network, net)
        self.actor, self.temperature = network.actor, network.temperature
        self.policy_output = network.policy_output

    def forward(self, obs: torch.Tensor, action: torch.Tensor | None) -> torch.Tensor:
        return self.critics(self.network.scaled(obs), action)

    def first_values(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.network.first_values(obs, action)
