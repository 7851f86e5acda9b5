"""ONE runner for many runs: seeds of an experiment, policies that are compared. Each is the very
run it would be alone, into a folder of its own; one that was stopped goes on from its checkpoint.

A process for each core takes one run after another. (One process that updates several members in
one call would save only the cost of the calls, some 2 µs of a round; and it could not use a second
core.)
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import is_run
from tenfold.runs.metrics import latest_row
from tenfold.training.display import Display, clock_face
from tenfold.training.loop import Finished, resume, train
from tenfold.training.pool import Pool
from tenfold.training.prepare import prepare, ready


@dataclass(frozen=True)
class Member:
    """One of many runs."""

    name: str  # such as "seed 3"
    run: Run
    path: Path

    @property
    def step(self) -> int:
        """How far it is."""
        return latest_row(self.path / "metrics.jsonl").get("step", 0)


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
        return sum(member.step for member in self.members)

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
