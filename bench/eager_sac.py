"""One update of soft actor-critic in plain eager PyTorch, as single-file implementations write it.
FROZEN: benchmarks of the update divide by it.

Modules with a head each for means and deviations, `torch.optim.Adam` with its defaults, autograd,
a loop over parameters for the target networks; nothing fused, flat or compiled, and nothing slower
than natural. The order is Stable-Baselines3's: temperature, critics, actor, targets.
"""

import copy
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LOG_STD_MIN, LOG_STD_MAX = -20, 2


def layers(sizes: Sequence[int]) -> list[nn.Module]:
    found: list[nn.Module] = []
    for into, out in pairwise(sizes):
        found += [nn.Linear(into, out), nn.ReLU()]
    return found


class Critic(nn.Module):
    """Q(s, a)."""

    def __init__(self, obs_size: int, dimensions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = (obs_size + dimensions, *hidden)
        self.net = nn.Sequential(*layers(sizes), nn.Linear(sizes[-1], 1))

    def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([obs, action], 1)).squeeze(1)


class Actor(nn.Module):
    """A Gaussian squashed by tanh."""

    def __init__(self, obs_size: int, dimensions: int, hidden: Sequence[int]) -> None:
        super().__init__()
        sizes = (obs_size, *hidden)
        self.trunk = nn.Sequential(*layers(sizes))
        self.mean, self.log_std = (nn.Linear(sizes[-1], dimensions) for _ in range(2))

    def forward(
        self, obs: torch.Tensor, noise: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(action, log π), by given standard normal numbers or torch's own."""
        seen = self.trunk(obs)
        mean = self.mean(seen)
        normal = torch.distributions.Normal(
            mean, self.log_std(seen).clamp(LOG_STD_MIN, LOG_STD_MAX).exp(), validate_args=False
        )
        raw = normal.rsample() if noise is None else mean + normal.scale * noise
        log_slope = 2 * (np.log(2) - raw - F.softplus(-2 * raw))
        return torch.tanh(raw), (normal.log_prob(raw) - log_slope).sum(1)


class EagerSAC:
    def __init__(
        self, obs_size: int, dimensions: int, hidden: Sequence[int], lr: float, tau: float
    ) -> None:
        self.actor = Actor(obs_size, dimensions, hidden)
        self.critics = [Critic(obs_size, dimensions, hidden) for _ in range(2)]
        self.targets = copy.deepcopy(self.critics)
        self.log_alpha = torch.zeros(1, requires_grad=True)
        self.target_entropy, self.tau = -float(dimensions), tau
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=lr)
        both = [p for critic in self.critics for p in critic.parameters()]
        self.critic_optimizer = torch.optim.Adam(both, lr=lr)
        self.alpha_optimizer = torch.optim.Adam([self.log_alpha], lr=lr)

    def update(
        self,
        batch: dict[str, np.ndarray],
        noise: torch.Tensor | None = None,
        next_noise: torch.Tensor | None = None,
    ) -> None:
        """One gradient step of everything.

        obs and next_obs [B, obs_size], action [B, D], reward and discount (γ, or 0 where the
        episode terminated) [B] are float32.
        """
        rows = {name: torch.from_numpy(array) for name, array in batch.items()}
        obs, action = rows["obs"], rows["action"]
        drawn, log_p = self.actor(obs, noise)
        alpha = self.log_alpha.exp().detach()
        alpha_loss = -(self.log_alpha * (log_p + self.target_entropy).detach()).mean()
        self.alpha_optimizer.zero_grad()
        alpha_loss.backward()
        self.alpha_optimizer.step()
        with torch.no_grad():
            next_action, next_log_p = self.actor(rows["next_obs"], next_noise)
            next_q = torch.min(*(target(rows["next_obs"], next_action) for target in self.targets))
            y = rows["reward"] + rows["discount"] * (next_q - alpha * next_log_p)
        critic_loss = sum(0.5 * F.mse_loss(critic(obs, action), y) for critic in self.critics)
        assert isinstance(critic_loss, torch.Tensor)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        q = torch.min(*(critic(obs, drawn) for critic in self.critics))
        actor_loss = (alpha * log_p - q).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        for critic, target in zip(self.critics, self.targets, strict=True):
            for parameter, slow in zip(critic.parameters(), target.parameters(), strict=True):
                slow.data.copy_(self.tau * parameter.data + (1 - self.tau) * slow.data)
