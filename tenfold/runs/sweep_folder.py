"""A sweep's folder: its plan, the study (SQLite, which Optuna's dashboard opens), a folder of seeds
for each trial, the held-out seeds of the winner and of the default settings, and the results."""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import yaml

from tenfold.config.files import Trust, require_trust
from tenfold.config.notation import differing
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.envs.making import resolve_paths
from tenfold.runs.checkpoint import checkpoint_steps
from tenfold.runs.file_schema import NOTE, POOLED, SWEEP, SWEPT, is_number, misfit, read_json
from tenfold.runs.folder import (
    SWEEP_KIND,
    RunFolder,
    is_run,
    is_seeds,
    is_sweep,
    mark_modules,
    origin,
    read_settings,
    write_settings,
)
from tenfold.runs.metrics import latest_row, outcome, read_rows
from tenfold.runs.seeds import SeedsFolder, alone
from tenfold.runs.statistics import Outcome
from tenfold.runs.storage import (
    FolderLock,
    Target,
    install,
    read_note,
    replace_file,
    resolve_latest,
    write_json,
    writing,
)

PLAN, RESULTS, STUDY, BEST = "sweep.json", "results.json", "study.db", "best.yaml"


PUT_BACK = "put back what was there, or start a new sweep"
Row = dict[str, Any]


@dataclass(frozen=True)
class SweepPlan:
    """The settings of a sweep, besides its run."""

    search: dict[str, Any]  # by settings' names, as they were written
    trials: int
    seeds: tuple[int, ...]
    held_out: tuple[int, ...]  # those that the winner is confirmed on
    pruner: str
    shared: bool = False  # every machine of the cluster sees the sweep's folder


@dataclass(frozen=True)
class SweepFolder:
    """A new one is locked as long as the object lives."""

    path: Path
    run: Run
    plan: SweepPlan
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
        """The study's URL, for other tools such as Optuna's dashboard."""
        return f"sqlite:///{quote(str((self.path / STUDY).absolute()))}"

    def seeds_in(self, name: str, run: Run, seeds: tuple[int, ...]) -> SeedsFolder:
        """The seeds of a trial or of a confirmation; created if missing."""
        path = self.path / name
        if path.exists() and not is_seeds(path):
            raise UserError(
                f"{path} holds no seeds that can be read (seeds.json): {trained_anew(path)}."
            )
        if is_seeds(path):
            existing = SeedsFolder.open(path, self.trust)
            if existing.seeds == seeds and not differing(to_mapping(existing.run), to_mapping(run)):
                return existing
        made = SeedsFolder.create(path, run, seeds, overwrite=True)
        if made.lock:
            made.lock.release()  # the sweep's own is enough
        return made

    def seeds_of_trial(self, number: int, run: Run) -> SeedsFolder:
        """The seeds of a trial. Never replaces existing ones that differ."""
        path = self.path / f"trial-{number}"
        if is_seeds(path):
            existing = SeedsFolder.open(path)
            if existing.seeds != self.plan.seeds:
                raise UserError(f"{path} holds other seeds than the sweep's: {trained_anew(path)}.")
            if other := next(iter(differing(to_mapping(existing.run), to_mapping(run))), ""):
                raise UserError(
                    f"{path} was trained with another {other} than drawn: {trained_anew(path)}."
                )
        return self.seeds_in(path.name, run, self.plan.seeds)

    @classmethod
    def create(cls, target: Target, run: Run, plan: SweepPlan) -> "SweepFolder":
        run = replace(run, env=resolve_paths(run.env))

        def fill(made: Path) -> None:
            write_settings(made, run)
            write_plan(made, origin(SWEEP_KIND), plan)

        path, lock = install(target, fill)
        return cls(path, run, plan, lock)

    @classmethod
    def open(cls, path: Path, trust: Trust = False) -> "SweepFolder":
        path = resolve_latest(path)
        plan = about_sweep(path)["plan"]
        require_trust(path, plan["search"], trust)
        settings: dict[str, Any] = {one.name: plan[one.name] for one in fields(SweepPlan)}
        seeds, held_out = tuple(plan["seeds"]), tuple(plan["held_out"])
        if len({*seeds, *held_out}) < len(seeds) + len(held_out):
            raise UserError(f"{path / PLAN}: a seed is there twice; {PUT_BACK}.")
        settings |= {"seeds": seeds, "held_out": held_out}
        return cls(path, read_settings(path, trust), SweepPlan(**settings), trust=trust)

    def locked(self, trials: int, run: Run) -> "SweepFolder":
        """The locked folder with this number of trials and the location of `run`."""
        lock, plan = FolderLock(self.path), replace(self.plan, trials=trials)
        run = replace(self.run, where=run.where, address=run.address)
        if plan != self.plan or run != self.run:
            with writing(self.path):
                write_settings(self.path, run)
                write_plan(self.path, about_sweep(self.path), plan)
        return replace(self, run=run, plan=plan, lock=lock)

    def other_than(self, run: Run, plan: SweepPlan) -> str:
        """The name of the first difference to another sweep; empty if they differ only in the
        number of trials."""
        mine, others = asdict(replace(self.plan, trials=1)), asdict(replace(plan, trials=1))
        if different := [name for name in mine if mine[name] != others[name]]:
            return different[0]
        run = replace(run, env=resolve_paths(run.env))
        return next(iter(differing(to_mapping(alone(self.run)), to_mapping(alone(run)))), "")

    def write_best(self, run: Run) -> None:
        text = yaml.safe_dump(to_mapping(run), sort_keys=False)
        mark_modules(self.path, to_mapping(run))
        with writing(self.path / BEST):
            replace_file(self.path / BEST, f"# the winner of {self.path.name}\n{text}".encode())

    def write_results(self, results: dict[str, Any]) -> None:
        with writing(self.path / RESULTS):
            write_json(self.path / RESULTS, results)

    def results(self) -> dict[str, Any]:
        if not (self.path / RESULTS).exists():
            raise UserError(
                f"{self.path} is a sweep that has not ended, and its results come at the end: "
                f"`tenfold resume {self.path}` goes on with it, and `tenfold watch {self.path}` "
                "shows its trials."
            )
        advice = f"`tenfold resume {self.path}` writes it anew"
        results = read_json(self.path / RESULTS, SWEPT, advice)
        if wrong := misfit_of_results(results):
            raise UserError(f"{self.path / RESULTS}: {wrong}; {advice}.")
        return results

    def best_text(self) -> str:
        """What best.yaml holds."""
        path = self.path / BEST
        advice = f"`tenfold resume {self.path}` writes it anew"
        try:
            return path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise UserError(f"{path} cannot be read ({reason}): {advice}.") from None


