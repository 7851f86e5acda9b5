"""Trains several runs: the seeds of an experiment, or policies that are compared. Each equals, bit
for bit, the run it would be alone, in a folder of its own; a stopped one is resumed from its
checkpoint.

A process for each core takes one run after another (`worker_pool`). Where an engine trains seeds
together on a device, all are in this process (`seed_batch`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from tenfold.config.changes import STATE_HOLDERS, new_end
from tenfold.config.files import Trust, require_trusted_cluster, resolve_run
from tenfold.config.notation import dotted, merge, nested
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import ActorFault, ConfigError, UserError, raised
from tenfold.core.processes import require_guard
from tenfold.core.ray_cluster import require_reachable
from tenfold.core.user_envs import require_named
from tenfold.evaluation.evaluator import evaluator_of
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import destination, is_run, require_place, run_name
from tenfold.runs.metrics import latest_row
from tenfold.runs.report import write_seeds_report
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder, alone, changed_seeds, rows_of, summarise
from tenfold.runs.storage import FolderLock, update_latest
from tenfold.training import learners
from tenfold.training.callbacks import Tracker, trackers_named
from tenfold.training.display import Display, clock_face
from tenfold.training.learners import check_resources, open_learner
from tenfold.training.loop import (
    Finished,
    InitialWeights,
    initial_weights,
    kept_weights,
    require_fit,
    resume,
    train_from_start,
)
from tenfold.training.seed_batch import require_kernels, require_room, train_together
from tenfold.training.worker_pool import LOCAL, Executor

NAMED = 8  # seeds that a title names one by one


@dataclass(frozen=True)
class GroupRun:
    """One run of a group."""

    name: str  # such as "seed 3"
    run: Run
    path: Path


@dataclass(frozen=True)
class RunGroup:
    """Runs that belong together. `change` are settings that stopped runs resume with; `resume_hint`
    is a sentence for the user."""

    title: str
    what: str  # they are, such as "seeds"
    members: Sequence[GroupRun]
    path: Path
    resume_hint: str
    change: dict[str, Any]
    callbacks: Sequence[Any] = ()
    executor: Executor = LOCAL
    initial: InitialWeights | None = None  # what each of them begins with
    trust: Trust = False
    introduction: Sequence[str] = ()  # lines shown before they begin

    @property
    def steps(self) -> dict[str, int]:
        """The current step of each run."""
        return {
            member.name: latest_row(member.path / "metrics.jsonl").get("step", 0)
            for member in self.members
        }

    @property
    def step(self) -> int:
        """The sum of their steps."""
        return sum(self.steps.values())

    @property
    def saved(self) -> dict[str, int]:
        """The last checkpoints of the runs that have one."""
        steps = {member.name: checkpoint_steps(member.path) for member in self.members}
        return {name: saved[-1] for name, saved in steps.items() if saved}

    def failure(self, name: str, error: str) -> UserError:
        """The group's error for the error of one run."""
        return UserError(f"{name[:1].upper()}{name[1:]}: {error.rstrip('.')}. {self.resume_hint}")

    def say_end(self, display: Display, stopped: int, step: int) -> None:
        """The closing line; `step` is the sum over all runs."""
        display.say(
            f"{'stopped' if stopped else f'{len(self.members)} {self.what}'} after "
            f"{clock_face(display.seconds())} ({display.rate(step):,.0f} steps/s together)"
        )


def warm_up(runs: Sequence[Run], quiet: bool) -> None:
    """Checks the settings and compiles kernels once, before anything is written."""
    check_resources(runs[0])
    for run in runs:
        with open_learner(run, quiet):
            pass


def train_group(
    group: RunGroup, jobs: int, quiet: bool, progress: Callable[[], dict[str, str]]
) -> int:
    """Trains all runs, `jobs` at a time (0: one a core), and shows their `progress`. Returns the
    signal that stopped them, or 0; a UserError names a run that failed."""
    workers = min(group.executor.workers(jobs), len(group.members))
    end = sum(member.run.steps for member in group.members)
    display = Display(group.title, end, group.step, quiet)
    title = f"{group.title} ({group.executor.description(workers)}) -> {group.path}"
    display.announce(title, group.members[0].run, group.introduction)
    common = (group.change, group.callbacks, group.initial, True, group.trust)
    tasks = [(to_mapping(one.run), str(one.path.absolute()), *common) for one in group.members]
    pool = group.executor.pool(train_member, tasks)
    shown_state = (-1, 0)

    def look(done: int) -> None:
        nonlocal shown_state
        # only where something happened: otherwise the rate would only seem to fall
        if (now := (group.step, done)) != shown_state:
            shown_state = now
            display.show(now[0], {"done": f"{done} of {len(tasks)} {group.what}", **progress()})

    try:
        stopped = pool.run(workers, look)
    except ActorFault as fault:  # the cluster's head is gone
        raise fault.adding(group.resume_hint) from None
    finally:
        display.close()
    for number, error in pool.errors.items():
        raise group.failure(group.members[number].name, error)
    group.say_end(display, stopped, group.step)
    return stopped


