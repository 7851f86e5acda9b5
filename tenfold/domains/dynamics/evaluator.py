"""How a model of hidden dynamics is judged while it trains: on recordings it was not trained on."""

from collections.abc import Callable
from typing import Any

from tenfold.config.run import Run
from tenfold.core.protocols import Evaluated
from tenfold.domains.dynamics.model_metrics import Recordings, judge, random_recordings
from tenfold.domains.dynamics.shortfall import shortfall
from tenfold.runs.folder import RunFolder


class ModelEvaluator:
    """The recordings are made once, when they are first needed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.recordings: Recordings | None = None

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        run = self.run
        self.recordings = self.recordings or random_recordings(run.env, run.eval_episodes)
        found = judge(learner.agent, self.recordings)
        row = {"kind": "fit", "step": learner.step, **found.row()}
        over = learner.step >= run.steps
        return Evaluated(row, found.score, warning=shortfall(row) if over else "")

    def final(self, learner: Any) -> Evaluated | None:
        """Of a run that is over, unless its end has been judged already."""
        run = self.run
        if learner.step < run.steps or not run.eval_every or learner.step % run.eval_every == 0:
            return None
        return self.evaluate(learner, [], bool)

    def draw(self, folder: RunFolder, learner: Any) -> None:
        """What the report shows, as arrays beside it. A run that was stopped before it saw anything
        has nothing to show."""
        from tenfold.domains.dynamics.portrait import write_portrait

        if learner.step:
            write_portrait(folder.path, learner.agent, self.run.env, self.run.eval_episodes)
