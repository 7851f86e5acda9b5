"""Hidden dynamics, learned by experiments or from recordings."""

from typing import TYPE_CHECKING, Any

from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluator, Learner


class ActiveLearning:
    """The explorer: experiments chosen by what they would teach."""

    name = "explorer"
    config = Explorer
    reads_masks = True

    def make_agent(self, run: "Run", spec: "EnvSpec") -> Any:
        raise NotImplementedError

    def make_learner(self, run: "Run") -> "Learner":
        raise NotImplementedError

    def make_evaluator(self, run: "Run") -> "Evaluator":
        raise NotImplementedError


ALGORITHMS = (ActiveLearning(),)
