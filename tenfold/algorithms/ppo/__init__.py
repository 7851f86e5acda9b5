"""Proximal policy optimisation."""

from typing import TYPE_CHECKING, Any

from tenfold.config.run import PPO
from tenfold.core.protocols import Algorithm

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluator, Learner


class PolicyOptimisation(Algorithm):
    """PPO for any kind of action."""

    name = "ppo"
    config = PPO
    reads_masks = True

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        raise NotImplementedError

    def make_learner(self, run: "Run") -> "Learner":
        raise NotImplementedError

    def make_evaluator(self, run: "Run") -> "Evaluator":
        raise NotImplementedError


ALGORITHMS = (PolicyOptimisation(),)
