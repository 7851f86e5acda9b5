"""ONE runner for many runs: seeds of an experiment, policies that are compared. Each is the very
run it would be alone, bit for bit, into a folder of its own; one that was stopped goes on from its
checkpoint.

A process for each core takes one run after another. (One process that updates several members in
one call would save only the cost of the calls, some 2 µs of a round; and it could not use a second
core.) Each talks through a pipe of its own: unlike the locks of a queue, pipes have no names that
could be left behind, whoever is killed.
"""

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from signal import SIGINT
from typing import Any

from tenfold.config.changes import changed_run
from tenfold.config.mappings import merge, to_mapping
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.given import require_named
from tenfold.core.processes import (
    Interrupt,
    enter,
    how_it_ended,
    leave,
    require_guard,
    signal_name,
    spawning,
)
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import is_run, require_place
from tenfold.runs.metrics import latest_row
from tenfold.runs.names import FolderLock, destination, named_after, turn_latest
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder, summarise, write_seeds_report
from tenfold.training.display import Display, clock_face
from tenfold.training.learners import prepare, ready
from tenfold.training.loop import Finished, resume, train

POLL = 0.5  # seconds between looks at the progress
FAREWELL = 3.0  # seconds for a process to end before it is killed
# of a task: an error's sentence or "", and the signal that cut it short or 0
Work = Callable[..., tuple[str, int]]


class Worker:
    """A process that does one task after another."""

    def __init__(self, number: int, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.talk, there = context.Pipe()
        self.process = context.Process(
            target=enter, name=f"worker {number}", args=(leave, serve, work, there)
        )
        self.task: int | None = None
        self.began = self.told = False
        with spawning():
            self.process.start()
        there.close()

    def give(self, number: int, task: tuple[Any, ...]) -> None:
        self.task = number
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send(task)

    def tell_to_stop(self) -> None:
        """Once: it saves what it is at, where a second signal would end it at once."""
        if not self.told and self.process.pid:
            self.told = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, SIGINT)

    def answer(self) -> str | None:
        """What was wrong with its task, or ""; None: it has only begun."""
        try:
            said = self.talk.recv()
        except (EOFError, OSError):
            self.process.join(FAREWELL)  # its pipe may end a moment before it does
            code = self.process.exitcode
            how = "no longer answers" if code is None else how_it_ended(code, self.began)
            return "" if self.told else f"its process {how}"
        if not self.began:
            self.began = True
            return None
        error, cut_short = said
        return error or (
            f"its process was stopped by {signal_name(cut_short)}"
            if cut_short and not self.told
            else ""
        )

    def end(self) -> None:
        """It ends when nobody talks to it any more."""
        self.talk.close()
        self.process.join(FAREWELL)
        self.process.kill()
        self.process.join()
        self.process.close()


def serve(work: Work, talk: Connection) -> None:
    """The life of a worker. Its group is its own, so that Ctrl-C comes from its parent only."""
    os.setpgrp()
    with contextlib.suppress(EOFError, OSError):  # the parent has no more for it to do, or is gone
        talk.send("began")
        while True:
            talk.send(work(*talk.recv()))


class Pool:
    """`run` works through the tasks. `errors` are then the sentences of those that failed, by their
    place in the list. After an error or a signal no task is begun, and those under way are told to
    stop."""

    def __init__(self, work: Work, tasks: Sequence[tuple[Any, ...]]) -> None:
        self.work, self.count, self.tasks = work, len(tasks), iter(enumerate(tasks))
        self.pool: list[Worker] = []
        self.errors: dict[int, str] = {}
        self.done, self.stopping = 0, False

    def run(self, workers: int, look: Callable[[int], None]) -> int:
        """The signal that stopped it, or 0. `look` is told every now and then how many tasks are
        done."""
        with Interrupt(self.stop) as interrupt:
            try:
                for number in range(min(workers, self.count)):
                    self.pool.append(Worker(number, self.work))
                    self.give_next(self.pool[-1])
                if self.stopping:
                    self.stop()  # it may have come while one of them was starting
                while busy := {
                    worker.talk: worker for worker in self.pool if worker.task is not None
                }:
                    for talk in wait(list(busy), POLL):
                        self.hear(busy[talk])  # type: ignore[index]
                    look(self.done)
            finally:
                while self.pool:
                    self.pool.pop().end()
        return interrupt.signal

    def give_next(self, worker: Worker) -> None:
        """A task, where there is one. A worker that is told to stop just then leaves without it."""
        worker.task = None
        if not self.stopping and (task := next(self.tasks, None)):
            worker.give(*task)

    def hear(self, worker: Worker) -> None:
        """Takes an answer, and gives the next task for it."""
        error = worker.answer()
        if error is None:
            return
        if error and worker.task is not None:
            self.errors[worker.task] = error
            self.stop()
        self.done += 1
        self.give_next(worker)

    def stop(self) -> None:
        """Also as a signal's handler, between any two lines."""
        self.stopping = True
        for worker in self.pool:
            worker.tell_to_stop()


@dataclass(frozen=True)
class Member:
    """One of many runs."""

    name: str  # such as "seed 3"
    run: Run
    path: Path


@dataclass(frozen=True)
class Many:
    """Runs that belong together. `change` are settings that those go on with that were stopped;
    `again` is the sentence that tells a person how to go on."""

    title: str
    what: str  # they are, such as "seeds"
    members: Sequence[Member]
    path: Path
    again: str
    change: dict[str, Any]

    @property
    def step(self) -> int:
        """How far they are together."""
        rows = [latest_row(member.path / "metrics.jsonl") for member in self.members]
        return sum(row.get("step", 0) for row in rows)

    @property
    def saved(self) -> dict[str, int]:
        """Where those go on that have been saved."""
        return {
            member.name: steps[-1]
            for member in self.members
            if (steps := checkpoint_steps(member.path))
        }