def train_member(
    settings: dict[str, Any],
    path: str,
    change: dict[str, Any],
    own_callbacks: Sequence[Any] = (),
    initial: InitialWeights | None = None,
    report: bool = True,
    trust: Trust = False,
    callbacks: Sequence[Any] = (),
) -> tuple[str, int]:
    """In a process of its own: trains one run from its start, with `initial` weights if there are
    any, or resumes it with the settings in `change`. An error in one run does not end the others:
    its sentence is returned, or "", and the signal that stopped the run, or 0."""
    callbacks = (*callbacks, *own_callbacks)
    try:
        if is_run(Path(path)) and checkpoint_steps(Path(path)):
            how: Any = {"quiet": True, "callbacks": callbacks, "report": report, "trust": trust}
            result = resume(path, settings=change, **how)
        else:
            check_resources(run := Run.of(settings))
            result = train_from_start(run, Path(path), initial, True, True, callbacks, report)
        return result.unsaved, result.interrupted
    except Finished:
        return "", 0
    except UserError as error:
        return str(error), 0
    except Exception as error:
        return f"it {raised(error)}.", 0


@dataclass(frozen=True)
class SeedsResult:
    """Several seeds that ended. `summary` is the content of summary.json; `interrupted` the signal
    that stopped them early, or 0; `saved` their last checkpoints."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    summary: dict[str, Any]
    interrupted: int = 0
    saved: dict[str, int] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # errors by name, where others went on

    def __repr__(self) -> str:
        """One line: the numbers are in `summary`."""
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return (
            f"<{self.path}: {self.run.agent.name} on {self.run.env}, {len(self.seeds)} seeds"
            f"{failed}>"
        )


def train_seeds(
    run: Run | str,
    seeds: int | tuple[int, ...],
    out: str | Path = "",
    *,
    name: str = "",
    jobs: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    storage: str | Path = "",
    track: str | Sequence[str] | None = None,
    init: Any = None,
    checkpoint: str | int = "last",
    trust: bool = False,
    **settings: Any,
) -> SeedsResult:
    """Trains `run` once for each seed (a number n means 0 … n − 1) into out/seed-0, out/seed-1, …;
    without `out` into a new folder, runs/NAME, runs/NAME-2, … (`run`, `settings` and the name are
    those of `train`). A run with `where` = ray: each seed is a task of the Ray cluster at its
    `address`, and its files come here, or stay below `storage`, a folder that all machines share.
    `track`: wandb, trackio or mlflow are sent the metrics of every seed. `init`, `checkpoint` and
    `trust` are those of `train`: all seeds begin with the same weights."""
    seed_numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not seed_numbers or len(set(seed_numbers)) < len(seed_numbers) or min(seed_numbers) < 0:
        raise ConfigError(
            "seeds",
            f"= {list(seed_numbers)} cannot be: give at least one, none of them twice or below 0.",
        )
    what, run = run, resolve_run(run, settings)
    require_guard()
    require_named(run.env)
    trackers = trackers_named(track)
    executor = Executor.of(run, bool(storage))
    target = destination(out, name or run_name(what, run), overwrite, storage)
    require_place(target, overwrite)  # here: before anything is compiled
    if run.where == "ray":
        require_reachable(run.address)
    initial = initial_weights(init, checkpoint, alone(run), trust)
    ready = check_and_warm_up(run, min(len(seed_numbers), jobs or len(seed_numbers)), quiet)
    folder = SeedsFolder.create(target, run, seed_numbers, overwrite, executor.shared, initial)
    return run_seeds(folder, jobs, quiet, ready, trackers)


class WarmUp(NamedTuple):
    """Whether seeds are trained together on a device, and lines about their engine and
    evaluations."""

    together: bool
    lines: Sequence[str] = ()


def check_and_warm_up(run: Run, seeds: int, quiet: bool) -> WarmUp:
    """Checks settings and device memory and compiles kernels, before anything is written. Runs for
    GPUs of a cluster are checked there."""
    if run.where == "ray" and run.device == "cuda":
        return WarmUp(False)
    elsewhere, run = run.where == "ray", alone(run)
    check_resources(run)
    learner: Any = learners.make_learner(run)
    try:
        about = learner.description
        lines = [f"engine {about.engine}; on {about.device}", evaluator_of(run).cost(learner)]
        together = not elsewhere and hasattr(getattr(learner, "engine", None), "make_group")
        if together:
            require_room(learner, seeds)
            require_kernels(learner, seeds, quiet)
        else:
            learners.warm_up(learner, quiet)
        return WarmUp(together, [line for line in lines if line])
    finally:
        learner.close()


def resume_seeds(
    path: str | Path,
    steps: int | None = None,
    *,
    engine: str = "",
    settings: dict[str, Any] | None = None,
    jobs: int = 0,
    quiet: bool = False,
    track: str | Sequence[str] | None = None,
    more: int | None = None,
    trust: bool = False,
) -> SeedsResult:
    """Resumes the seeds that are not finished, as `resume` does with one."""
    require_guard()
    folder, trackers = SeedsFolder.open(Path(path), trust), trackers_named(track)
    overrides = new_end(folder.run, steps, more, settings) | ({"engine": engine} if engine else {})
    with FolderLock(folder.path):
        change = merge(settings or {}, overrides)
        run = changed_seeds(folder.run, change)
        require_trusted_cluster(folder.path, run, trust, change)
        for name, step in group_of(folder).saved.items():
            if step > run.steps:
                raise ConfigError(
                    "steps",
                    f"= {run.steps:,} is less than {name} has done, {step:,}: give a larger one.",
                )
        ready = check_and_warm_up(run, min(len(folder.seeds), jobs or len(folder.seeds)), quiet)
        require_member_fit(folder, run, change)
        folder = folder.changed(change)  # what does not fit is not written down
        update_latest(folder.path)
        return run_seeds(folder, jobs, quiet, ready, trackers)


def require_member_fit(folder: SeedsFolder, run: Run, change: dict[str, Any]) -> None:
    """Checks the first saved seed where a changed setting determines who holds the saved state."""
    if not set(STATE_HOLDERS) & dotted(nested(change)).keys() or run.where == "ray":
        return
    group = group_of(replace(folder, run=run, changes=merge(folder.changes, change)))
    for member in [member for member in group.members if member.name in group.saved][:1]:
        require_fit(member.path, group.change, folder.trust)


def group_of(folder: SeedsFolder) -> RunGroup:
    members = [GroupRun(f"seed {s}", folder.run_of(s), folder.member(s)) for s in folder.seeds]
    names = ", ".join(map(str, folder.seeds))
    if len(folder.seeds) > NAMED:
        names = f"{min(folder.seeds)} to {max(folder.seeds)}"
    title = f"{folder.run.agent.name} on {folder.run.env}, seeds {names}"
    resume_hint = f"`tenfold resume {folder.path}` goes on from the last checkpoints."
    executor = Executor.of(folder.run, folder.shared and folder.run.where == "ray")
    left = {"where", "address"} if folder.changes.get("where") == "ray" else {"address"}
    change = {name: value for name, value in folder.changes.items() if name not in left}
    initial, trust = kept_weights(folder.path), folder.trust
    rest = executor, initial, trust
    return RunGroup(title, "seeds", members, folder.path, resume_hint, change, (), *rest)


def run_seeds(
    folder: SeedsFolder,
    jobs: int,
    quiet: bool,
    ready: WarmUp,
    trackers: Sequence[Tracker] = (),
) -> SeedsResult:
    callbacks = tuple(Tracker(one.name, folder.path.absolute().name) for one in trackers)
    group, failed, known = group_of(folder), {}, {}
    group = replace(group, callbacks=callbacks, introduction=ready.lines)
    if ready.together:
        stopped, failed, known = train_together(group, jobs, quiet)
    else:
        reporter = reporter_of(folder.run)
        stopped = train_group(group, jobs, quiet, lambda: reporter.progress(folder.members))
    rows = rows_of(folder, {seed: known.get(f"seed {seed}") for seed in folder.seeds})
    summary = summarise(folder, rows)
    if not stopped:
        write_seeds_report(folder, rows, summary)
    return SeedsResult(folder.path, folder.run, folder.seeds, summary, stopped, group.saved, failed)
