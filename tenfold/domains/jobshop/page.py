"""What a run's page shows of a job shop."""

import math
from pathlib import Path
from typing import Any

from tenfold.core.errors import UserError
from tenfold.domains.jobshop.tables import percent
from tenfold.runs.charts import Chart, Line
from tenfold.runs.file_schema import NUMBER, TEXT, WHOLE, Schema, maybe, read_json
from tenfold.runs.page import Section, chart, grid, image, paragraph, table

AGAIN = "`tenfold eval` writes it anew"
MAKESPANS: Schema = {  # what `tenfold eval` leaves in makespans.json, makespans-best.json, …
    "checkpoint?": TEXT,
    "step?": WHOLE,
    "samples": WHOLE,
    "best_makespan": NUMBER,
    "greedy_makespan": NUMBER,
    "optimum": maybe(NUMBER),
    "best_known?": maybe(NUMBER),
    "lower_bound?": NUMBER,
    "untrained_best_makespan": NUMBER,
    "rules": {...: NUMBER},
}
SHOPS: Schema = {  # what it leaves in shops/*.json
    "shops": TEXT,
    "checkpoint": TEXT,
    "step": WHOLE,
    "seed": WHOLE,
    "samples": WHOLE,
    "players": {...: WHOLE},
    "mean_gaps": {...: maybe(NUMBER)},
    "size_gaps": {...: {...: maybe(NUMBER)}},
    "instances": [
        {
            "name": TEXT,
            "jobs": WHOLE,
            "machines": WHOLE,
            "lower_bound": WHOLE,
            "best_known": maybe(WHOLE),
            "makespans": {...: maybe(WHOLE)},
            "gaps": {...: maybe(NUMBER)},
        }
    ],
}


def sections(path: Path) -> list[Section]:
    """What `tenfold eval` found, once it has played it: of one shop, and of others."""
    own = (one_shop(file) for file in sorted(path.glob("makespans*.json")))
    others = (gaps(file) for file in sorted(path.glob("shops/*.json")))
    return [section for section in (*own, *others) if section]


def gaps(file: Path) -> Section:
    """The table of one evaluation on several shops, and its gaps as a chart."""
    try:
        found = read_json(file, SHOPS, AGAIN)
        return Section(
            f"Job shops: {found['shops']}, {which(found)}, seed {found['seed']}",
            drawn_gaps(found) + grid(*gap_cells(found)),
        )
    except UserError as error:
        return Section("", paragraph(error))
    except KeyError as error:
        return Section("", paragraph(f"{file} has no {error} for one of its players: {AGAIN}."))


def gap_cells(found: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """The head and the lines of the table."""
    names = list(found["players"])
    head = ["instance", "size", "lower bound", "best known", *names]
    lines: list[list[Any]] = []
    for row in found["instances"]:
        told = [
            "–"
            if row["makespans"][name] is None
            else f"{row['makespans'][name]} ({percent(row['gaps'][name])})"
            for name in names
        ]
        best = "unknown" if row["best_known"] is None else row["best_known"]
        size = f"{row['jobs']}x{row['machines']}"
        lines.append([row["name"], size, row["lower_bound"], best, *told])
    for size, own in (*found["size_gaps"].items(), ("", found["mean_gaps"])):
        lines.append(["mean gap", size, "", "", *(percent(own[name]) for name in names)])
    return head, lines


def drawn_gaps(found: dict[str, Any]) -> str:
    """Of every player, by instance, in percent."""
    rows = found["instances"]
    places = list(range(len(rows)))
    lines = [
        Line(
            name,
            places,
            [math.nan if row["gaps"][name] is None else 100 * row["gaps"][name] for row in rows],
            colour=number,
            style="" if number < 2 else "dash",
        )
        for number, name in enumerate(found["players"])
    ]
    title = "gap to the best known makespan, or to the lower bound where none is known"
    return chart(Chart(title, lines, "instance", "%", ticks=[row["name"] for row in rows]))


def which(found: dict[str, Any]) -> str:
    """The checkpoint that was played."""
    return f"checkpoint {found['checkpoint']} (step {found['step']:,})"


def one_shop(makespans: Path) -> Section | None:
    """The makespans of a policy of one shop, and the best schedule's chart."""
    picture = makespans.with_name(f"{makespans.stem.replace('makespans', 'gantt', 1)}.png")
    if not picture.is_file():
        return None
    try:
        found = read_json(makespans, MAKESPANS, AGAIN)
    except UserError as error:
        return Section("", paragraph(error))
    drawn = image(picture.read_bytes(), "the best schedule: machines over time")
    known = {"checkpoint", "step"} <= found.keys()  # earlier versions did not say
    title = f"Schedule, {which(found)}" if known else "Schedule"
    return Section(title, table(cells(found)) + drawn)


def cells(found: dict[str, Any]) -> dict[str, Any]:
    """The policy's makespans, and those of rules beside it."""
    best = f"best of {found['samples']}"
    policy = {
        f"makespan, {best} samples": found["best_makespan"],
        "makespan, greedy": found["greedy_makespan"],
        "optimum": found["optimum"] or "unknown",
        **({"best known": found["best_known"]} if found.get("best_known") else {}),
        **({"lower bound": found["lower_bound"]} if "lower_bound" in found else {}),
        f"untrained, {best} samples": found["untrained_best_makespan"],
    }
    rules = {
        f"rule {rule}{f', {best}' if rule == 'random' else ''}": makespan
        for rule, makespan in found["rules"].items()
    }
    return policy | rules
