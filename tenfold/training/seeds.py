"""Training many seeds at once: each is the very run it would be alone, so member i equals the run
of seed i bit for bit."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tenfold.config.changes import changed_run
from tenfold.config.mappings import merge
from tenfold.config.run import Run
from tenfold.core.errors import ConfigError
from tenfold.core.given import require_named
from tenfold.core.processes import require_guard
from tenfold.runs.folder import require_place
from tenfold.runs.lock import Claim
from tenfold.runs.names import destination, named_after, turn_latest
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder, summarise, write_seeds_report
from tenfold.training.many import Many, Member, run_many, warm_up


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
    with Claim(folder.path):
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
