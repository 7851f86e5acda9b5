"""Profiles: rounds of training with every stage timed, engine by engine, and a trace for
chrome://tracing."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from tenfold.actors.pool import PAYS
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.protocols import Learner
from tenfold.core.system import Clock
from tenfold.core.user_envs import OWN
from tenfold.training.learners import check_resources, make_learner, warm_up

MOST_EVENTS = 50_000  # of a trace; more and no browser opens it


class EventClock(Clock):
    """A clock that records every lap: stage, start and duration in nanoseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.laps: list[tuple[str, int, int]] = []

    def lap(self, stage: str) -> None:
        start = self.before
        super().lap(stage)
        self.laps.append((stage, start, self.before - start))


@dataclass(frozen=True)
class Profile:
    """Timed rounds of one engine; the stage `other` is the time outside all stages."""

    engine: str
    steps: int
    seconds: float
    laps: list[tuple[str, int, int]]

    def stages(self) -> dict[str, tuple[int, float]]:
        """Calls and seconds by stage, the longest first."""
        stages: dict[str, tuple[int, float]] = {}
        for stage, _, duration in self.laps:
            calls, spent = stages.get(stage, (0, 0.0))
            stages[stage] = calls + 1, spent + duration / 1e9
        covered = sum(spent for _, spent in stages.values())
        stages["other"] = 0, max(self.seconds - covered, 0.0)
        return dict(sorted(stages.items(), key=lambda item: -item[1][1]))

    @property
    def us_per_step(self) -> float:
        return self.seconds / self.steps * 1e6


def engines_for(run: Run, engines: str | None) -> list[str]:
    """The engines in the flag, each of which must fit before the first is measured; by default the
    reference and the one that auto chooses."""
    candidates = [engine.strip() for engine in engines.split(",")] if engines else ["plain", "auto"]
    names = []
    for engine in candidates:
        with closing(make_learner(replace(run, engine=engine))) as learner:
            names.append(learner.description.name)
    return list(dict.fromkeys(names))


@contextmanager
def learning(
    run: Run, engine: str, by_stage: bool = False, quiet: bool = False
) -> Iterator[Learner]:
    """The learner of a run after its first update; `by_stage`: every round is timed, stage by
    stage."""
    run = replace(run, engine=engine)
    check_resources(run)
    with closing(make_learner(run)) as learner:
        if by_stage:
            learner.time_every_round()
        warm_up(learner, quiet)
        while learner.agent.updates == 0:
            if learner.step >= run.steps:
                raise UserError(
                    f"There is no update in {run.steps:,} steps of this run, so nothing to "
                    "profile: lower agent.learning_starts (of ppo agent.horizon), or raise steps."
                )
            learner.round()
        yield learner


def stretch(learner: Learner, steps: int) -> tuple[int, float]:
    """Trains for `steps` environment steps; returns the number of steps and seconds."""
    first, start = learner.step, perf_counter_ns()
    while learner.step < first + steps:
        learner.round(first + steps)
    return learner.step - first, (perf_counter_ns() - start) / 1e9


def steps_per_second(run: Run, engine: str, steps: int) -> float:
    """The rate of a short stretch of training, after learning has started."""
    with learning(run, engine) as learner:
        done, seconds = stretch(learner, steps)
    return done / seconds


def profile_run(run: Run, engine: str, steps: int, quiet: bool = False) -> Profile:
    """Times `steps` environment steps by stage, after learning has started."""
    with learning(run, engine, by_stage=True, quiet=quiet) as learner:
        clock = learner.clock = EventClock()
        done, seconds = stretch(learner, steps)
    return Profile(learner.description.name, done, seconds, clock.laps)


def write_trace(profiles: list[Profile], path: Path) -> None:
    """Chrome's trace format: an engine is a process, a stage an event."""
    events: list[dict[str, object]] = []
    for number, profile in enumerate(profiles):
        events.append(
            {"name": "process_name", "ph": "M", "pid": number, "args": {"name": profile.engine}}
        )
        origin = profile.laps[0][1]
        events += [
            {
                "name": stage,
                "ph": "X",
                "pid": number,
                "tid": 0,
                "ts": (start - origin) / 1e3,
                "dur": duration / 1e3,
            }
            for stage, start, duration in profile.laps[:MOST_EVENTS]
        ]
    path.write_text(json.dumps({"traceEvents": events}))


