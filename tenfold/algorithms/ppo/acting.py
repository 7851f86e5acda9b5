"""How an actor of PPO acts: it draws from the policy, and notes probability and value."""

import numpy as np

from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.envs.adapter import Environments


class PPOActing:
    """Draws actions; components, numbers, log-probability and value go into the row."""

    def __init__(self, agent: PPOAgent, envs: Environments) -> None:
        self.agent, self.envs = agent, envs

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments."""
        agent, envs = self.agent, self.envs
        found = agent.explore(agent.normalised(envs.obs), envs.mask, rounds)
        for name, value in zip(("chosen", "real", "log_p", "value"), found, strict=True):
            row[name][...] = value
        return agent.for_env(row["chosen"], row["real"])

    def stepped(self) -> None:
        """It sees what the environments show."""

    def state(self) -> dict[str, np.ndarray]:
        return {}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """There is nothing to restore."""
