"""Rows of metrics that say how well a model of the world fits, kind `fit`."""

from collections.abc import Iterable
from typing import Any

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


def numbers_in(values: Iterable[float]) -> str:
    return "  ".join(f"{value:.3f}" for value in values)
