"""A search over settings: trials of several seeds each, drawn and pruned by Optuna, ranked by the
interquartile mean over the seeds, and the winner confirmed on seeds that no trial has seen, beside
the settings it began with.

All seeds of a trial are trained up to an evaluation (a rung), then it is decided whether the trial
goes on: runs stop there and are resumed, which changes no bit of them. Whoever has nothing to do
begins with the next trial meanwhile.
"""

import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run, settings_of
from tenfold.config.search import (
    Choices,
    Search,
    Space,
    default_drawn,
    drawn_run,
    searches,
)
from tenfold.core.errors import ActorFault, ConfigError, UserError
from tenfold.core.given import require_named
from tenfold.core.processes import require_guard
from tenfold.runs.folder import is_sweep
from tenfold.runs.names import Numbered, Target, destination, run_name, turn_latest
from tenfold.runs.report import write_seeds_report
from tenfold.runs.seeds import SeedsFolder, alone
from tenfold.runs.statistics import together
from tenfold.runs.sweep import Plan, SweepFolder, evaluations
from tenfold.runs.sweep_page import write_sweep_report
from tenfold.training.cluster import Place
from tenfold.training.display import Display
from tenfold.training.many import fit
from tenfold.training.trials import Confirmation, Trials, carry_out_tasks

PRUNERS = ("median", "hyperband", "none")
MOST_TRIALS = 100_000


@dataclass(frozen=True)
class SweepResult:
    """A sweep that ended. `found` is what results.json holds; `interrupted` the signal that stopped
    it early, or 0; `best` the winner's settings, None where it has no winner yet."""

    path: Path
    found: dict[str, Any]
    best: Run | None = None
    interrupted: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def require_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            "A sweep needs Optuna, which is not installed: pip install 'tenfold[sweep]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


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
    what, run = run, settings_of(run, {})
    place = Place.of(run, bool(storage))
    wanted = searches(run, search)
    plan = replace(plan_of(search, trials, seeds, confirm, pruner), shared=place.shared)
    if not 0 < run.eval_every <= run.steps:
        raise ConfigError(
            "eval_every",
            f"= {run.eval_every:,} leaves a run of {run.steps:,} steps without an evaluation, and "
            "trials are ranked by them: set it to a part of the steps, such as a fifth.",
        )
    require_guard()
    require_named(run.env)
    if not isinstance(out, Numbered):  # which has a name of its own
        out = destination(out, f"sweep-{run_name(what, run)}", overwrite, storage)
    target = own_folder(out, run, plan, overwrite)
    at_once = fit(run, len(plan.seeds), quiet)
    if isinstance(target, Path) and is_sweep(target) and not overwrite:
        folder = SweepFolder.open(target)
        folder = folder.locked(max(trials, folder.plan.trials), run)
        turn_latest(target)
    else:
        folder = SweepFolder.create(target, run, plan)
    return carry_out(folder, wanted, jobs, quiet, at_once)


def resume_sweep(
    path: str | Path, *, jobs: int = 0, quiet: bool = False, trust: bool = False
) -> SweepResult:
    """Goes on with a sweep that was stopped; `trust` allows modules that somebody else's sweep
    names to be imported."""
    require_optuna()
    require_guard()
    folder = SweepFolder.open(Path(path), trust)
    folder = folder.locked(folder.plan.trials, folder.run)
    wanted = searches(folder.run, folder.plan.search)
    at_once = fit(folder.run, len(folder.plan.seeds), quiet)
    turn_latest(folder.path)
    return carry_out(folder, wanted, jobs, quiet, at_once)


def plan_of(
    search: Mapping[str, Any],
    trials: int,
    seeds: int | tuple[int, ...],
    confirm: int,
    pruner: str,
) -> Plan:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0:
        raise ConfigError(
            "seeds",
            f"= {list(chosen)} cannot be: give at least one, none of them twice or below 0.",
        )
    for key, value, least in (("trials", trials, 1), ("confirm", confirm, 0)):
        if not least <= value <= MOST_TRIALS:
            raise ConfigError(key, f"= {value} must be between {least} and {MOST_TRIALS:,}.")
    if pruner not in PRUNERS:
        raise ConfigError("pruner", f"= {pruner} is not one of {', '.join(PRUNERS)}.")
    held_out = tuple(range(max(chosen) + 1, max(chosen) + 1 + confirm))
    written = {
        path.replace("-", "_"): list(space) if isinstance(space, list | tuple) else str(space)
        for path, space in search.items()
    }
    return Plan(written, trials, chosen, held_out, pruner)


def own_folder(target: Target, run: Run, plan: Plan, overwrite: bool) -> Target:
    """Where the sweep is kept: the folder it goes on in, or that of a new one."""

    def other(path: Path) -> str:
        return SweepFolder.open(path).other_than(run, plan) if is_sweep(path) else "kind"

    if isinstance(target, Numbered):
        taken = itertools.takewhile(os.path.lexists, target)
        return next((path for path in taken if not other(path)), target)
    if target.exists() and any(target.iterdir()):
        if not is_sweep(target):
            raise UserError(f"{target} exists and is no sweep: choose another folder with --out.")
        if not overwrite and (changed := other(target)):
            raise UserError(
                f"{target} holds a sweep with another {changed}: replace it with --overwrite, or "
                "choose another folder with --out."
            )
    return target


def distribution_of(space: Space) -> Any:
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    if isinstance(space, Choices):
        return CategoricalDistribution(space.values)
    kind: Any = IntDistribution if space.whole else FloatDistribution
    return kind(space.low, space.high, log=space.log)


