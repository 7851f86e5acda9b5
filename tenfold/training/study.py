"""The Optuna study of a sweep: draws settings and prunes trials; stored in the sweep's folder.

Optuna ranks by one number. Trials are ranked by two, the share of successes and then the return, so
the number is made of both (`as_number`), and its samplers, pruners, importances and best trial see
the order that the winner is chosen by. What a trial draws is a function of its number and of the
trials that had ended before, so that a sweep which was killed goes on as if it had not been.
"""

import contextlib
import math
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.config.search import Choices, Search, Space, default_drawn
from tenfold.core.errors import UserError
from tenfold.runs.file_schema import TRIAL, misfit
from tenfold.runs.sweep_folder import STUDY, SweepFolder, SweepPlan

NAME = "sweep"  # of the study in its file
HEADER = b"SQLite format 3\0"
NUMBERS = (
    "SELECT number FROM trials JOIN studies USING (study_id) WHERE study_name = ? ORDER BY number"
)
TABLES = {
    "studies",
    "study_directions",
    "trials",
    "trial_params",
    "trial_values",
    "trial_intermediate_values",
    "trial_user_attributes",
    "trial_system_attributes",
    "version_info",
}
PATIENCE = 60.0  # seconds that another reader of the file, such as a dashboard, is waited for
# What successes of all episodes count: far more than any return does, and a hundred-thousandth of a
# return is still told apart beside it.
SUCCESS = 1e11
# SQLite's errors about files that are whole
INTACT_FILE_ERRORS = ("SQLITE_READONLY", "SQLITE_BUSY", "SQLITE_LOCKED", "SQLITE_FULL")
TOLERANCE = 1e-6  # a value as it is written and read again
LOG_ABOVE = 1e6  # returns beyond it, up or down, count by their logarithms only
Row = dict[str, Any]


def require_optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise UserError(
            "A sweep needs Optuna, which is not installed: pip install 'tenfold[sweep]'."
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


# the file


def open_study(folder: SweepFolder, search: tuple[Search, ...]) -> Any:
    """Opens or creates the study of a sweep; a UserError if its file is damaged or of another
    sweep."""
    import optuna

    path, begun = folder.path / STUDY, any(folder.path.glob("trial-*/seeds.json"))
    require_file(path, begun)
    try:
        study = optuna.create_study(
            storage=storage_of(path),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
            sampler=sampler_of(folder.run, folder.plan, 0, 0),
            pruner=pruner_of(folder.run, folder.plan),
        )
        trials = study.get_trials(deepcopy=False)
        wrong = misfit_of_trials(study, trials, distributions(search))
    except Exception as error:  # Optuna says in a dozen ways that it cannot read something
        raise damaged(path, error) from None
    if wrong:
        study._storage.remove_session()
        raise UserError(f"{path} is damaged ({wrong}): {advice(folder.path)}.")
    default = default_drawn(folder.run, search)
    if default and not trials:
        with study_file(path):
            study.enqueue_trial(default)  # so that the winner is no worse on the trials' seeds
    return study


def require_file(path: Path, begun: bool) -> None:
    """Refuses a file that is no study before Optuna writes into it, and a missing file if trials
    have begun."""
    if not path.exists():
        if begun:
            raise UserError(f"{path} is missing, and trials have begun: {advice(path.parent)}.")
        return
    try:
        with path.open("rb") as file:
            start = file.read(len(HEADER))
        if not start and not begun:
            return  # killed before its first page was written
        if start != HEADER:
            raise UserError(f"{path} is damaged (it is no SQLite file): {advice(path.parent)}.")
        with contextlib.closing(connection(path)) as database:
            ((state,),) = database.execute("PRAGMA quick_check(1)").fetchall()
            tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master")}
            numbers = database.execute(NUMBERS, (NAME,)).fetchall() if tables >= TABLES else []
    except (OSError, sqlite3.Error, ValueError) as error:
        raise damaged(path, error) from None
    if state != "ok":
        raise UserError(f"{path} is damaged ({one_line(state)}): {advice(path.parent)}.")
    if begun and not numbers:
        raise UserError(f"{path} is damaged (it holds no trials): {advice(path.parent)}.")
    if numbers != [(number,) for number in range(len(numbers))]:
        reason = "its trials are not numbered one by one"
        raise UserError(f"{path} is damaged ({reason}): {advice(path.parent)}.")


def connection(path: Path) -> sqlite3.Connection:
    """Connects by file name: in a URL `?`, `%` and braces have other meanings."""
    return sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)


def storage_of(path: Path) -> Any:
    import optuna
    from sqlalchemy.pool import QueuePool

    how = {"creator": lambda: connection(path), "poolclass": QueuePool}
    return optuna.storages.RDBStorage("sqlite://", engine_kwargs=how)


@contextlib.contextmanager
def study_file(path: Path) -> Iterator[None]:
    """Turns errors of Optuna and SQLite about the study's file into a UserError."""
    from optuna.exceptions import OptunaError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (OptunaError, SQLAlchemyError, sqlite3.Error) as error:
        raise unusable(path, error) from None


def unusable(path: Path, error: BaseException) -> UserError:
    return UserError(
        f"{path} cannot be read or written ({one_line(error.__cause__ or error)}): what was "
        f"trained is kept, and `tenfold resume {path.parent}` goes on once it can be."
    )


