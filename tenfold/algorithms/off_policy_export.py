"""Policies of the algorithms that learn from a replay memory as modules to be exported."""

import copy
from typing import Any

import torch
from torch import nn


class QPolicy(nn.Module):
    """The action of the highest mean value among those that a mask allows; of a team [M, B, …] ->
    [M, B, 1]. Where nothing is allowed it is the first."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.agent = copy.copy(agent)
        self.online = self.agent.online = agent.online.detached_copy()

    def forward(
        self, rows: torch.Tensor, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        values = self.agent.mean_values(rows, None)
        if mask is not None:
            values = torch.where(mask, values, -torch.inf)
        return values.argmax(-1, keepdim=True), values[..., :0]


class GreedyPolicy(nn.Module):
    """Actions without exploration; critics stay behind. Options that a mask forbids are out of the
    question."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, agent: Any) -> None:
        super().__init__()
        self.agent = copy.copy(agent)
        self.online = self.agent.online = agent.online.detached_copy()
        self.online.critics, self.online.temperature = nn.ModuleList(), None
        actions: Any = agent.actions
        if actions.reals:
            self.register_buffer("low", torch.from_numpy(actions.low))
            self.register_buffer("high", torch.from_numpy(actions.high))

    def forward(
        self, rows: torch.Tensor, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output = self.online.policy_output(self.agent.to_net(rows))
        if mask is not None:
            output = torch.where(mask, output, -torch.inf)
        action = self.choose(output, *draws)
        if not self.agent.actions.reals:
            return action[:, None], output[:, :0]
        share, low, high = (action.double() + 1) / 2, self.low, self.high
        return output[:, :0].long(), low + share * (high - low)

    def choose(self, output: torch.Tensor, *draws: torch.Tensor | None) -> torch.Tensor:
        return self.agent.greedy_action(output)


class DrawnPolicy(GreedyPolicy):
    """Drawn by given numbers: a uniform one for a discrete action, normal ones for real numbers."""

    def choose(self, output: torch.Tensor, *draws: torch.Tensor | None) -> torch.Tensor:
        none = output[:, :0]
        uniform, normal = (none if drawn is None else drawn for drawn in draws)
        return self.agent.sample_action(output, uniform, normal)