def study_of(folder: SweepFolder, wanted: tuple[Search, ...]) -> Any:
    """The study of a sweep, new or as it was left. What a sampler draws at random depends on how
    many trials there are already, so that a resume does not repeat itself."""
    import optuna

    run, plan = folder.run, folder.plan
    storage = optuna.storages.RDBStorage(folder.study)
    study = optuna.create_study(
        storage=storage, study_name="sweep", direction="maximize", load_if_exists=True
    )
    seed = np.random.SeedSequence((run.seed, len(study.get_trials(deepcopy=False))))
    study.sampler = optuna.samplers.TPESampler(
        seed=int(seed.generate_state(1)[0]),
        n_startup_trials=max(4, min(10, plan.trials // 4)),
    )
    study.pruner = {
        "median": lambda: optuna.pruners.MedianPruner(n_startup_trials=4),
        "hyperband": lambda: optuna.pruners.HyperbandPruner(run.eval_every, run.steps),
        "none": optuna.pruners.NopPruner,
    }[plan.pruner]()
    default = default_drawn(run, wanted)
    if default and not study.get_trials(deepcopy=False):
        study.enqueue_trial(default)  # so that the winner is no worse on the seeds of the trials
    return study


def carry_out(
    folder: SweepFolder, wanted: tuple[Search, ...], jobs: int, quiet: bool, at_once: bool
) -> SweepResult:
    plan, study = folder.plan, study_of(folder, wanted)
    spaces = {name: distribution_of(s) for one in wanted for name, s in one.spaces.items()}
    display = Display(f"{folder.title}", 0, 0, quiet)
    place = Place.of(folder.run, plan.shared and folder.run.where == "ray")
    how = "a trial's seeds together" if at_once else f"runs {place.words(jobs)}"
    display.announce(f"{folder.title} ({how}) -> {folder.path}", folder.run)
    trials = Trials(folder, study, wanted, spaces, display)
    try:
        stopped = carry_out_tasks(trials, place, jobs, at_once)
        found: dict[str, Any] = {"trials": [row_of(trial) for trial in finished(study)]}
        winner = winner_of(found["trials"])
        if stopped:
            best = drawn_run(alone(folder.run), wanted, winner["params"]) if winner else None
            return SweepResult(folder.path, found, best, stopped)
        if winner is None:
            why = next((row["why"] for row in found["trials"] if row["why"]), "none ended")
            raise UserError(f"All {plan.trials} trials failed. The first: {why}")
        best = drawn_run(alone(folder.run), wanted, winner["params"])
        folder.write_best(best)
        found |= {"winner": winner["number"], "importance": importances(study)}
        confirmation = Confirmation(folder, best, display)
        if stopped := carry_out_tasks(confirmation, place, jobs, at_once):
            return SweepResult(folder.path, found, best, stopped)
    except ActorFault as fault:  # the cluster's head is gone
        raise fault.adding(f"`tenfold resume {folder.path}` goes on.") from None
    finally:
        display.close()
        study._storage.remove_session()
        if folder.lock:
            folder.lock.release()
    found["confirmed"] = {
        name: confirmed(own, confirmation.errors) for name, own in confirmation.folders.items()
    }
    found["verdict"] = verdict(found, best == alone(folder.run))
    folder.write_results(found)
    write_sweep_report(folder)
    return SweepResult(folder.path, found, best, 0, confirmation.errors)


def finished(study: Any) -> list[Any]:
    return [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]


def row_of(trial: Any) -> dict[str, Any]:
    """A trial as results.json has it."""
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "params": trial.params,
        "value": trial.value,
        "values": {str(step): value for step, value in sorted(trial.intermediate_values.items())},
        "scores": trial.user_attrs.get("scores", []),
        "why": trial.user_attrs.get("why", ""),
    }


def winner_of(rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The best at the end; of several that are equal there, the one that was best on its way."""
    whole = [row for row in rows if row["state"] == "complete"]
    return max(
        whole, key=lambda row: (row["value"], np.mean([*row["values"].values()])), default=None
    )


def importances(study: Any) -> dict[str, float]:
    """Each parameter's share in what distinguishes good trials; nothing where there are too few."""
    import optuna

    if len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))) < 4:
        return {}
    try:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        return optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # all of them are equal
        return {}


def confirmed(folder: SeedsFolder, errors: Mapping[str, str]) -> dict[str, Any]:
    """What held-out seeds came to."""
    name = folder.path.name
    failed = {
        seed: errors[key] for seed in folder.seeds if (key := f"{name}, seed {seed}") in errors
    }
    whole = [
        path for seed, path in zip(folder.seeds, folder.members, strict=True) if seed not in failed
    ]
    last = evaluations(whole)[-1:] if whole else []
    if whole and not failed:
        write_seeds_report(folder)
    found = together(last[0][1].tolist()) if last else {}
    return found | {"failed": {str(seed): words for seed, words in failed.items()}}


def verdict(found: dict[str, Any], same: bool) -> str:
    """One sentence about the winner on held-out seeds; empty where there are none."""
    winner, default = (found["confirmed"].get(name, {}) for name in ("winner", "default"))
    if same:
        return "No trial beat the default settings: they are the winner."
    if not winner:
        return ""
    if winner["failed"] or winner["iqm"] <= default.get("iqm", float("-inf")):
        return "The winner did not beat the default settings on held-out seeds."
    if winner["interval"][0] <= default.get("interval", [0.0, float("-inf")])[1]:
        return (
            "The winner beat the default settings on held-out seeds, though their intervals "
            "overlap."
        )
    return "The winner beat the default settings on held-out seeds."
