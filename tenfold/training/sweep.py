"""Hyperparameter search: Optuna draws and prunes trials of several seeds each; they are ranked by
the interquartile mean over the seeds, and the winner is compared with the original settings on
held-out seeds.

All seeds of a trial are trained up to an evaluation (a rung), then it is decided whether the trial
goes on: runs stop there and are resumed, which changes no bit of them. Whoever has nothing to do
begins with the next trial meanwhile.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.files import require_trusted_cluster, resolve_run
from tenfold.config.run import Run
from tenfold.config.search import Search, drawn_run, searches
from tenfold.core.errors import ActorFault, ConfigError, UserError
from tenfold.core.processes import require_guard
from tenfold.core.user_envs import require_named
from tenfold.runs.file_schema import MOST_TRIALS, PRUNERS
from tenfold.runs.folder import destination, folder_to_continue, is_sweep, run_name
from tenfold.runs.report import write_seeds_report, write_sweep_report
from tenfold.runs.reporter import order_of
from tenfold.runs.seeds import SeedsFolder, alone
from tenfold.runs.statistics import LEAST, success_rates, together
from tenfold.runs.storage import Numbered, update_latest, writing
from tenfold.runs.sweep_folder import STUDY, SweepFolder, SweepPlan, evaluations, require_plan
from tenfold.training.display import Display
from tenfold.training.run_group import check_and_warm_up
from tenfold.training.study import (
    finished_rows,
    importances,
    open_study,
    require_optuna,
    study_file,
)
from tenfold.training.trials import Confirmation, Trials, run_tasks
from tenfold.training.worker_pool import Executor

EVALUATIONS = 5  # of a run that would end before its first


@dataclass(frozen=True)
class SweepResult:
    """A sweep that ended. `results` is the content of results.json; `interrupted` the signal that
    stopped it early, or 0; `best` the winner's settings, None without a winner."""

    path: Path
    results: dict[str, Any]
    best: Run | None = None
    interrupted: int = 0
    failed: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        """One line: the trials are in `results`."""
        winner = self.results.get("winner")
        best = "no winner yet" if winner is None else f"trial {winner} is the winner"
        return f"<{self.path}: sweep of {len(self.results['trials'])} trials, {best}>"


def sweep(
    run: Run | str,
    search: Mapping[str, Any],
    trials: int = 40,
    seeds: int | tuple[int, ...] = 4,
    out: str | Path | Numbered = "",
    *,
    pruner: str = "median",
    confirm: int = 8,
    jobs: int = 0,
    overwrite: bool = False,
    quiet: bool = False,
    storage: str | Path = "",
) -> SweepResult:
    """Searches for better settings of `run`, or of a preset by its name: `search` are spaces by the
    settings' names, such as {"agent.lr": "log(1e-4, 1e-2)", "agent.n_step": [1, 3, 5]}. Each trial
    is trained with `seeds`; the winner and `run` as it is with `confirm` other ones. Called again
    it goes on where it stopped. Without `out` the folder is the first of runs/sweep-NAME,
    runs/sweep-NAME-2, … that holds this sweep or is free. A run with `where` = ray: each seed is a
    task of the Ray cluster at its `address`, and its files come here, or stay below `storage`,
    which all machines share."""
    require_optuna()
    what, run = run, resolve_run(run, {})
    executor = Executor.of(run, bool(storage))
    spaces = searches(run, search)
    plan = replace(plan_of(search, trials, seeds, confirm, pruner), shared=executor.shared)
    run = with_evaluations(run, quiet)
    require_guard()
    require_named(run.env)
    if not isinstance(out, Numbered):  # which has a name of its own
        out = destination(out, f"sweep-{run_name(what, run)}", overwrite, storage)

    def changed_setting(path: Path) -> str:
        require_plan(path)
        return SweepFolder.open(path).other_than(run, plan) if is_sweep(path) else "kind"

    if isinstance(out, Path) and not overwrite:
        require_plan(out)
    target = folder_to_continue(out, "sweep", is_sweep, changed_setting, overwrite)
    seeds_together = check_and_warm_up(run, len(plan.seeds), quiet).together
    if isinstance(target, Path) and is_sweep(target) and not overwrite:
        folder = SweepFolder.open(target)
        folder = folder.locked(max(trials, folder.plan.trials), run)
        update_latest(target)
    else:
        folder = SweepFolder.create(target, run, plan)
    return run_sweep(folder, spaces, jobs, quiet, seeds_together)


def resume_sweep(
    path: str | Path, *, jobs: int = 0, quiet: bool = False, trust: bool = False
) -> SweepResult:
    """Resumes a sweep; `trust` allows modules that somebody else's sweep names to be imported."""
    require_optuna()
    require_guard()
    require_plan(Path(path))
    folder = SweepFolder.open(Path(path), trust)
    require_trusted_cluster(folder.path, folder.run, trust)
    folder = folder.locked(folder.plan.trials, folder.run)
    spaces = searches(folder.run, folder.plan.search)
    seeds_together = check_and_warm_up(folder.run, len(folder.plan.seeds), quiet).together
    update_latest(folder.path)
    return run_sweep(folder, spaces, jobs, quiet, seeds_together)


