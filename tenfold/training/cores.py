"""Notices a run whose environments keep one core busy while others are idle."""

import os
from dataclasses import replace
from typing import Any, NamedTuple

from tenfold.actors.pool import PAYS
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.protocols import Learner
from tenfold.core.user_envs import OWN

SHARE = 0.5  # of the time of training, from which the environments are what it waits for
MOST = 8  # actors that are suggested where a run has one environment
OTHERWISE = ("evaluate", "save", "verify")  # stages that actors have no part in


class Mark(NamedTuple):
    """How far a run was, and where its time had gone by then."""

    updates: int
    step: int
    spent: dict[str, int]  # nanoseconds by stage


class CoreUse:
    """Of one run in this session."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.told = learner, False
        self.cores = len(os.sched_getaffinity(0))
        self.first = self.begun = self.now()

    def now(self) -> Mark:
        learner = self.learner
        return Mark(learner.agent.updates, learner.step, dict(learner.clock.spent))

    def early(self) -> str:
        """At a log row: the suggestion, once, as soon as updates have taken their share of the
        time, which they do not before learning has begun."""
        now = self.now()
        if self.told or self.first.updates == now.updates:
            return ""
        if self.begun is self.first:
            self.begun = now
            return ""
        enough = now.updates - self.begun.updates >= self.begun.updates - self.first.updates
        words = self.suggestion(self.begun, now) if enough else ""
        self.told = bool(words)
        return words

    def final(self) -> str:
        """The suggestion at the end of a run."""
        return self.suggestion(self.begun, self.now())

    def suggestion(self, before: Mark, now: Mark) -> str:
        """One sentence where processes would pay; none where they would not, or cannot be."""
        run, steps = self.learner.run, now.step - before.step
        spent = {
            stage: spent - before.spent[stage]
            for stage, spent in now.spent.items()
            if stage not in OTHERWISE
        }
        share, other = spent["env"] / max(sum(spent.values()), 1), wider(run, self.cores)
        envs: Any = getattr(self.learner, "envs", None)
        if share < SHARE or not steps or not other or not getattr(envs, "one_by_one", False):
            return ""
        seconds = 1e-9 * spent["env"] / steps  # of a step of one environment
        if seconds * other.num_envs < PAYS:
            return ""
        named = (
            f" (with the environment by its name, not {run.env})" if run.env.startswith(OWN) else ""
        )
        flags = f"--actors {other.actors}"
        flags += f" --num-envs {other.num_envs}" if other.num_envs != run.num_envs else ""
        return (
            f"environments take {share:.0%} of the time on one core, {1e3 * seconds:.2g} ms a "
            f"step, and this process may use {self.cores} cores: a run with {flags} steps them in "
            f"{other.actors} processes{named}"
        )


def wider(run: Run, cores: int) -> Run | None:
    """The run with its environments divided among actors, as far as cores go; None where it cannot
    be, or has actors already."""
    actors = min(cores, run.num_envs if run.num_envs > 1 else MOST)
    if run.actors > 1 or actors < 2:
        return None
    try:
        return replace(run, actors=actors, num_envs=max(run.num_envs // actors, 1))
    except ConfigError:  # it is for one actor, or its environment is one object
        return None
