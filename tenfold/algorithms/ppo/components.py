"""What a policy earned by components of the reward, and what it did in numbers: means and
deviations between two reports."""

import numpy as np
import torch

from tenfold.algorithms.ppo.agent import PPOAgent, Tensors
from tenfold.memory.rollout import Rollout


class PartsRecord:
    """Sums over the rows of every rollout: of each component, and of each named number of the
    action."""

    def __init__(
        self,
        agent: PPOAgent,
        rollout: Rollout,
        components: tuple[str, ...],
        numbers: tuple[str, ...],
    ) -> None:
        self.agent, self.rollout = agent, rollout
        self.names = (
            *(f"reward/{name}" for name in components),
            *(f"action/{name}" for name in numbers),
        )
        self.sums = np.zeros((3, len(self.names)))  # how many, Σ, Σ of squares

    def note(self) -> None:
        """Takes a full rollout in."""
        rollout = self.rollout
        there = rollout.weight.reshape(-1, 1) > 0
        parts = rollout.rewards[..., 1:].reshape(len(there), -1) / rollout.scale
        each = [(parts[:, k : k + 1], there) for k in range(parts.shape[1])]
        each += self.numbers(there)
        for place, (values, counted) in enumerate(each):
            own = values[np.broadcast_to(counted, values.shape)].astype(np.float64)
            self.sums[:, place] += own.size, own.sum(), (own * own).sum()

    def numbers(self, there: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each named number its values and which of them count; where every node chooses, first
        the share that chose the last option, then the numbers of those that their option was taken
        for."""
        rollout, actions = self.rollout, self.agent.actions
        rows, c = len(there), len(actions.sizes)
        real = self.agent.bounded(rollout.real.reshape(rows, -1))
        if not actions.gates:
            return [(real[:, d : d + 1], there) for d in range(real.shape[1])]
        mask, chosen = rollout.mask.reshape(rows, c, -1), rollout.chosen.reshape(rows, c)
        width = real.shape[1] // c
        taken = (
            np.take_along_axis(mask, chosen[..., None], 2)[..., 0]
            & there
            & (chosen == actions.gates[0] % mask.shape[2])
        )
        shares = [((chosen == mask.shape[2] - 1).astype(np.float64), mask.any(2) & there)]
        return shares + [(real[:, d::width], taken) for d in range(width)]

    def statistics(self) -> dict[str, float]:
        """Means and deviations since the last call."""
        count, total, square = np.maximum(self.sums[0], 1), self.sums[1], self.sums[2]
        mean = total / count
        spread = np.sqrt(np.maximum(square / count - mean**2, 0))
        told = bool(self.sums[0].any())
        self.sums[:] = 0
        found = {name: float(m) for name, m in zip(self.names, mean, strict=True)}
        return (
            found | {f"{name}/std": float(s) for name, s in zip(self.names, spread, strict=True)}
            if told
            else {}
        )

    def state(self) -> Tensors:
        return {"parts": torch.from_numpy(self.sums)}

    def load_state(self, state: Tensors) -> None:
        self.sums[:] = state["parts"].numpy()
