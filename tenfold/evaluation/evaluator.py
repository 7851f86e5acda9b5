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
from tenfold.evaluation.player import NO_END, Allowance, Rota, Score, Stopped, play
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import read_rows

# steps that an episode without a time limit may take, where all that were set are played, unless
# those of training are longer: then so many times their mean
LONGEST, TIMES = 5_000, 10
DEAR = 0.25  # steps of evaluations to one of training from which on it is said how to have fewer


class EpisodeEvaluator:
    """Plays episodes of the greedy policy, or of one that draws, as the run says."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def bounds(self, lengths: list[int]) -> tuple[int, Allowance]:
        """The steps after which an episode is cut, and what all may take, by the `lengths` of the
        latest episodes of training."""
        run = self.run
        mean = math.ceil(fmean(lengths or [0]))
        end = time_limit(run.world)
        if run.evaluation_steps is None:  # every episode is played
            limit = run.episode_limit if end else min(max(LONGEST, TIMES * mean), run.episode_limit)
            return limit, NO_END
        length, steps = min(end or mean, run.episode_limit), run.evaluation_steps
        if not run.eval_steps:  # one that is usual comes to its end
            steps = max(steps, length if end else 2 * length)
        return run.episode_limit, Allowance(steps, length)

    def cost(self) -> str:
        """What the run's evaluations take, in steps, which are the same on every machine."""
        run = self.run
        if not run.eval_every:
            return ""
        end, episodes = time_limit(run.world), run.evaluation_episodes
        long = min(end or LONGEST, run.episode_limit)
        if run.evaluation_steps is None:
            most, what = episodes * long, f"{episodes:,} episodes of at most {long:,} steps"
        else:
            most = self.bounds([])[1].steps
            most = min(most, episodes * long) if end else most
            what = f"up to {episodes:,} episodes within {most:,} steps"
        count = math.ceil(run.steps / run.eval_every)
        share = count * most / run.steps
        when = "at the end" if count == 1 else f"every {run.eval_every:,} steps and at the end"
        fewer = "; fewer with a larger --eval-every or --eval-episodes of your own" * (share > DEAR)
        return f"evaluations: {when}, {what}, at most {share:.0%} of training's steps{fewer}"

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        """`lengths` of the latest episodes of training; None where `stop` said so."""
        limit, allowance = self.bounds(lengths)
        group = getattr(getattr(learner, "engine", None), "group", None)
        try:
            score = (
                self.play_together(group, learner, limit, allowance, stop)
                if group
                else self.play(learner, limit, allowance, stop)
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
        if score.cut:
            row["cut"] = score.cut
        words = self.shortened(score, min(limit, allowance.steps))
        return Evaluated(row, score.selection_score, words)

    def shortened(self, score: Score, limit: int) -> str:
        """A sentence where less was played than was set; the usual number is said at the start."""
        run = self.run
        fewer = run.eval_episodes is not None and score.episodes < run.eval_episodes
        if not (score.cut or fewer):
            return ""
        cut = f", {score.cut} of them cut" * (score.cut > 0)
        if run.evaluation_steps is None:
            return (
                f"an episode of an evaluation takes at most {limit:,} steps here: this one played "
                f"{score.episodes} episodes{cut}"
            )
        return (
            f"an evaluation takes at most {limit:,} steps (--eval-steps): this one "
            f"played {score.episodes} of {run.evaluation_episodes} episodes{cut}"
        )

    def play(
        self, learner: Any, limit: int, allowance: Allowance, stop: Callable[[], bool]
    ) -> Score:
        run = self.run
        with borrowed(learner):
            return play(
                run.world,
                learner.agent,
                learner.agent.policy(run.eval_policy),
                run.evaluation_episodes,
                run.seed,
                Purpose.SELECT,
                limit,
                stop,
                allowance,
            )

    def play_together(
        self,
        group: Any,
        learner: Any,
        limit: int,
        allowance: Allowance,
        stop: Callable[[], bool],
    ) -> Score:
        """The same episodes on the device that trains the learner. All are played, and those count
        that there is an allowance for."""
        run, limit = self.run, min(limit, allowance.steps)
        asked = (run.evaluation_episodes, limit, Purpose.SELECT, run.eval_policy)
        found = group.evaluate(learner, *asked, stop)
        if found is None:
            raise Stopped
        numbers = Rota(run.evaluation_episodes, allowance).played(found.lengths.tolist())
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


def greedy_is_worse(result: Any, last: dict[str, Any]) -> str:
    """A sentence where the most probable actions return much less than those that training drew:
    by more than two standard errors, and by more than a quarter of the range of what the run has
    been through."""
    run, trained = result.run, result.mean_return
    if run.eval_policy != "greedy" or not run.agent.can_sample or trained is None:
        return ""
    rows = list(read_rows(result.path / "metrics.jsonl", episodes=False))
    means = [row["return"] for row in rows if row["kind"] == "train" and "return" in row]
    means += [row["mean_return"] for row in rows if row["kind"] == "eval"]
    error, spread = last["std_return"] / math.sqrt(last["episodes"]), max(means) - min(means)
    if trained - last["mean_return"] <= max(2 * error, spread / 4):
        return ""
    return (
        f"Note: the greedy policy returned {last['mean_return']:.2f}, and training, which draws "
        f"actions, {trained:.2f}: --eval-policy sampled evaluates the policy as it trains."
    )