def damaged(path: Path, error: BaseException) -> UserError:
    cause = error.__cause__ or error
    name = getattr(getattr(cause, "orig", cause), "sqlite_errorname", "")
    if name.startswith(INTACT_FILE_ERRORS):
        return unusable(path, error)
    return UserError(f"{path} cannot be read ({one_line(cause)}): {advice(path.parent)}.")


def one_line(error: object) -> str:
    """The first line of an error's message, or its type where that is empty."""
    text = str(getattr(error, "strerror", None) or error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__


def advice(folder: Path) -> str:
    return (
        f"put back what was there, or search anew in another folder (--out); the trials below "
        f"{folder} are kept as they are"
    )


# what is in it


def misfit_of_trials(study: Any, trials: list[Any], spaces: Mapping[str, Any]) -> str:
    """Describes what in a study does not belong to this sweep; empty if nothing."""
    if study.direction.name != "MAXIMIZE":
        return "its direction is not to maximize"
    for trial in trials:
        where, state, row = f"trial {trial.number}", trial.state.name, row_of(trial)
        if wrong := misfit(row, TRIAL):
            return f"{where}: {wrong}"
        if state in ("COMPLETE", "PRUNED") and (row["value"] is None or trial.value is None):
            return f"{where} has no value"
        if state == "COMPLETE" and "evaluations" in trial.user_attrs:
            number = as_number(row.get("success"), row["value"])
            if not math.isclose(trial.value, number, abs_tol=TOLERANCE):
                return f"{where} has another value than its last evaluation"
        if state in ("COMPLETE", "PRUNED") and trial.params.keys() != spaces.keys():
            return f"{where} has other parameters than are searched over"
        for name, distribution in trial.distributions.items():
            if distribution != spaces.get(name):
                return f"{where}: {name} was drawn from another space"
    return ""


def row_of(trial: Any) -> Row:
    """A trial as a row of results.json: its last evaluation over its seeds."""
    attributes = trial.user_attrs
    outcomes = attributes.get("evaluations")
    if outcomes is None:  # written before successes were told apart from scores
        outcomes = {str(s): [None, v] for s, v in sorted(trial.intermediate_values.items())}
        if not outcomes and trial.value is not None:
            outcomes = {"0": [None, trial.value]}
    if wrong := misfit_of_outcomes(outcomes):
        raise ValueError(f"trial {trial.number}: {wrong}")
    success, score = next(reversed(outcomes.values()), [None, None])
    tells_success = any(rate is not None for rate, _ in outcomes.values())
    rates = {step: rate or 0.0 for step, (rate, _) in outcomes.items()}
    return {
        "number": trial.number,
        "state": trial.state.name.lower(),
        "params": trial.params,
        "value": None if trial.state.name == "FAIL" else score,
        "values": {step: score_at for step, (_, score_at) in outcomes.items()},
        "scores": attributes.get("scores", []),
        "why": attributes.get("why", ""),
    } | ({"success": success or 0.0, "successes": rates} if tells_success else {})


def misfit_of_outcomes(outcomes: Any) -> str:
    if not isinstance(outcomes, dict):
        return "its evaluations are no table"
    for step, pair in outcomes.items():
        if not (isinstance(pair, list) and len(pair) == 2 and step.isdecimal()):
            return f"its evaluation at step {step} is no pair"
        if not is_score(pair[1]) or not (pair[0] is None or is_score(pair[0])):
            return f"its evaluation at step {step} is no number"
    return ""


def is_score(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def finished_rows(study: Any) -> list[Row]:
    trials = study.get_trials(deepcopy=False)
    return [row_of(trial) for trial in trials if trial.state.is_finished()]


def as_number(success: float | None, score: float) -> float:
    """One number that orders (success, score) pairs: more successes first, among equals the higher
    score. Without successes it is the score (up to a million)."""
    if abs(score) > LOG_ABOVE:
        score = math.copysign(LOG_ABOVE * (1 + math.log(abs(score) / LOG_ABOVE)), score)
    return SUCCESS * (success or 0.0) + score


# what it does


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


def distributions(search: tuple[Search, ...]) -> dict[str, Any]:
    return {name: distribution_of(s) for one in search for name, s in one.spaces.items()}


def draw(study: Any, folder: SweepFolder, trial: Any, spaces: Mapping[str, Any]) -> Row:
    """Draws the settings of a trial. Each setting has a sampler of its own, seeded by the trial's
    number: a trial drawn before a kill does not change the next."""
    params = {}
    for index, (name, space) in enumerate(spaces.items()):
        study.sampler = sampler_of(folder.run, folder.plan, trial.number, index)
        params[name] = trial._suggest(name, space)
    return params


def sampler_of(run: Run, plan: SweepPlan, number: int, index: int) -> Any:
    import optuna

    seed = np.random.SeedSequence((run.seed, number, index))
    return optuna.samplers.TPESampler(
        seed=int(seed.generate_state(1)[0]),
        n_startup_trials=max(4, min(10, plan.trials // 4)),
    )


def pruner_of(run: Run, plan: SweepPlan) -> Any:
    import optuna

    if plan.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4)
    if plan.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner(run.eval_every, run.steps)
    return optuna.pruners.NopPruner()


def importances(study: Any) -> dict[str, float]:
    """Each parameter's share in the difference between good trials and the others; empty with fewer
    than four trials."""
    import optuna

    if len(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))) < 4:
        return {}
    try:
        with warnings.catch_warnings():  # trials that no values tell apart have no importances
            warnings.filterwarnings("error", "Target and region quantiles select the same")
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            return optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError, UserWarning):  # all of them are equal
        return {}
