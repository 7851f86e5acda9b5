"""Evaluates a policy while it trains: by episodes of its own."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import fmean
from typing import Any

from tenfold.config.run import Run
from tenfold.core.errors import EnvironmentFault
from tenfold.core.protocols import Evaluated
from tenfold.core.random import Purpose
from tenfold.core.registry import algorithm
from tenfold.core.user_envs import is_single
from tenfold.envs.making import time_limit
from tenfold.evaluation.player import NO_BUDGET, EpisodeQueue, Score, StepBudget, Stopped, play
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import read_rows

# steps that an episode without a time limit may take, unless `eval_steps` says it or those of
# training are longer: then so many times their mean
LONGEST, TIMES = 5_000, 10
DEAR = 0.25  # steps of evaluations to one of training from which on it is said how to have fewer


class EpisodeEvaluator:
    """Plays episodes of the greedy or the sampled policy, as the run's settings say."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def bounds(self, learner: Any, lengths: list[int]) -> tuple[int, StepBudget]:
        """The step limit of an episode, and the budget of all, from the `lengths` of the latest
        training episodes. Episodes that end by themselves are cut only where the user limits the
        steps: a mean over partial episodes is misleading."""
        run, end = self.run, episode_end(learner)
        mean = math.ceil(fmean(lengths or [0]))
        if run.eval_steps:
            return run.episode_limit, StepBudget(
                run.eval_steps, min(end or mean, run.episode_limit)
            )
        limit = run.episode_limit if end else min(max(LONGEST, TIMES * mean), run.episode_limit)
        if run.evaluation_steps is None:  # every episode is played
            return limit, NO_BUDGET
        length = min(end or mean, limit)
        return limit, StepBudget(max(run.evaluation_steps, length), length, whole=not end)

    def cost(self, learner: Any) -> str:
        """A sentence about the steps that evaluations take, which are the same on every machine."""
        run = self.run
        if not run.eval_every:
            return ""
        end, episodes = episode_end(learner), run.evaluation_episodes
        long = min(end or LONGEST, run.episode_limit)
        if run.evaluation_steps is None:
            most, what = episodes * long, f"{episodes:,} episodes of at most {long:,} steps"
        else:
            most = self.bounds(learner, [])[1].steps
            most = min(most, episodes * long) if end else most
            what = f"up to {episodes:,} episodes within {most:,} steps"
            what += "" if end or run.eval_steps else ", of which the last is played to its end"
        count = math.ceil(run.steps / run.eval_every)
        share = count * most / run.steps
        when = "at the end" if count == 1 else f"every {run.eval_every:,} steps and at the end"
        fewer = "; fewer with a larger --eval-every or --eval-episodes of your own" * (share > DEAR)
        return f"evaluations: {when}, {what}, at most {share:.0%} of training's steps{fewer}"

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        """`lengths` are those of the latest training episodes; None if `stop` returned true."""
        limit, budget = self.bounds(learner, lengths)
        group = getattr(getattr(learner, "engine", None), "group", None)
        try:
            score = (
                self.play_together(group, learner, limit, budget, stop)
                if group
                else self.play(learner, limit, budget, stop)
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
        notice = self.shortened(score, self.run.eval_steps or limit)
        return Evaluated(row, score.selection_score, notice)

    def shortened(self, score: Score, limit: int) -> str:
        """A sentence if fewer episodes were played than requested, or some were cut."""
        run = self.run
        fewer = run.eval_episodes is not None and score.episodes < run.eval_episodes
        if not (score.cut or fewer):
            return ""
        cut = f", {score.cut} of them cut" * (score.cut > 0)
        if not run.eval_steps:
            return (
                f"an episode of an evaluation takes at most {limit:,} steps here: this one played "
                f"{score.episodes} episodes{cut}"
            )
        return (
            f"an evaluation takes at most {limit:,} steps (--eval-steps): this one "
            f"played {score.episodes} of {run.evaluation_episodes} episodes{cut}"
        )

    def play(self, learner: Any, limit: int, budget: StepBudget, stop: Callable[[], bool]) -> Score:
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
                budget,
            )

    def play_together(
        self,
        group: Any,
        learner: Any,
        limit: int,
        budget: StepBudget,
        stop: Callable[[], bool],
    ) -> Score:
        """Plays the same episodes on the device that trains the learner. All are played; those
        within the budget count."""
        run, limit = self.run, limit if budget.whole else min(limit, budget.steps)
        settings = (run.evaluation_episodes, limit, Purpose.SELECT, run.eval_policy)
        episodes = group.evaluate(learner, *settings, stop)
        if episodes is None:
            raise Stopped
        numbers = EpisodeQueue(run.evaluation_episodes, budget).played(episodes.lengths.tolist())
        returns, lengths, cut = (part[numbers] for part in episodes)
        return Score(returns.tolist(), lengths.tolist(), cut=int(cut.sum()))

    def draw(self, folder: RunFolder, learner: Any) -> None:
        """Nothing: the report shows everything."""


@contextmanager
def borrowed(learner: Any) -> Iterator[None]:
    """Restores an environment that exists only once to the state that training left it in."""
    if not is_single(learner.run.env):
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


def episode_end(learner: Any) -> int | None:
    """The time limit of an episode, from the environment's registration, name or wrappers."""
    envs = getattr(learner, "envs", None)
    return time_limit(learner.run.world) or getattr(envs, "time_limit", None)


def greedy_note(result: Any, last: dict[str, Any]) -> str:
    """A note if the greedy policy returns much less than the sampled one did in training: by more
    than two standard errors, and by more than a quarter of the range of all returns."""
    run, trained = result.run, result.mean_return
    if run.eval_policy != "greedy" or not run.agent.can_sample or trained is None:
        return ""
    rows = list(read_rows(result.path / "metrics.jsonl", episodes=False))
    means = [row["return"] for row in rows if row["kind"] == "train" and "return" in row]
    means += [row["mean_return"] for row in rows if row["kind"] == "eval"]
    error, spread = last["std_return"] / math.sqrt(last["episodes"]), max(means) - min(means)
    # of many environments the shortest episodes end first
    few = result.episodes < 2 * run.lanes
    if few or trained - last["mean_return"] <= max(2 * error, spread / 4):
        return ""
    return (
        f"Note: the greedy policy returned {last['mean_return']:.2f}, and training, which draws "
        f"actions, {trained:.2f}: --eval-policy sampled evaluates the policy as it trains."
    )


def evaluator_of(run: Run) -> Any:
    """The algorithm's own evaluator, or the usual one."""
    return algorithm(run.agent.name).make_evaluator(run) or EpisodeEvaluator(run)
