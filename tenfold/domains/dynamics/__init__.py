"""Hidden dynamics, learned by experiments or from recordings."""

from typing import TYPE_CHECKING, Any

from tenfold.core.protocols import Algorithm, Command, Domain
from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import Evaluator, Learner
    from tenfold.runs.reporter import Reporter


class ActiveLearning(Algorithm):
    """The explorer: experiments chosen by what they would teach, or recordings as they are."""

    name = "explorer"
    config = Explorer
    reads_masks = True

    def untrained(self, run: "Run") -> Any:
        from tenfold.domains.dynamics.recording import is_recording

        if is_recording(run.env):
            from tenfold.domains.dynamics.offline import offline_agent

            return offline_agent(run)
        from tenfold.domains.dynamics.learner import make_explorer, make_members

        return make_explorer(run, make_members(run))

    def make_learner(self, run: "Run") -> "Learner":
        from tenfold.domains.dynamics.recording import is_recording

        if is_recording(run.env):
            from tenfold.domains.dynamics.offline import RecordingLearner

            return RecordingLearner(run)
        from tenfold.domains.dynamics.learner import ExplorerLearner

        return ExplorerLearner(run)

    def make_evaluator(self, run: "Run") -> "Evaluator":
        from tenfold.domains.dynamics.evaluator import ModelEvaluator

        return ModelEvaluator(run)

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
