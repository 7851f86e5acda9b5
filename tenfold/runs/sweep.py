"""A sweep's folder: its plan, the study (SQLite, which Optuna's dashboard opens), a folder of seeds
for each trial, those of the winner and of the default settings on held-out seeds, and what all of
them say."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config.mappings import differing, to_mapping
from tenfold.config.run import Run
from tenfold.config.trust import Trust, require_trust
from tenfold.core.errors import UserError
from tenfold.envs.making import resolve_paths
from tenfold.runs.files import replace_file, writing
from tenfold.runs.folder import SWEEP_KIND, is_seeds, origin, read_settings, write_settings
from tenfold.runs.metrics import latest_row, rank, read_rows
from tenfold.runs.names import FolderLock, Target, install, settled
from tenfold.runs.schema import SWEEP, SWEPT, read_json
from tenfold.runs.seeds import SeedsFolder, alone
from tenfold.runs.trust import mark_modules

PLAN, RESULTS, STUDY, BEST = "sweep.json", "results.json", "study.db", "best.yaml"


@dataclass(frozen=True)
class Plan:
    """What a sweep does, besides its run."""

    search: dict[str, Any]  # by settings' names, as they were written
    trials: int
    seeds: tuple[int, ...]
    held_out: tuple[int, ...]  # those that the winner is confirmed on
    pruner: str
    shared: bool = False  # every machine of the cluster sees the sweep's folder


@dataclass(frozen=True)
class SweepFolder:
    """A new one is kept to this process as long as the object lives."""

    path: Path
    run: Run
    plan: Plan
    lock: FolderLock | None = field(default=None, compare=False, repr=False)
    trust: Trust = False

    @property
    def title(self) -> str:
        plan = self.plan
        return (
            f"{self.run.agent.name} on {self.run.env}: {plan.trials} trials of {len(plan.seeds)} "
            f"seed{'s' * (len(plan.seeds) > 1)}, over {', '.join(plan.search)}"
        )

    @property
    def study(self) -> str:
        return f"sqlite:///{(self.path / STUDY).absolute()}"

    def seeds_in(self, name: str, run: Run, seeds: tuple[int, ...]) -> SeedsFolder:
        """Of a trial, or of what is confirmed; a new one unless it is there already."""
        path = self.path / name
        if is_seeds(path):
            there = SeedsFolder.open(path, self.trust)
            if there.seeds == seeds and not differing(to_mapping(there.run), to_mapping(run)):
                return there
        made = SeedsFolder.create(path, run, seeds, overwrite=True)
        if made.lock:
            made.lock.release()  # the sweep's own is enough
        return made

    @classmethod
    def create(cls, target: Target, run: Run, plan: Plan) -> "SweepFolder":
        run = replace(run, env=resolve_paths(run.env))

        def fill(made: Path) -> None:
            write_settings(made, run)
            write_plan(made, origin(SWEEP_KIND), plan)

        path, lock = install(target, fill)
        return cls(path, run, plan, lock)

    @classmethod
    def open(cls, path: Path, trust: Trust = False) -> "SweepFolder":
        path = settled(path)
        plan = about_sweep(path)["plan"]
        require_trust(path, plan["search"], trust)
        seeds, held_out = tuple(plan["seeds"]), tuple(plan["held_out"])
        plan = Plan(**plan | {"seeds": seeds, "held_out": held_out})
        return cls(path, read_settings(path, trust), plan, trust=trust)

    def locked(self, trials: int, run: Run) -> "SweepFolder":
        """The same, kept to this process, with so many trials, where `run` says."""
        lock, plan = FolderLock(self.path), replace(self.plan, trials=trials)
        run = replace(self.run, where=run.where, address=run.address)
        if plan != self.plan or run != self.run:
            with writing(self.path):
                write_settings(self.path, run)
                write_plan(self.path, about_sweep(self.path), plan)
        return replace(self, run=run, plan=plan, lock=lock)

    def other_than(self, run: Run, plan: Plan) -> str:
        """What tells this sweep from another: a name; nothing where they are the same but for the
        number of trials."""
        mine, others = asdict(replace(self.plan, trials=1)), asdict(replace(plan, trials=1))
        if found := [name for name in mine if mine[name] != others[name]]:
            return found[0]
        run = replace(run, env=resolve_paths(run.env))
        return next(iter(differing(to_mapping(alone(self.run)), to_mapping(alone(run)))), "")

    def write_best(self, run: Run) -> None:
        text = yaml.safe_dump(to_mapping(run), sort_keys=False)
        mark_modules(self.path, to_mapping(run))
        replace_file(self.path / BEST, f"# the winner of {self.path.name}\n{text}".encode())

    def write_results(self, found: dict[str, Any]) -> None:
        replace_file(self.path / RESULTS, json.dumps(found, indent=1).encode())

    def results(self) -> dict[str, Any]:
        return read_json(self.path / RESULTS, SWEPT, f"`tenfold resume {self.path}` writes it anew")


def write_plan(path: Path, about: dict[str, Any], plan: Plan) -> None:
    about = about | {"plan": asdict(plan)}
    replace_file(path / PLAN, json.dumps(about, indent=1).encode())
    mark_modules(path, plan.search)


def about_sweep(path: Path) -> dict[str, Any]:
    return read_json(path / PLAN, SWEEP, "put back what was there, or start a new sweep")


def scores_of(path: Path) -> dict[int, float]:
    """A run's evaluations by their steps: what the best checkpoint has most of."""
    return {
        row["step"]: rank(row)[1]
        for row in read_rows(path / "metrics.jsonl", episodes=False)
        if row["kind"] != "train"
    }


def evaluations(paths: Sequence[Path]) -> list[tuple[int, np.ndarray]]:
    """The first, second, … evaluation that every run has: a step, and the scores of all. (Actors in
    processes may bring runs a few steps apart.)"""
    found = [list(scores_of(path).items()) for path in paths]
    return [
        (those[0][0], np.array([score for _, score in those]))
        for those in zip(*found, strict=False)
    ]


def about_of_sweep(path: Path) -> str:
    """A sweep in a few words."""
    try:
        folder = SweepFolder.open(path)
    except UserError as error:
        return str(error)
    begun = sum(is_seeds(below) for below in path.glob("trial-*"))
    end = "finished" if (path / RESULTS).is_file() else f"{begun} begun, not finished"
    return f"sweep of {folder.title}, {end}"


def steps_of(folder: SeedsFolder) -> int:
    """How far its seeds are together."""
    return sum(latest_row(path / "metrics.jsonl").get("step", 0) for path in folder.members)
