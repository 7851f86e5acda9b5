"""What only some runs of PPO need: counterfactual baselines, KL divergences in closed form on
graphs, statistics of reward components."""

from typing import Any

import numpy as np
import torch

from tenfold.algorithms.agent import Tensors
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import RolloutBuffer
from tenfold.ops import counterfactual

OUTPUT_ROWS = 512  # of one forward pass over a rollout of graphs


@torch.no_grad()
def old_outputs(agent: Any, rows: torch.Tensor) -> torch.Tensor:
    """The network's output for all rows of a phase, before it learns."""
    chunks = rows.split(OUTPUT_ROWS)
    return torch.cat([agent.online(agent.to_net(chunk))[0] for chunk in chunks])


@torch.no_grad()
def counterfactual_rows(agent: Any, rows: Tensors, normalize: bool) -> Tensors:
    """Advantage Q(s, a) − bᵢ and log-probability of each component [rows, C] under the acting
    policy, of a whole phase (Foerster et al., 2018)."""
    batch = {name: value.to(agent.device) for name, value in rows.items()}
    batch["obs"] = agent.to_net(batch["obs"])
    heads, online = agent.distribution.heads, agent.online
    first, mask = online.critic.layers[0], batch.get("mask")
    hidden = first(agent.with_action(batch))
    logits = online.policy(online.scaled(batch["obs"]))
    weight = first.weight[:, batch["obs"].shape[1] :]
    values = counterfactual.counterfactual_values(
        heads, hidden, weight, batch["chosen"], online.critic.rest
    )
    baselines = counterfactual.baselines(heads, logits, values, mask)
    advantage = counterfactual.advantages(online.critic.rest(hidden).squeeze(-1), baselines)
    if normalize:
        weight = batch["weight"][:, None].expand_as(advantage)
        if mask is not None:
            weight = weight * heads.present(mask)  # absent components have no advantage
        weight = weight / weight.sum().clamp(min=1)
        mean = (weight * advantage).sum()
        deviation = (weight * (advantage - mean).square()).sum().sqrt()
        advantage = (advantage - mean) / (deviation + 1e-8)
    return {"advantage": advantage, "log_p": heads.log_prob(logits, batch["chosen"], mask)}


class ComponentRecord:
    """Means and deviations over the rows of every rollout: of each reward component, and of each
    named number of the action."""

    def __init__(self, agent: Any, rollout: RolloutBuffer, envs: Environments) -> None:
        self.agent, self.rollout = agent, rollout
        self.has_numbers = bool(envs.action_names)
        self.names = (
            *(f"reward/{name}" for name in envs.component_names),
            *(f"action/{name}" for name in envs.action_names),
        )
        self.sums = np.zeros((3, len(self.names)))  # how many, Σ, Σ of squares

    def add_rollout(self) -> None:
        """Counts a full rollout."""
        rollout = self.rollout
        counts = rollout.weight.reshape(-1, 1) > 0
        rewards = rollout.rewards[..., 1:].reshape(len(counts), -1) / rollout.scale
        columns = [(rewards[:, k : k + 1], counts) for k in range(rewards.shape[1])]
        columns += self.numbers(counts) if self.has_numbers else []
        for column, (values, counted) in enumerate(columns):
            rows = values[np.broadcast_to(counted, values.shape)].astype(np.float64)
            self.sums[:, column] += rows.size, rows.sum(), (rows * rows).sum()

    def numbers(self, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each named number its values and which of them count; where every node chooses, first
        the share that chose the last option, then the numbers of those that their option was taken
        for."""
        rollout, actions = self.rollout, self.agent.actions
        rows, c = len(counts), len(actions.sizes)
        real = self.agent.bounded(rollout.real.reshape(rows, -1))
        if not actions.gates:
            return [(real[:, d : d + 1], counts) for d in range(real.shape[1])]
        mask, discrete = rollout.mask.reshape(rows, c, -1), rollout.chosen.reshape(rows, c)
        width, options = real.shape[1] // c, mask.shape[2]
        allowed = np.take_along_axis(mask, discrete[..., None], 2)[..., 0]
        gated = allowed & counts & (discrete == actions.gates[0] % options)
        shares = [((discrete == options - 1).astype(np.float64), mask.any(2) & counts)]
        return shares + [(real[:, d::width], gated) for d in range(width)]

    def statistics(self) -> dict[str, float]:
        """Means and deviations since the last call."""
        count, total, square = np.maximum(self.sums[0], 1), self.sums[1], self.sums[2]
        mean = total / count
        deviation = np.sqrt(np.maximum(square / count - mean**2, 0))
        empty = not self.sums[0].any()
        self.sums[:] = 0
        if empty:
            return {}
        means = {name: float(m) for name, m in zip(self.names, mean, strict=True)}
        pairs = zip(self.names, deviation, strict=True)
        return means | {f"{name}/std": float(d) for name, d in pairs}

    def state(self) -> Tensors:
        return {"parts": torch.from_numpy(self.sums)}

    def load_state(self, state: Tensors) -> None:
        self.sums[:] = state["parts"].numpy()
