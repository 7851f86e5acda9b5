"""One Q-learning update in plain eager PyTorch, as a practised user writes it. FROZEN: benchmarks
of the update divide by it.

`torch.optim.Adam` with its defaults, modules, autograd; nothing fused, flat or compiled, and
nothing slower than natural.
"""

import copy
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


class EagerDQN:
    def __init__(
        self,
        obs_size: int,
        hidden: Sequence[int],
        actions: int,
        lr: float,
        gamma: float,
        double: bool = False,
        dueling: bool = False,
        huber: bool = False,
        clip_norm: float | None = None,
    ) -> None:
        """`gamma` is for whoever fills a batch's `discount`; the update itself uses only that."""
        layers: list[nn.Module] = []
        for into, out in pairwise((obs_size, *hidden)):
            layers += [nn.Linear(into, out), nn.ReLU()]
        outputs = actions + dueling  # with dueling the first output is V(s), the others A(s, a)
        self.online = nn.Sequential(*layers, nn.Linear((obs_size, *hidden)[-1], outputs))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=lr)
        self.gamma, self.double, self.dueling, self.huber, self.clip_norm = (
            gamma,
            double,
            dueling,
            huber,
            clip_norm,
        )

    def values(self, net: nn.Module, obs: torch.Tensor) -> torch.Tensor:
        """Q(s, a), [B, A]."""
        out = net(obs)
        if not self.dueling:
            return out
        value, advantage = out[:, :1], out[:, 1:]
        return value + advantage - advantage.mean(dim=1, keepdim=True)

    def update(self, batch: dict[str, np.ndarray]) -> np.ndarray:
        """One gradient step; returns |TD error| [B].

        obs and next_obs [B, obs_size], reward, discount (γ, or 0 where the episode terminated) and
        weight [B] are float32, action [B] is int64.
        """
        rows = {name: torch.from_numpy(array) for name, array in batch.items()}
        with torch.no_grad():
            next_values = self.values(self.target, rows["next_obs"])
            if self.double:
                best = self.values(self.online, rows["next_obs"]).argmax(dim=1, keepdim=True)
                next_value = next_values.gather(1, best).squeeze(1)
            else:
                next_value = next_values.max(dim=1).values
            target = rows["reward"] + rows["discount"] * next_value
        predicted = (
            self.values(self.online, rows["obs"]).gather(1, rows["action"].unsqueeze(1)).squeeze(1)
        )
        loss_of = F.huber_loss if self.huber else F.mse_loss
        loss = (rows["weight"] * loss_of(predicted, target, reduction="none")).mean()
        self.optimizer.zero_grad()
        loss.backward()
        if self.clip_norm is not None:
            nn.utils.clip_grad_norm_(self.online.parameters(), self.clip_norm)
        self.optimizer.step()
        return (target - predicted.detach()).abs().numpy()

    def sync_target(self) -> None:
        self.target.load_state_dict(self.online.state_dict())
