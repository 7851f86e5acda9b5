"""Hidden dynamics, learned by experiments or from recordings."""

from typing import TYPE_CHECKING, Any

from tenfold.domains.dynamics.config import Explorer

if TYPE_CHECKING:
    from tenfold.config.run import Run
    from tenfold.core.protocols import Evaluator, Learner


class ActiveLearning:
    """The explorer: experiments chosen by what they would teach, or recordings as they are."""

    name = "explorer"
    config = Explorer
    reads_masks = True
    on_policy = False

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

    def parameter_copies(self, settings: Any) -> int:
        """Its networks are small, and not of the settings' size."""
        return 0


ALGORITHMS = (ActiveLearning(),)
