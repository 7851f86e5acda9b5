"""How runs that identify a hidden system are described: there are no returns, but a model that fits
more or less. Rows of metrics of kind `fit` say how well."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.domains.dynamics import is_recording
from tenfold.runs.metrics import latest_row
from tenfold.runs.page import Section
from tenfold.runs.plots import Curve
from tenfold.runs.reporter import Number, Reporter, Row, updates_summary
from tenfold.runs.schema import NUMBER, WHOLE, Kind, Schema, filled, misfit

KIND = "fit"
COLUMNS: Schema = {
    "step": WHOLE,
    "score": NUMBER,
    "elbo": NUMBER,
    "elbos": filled(NUMBER),
    "field_error?": NUMBER,
    "field_errors?": filled(NUMBER),
    "r2": filled(NUMBER),
    "r2s": [filled(NUMBER)],
    "arx_r2?": filled(NUMBER),
}


def shape_of(fit: dict[str, Any]) -> tuple[int, ...]:
    """Members and horizons of a row, and whether the field is known; empty where its parts
    contradict each other."""
    members, ahead, known = len(fit["r2s"]), len(fit["r2"]), "field_error" in fit
    whole = (
        members
        and {ahead} == {len(own) for own in (*fit["r2s"], fit.get("arx_r2", fit["r2"]))}
        and members == len(fit["elbos"]) == len(fit.get("field_errors", fit["elbos"]))
        and known == ("field_errors" in fit)
    )
    return (members, ahead, known) if whole else ()


FIT = Kind("a row whose parts agree", lambda row: not misfit(row, COLUMNS) and bool(shape_of(row)))


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


def shortfall(row: dict[str, Any]) -> str:
    """A sentence where the model foretells worse than something that needs no model, with what to
    try; else nothing."""
    own = float(np.mean(row["r2"]))
    others = {name: float(np.mean(row[name])) for name in BASELINES if name in row}
    best = max(others, key=lambda name: others[name], default="")
    if not best or own >= others[best] - NOISE:
        return ""
    return (
        f"The model foretells worse than {BASELINES[best]} (R² {own:.3f} against "
        f"{others[best]:.3f}, mean of 1 to {len(row['r2'])} steps ahead): do not rely on it. Try "
        "more steps or data, a hidden state of more numbers (agent.model.latent), "
        "agent.model.encoder=gru where one observation does not tell the state, or "
        "agent.model.dynamics=linear."
    )


def fit_words(row: Row) -> dict[str, str]:
    """How well a model fits, by what each number is."""

    def numbers(values: Iterable[float]) -> str:
        return "  ".join(f"{value:.3f}" for value in values)

    found = {}
    if "field_error" in row:
        each = row["field_errors"]
        found["error of the field"] = (
            f"{row['field_error']:.3f} (0 is perfect, 1 a field of zeros)"
            + (f"; of each seed {numbers(each)}" if len(each) > 1 else "")
        )
    found[f"R² of observations 1 to {len(row['r2'])} steps ahead"] = numbers(row["r2"])
    if "arx_r2" in row:
        found["R² of ARX on the same data"] = numbers(row["arx_r2"])
    found["evidence bound"] = f"{row['elbo']:.3f} for each step"
    if words := shortfall(row):
        found["warning"] = words
    return found


def knowledge(row: Row) -> str:
    """How well a system is known, as one number."""
    if not row:
        return "–"
    return f"{row['field_error']:.3f}" if "field_error" in row else f"{row['r2'][-1]:.3f}"


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
        found = {}
        if "field_error" in latest:
            found["field error"] = f"{latest['field_error']:.3f}"
        if "r2" in latest:
            found[f"R² {len(latest['r2'])} ahead"] = f"{latest['r2'][-1]:.3f}"
        return found

    def progress(self, paths: Sequence[Path]) -> dict[str, str]:
        """How well each run knows its system."""
        rows = [latest_fit(path) for path in paths]
        if not any(rows):
            return {}
        known = any("field_error" in row for row in rows)
        return {"errors of the field" if known else "R²": " ".join(map(knowledge, rows))}

    def warning(self, path: Path) -> str:
        row = latest_fit(path)
        return shortfall(row) if row else ""

    def counted(self, run: Run) -> str:
        return "gradient steps" if is_recording(run.env) else super().counted(run)

    def summary(self, rows: list[Row], run: Run) -> dict[str, Any]:
        last = fits_of(rows)[-1:]
        return (fit_words(last[0]) if last else {}) | updates_summary(rows, self.counted(run))

    def sections(self, path: Path, rows: list[Row], run: Run) -> list[Section]:
        from tenfold.domains.dynamics.phase_portrait import sections

        return sections(path, fits_of(rows), self.counted(run))

    def last_numbers(self, rows: list[Row]) -> dict[str, float | None]:
        """The field's error where the truth is known, else R² of what comes."""
        step = next((row["step"] for row in reversed(rows) if row["kind"] == "train"), 0)
        found: dict[str, float | None] = {"step": step}
        fits = fits_of(rows)
        if not fits:
            return found
        if "field_error" in fits[-1]:
            errors = [row["field_error"] for row in fits]
            return found | {"field_error": errors[-1], "least_field_error": min(errors)}
        r2 = [float(np.mean(row["r2"])) for row in fits]
        return found | {"r2": r2[-1], "most_r2": max(r2)}

    def curves(self, run: Run) -> tuple[Curve, ...]:
        return (Curve(KIND, "field_error", "C3", "error of the field (1: a field of zeros)"),)
