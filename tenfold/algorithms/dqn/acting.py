"""How an actor of Q-learning acts: what it sees, how it explores, what it adds to a row."""

import numpy as np

from tenfold.algorithms.dqn.agent import DQNAgent
from tenfold.algorithms.dqn.engines import why_not_fused
from tenfold.algorithms.dqn.fused_acting import FusedActing
from tenfold.config.run import Run
from tenfold.envs.adapter import Environments
from tenfold.memory.frames import Seen


class QActing:
    """Explores by the agent's networks, in one compiled call where that can be."""

    def __init__(self, run: Run, agent: DQNAgent, envs: Environments) -> None:
        self.agent, self.seen = agent, Seen(agent.frames, envs)
        compiled = agent.members == 1 and run.engine != "plain" and not why_not_fused(agent)
        self.explore = FusedActing(agent, envs.num_envs) if compiled else agent.explore

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments; those of the agent go into the row."""
        row["action"][:] = self.explore(self.seen.rows, step, rounds)
        return row["action"] + self.agent.actions.start

    def stepped(self) -> None:
        """After a step of the environments."""
        self.seen.step()

    def state(self) -> dict[str, np.ndarray]:
        return self.seen.state()

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        self.seen.restore(state, exact)
