"""The runs of a sweep as tasks: the seeds of trials from rung to rung, and the held-out runs that
confirm the winner. A run that fails fails its trial, not the sweep."""

import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.config.search import Search, drawn_run
from tenfold.core.errors import ConfigError, UserError
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import is_run
from tenfold.runs.reporter import params_text, score_text
from tenfold.runs.seeds import SeedsFolder, alone
from tenfold.runs.statistics import Outcome, pooled
from tenfold.runs.sweep_folder import (
    SweepFolder,
    evaluations,
    outcomes_of,
    require_metrics,
    require_run,
    steps_of,
)
from tenfold.training.display import Display
from tenfold.training.run_group import GroupRun, RunGroup, train_member
from tenfold.training.seed_batch import train_together
from tenfold.training.study import as_number, distributions, draw, row_of
from tenfold.training.worker_pool import Executor, Tasks

ENDED = {"PRUNED": "pruned", "FAIL": "failed"}
RUNGS = 10  # at which a trial may be pruned, at most: at each of them its runs are stopped


class StopAtStep:
    """A callback that stops and saves the run at the first evaluation from a step on."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_evaluate(self, training: Any, row: dict[str, Any]) -> None:
        if training.step >= self.step:
            training.stop()


def is_at(path: Path, run: Run, until: int) -> bool:
    """Whether a run has reached a step, its evaluation included."""
    steps = checkpoint_steps(path) if is_run(path) else []
    return bool(steps) and steps[-1] >= until and len(outcomes_of(path)) >= until // run.eval_every


def pruning_steps(run: Run, pruner: str) -> list[int]:
    """The steps at which all seeds of a trial are synchronised before pruning: evaluations, and the
    end. Each costs a stop and a resume, so without pruning there is only the end."""
    if pruner == "none":
        return [run.steps]
    last = run.steps // run.eval_every
    marks = sorted({round(last * part / RUNGS) for part in range(1, RUNGS)} - {0, last})
    return [*(mark * run.eval_every for mark in marks), run.steps]


@dataclass
class RunningTrial:
    """A trial on its way to a rung; `waiting` are the seeds that have not reached it."""

    trial: Any
    folder: SeedsFolder
    rung: int = 0
    waiting: set[int] = field(default_factory=set)
    errors: dict[int, str] = field(default_factory=dict)


class RunTasks(Tasks):
    """Tasks that are runs, with a display of their progress."""

    def __init__(self, display: Display) -> None:
        super().__init__()
        self.display, self.queue = display, deque[tuple[Any, tuple[Any, ...]]]()

    def next(self) -> tuple[Any, tuple[Any, ...]] | None:
        return self.queue.popleft() if self.queue else None

    def cohort(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The next tasks that differ in nothing but the seed."""
        first = self.next()
        if first is None:
            return []
        alike = [one for one in self.queue if one[0][0] == first[0][0]]
        self.queue = deque(one for one in self.queue if one not in alike)
        return [first, *alike]

    def add(self, name: Any, folder: SeedsFolder, until: int) -> set[int]:
        """Queues the seeds of a folder that have not reached a step; returns them."""
        behind = set()
        for seed in folder.seeds:
            run, path = folder.run_of(seed), folder.member(seed)
            require_run(path)
            if not is_at(path, run, until):
                settings, callbacks = to_mapping(run), (StopAtStep(until),)
                task = settings, str(path.absolute()), {}, callbacks, None, False, folder.trust
                self.queue.append(((name, seed), task))
                behind.add(seed)
        return behind

    def look(self, done: int) -> None:
        """Shows the progress."""