def misfit_of_results(results: Row) -> str:
    """Describes contradictions in results.json; empty if there are none."""
    rows = results["trials"]
    numbers = [row["number"] for row in rows]
    if len(set(numbers)) < len(numbers):
        return "a trial is there twice"
    best = next((row for row in rows if row["number"] == results["winner"]), None)
    if best is None or best["value"] is None:
        return f"the winner, trial {results['winner']}, is none of its trials that have a value"
    for row in rows:
        where = f"trial {row['number']}"
        if row["value"] is not None and row["params"].keys() != best["params"].keys():
            return f"{where} has other parameters than the winner"
        if not all(
            value is None or isinstance(value, str | bool) or is_number(value)
            for value in row["params"].values()
        ):
            return f"{where} has a parameter that is no value of a setting"
        if not all(step.isdecimal() for step in (*row["values"], *row.get("successes", ()))):
            return f"{where} has a step that is no number"
    for name, confirmed in results["confirmed"].items():
        if "iqm" in confirmed and (wrong := misfit(confirmed, POOLED, f"confirmed.{name}")):
            return wrong
    return ""


def write_plan(path: Path, about: dict[str, Any], plan: SweepPlan) -> None:
    about = about | {"plan": asdict(plan)}
    write_json(path / PLAN, about)
    mark_modules(path, plan.search)


def about_sweep(path: Path) -> dict[str, Any]:
    return read_json(path / PLAN, SWEEP, PUT_BACK)


def require_plan(path: Path) -> None:
    """Refuses a folder whose sweep.json is not that of a sweep."""
    if os.path.lexists(path / PLAN) and not is_sweep(path):
        about_sweep(path)
        raise UserError(f"{path / PLAN} is not a sweep's: {PUT_BACK}.")


def outcomes_of(path: Path) -> dict[int, Outcome]:
    """A run's evaluations by their steps."""
    return {
        row["step"]: outcome(row)
        for row in read_rows(path / "metrics.jsonl", episodes=False)
        if row["kind"] != "train"
    }


def evaluations(paths: Sequence[Path]) -> list[tuple[int, list[Outcome]]]:
    """The first, second, … evaluation of all runs: a step, and the outcomes. (Steps of runs with
    actor processes may differ slightly.)"""
    by_run = [list(outcomes_of(path).items()) for path in paths]
    return [
        (those[0][0], [outcome for _, outcome in those]) for those in zip(*by_run, strict=False)
    ]


def trained_anew(path: Path) -> str:
    return f"put back what was there, or delete {path}; it is then trained anew"


def require_run(path: Path) -> None:
    """Refuses a seed's folder that holds files but no readable run: training it anew would delete
    them."""
    if not path.exists() or is_run(path):
        return
    if not path.is_dir() or (path / "run.json").exists() or checkpoint_steps(path):
        raise UserError(f"{path} holds no run that can be read (run.json): {trained_anew(path)}.")


def require_metrics(folder: SeedsFolder, until: int) -> None:
    """Refuses runs that have lost evaluations before a step. One that was stopped in its last
    evaluation has lost none: its checkpoint says that it is still to come."""
    for path in folder.members:
        missing = until // folder.run.eval_every - len(outcomes_of(path))
        steps = checkpoint_steps(path)
        if missing <= 0 or not steps or steps[-1] < until:
            continue
        checkpoint = RunFolder(path).checkpoints / f"step-{steps[-1]:012d}.safetensors"
        note = read_note(checkpoint, NOTE)
        if missing > note["owes_evaluation"]:
            raise UserError(f"{path / 'metrics.jsonl'} has lost evaluations: {trained_anew(path)}.")


def describe_sweep(path: Path) -> str:
    """One line about a sweep."""
    try:
        folder = SweepFolder.open(path)
    except UserError as error:
        return str(error)
    begun = sum(is_seeds(below) for below in path.glob("trial-*"))
    end = "finished" if (path / RESULTS).is_file() else f"{begun} begun, not finished"
    return f"sweep of {folder.title}, {end}"


def steps_of(folder: SeedsFolder) -> int:
    """The sum of the seeds' steps."""
    return sum(latest_row(path / "metrics.jsonl").get("step", 0) for path in folder.members)
