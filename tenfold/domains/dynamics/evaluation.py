"""Evaluates models of hidden systems on recordings that were not trained on, and describes them.
There are no returns: rows of metrics of kind `fit` hold errors of the field and R²."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.protocols import EvalRequest, Evaluated
from tenfold.core.random import Purpose
from tenfold.domains.dynamics import is_recording
from tenfold.domains.dynamics.learned import learned_row
from tenfold.domains.dynamics.model_metrics import ModelMetrics, columns, evaluate_model
from tenfold.domains.dynamics.phase_portrait import sections, write_portrait
from tenfold.domains.dynamics.recording import load_recording
from tenfold.domains.dynamics.validation import Recordings, random_recordings
from tenfold.runs.charts import Curve
from tenfold.runs.file_schema import FieldKind, misfit
from tenfold.runs.folder import RunFolder
from tenfold.runs.metrics import latest_row
from tenfold.runs.page import Section
from tenfold.runs.reporter import Number, Reporter, Row, updates_summary
from tenfold.runs.seeds import SeedsFolder, left_out
from tenfold.runs.statistics import sentence, together
from tenfold.training.learners import load

KIND = "fit"


def shape_of(fit: dict[str, Any]) -> tuple[int, ...]:
    """Members and horizons of a row, whether the field is known, and which bits per spike; empty
    where its parts contradict each other."""
    members, ahead, known = len(fit["r2s"]), len(fit["r2"]), "field_error" in fit
    whole = (
        members
        and {ahead} == {len(r2) for r2 in (*fit["r2s"], fit.get("arx_r2", fit["r2"]))}
        and members == len(fit["elbos"]) == len(fit.get("field_errors", fit["elbos"]))
        and known == ("field_errors" in fit)
    )
    spikes = ("fp_bps" in fit, "co_bps" in fit, len(fit.get("session_bps", ())))
    return (members, ahead, known, *spikes) if whole else ()


FIT = FieldKind(
    "a row whose parts agree", lambda row: not misfit(row, columns()) and bool(shape_of(row))
)


def fits_of(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those among a run's rows, of the same shape as the last of them."""
    fits = [row for row in rows if row["kind"] == KIND]
    return [fit for fit in fits if shape_of(fit) == shape_of(fits[-1])]


def latest_fit(path: Path) -> Row:
    """Of a run's folder; empty where nothing was judged yet."""
    return latest_row(path / "metrics.jsonl", KIND)


# in words


NOISE = 0.01  # of R²: by less no model is worse
BASELINES = {
    "arx_r2": "a linear autoregression (ARX) fitted to the same data",
    "last_r2": "repeating the last value",
}


def baseline_warning(row: dict[str, Any]) -> str:
    """A warning where the model predicts worse than a baseline, with suggestions; else empty."""
    score = float(np.mean(row["r2"]))
    others = {name: float(np.mean(row[name])) for name in BASELINES if name in row}
    best = max(others, key=lambda name: others[name], default="")
    if not best or score >= others[best] - NOISE:
        return ""
    return (
        f"The model foretells worse than {BASELINES[best]} (R² {score:.3f} against "
        f"{others[best]:.3f}, mean of 1 to {len(row['r2'])} steps ahead): do not rely on it. Try "
        "more steps or data, a hidden state of more numbers (agent.model.latent), "
        "agent.model.encoder=gru where one observation does not tell the state, or "
        "agent.model.dynamics=linear."
    )


def fit_words(row: Row) -> dict[str, str]:
    """How well a model fits, by what each number is."""

    def numbers(values: Iterable[float]) -> str:
        return "  ".join(f"{value:.3f}" for value in values)

    lines = {}
    if "field_error" in row:
        errors = row["field_errors"]
        lines["error of the field"] = (
            f"{row['field_error']:.3f} (0 is perfect, 1 a field of zeros)"
            + (f"; of each seed {numbers(errors)}" if len(errors) > 1 else "")
        )
    if "instant_error" in row:
        lines["of the instantaneous field"] = (
            f"{row['instant_error']:.3f} (the other is of the mean along a step)"
        )
    lines[f"R² of observations 1 to {len(row['r2'])} steps ahead"] = numbers(row["r2"])
    if "arx_r2" in row:
        lines["R² of ARX on the same data"] = numbers(row["arx_r2"])
    if "fp_bps" in row:
        ahead = f"bits per spike 1 to {len(row['fp_bps'])} steps ahead (fp-bps)"
        lines[ahead] = f"{numbers(row['fp_bps'])}; mean {np.mean(row['fp_bps']):.3f}"
    if "session_bps" in row:
        lines["of each session, mean of these steps"] = numbers(row["session_bps"])
    if "co_bps" in row:
        lines["bits per spike of held-out neurons (co-bps)"] = f"{row['co_bps']:.3f}"
    lines["evidence bound"] = f"{row['elbo']:.3f} for each step"
    if warning := baseline_warning(row):
        lines["warning"] = warning
    return lines