class Trials(RunTasks):
    """The trials of a sweep. A task's name is the trial's number and the seed."""

    def __init__(
        self,
        folder: SweepFolder,
        study: Any,
        search: tuple[Search, ...],
        display: Display,
    ) -> None:
        """Unfinished trials of an earlier process are resumed."""
        from optuna.trial import Trial

        super().__init__(display)
        self.folder, self.study, self.search = folder, study, search
        self.spaces = distributions(search)
        self.rungs = pruning_steps(folder.run, folder.plan.pruner)
        self.running: dict[int, RunningTrial] = {}
        self.begun = self.pruned = self.failed = self.ended_steps = 0
        self.best: Any = None  # the best trial that has ended
        for one in study.get_trials(deepcopy=False):
            self.begun += one.state.name != "WAITING"
            self.count(one)
            if one.state.name == "RUNNING":
                self.start(Trial(study, one._trial_id))
        self.full = folder.run.steps * len(folder.plan.seeds)
        self.display.first = self.steps()

    # where tasks come from

    def next(self) -> tuple[Any, tuple[Any, ...]] | None:
        while not self.queue and self.begun < self.folder.plan.trials:
            self.begun += 1
            self.start(self.study.ask())
        return super().next()

    def start(self, trial: Any) -> None:
        """Draws the settings of a trial; settings that exclude each other fail it."""
        drawn = draw(self.study, self.folder, trial, self.spaces)
        try:
            run = drawn_run(alone(self.folder.run), self.search, drawn)
        except ConfigError as error:
            self.fail(trial, str(error))
            return
        folder = self.folder.seeds_of_trial(trial.number, run)
        self.running[trial.number] = running = RunningTrial(trial, folder)
        self.send(running)

    def send(self, running: RunningTrial) -> None:
        """Queues the seeds that have not reached the rung."""
        running.waiting |= self.add(running.trial.number, running.folder, self.rungs[running.rung])
        if not running.waiting:
            self.settle(running)

    # where they end

    def ended(self, name: Any, error: str) -> bool:
        number, seed = name
        running = self.running[number]
        running.waiting.discard(seed)
        if error:
            running.errors[seed] = error
            left = [one for one in self.queue if one[0][0] == number]
            running.waiting -= {one[0][1] for one in left}
            self.queue = deque(one for one in self.queue if one not in left)
        if not running.waiting:
            self.settle(running)
        return True

    def settle(self, running: RunningTrial) -> None:
        """Called once all seeds have reached the rung or failed: prunes, finishes or continues the
        trial."""
        trial, folder, until = running.trial, running.folder, self.rungs[running.rung]
        if running.errors:
            seed, why = next(iter(running.errors.items()))
            self.fail(trial, f"seed {seed}: {why}")
            return
        evaluated = evaluations(folder.members)
        if len(evaluated) < until // folder.run.eval_every:
            require_metrics(folder, until)
            return  # it was stopped on its way, and a resume goes on
        outcomes = {step: pooled(seeds) for step, seeds in evaluated}
        trial.set_user_attr("scores", [score for _, score in evaluated[-1][1]])
        trial.set_user_attr("evaluations", outcomes)
        known = self.study._storage.get_trial(trial._trial_id).intermediate_values
        for step, outcome in outcomes.items():
            if step not in known:
                trial.report(as_number(*outcome), step)
        if until == self.rungs[-1]:
            self.tell(trial, outcomes[evaluated[-1][0]])
        elif trial.should_prune():
            self.tell(trial, None, "PRUNED")
        else:
            running.rung += 1
            self.send(running)

    def fail(self, trial: Any, why: str) -> None:
        trial.set_user_attr("why", why)
        self.tell(trial, None, "FAIL")

    def tell(self, trial: Any, outcome: Outcome | None, state: str = "COMPLETE") -> None:
        from optuna.trial import TrialState

        value = as_number(*outcome) if outcome else None
        one = self.study.tell(trial, value, TrialState[state])
        best = self.best
        self.count(one)
        if running := self.running.pop(trial.number, None):
            self.ended_steps += steps_of(running.folder)
            running.folder.end("" if state == "COMPLETE" else ENDED[state])
        drawn = params_text(one.params)
        if state == "FAIL":
            result = f"failed: {one.user_attrs['why']}"
        elif state == "PRUNED":
            result = f"{self.score_text(one)}, pruned at step {one.last_step:,}"
        else:
            result = f"{self.score_text(one)}{'' if self.best is best else ', the best so far'}"
        self.display.say(f"trial {one.number} ({drawn}): {result}")

    def count(self, one: Any) -> None:
        self.pruned += one.state.name == "PRUNED"
        self.failed += one.state.name == "FAIL"
        if one.state.name == "COMPLETE" and (not self.best or one.value > self.best.value):
            self.best = one

    def score_text(self, one: Any) -> str:
        """A trial's outcome as text."""
        return score_text(row_of(one))

    # what is shown

    def steps(self) -> int:
        return self.ended_steps + sum(steps_of(running.folder) for running in self.running.values())

    def look(self, done: int) -> None:
        trials, under_way = self.folder.plan.trials, len(self.running)
        over = self.begun - under_way
        details = [f"{self.pruned} pruned"] * bool(self.pruned)
        details += [f"{self.failed} failed"] * bool(self.failed)
        counts = f"{over} of {trials}{f' ({chr(44).join(details)})' if details else ''}"
        self.display.steps = self.ended_steps + (trials - over) * self.full
        best = self.best and {"best": f"{self.score_text(self.best)} (trial {self.best.number})"}
        self.display.show(self.steps(), {"trials done": counts, **(best or {})})


class Confirmation(RunTasks):
    """The winner and the original settings, trained on held-out seeds."""

    def __init__(self, folder: SweepFolder, best: Run, display: Display) -> None:
        super().__init__(display)
        seeds = folder.plan.held_out
        default = alone(folder.run)
        runs = {"default": default} if best == default else {"winner": best, "default": default}
        self.folders = (
            {n: folder.seeds_in(n, run, seeds) for n, run in runs.items()} if seeds else {}
        )
        for name, seeds_folder in self.folders.items():
            require_metrics(seeds_folder, folder.run.steps)
            self.add(name, seeds_folder, folder.run.steps)
        self.tasks = len(self.queue)
        display.started = time.monotonic()
        display.steps = folder.run.steps * len(seeds) * len(self.folders)
        display.first = self.steps()

    def steps(self) -> int:
        return sum(map(steps_of, self.folders.values()))

    def ended(self, name: Any, error: str) -> bool:
        if error:
            self.errors[f"{name[0]}, seed {name[1]}"] = error
        return True

    def look(self, done: int) -> None:
        self.display.show(self.steps(), {"confirmed": f"{done} of {self.tasks} held-out runs"})


def run_tasks(tasks: RunTasks, executor: Executor, jobs: int, seeds_together: bool) -> int:
    """Runs all tasks; returns the signal that stopped them, or 0."""
    if not seeds_together:
        return executor.pool(train_member, tasks).run(executor.workers(jobs), tasks.look)
    done = 0
    while cohort := tasks.cohort():
        members = [
            GroupRun(f"seed {name[1]}", Run.of(task[0]), Path(task[1])) for name, task in cohort
        ]
        _, (*_, callbacks, _, _, trust) = cohort[0]
        home = members[0].path.parent
        group = RunGroup("", "seeds", members, home, "", {}, callbacks, trust=trust)
        try:
            stopped, failed, _ = train_together(group, 0, True)
        except UserError as error:  # all of them failed
            stopped, failed = 0, {member.name: str(error) for member in members}
        for member, (name, _) in zip(members, cohort, strict=True):
            tasks.ended(name, failed.get(member.name, ""))
        done += len(cohort)
        tasks.look(done)
        if stopped:
            return stopped
    return 0
