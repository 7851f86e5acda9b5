"""What a run's page shows of a job shop."""

from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.runs.page import Section, image, paragraph, table
from tenfold.runs.schema import NUMBER, WHOLE, Schema, maybe, read_json

AGAIN = "`tenfold eval` writes it anew"
MAKESPANS: Schema = {  # what `tenfold eval` leaves in makespans.json
    "samples": WHOLE,
    "best_makespan": NUMBER,
    "greedy_makespan": NUMBER,
    "optimum": maybe(NUMBER),
    "untrained_best_makespan": NUMBER,
    "rules": {...: NUMBER},
}


def sections(path: Path) -> list[Section]:
    """What `tenfold eval` found, once it has played it: the makespans and the best schedule's
    chart."""
    makespans, chart = path / "makespans.json", path / "gantt.png"
    if not makespans.exists() or not chart.is_file():
        return []
    try:
        found = read_json(makespans, MAKESPANS, AGAIN)
    except UserError as error:
        return [Section("", paragraph(error))]
    drawn = image(chart.read_bytes(), "the best schedule: machines over time")
    return [Section("Schedule", table(cells(found)) + drawn)]


def cells(found: dict[str, Any]) -> dict[str, Any]:
    """The policy's makespans, and those of rules beside it."""
    best = f"best of {found['samples']}"
    policy = {
        f"makespan, {best} samples": found["best_makespan"],
        "makespan, greedy": found["greedy_makespan"],
        "optimum": found["optimum"] or "unknown",
        f"untrained, {best} samples": found["untrained_best_makespan"],
    }
    rules = {
        f"rule {rule}{f', {best}' if rule == 'random' else ''}": makespan
        for rule, makespan in found["rules"].items()
    }
    return policy | rules