def headline(row: Row) -> str:
    """The error of the field, or R² of the last horizon."""
    if not row:
        return "–"
    return f"{row['field_error']:.3f}" if "field_error" in row else f"{row['r2'][-1]:.3f}"


# judged


class ModelEvaluator:
    """While a model trains. The recordings are made once, when they are first needed."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.recordings: Recordings | None = None

    def cost(self, learner: Any) -> str:
        return ""

    def judge(self, learner: Any) -> ModelMetrics:
        run = self.run
        self.recordings = self.recordings or random_recordings(run.env, run.evaluation_episodes)
        return evaluate_model(learner.agent, self.recordings)

    def evaluate(
        self, learner: Any, lengths: list[int], stop: Callable[[], bool]
    ) -> Evaluated | None:
        metrics = self.judge(learner)
        row = {"kind": KIND, "step": learner.step, **metrics.row()}
        over = learner.step >= self.run.steps
        return Evaluated(row, metrics.score, warning=baseline_warning(row) if over else "")

    def draw(self, folder: RunFolder, learner: Any) -> None:
        """Writes the arrays that the report shows; nothing of a run that was stopped before its
        first step."""
        if learner.step:
            self.judge(learner)
            write_portrait(folder.path, learner.agent, self.run.env, self.recordings)


class Models:
    """An `Evaluation`: the error of the field where the truth is known, and R² of forecasts."""

    def score(self, request: EvalRequest, env: Any = None) -> ModelMetrics:
        agent: Any = load(request.path, request.checkpoint, env, request.trust)
        run = RunFolder.open(request.path, request.trust)[1]
        seed = run.seed if request.seed is None else request.seed
        return evaluate_model(
            agent, random_recordings(run.env, request.episodes, Purpose.EVALUATE, seed)
        )

    def evaluate(self, request: EvalRequest) -> dict[str, Any]:
        refuse_film(request)
        learned = learned_row(load(request.path, request.checkpoint, trust=request.trust))
        return {"run": str(request.path), **self.score(request).row(), "learned": learned}

    def lines(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        learned = [line for member in results["learned"] for line in member["words"]]
        run = RunFolder.open(request.path, request.trust)[1]
        return fit_lines(results, steps_judged(run.env)) + learned

    def evaluate_seeds(self, request: EvalRequest) -> dict[str, Any]:
        """Every seed's model judged on the same new recordings."""
        refuse_film(request)
        folder = SeedsFolder.open(request.path, request.trust)
        seed = folder.run.seed if request.seed is None else request.seed
        ready = folder.ready(request.checkpoint)
        rows = [
            self.score(replace(request, path=folder.member(one), seed=seed)).row() for one in ready
        ]
        results: dict[str, Any] = {
            "run": str(folder.path),
            "env": folder.run.env,
            "members": rows,
            "played": list(ready),
            "left_out": [one for one in folder.seeds if one not in ready],
            "r2": np.mean([row["r2"] for row in rows], 0).tolist(),
        }
        if all("field_error" in row for row in rows):
            results["field_error"] = together([row["field_error"] for row in rows])
        return results

    def lines_of_seeds(self, request: EvalRequest, results: dict[str, Any]) -> list[str]:
        lines = [
            f"{results['env']}, checkpoint {request.checkpoint}, {request.episodes} recordings"
        ]
        for seed, row in zip(results["played"], results["members"], strict=True):
            error = (
                f"error of the field {row['field_error']:.3f}   " if "field_error" in row else ""
            )
            lines.append(
                f"  seed {seed:<4} {error}R² 1 ahead {row['r2'][0]:.3f}, {len(row['r2'])} ahead "
                f"{row['r2'][-1]:.3f}"
            )
            if warning := baseline_warning(row):
                lines.append(f"            {warning}")
        if results["left_out"]:
            lines.append(f"  {left_out(results['left_out'])}")
        if "field_error" in results:
            lines.append(
                f"  error of the field: mean {results['field_error']['mean']:.3f}; "
                f"{sentence(results['field_error'])}"
            )
        r2 = results["r2"]
        lines.append(f"  R²: mean {r2[0]:.3f} 1 ahead, {r2[-1]:.3f} {len(r2)} ahead")
        return lines

    def conclusion(self, result: Any) -> list[str]:
        if result.best_evaluation is None:
            return []
        chose = "on steps that choose the best checkpoint" if is_recording(result.run.env) else ""
        row = latest_fit(result.path)
        # the evaluation at a run's end has warned already
        return fit_lines(row, chose, warns=row["step"] < result.run.steps)

    def next_steps(self, path: Path, many: bool = False) -> str:
        """Suggests to judge the model and to query its field."""
        if many:
            return f"judge them: tenfold eval {path}"
        return f'judge it: tenfold eval {path}   ask it: tenfold.load("{path}").field(z)'