def with_evaluations(run: Run, quiet: bool) -> Run:
    """The run with at least one evaluation before its end: where the first would come later, as in
    a preset with fewer steps, it gets five."""
    if run.eval_every == 0:
        raise ConfigError(
            "eval_every",
            f"= 0 leaves a run of {run.steps:,} steps without an evaluation, and trials are ranked "
            "by them: set it to a part of the steps, such as a fifth.",
        )
    if run.eval_every <= run.steps:
        return run
    every = max(run.steps // EVALUATIONS, 1)
    if not quiet:
        print(
            f"Note: eval_every is {every:,} here, a fifth of the {run.steps:,} steps: trials are "
            f"ranked by evaluations, and the first would come after {run.eval_every:,}.",
            file=sys.stderr,
        )
    return replace(run, eval_every=every)


def plan_of(
    search: Mapping[str, Any],
    trials: int,
    seeds: int | tuple[int, ...],
    confirm: int,
    pruner: str,
) -> SweepPlan:
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ConfigError(
            "seeds",
            f"= {list(numbers)} cannot be: give at least one, none of them twice or below 0.",
        )
    for key, value, least in (("trials", trials, 1), ("confirm", confirm, 0)):
        if not least <= value <= MOST_TRIALS:
            raise ConfigError(key, f"= {value} must be between {least} and {MOST_TRIALS:,}.")
    if pruner not in PRUNERS:
        raise ConfigError("pruner", f"= {pruner} is not one of {', '.join(PRUNERS)}.")
    held_out = tuple(range(max(numbers) + 1, max(numbers) + 1 + confirm))
    written = {
        path.replace("-", "_"): list(space) if isinstance(space, list | tuple) else str(space)
        for path, space in search.items()
    }
    return SweepPlan(written, trials, numbers, held_out, pruner)


def run_sweep(
    folder: SweepFolder, spaces: tuple[Search, ...], jobs: int, quiet: bool, seeds_together: bool
) -> SweepResult:
    plan, study = folder.plan, open_study(folder, spaces)
    display = Display(f"{folder.title}", 0, 0, quiet)
    executor = Executor.of(folder.run, plan.shared and folder.run.where == "ray")
    how = "a trial's seeds together" if seeds_together else f"runs {executor.description(jobs)}"
    display.announce(f"{folder.title} ({how}) -> {folder.path}", folder.run)
    try:
        with study_file(folder.path / STUDY):
            trials = Trials(folder, study, spaces, display)
            stopped = run_tasks(trials, executor, jobs, seeds_together)
            results: dict[str, Any] = {"trials": finished_rows(study)}
        winner = winner_of(results["trials"])
        best = drawn_run(alone(folder.run), spaces, winner["params"]) if winner else None
        if stopped:
            return SweepResult(folder.path, results, best, stopped)
        if winner is None or best is None:
            why = next((row["why"] for row in results["trials"] if row["why"]), "none ended")
            raise UserError(f"All {plan.trials} trials failed. The first: {why}")
        folder.write_best(best)
        results |= {"winner": winner["number"], "importance": importances(study)}
        confirmation = Confirmation(folder, best, display)
        if stopped := run_tasks(confirmation, executor, jobs, seeds_together):
            return SweepResult(folder.path, results, best, stopped)
    except ActorFault as fault:  # the cluster's head is gone
        raise fault.adding(f"`tenfold resume {folder.path}` goes on.") from None
    finally:
        display.close()
        study._storage.remove_session()
        if folder.lock:
            folder.lock.release()
    results["confirmed"] = {
        name: confirmed(seeds, confirmation.errors) for name, seeds in confirmation.folders.items()
    }
    results["verdict"] = verdict(results, best == alone(folder.run))
    folder.write_results(results)
    with writing(folder.path / "report.html"):
        write_sweep_report(folder)
    return SweepResult(folder.path, results, best, 0, confirmation.errors)


def winner_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The best trial at its end; among equals the one with the better mean over training."""

    def order(row: dict[str, Any]) -> tuple[float, ...]:
        curves = [[*row.get(column, {}).values()] or [0.0] for column in ("successes", "values")]
        return *order_of(row), *(float(np.mean(curve)) for curve in curves)

    return max((row for row in rows if row["state"] == "complete"), key=order, default=None)


def confirmed(folder: SeedsFolder, errors: Mapping[str, str]) -> dict[str, Any]:
    """The summary of held-out seeds."""
    name = folder.path.name
    failed = {
        seed: errors[key] for seed in folder.seeds if (key := f"{name}, seed {seed}") in errors
    }
    whole = [
        path for seed, path in zip(folder.seeds, folder.members, strict=True) if seed not in failed
    ]
    last = evaluations(whole)[-1:] if whole else []
    if whole and not failed:
        with writing(folder.path / "report.html"):
            write_seeds_report(folder)
    summary: dict[str, Any] = together([score for _, score in last[0][1]]) if last else {}
    if last and (rates := success_rates(last[0][1])):
        summary["success"] = together(rates)
    return summary | {"failed": {str(seed): why for seed, why in failed.items()}}


def verdict(results: dict[str, Any], same: bool) -> str:
    """One sentence about the winner on held-out seeds; empty without any."""
    winner, default = (results["confirmed"].get(name, {}) for name in ("winner", "default"))
    if same:
        return "No trial beat the default settings: they are the winner."
    if not winner:
        return ""
    if winner["failed"] or pair_of(winner) <= pair_of(default):
        return "The winner did not beat the default settings on held-out seeds."
    if pair_of(winner)[0] > pair_of(default)[0]:  # what decided: successes, if told of, or scores
        winner, default = winner["success"], default.get("success", {})
    beat = "The winner beat the default settings on held-out seeds"
    low, high = winner["interval"], default.get("interval")
    if low is None or (default and high is None):
        return f"{beat}, which may be chance: an interval takes {LEAST} of them."
    if high and low[0] <= high[1]:
        return f"{beat}, though their intervals overlap."
    return f"{beat}."


def pair_of(held_out: Mapping[str, Any]) -> tuple[float, float]:
    """Success rate and score of held-out seeds, in the order of the ranking; the lowest where all
    failed."""
    success = held_out.get("success", {}).get("iqm", 0.0)
    return success, held_out.get("iqm", float("-inf"))
