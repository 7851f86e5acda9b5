"""Hidden dynamics, learned by experiments or from recordings."""

from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import Algorithm, Command, Domain
from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import EnvSpec, Evaluator, Learner
    from tenfold.runs.reporter import Reporter


class ActiveLearning(Algorithm):
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

    def make_reporter(self) -> "Reporter":
        from tenfold.domains.dynamics.reporter import FitReporter

        return FitReporter()


class Dynamics(Domain):
    """Systems whose state is hidden."""

    name = "dynamics"

    def commands(self) -> tuple[Command, ...]:
        from tenfold.domains.dynamics.commands import COMMANDS

        return COMMANDS


ALGORITHMS = (ActiveLearning(),)
DOMAINS = (Dynamics(),)
