"""How a policy is judged while it trains: by episodes of its own."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault
from tenfold.core.given import is_object
from tenfold.core.protocols import Evaluated
from tenfold.core.random import Purpose
from tenfold.envs.making import time_limit
from tenfold.evaluation.player import Allowance, Rota, Score, Stopped, play
from tenfold.runs.folder import RunFolder


class EpisodeEvaluator:
    """Plays episodes of the greedy policy, or of one that draws, as the run says."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        """`lengths` of the latest episodes of training; None where `stop` said so."""
        run = self.run
        length = time_limit(run.world) or math.ceil(fmean(lengths or [0]))
        allowance = Allowance(run.evaluation_steps, min(length, run.episode_limit))
        group = getattr(getattr(learner, "engine", None), "group", None)
        try:
            score = (
                self.play_together(group, learner, allowance, stop)
                if group
                else self.play(learner, allowance, stop)
            )
        except Stopped:
            return None
        row: dict[str, Any] = {
            "kind": "eval",
            "step": learner.step,
            "episodes": score.episodes,
            "mean_return": score.mean_return,
            "std_return": score.std_return,
        }
        if score.success_rate is not None:
            row |= {
                "success_rate": score.success_rate,
                "merit": score.selection_score,
                "mean_length": fmean(score.lengths),
            }
        if score.steps_to_goal is not None:
            row["steps_to_goal"] = score.steps_to_goal
        notice = ""
        if score.cut:
            row["cut"] = score.cut
        if score.cut or score.episodes < run.eval_episodes:
            notice = (
                f"an evaluation takes at most {run.evaluation_steps:,} steps (--eval-steps): this "
                f"one played {score.episodes} of {run.eval_episodes} episodes"
            ) + f", {score.cut} of them cut" * (score.cut > 0)
        return Evaluated(row, score.selection_score, notice)

    def play(self, learner: Any, allowance: Allowance, stop: Callable[[], bool]) -> Score:
        run = self.run
        with borrowed(learner):
            return play(
                run.world,
                learner.agent,
                learner.agent.policy(run.eval_policy),
                run.eval_episodes,
                run.seed,
                Purpose.SELECT,
                run.episode_limit,
                stop,
                allowance,
            )

    def play_together(
        self, group: Any, learner: Any, allowance: Allowance, stop: Callable[[], bool]
    ) -> Score:
        """The same episodes on the device that trains the learner. All are played, and those count
        that there is an allowance for."""
        run, limit = self.run, min(self.run.episode_limit, allowance.steps)
        asked = (run.eval_episodes, limit, Purpose.SELECT, run.eval_policy)
        found = group.evaluate(learner, *asked, stop)
        if found is None:
            raise Stopped
        numbers = Rota(run.eval_episodes, allowance).played(found.lengths.tolist())
        returns, lengths, cut = (part[numbers] for part in found)
        return Score(returns.tolist(), lengths.tolist(), cut=int(cut.sum()))

    def draw(self, folder: RunFolder, learner: Any) -> None:
        """The report has all that it shows."""


@contextmanager
def borrowed(learner: Any) -> Iterator[None]:
    """An environment that is there only once is played with, and then led back to where training
    left it."""
    if not is_object(learner.run.env):
        yield
        return
    left = learner.envs.state()
    yield
    if not learner.envs.restore(left):
        raise EnvironmentFault(
            f"{learner.run.env} is one object, which evaluations borrow, and its episode could not "
            "be repeated afterwards: give a function that makes one, such as env=lambda: MyEnv(), "
            "or set eval_every to 0."
        )