def show_profiles(profiles: list[Profile]) -> None:
    """Prints a table for each engine, and the speed-ups relative to the first."""
    for profile in profiles:
        table = Table(
            "stage",
            "calls",
            "total s",
            "mean µs",
            "share",
            title=f"{profile.engine}: {profile.us_per_step:.1f} µs an environment step",
        )
        for stage, (calls, spent) in profile.stages().items():
            table.add_row(
                stage,
                f"{calls:,}" if calls else "",
                f"{spent:.3f}",
                f"{spent / calls * 1e6:.1f}" if calls else "",
                f"{spent / profile.seconds:.1%}",
            )
        Console(width=None if sys.stdout.isatty() else 120).print(table)
    first = profiles[0]
    for other in profiles[1:]:
        print(
            f"{other.engine} takes {first.us_per_step / other.us_per_step:.1f} times less than "
            f"{first.engine} a step, stages timed one by one; in a run a round of the fused engine "
            "is one call."
        )


def verdict(profiles: list[Profile]) -> str:
    """One sentence that names the largest cost."""
    fastest = min(profiles, key=lambda p: p.us_per_step)
    stage, (_, spent) = next(iter(fastest.stages().items()))
    what = {"env": "the environment itself", "other": "Python between the stages"}.get(stage, stage)
    share = spent / fastest.seconds
    return (
        f"With the {fastest.engine} engine the largest cost is {what}: {share:.0%} of "
        f"{fastest.us_per_step:.1f} µs a step; were it free, a run would be "
        f"{1 / max(1 - share, 1e-9):.1f} times as fast."
    )


# a run whose environments keep one core busy while others are idle

SHARE = 0.5  # of the time of training, from which the environments are what it waits for
MOST = 8  # actors that are suggested where a run has one environment
OTHERWISE = ("evaluate", "save", "verify")  # stages that actors have no part in


class Mark(NamedTuple):
    """Updates, steps and time by stage at one moment."""

    updates: int
    step: int
    spent: dict[str, int]  # nanoseconds by stage


class CoreUse:
    """Suggests --actors where environments keep one core busy while others are idle."""

    def __init__(self, learner: Learner) -> None:
        self.learner, self.suggested = learner, False
        self.cores = len(os.sched_getaffinity(0))
        self.first = self.begun = self.now()

    def now(self) -> Mark:
        learner = self.learner
        return Mark(learner.agent.updates, learner.step, dict(learner.clock.spent))

    def early(self) -> str:
        """The suggestion at a log row, once, as soon as updates take their usual share of the
        time."""
        now = self.now()
        if self.suggested or self.first.updates == now.updates:
            return ""
        if self.begun is self.first:
            self.begun = now
            return ""
        enough = now.updates - self.begun.updates >= self.begun.updates - self.first.updates
        suggestion = self.suggestion(self.begun, now) if enough else ""
        self.suggested = bool(suggestion)
        return suggestion

    def final(self) -> str:
        """The suggestion at the end of a run."""
        return self.suggestion(self.begun, self.now())

    def suggestion(self, before: Mark, now: Mark) -> str:
        """One sentence where processes would pay; empty otherwise."""
        run, steps = self.learner.run, now.step - before.step
        spent = {
            stage: spent - before.spent[stage]
            for stage, spent in now.spent.items()
            if stage not in OTHERWISE
        }
        if run.num_envs > 1:  # the first lines say why these are in one process
            return ""
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
    """The run with its environments divided among actors, one per core; None where that is
    impossible or already so."""
    actors = min(cores, run.num_envs if run.num_envs > 1 else MOST)
    if run.actors > 1 or actors < 2:
        return None
    try:
        return replace(run, actors=actors, num_envs=max(run.num_envs // actors, 1))
    except ConfigError:  # it is for one actor, or its environment is one object
        return None