def warm_up(runs: Sequence[Run], quiet: bool) -> None:
    """Before anything is written: settings that do not fit leave nothing behind, and kernels
    compile once, not in every process."""
    prepare(runs[0])
    for run in runs:
        with ready(run, quiet):
            pass


def run_many(many: Many, jobs: int, quiet: bool, progress: Callable[[], dict[str, str]]) -> int:
    """Trains all of them, `jobs` at a time (0: one a core), while a display shows their `progress`.
    Returns the signal that stopped them, or 0; a UserError names the run that failed."""
    workers = min(jobs or len(os.sched_getaffinity(0)), len(many.members))
    end = sum(member.run.steps for member in many.members)
    display = Display(many.title, end, many.step, quiet)
    display.say(f"{many.title}, {workers} at a time -> {many.path}")
    tasks = [(to_mapping(member.run), str(member.path), many.change) for member in many.members]
    pool = Pool(train_member, tasks)
    seen = (-1, 0)

    def look(done: int) -> None:
        nonlocal seen
        # only where something happened: otherwise the rate would only seem to fall
        if (now := (many.step, done)) != seen:
            seen = now
            display.show(now[0], {"done": f"{done} of {len(tasks)} {many.what}", **progress()})

    try:
        stopped = pool.run(workers, look)
    finally:
        display.close()
    for number, error in pool.errors.items():
        name = many.members[number].name
        raise UserError(f"{name[:1].upper()}{name[1:]}: {error.rstrip('.')}. {many.again}")
    display.say(
        f"{'stopped' if stopped else f'{len(tasks)} {many.what}'} after "
        f"{clock_face(display.seconds())} ({display.rate(many.step):,.0f} steps/s together)"
    )
    return stopped


def train_member(settings: dict[str, Any], path: str, change: dict[str, Any]) -> tuple[str, int]:
    """In a process of its own: one run from its start, or from where it stopped, then with the
    settings that changed since."""
    try:
        if is_run(Path(path)) and checkpoint_steps(Path(path)):
            result = resume(path, settings=change, quiet=True)
        else:
            result = train(Run.of(settings), path, overwrite=True, quiet=True)
        return result.unsaved, result.interrupted
    except Finished:
        return "", 0
    except UserError as error:
        return str(error), 0


@dataclass(frozen=True)
class SeedsResult:
    """Several seeds that ended. `summary` is what summary.json holds; `interrupted` the signal that
    stopped them early, or 0; `saved` the steps that they would go on from."""

    path: Path
    run: Run
    seeds: tuple[int, ...]
    summary: dict[str, Any]
    interrupted: int = 0
    saved: dict[str, int] = field(default_factory=dict)


def train_seeds(
    run: Run,
    seeds: int | tuple[int, ...],
    out: str | Path = "",
    *,
    name: str = "",
    jobs: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
) -> SeedsResult:
    """Trains `run` once for each seed (a number n means 0 … n − 1) into out/seed-0, out/seed-1, …;
    without `out` into a new folder, runs/NAME, runs/NAME-2, … (the name is the environment's by
    default)."""
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ConfigError(
            "seeds",
            f"= {list(chosen)} cannot be: give at least one, none of them twice or below 0.",
        )
    require_guard()
    require_named(run.env)
    target = destination(out, name or named_after(run.env), overwrite)
    require_place(target, overwrite)  # here: before anything is compiled
    warm_up([run], quiet)
    return carry_out(SeedsFolder.create(target, run, chosen, overwrite), jobs, quiet)


def resume_seeds(
    path: str | Path,
    steps: int | None = None,
    *,
    engine: str = "",
    settings: dict[str, Any] | None = None,
    jobs: int = 0,
    quiet: bool = False,
) -> SeedsResult:
    """Goes on with those seeds that are not finished, as `resume` does with one."""
    require_guard()
    folder = SeedsFolder.open(Path(path))
    given = ({} if steps is None else {"steps": steps}) | ({"engine": engine} if engine else {})
    with FolderLock(folder.path):
        change = merge(settings or {}, given)
        run = changed_run(folder.run, change)
        for name, step in many_of(folder).saved.items():
            if step > run.steps:
                raise ConfigError(
                    "steps",
                    f"= {run.steps:,} is less than {name} has done, {step:,}: give a larger one.",
                )
        warm_up([run], quiet)  # what does not fit is not written down
        folder = folder.changed(change)
        turn_latest(folder.path)
        return carry_out(folder, jobs, quiet)


def many_of(folder: SeedsFolder) -> Many:
    members = [Member(f"seed {s}", folder.run_of(s), folder.member(s)) for s in folder.seeds]
    names = ", ".join(map(str, folder.seeds))
    title = f"{folder.run.agent.name} on {folder.run.env}, seeds {names}"
    again = f"`tenfold resume {folder.path}` goes on from the last checkpoints."
    return Many(title, "seeds", members, folder.path, again, folder.changes)


def carry_out(folder: SeedsFolder, jobs: int, quiet: bool) -> SeedsResult:
    many, reporter = many_of(folder), reporter_of(folder.run)
    stopped = run_many(many, jobs, quiet, lambda: reporter.progress(folder.members))
    if not stopped:
        write_seeds_report(folder)
    return SeedsResult(
        folder.path, folder.run, folder.seeds, summarise(folder), stopped, many.saved
    )
