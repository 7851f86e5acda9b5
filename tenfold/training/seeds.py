"""Training many seeds at once: each is the very run it would be alone, so member i equals the run
of seed i bit for bit.

A process for each core takes one seed after another. (One process that updates several members in
one call would save only the cost of the calls, some 2 µs of a round; and it could not use a second
core.)
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenfold.config.changes import changed_run
from tenfold.config.mappings import merge, to_mapping
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.given import require_named
from tenfold.core.processes import require_guard
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.folder import is_run, require_place
from tenfold.runs.lock import Claim
from tenfold.runs.names import destination, named_after, turn_latest
from tenfold.runs.seeds import SeedsFolder, latest_row, summarise, write_seeds_report
from tenfold.training.display import Display, clock_face
from tenfold.training.loop import Finished, prepare, ready, resume, train
from tenfold.training.pool import Pool


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
    prepare(run)
    # settings that do not fit leave nothing behind; kernels compile once, not in every process
    with ready(run, quiet):
        pass
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
    with Claim(folder.path):
        change = merge(settings or {}, given)
        run, done = changed_run(folder.run, change), saved_steps(folder)
        if (
            first := next((name for name, step in done.items() if step > run.steps), None)
        ) is not None:
            raise ConfigError(
                "steps",
                f"= {run.steps:,} is less than {first} has done, {done[first]:,}: give a larger "
                "one.",
            )
        prepare(run)
        with ready(run, quiet):  # what does not fit is not written down
            pass
        folder = folder.changed(change)
        turn_latest(folder.path)
        return carry_out(folder, jobs, quiet)


def carry_out(folder: SeedsFolder, jobs: int, quiet: bool) -> SeedsResult:
    workers = min(jobs or len(os.sched_getaffinity(0)), len(folder.seeds))
    end = folder.run.steps * len(folder.seeds)
    display = Display(
        f"{folder.run.agent.name} on {folder.run.env}, {len(folder.seeds)} seeds",
        end,
        done_steps(folder),
        quiet,
    )
    display.say(
        f"{folder.run.agent.name} on {folder.run.env}, seeds {', '.join(map(str, folder.seeds))}, "
        f"{workers} at a time -> {folder.path}"
    )
    tasks = [
        (to_mapping(folder.run_of(seed)), str(folder.member(seed)), folder.changes)
        for seed in folder.seeds
    ]
    pool = Pool(train_member, tasks)
    try:
        stopped = pool.run(
            workers,
            lambda done: display.show(
                done_steps(folder), {"done": f"{done} of {len(tasks)} seeds", **progress(folder)}
            ),
        )
    finally:
        display.close()
    for number, error in pool.errors.items():
        raise UserError(
            f"Seed {folder.seeds[number]}: {error.rstrip('.')}. `tenfold resume {folder.path}` "
            "goes on from the last checkpoints."
        )
    if not stopped:
        write_seeds_report(folder)
    rate = display.rate(done_steps(folder))
    display.say(
        f"{len(folder.seeds)} seeds after {clock_face(display.seconds())} ({rate:,.0f} steps/s "
        "together)"
    )
    return SeedsResult(
        folder.path, folder.run, folder.seeds, summarise(folder), stopped, saved_steps(folder)
    )


def saved_steps(folder: SeedsFolder) -> dict[str, int]:
    """Where those seeds go on that have been saved."""
    return {
        f"seed {seed}": steps[-1]
        for seed in folder.seeds
        if (steps := checkpoint_steps(folder.member(seed)))
    }


def progress(folder: SeedsFolder) -> dict[str, str]:
    """Every seed's latest number, by what it is called: returns, or how well a hidden system is
    known."""
    explorer = folder.run.agent.name == "explorer"
    rows = [
        latest_row(folder.member(seed) / "metrics.jsonl", "fit" if explorer else "train")
        for seed in folder.seeds
    ]
    if not explorer:
        return {
            "returns": " ".join(f"{row['return']:.0f}" if "return" in row else "–" for row in rows)
        }
    known = any("field_error" in row for row in rows)
    shown = [
        f"{row['field_error']:.3f}"
        if "field_error" in row
        else f"{row['r2'][-1]:.3f}"
        if "r2" in row
        else "–"
        for row in rows
    ]
    return {"errors of the field" if known else "R²": " ".join(shown)} if any(rows) else {}


def done_steps(folder: SeedsFolder) -> int:
    return sum(
        latest_row(folder.member(seed) / "metrics.jsonl").get("step", 0) for seed in folder.seeds
    )


def train_member(settings: dict[str, Any], path: str, change: dict[str, Any]) -> tuple[str, int]:
    """In a process of its own: one seed from its start, or from where it stopped, then with the
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
