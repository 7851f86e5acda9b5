"""The policy as a module to be exported, with the same functions that act in training."""

import copy
from typing import Any

import torch
from torch import nn

from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.recurrent import RecurrentAgent
from tenfold.nets.graph import GraphNetwork
from tenfold.nets.recurrent import one_step
from tenfold.ops.head_tables import OnEmpty
from tenfold.ops.heads import MaskedHeads
from tenfold.ops.moments import RunningNorm


class Normalised(nn.Module):
    """(x − mean)/√(variance + ε), clipped, as `RunningNorm` has it."""

    mean: torch.Tensor
    inv_std: torch.Tensor

    def __init__(self, norm: RunningNorm) -> None:
        super().__init__()
        self.clip = norm.clip
        self.register_buffer("mean", torch.from_numpy(norm.mean.copy()))
        self.register_buffer("inv_std", torch.from_numpy(norm.inv_std.copy()))

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        away = (rows.flatten(1).double() - self.mean) * self.inv_std
        return away.clamp(-self.clip, self.clip).float().reshape(rows.shape)


def without_checks(heads: MaskedHeads, on_empty: OnEmpty) -> MaskedHeads:
    """A file cannot raise: where a mask allows no option of a component and that is an error here,
    it takes the first."""
    return MaskedHeads(heads.sizes, "absent" if on_empty == "raise" else on_empty, check=False)


class GreedyPolicy(nn.Module):
    """The most probable components, and the means of real numbers."""

    low: torch.Tensor
    high: torch.Tensor

    def __init__(self, agent: PPOAgent) -> None:
        super().__init__()
        own = self.agent = copy.copy(agent)
        self.online = own.online = agent.online.apart()
        self.normalised = Normalised(agent.norm) if agent.norm else nn.Identity()
        if agent.heads:
            self.heads = own.heads = without_checks(agent.heads, agent.config.on_empty)
        if agent.by_node:
            own.by_node = copy.copy(agent.by_node)
            self.node_heads = own.by_node.heads = without_checks(agent.by_node.heads, "absent")
        self.register_buffer("low", torch.tensor(agent.actions.low, dtype=torch.float64))
        self.register_buffer("high", torch.tensor(agent.actions.high, dtype=torch.float64))

    def forward(
        self, rows: torch.Tensor, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        chosen, real = self.choose(self.agent.to_net(self.normalised(rows)), mask, *draws)
        return chosen, self.bounded(real)

    def choose(
        self, rows: Any, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return self.agent.most_probable(rows, mask)

    def bounded(self, real: torch.Tensor) -> torch.Tensor:
        """As `PPOAgent.bounded`."""
        if not self.agent.config.squash:
            return real
        low, high = self.low, self.high
        return low + (high - low) * 0.5 * (real.tanh() + 1)


class DrawnPolicy(GreedyPolicy):
    """Drawn by given numbers: uniform ones for components, normal ones for real numbers."""

    def choose(
        self, rows: Any, mask: torch.Tensor | None, *draws: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        agent, (uniform, normal) = self.agent, draws
        batch = rows.batch if agent.layout.graph else rows.shape[0]
        uniform = torch.zeros(batch, 0) if uniform is None else uniform
        normal = torch.zeros(batch, 0) if normal is None else normal
        if not agent.by_node:
            chosen, real, *_ = agent.chosen_by(rows, mask, uniform, normal)
            return chosen, real
        assert isinstance(agent.online, GraphNetwork)
        if mask is None:
            mask = torch.ones(batch, agent.actions.options, dtype=torch.bool)
        said, _ = agent.online.packed(rows)
        nodes, given = agent.online.size.nodes, (mask, uniform.flatten(), normal.flatten())
        _, chosen, real = agent.by_node.drawn(said, rows, nodes, *given)
        return agent.by_node.padded(rows, nodes, chosen, real)


class RememberedPolicy(GreedyPolicy):
    """The same of a policy that remembers: what it remembers is given [B, state_size], and what it
    remembers then comes out behind the action."""

    def __init__(self, agent: RecurrentAgent, sample: bool) -> None:
        super().__init__(agent)
        self.state_size, self.sample = agent.state_size, sample

    def forward(  # type: ignore[override]
        self,
        rows: torch.Tensor,
        mask: torch.Tensor | None,
        uniform: torch.Tensor | None,
        normal: torch.Tensor | None,
        state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        online: Any = self.online
        agent, shown = self.agent, self.agent.to_net(self.normalised(rows))
        output, after = online.says(one_step(shown, state))
        if not self.sample:
            chosen, real = agent.mode_of(output, mask)
            return chosen, self.bounded(real), after
        uniform = torch.zeros(rows.shape[0], 0) if uniform is None else uniform
        normal = torch.zeros(rows.shape[0], 0) if normal is None else normal
        chosen, real, _ = agent.drawn_from(output, mask, uniform, normal)
        return chosen, self.bounded(real), after
