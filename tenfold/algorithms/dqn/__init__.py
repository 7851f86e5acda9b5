"""Q-learning."""

from typing import TYPE_CHECKING, Any

from tenfold.config.run import DQN
from tenfold.core.protocols import Algorithm

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluator, Learner


class QLearning(Algorithm):
    """DQN and its relatives."""

    name = "dqn"
    config = DQN
    reads_masks = False

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        raise NotImplementedError

    def make_learner(self, run: "Run") -> "Learner":
        raise NotImplementedError

    def make_evaluator(self, run: "Run") -> "Evaluator":
        raise NotImplementedError


ALGORITHMS = (QLearning(),)
