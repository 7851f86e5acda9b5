"""The greedy policy of Q-learning, to be exported."""

import copy
from typing import Any

import torch
from torch import nn


class QPolicy(nn.Module):
    """To be exported: the action of the highest mean value among those that a mask allows; of a
    team [M, B, …] -> [M, B, 1]. Where nothing is allowed it is the first."""

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
