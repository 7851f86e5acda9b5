"""Learners without a replay memory, lockstep or returns of episodes: of the interface `Learner`
they leave empty what these need."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tenfold.core.protocols import Arrays
from tenfold.core.system import Clock
from tenfold.envs.adapter import Episode

if TYPE_CHECKING:
    from tenfold.config.run import Run


class BareLearner:
    """The agent of one run and the counter of its steps. A subclass has the rounds, what they
    tell, and the state."""

    rows = None
    lockstep = None
    tells_episodes = False

    def __init__(self, run: "Run", agent: Any) -> None:
        self.run, self.agent, self.config = run, agent, agent.config
        self.clock, self.step = Clock(), 0
        self.notices: list[str] = []
        self.warnings: list[str] = []

    def warm_up(self) -> None:
        """There is nothing to compile."""

    def settle(self) -> list[Episode]:
        return []

    def begin_with(self, state: Arrays) -> None:
        """Weights of another run, where the agent can take them (`training.loop` asks)."""
        self.agent.begin_with(state)

    def time_every_round(self) -> None:
        """Every round is timed as it is."""

    def load_rows(self, rows: dict[str, np.ndarray]) -> None:
        """It has none."""

    def close(self) -> None:
        """Nothing is open."""