def refuse_film(request: EvalRequest) -> None:
    if request.video is not None:
        raise UserError(
            "--video films a policy at play, and an explorer has a field to show: see its report."
        )


def fit_lines(row: dict[str, Any], where: str, warns: bool = True) -> list[str]:
    """How well a model of the world fits, and on what."""
    lines = [f"{where}:"] if where else []
    labelled = fit_words(row)
    return lines + [f"{name}: {labelled[name]}" for name in labelled if warns or name != "warning"]


def steps_judged(env: str) -> str:
    """Of a run on recordings, which steps `tenfold eval` judges it by; nothing of other runs."""
    if not is_recording(env):
        return ""
    division = load_recording(env).divided()
    steps = division.judging[0].shape[0] * division.judging[0].shape[1]
    chose = (
        "that also chose the best checkpoint: the recording is too short for others"
        if division.alone
        else "that chose nothing"
    )
    return f"on {steps:,} steps held back from training {chose}"


# described


class FitReporter(Reporter):
    """Of models of the world."""

    rows = {KIND: FIT}
    numbers = {
        "step": Number("step"),
        "field_error": Number("error of the field", ".3f"),
        "least_field_error": Number("the least there was", ".3f"),
        "r2": Number("R² of what comes", ".3f"),
        "most_r2": Number("the most there was", ".3f"),
    }
    course = "error of the field"

    def now(self, latest: Row) -> dict[str, str]:
        numbers = {}
        if "field_error" in latest:
            numbers["field error"] = f"{latest['field_error']:.3f}"
        if "fp_bps" in latest:
            numbers["fp-bps"] = f"{np.mean(latest['fp_bps']):.3f}"
        elif "r2" in latest:
            numbers[f"R² {len(latest['r2'])} ahead"] = f"{latest['r2'][-1]:.3f}"
        return numbers

    def progress(self, paths: Sequence[Path]) -> dict[str, str]:
        """The latest error of the field, or R², of each run."""
        rows = [latest_fit(path) for path in paths]
        if not any(rows):
            return {}
        known = any("field_error" in row for row in rows)
        return {"errors of the field" if known else "R²": " ".join(map(headline, rows))}

    def warning(self, path: Path) -> str:
        row = latest_fit(path)
        return baseline_warning(row) if row else ""

    def counted(self, run: Run) -> str:
        return "gradient steps" if is_recording(run.env) else super().counted(run)

    def summary(self, rows: list[Row], run: Run) -> dict[str, Any]:
        last = fits_of(rows)[-1:]
        return (fit_words(last[0]) if last else {}) | updates_summary(rows, self.counted(run))

    def sections(self, path: Path, rows: list[Row], run: Run) -> list[Section]:
        return sections(path, fits_of(rows), self.counted(run))

    def last_numbers(self, rows: list[Row]) -> dict[str, float | None]:
        """The field's error where the truth is known, else R² of what comes."""
        step = next((row["step"] for row in reversed(rows) if row["kind"] == "train"), 0)
        numbers: dict[str, float | None] = {"step": step}
        fits = fits_of(rows)
        if not fits:
            return numbers
        if "field_error" in fits[-1]:
            errors = [row["field_error"] for row in fits]
            return numbers | {"field_error": errors[-1], "least_field_error": min(errors)}
        r2 = [float(np.mean(row["r2"])) for row in fits]
        return numbers | {"r2": r2[-1], "most_r2": max(r2)}

    def curves(self, run: Run) -> tuple[Curve, ...]:
        return (Curve(KIND, "field_error", "C3", "error of the field (1: a field of zeros)"),)
