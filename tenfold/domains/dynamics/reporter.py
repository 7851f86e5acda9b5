"""How runs that identify a hidden system are described: there are no returns, but a model that fits
more or less."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.domains.dynamics import is_recording
from tenfold.domains.dynamics.fits import FIT, KIND, fits_of, numbers_in
from tenfold.domains.dynamics.portrait_section import sections
from tenfold.domains.dynamics.shortfall import shortfall
from tenfold.runs.metrics import latest_row
from tenfold.runs.page import Section
from tenfold.runs.plots import Curve
from tenfold.runs.reporter import Number, Reporter, Row, updates_summary


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
        return fit_summary(fits_of(rows)) | updates_summary(rows, self.counted(run))

    def sections(self, path: Path, rows: list[Row], run: Run) -> list[Section]:
        return sections(path, rows, self.counted(run))

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


def latest_fit(path: Path) -> Row:
    """Of a run's folder; empty where nothing was judged yet."""
    return latest_row(path / "metrics.jsonl", KIND)


def knowledge(row: Row) -> str:
    """How well a system is known, as one number."""
    if not row:
        return "–"
    return f"{row['field_error']:.3f}" if "field_error" in row else f"{row['r2'][-1]:.3f}"


def fit_summary(fits: list[Row]) -> dict[str, Any]:
    if not fits:
        return {}
    last = fits[-1]
    names = {"error of the field": "field_error", "evidence bound": "elbo"}
    found = {name: f"{last[key]:.3f}" for name, key in names.items() if key in last}
    found["R² of observations, 1 to K ahead"] = numbers_in(last["r2"])
    if "arx_r2" in last:
        found["R² of ARX on the same data"] = numbers_in(last["arx_r2"])
    if words := shortfall(last):
        found["warning"] = words
    return found
