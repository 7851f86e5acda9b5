"""An agent of bench/peers/usual_actors.py: IQN with noisy layers and dueling heads in eager
PyTorch, an optimiser of its own."""

import copy
import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Setting:
    """What decides the work; the same numbers go to tenfold."""

    env: str = "tenfold/TreasureSmall-v0"
    actors: int = 2
    every: int = 10  # environment steps for an update of every agent
    batch, hidden, cosines, samples, acting, frames, n_step = 32, 64, 64, 12, 32, 5, 3
    capacity, starts = 10_000, 1_000
    gamma, lr, tau, clip, sigma = 0.99, 1e-3, 0.005, 1.0, 0.5
    ahead: int = 100  # environment steps that actors may be ahead of the learner


class NoisyLinear(nn.Module):
    """Factorised Gaussian noise on weights and biases."""

    def __init__(self, into: int, out: int, sigma: float) -> None:
        super().__init__()
        bound = 1 / math.sqrt(into)
        self.weight = nn.Parameter(torch.empty(out, into).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(out).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((out, into), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((out,), sigma * bound))
        self.register_buffer("weight_noise", torch.zeros(out, into), persistent=False)
        self.register_buffer("bias_noise", torch.zeros(out), persistent=False)

    def reset_noise(self, drawn: torch.Tensor | None = None) -> None:
        out, into = self.weight.shape
        x = torch.randn(into + out) if drawn is None else drawn
        x = x.sign() * x.abs().sqrt()
        self.weight_noise.copy_(torch.outer(x[into:], x[:into]))
        self.bias_noise.copy_(x[into:])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(
            x,
            self.weight + self.weight_sigma * self.weight_noise,
            self.bias + self.bias_sigma * self.bias_noise,
        )


class IQN(nn.Module):
    """Implicit quantiles with dueling heads: [B, inputs] and fractions [B, N] -> [B, N,
    actions]."""

    def __init__(self, inputs: int, actions: int, setting: Setting) -> None:
        super().__init__()
        sizes = [inputs, setting.hidden, setting.hidden, 1 + actions]
        self.layers = nn.ModuleList(NoisyLinear(i, o, setting.sigma) for i, o in pairwise(sizes))
        self.embedding = nn.Linear(setting.cosines, setting.hidden)
        self.frequency = math.pi * torch.arange(setting.cosines)

    def reset_noise(self) -> None:
        for layer in self.layers:
            layer.reset_noise()  # type: ignore[operator]

    def forward(self, obs: torch.Tensor, fractions: torch.Tensor) -> torch.Tensor:
        features = F.relu(self.layers[0](obs)).unsqueeze(1)
        embedded = F.relu(self.embedding(torch.cos(fractions.unsqueeze(-1) * self.frequency)))
        x = self.layers[2](F.relu(self.layers[1](features * embedded)))
        value, advantage = x[..., :1], x[..., 1:]
        return value + advantage - advantage.mean(-1, keepdim=True)


def loss_of(
    online: IQN,
    target: IQN,
    batch: dict[str, torch.Tensor],
    fractions: torch.Tensor,
    next_fractions: torch.Tensor,
) -> torch.Tensor:
    """Quantile Huber loss of double Q-learning."""
    index = batch["action"][:, None, None].expand(-1, fractions.shape[1], 1)
    predicted = online(batch["obs"], fractions).gather(2, index).squeeze(2)
    with torch.no_grad():
        best = online(batch["next_obs"], next_fractions).mean(1).argmax(1)
        index = best[:, None, None].expand(-1, next_fractions.shape[1], 1)
        following = target(batch["next_obs"], next_fractions).gather(2, index).squeeze(2)
        wanted = batch["reward"][:, None] + batch["discount"][:, None] * following
    error = wanted[:, None, :] - predicted[:, :, None]
    huber = F.huber_loss(error, torch.zeros_like(error), reduction="none")
    return (
        ((fractions[:, :, None] - (error.detach() < 0).float()).abs() * huber).mean(2).sum(1).mean()
    )


class Learner:
    """One agent's networks and optimiser."""

    def __init__(self, inputs: int, actions: int, setting: Setting) -> None:
        self.setting, self.online = setting, IQN(inputs, actions, setting)
        self.target = copy.deepcopy(self.online)
        self.optimiser = torch.optim.Adam(self.online.parameters(), lr=setting.lr)

    def update(self, batch: dict[str, np.ndarray]) -> float:
        setting, rows = (
            self.setting,
            {name: torch.as_tensor(value) for name, value in batch.items()},
        )
        self.online.reset_noise()
        self.target.reset_noise()
        drawn = torch.rand(2, setting.batch, setting.samples)
        loss = loss_of(self.online, self.target, rows, drawn[0], drawn[1])
        self.optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.online.parameters(), setting.clip)
        self.optimiser.step()
        with torch.no_grad():
            for old, new in zip(self.target.parameters(), self.online.parameters(), strict=True):
                old.mul_(1 - setting.tau).add_(setting.tau * new)
        return loss.item()
