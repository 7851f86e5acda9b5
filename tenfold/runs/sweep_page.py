"""The page of a sweep: what was found, which parameters matter, the trials side by side and over
training, and the winner beside the default on held-out seeds."""

import shlex
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import show
from tenfold.config.search import searches
from tenfold.runs.charts import THIN, Chart, Line
from tenfold.runs.files import replace_file
from tenfold.runs.page import (
    Link,
    Section,
    chart,
    grid,
    intervals,
    origin_sections,
    page,
    paragraph,
    preformatted,
    settings_section,
    table,
)
from tenfold.runs.statistics import sentence
from tenfold.runs.sweep import Row, SweepFolder, about_sweep, order_of, told_outcome


def write_sweep_report(folder: SweepFolder, out: Path | None = None) -> Path:
    found = folder.results()
    rows = found["trials"]
    spaces = [one.spaces for one in searches(folder.run, folder.plan.search)]
    logarithmic = {
        name for own in spaces for name, space in own.items() if getattr(space, "log", False)
    }
    sections = [
        Section("", summary(found) + paragraph(found["verdict"]) * bool(found.get("verdict"))),
        *drawings(found, logarithmic),
        Section("Trials", trials_table(rows, found.get("winner"))),
        Section("Winner", preformatted(folder.best_text())),
        settings_section(folder.run, {"search": show_search(folder), "pruner": folder.plan.pruner}),
        Section("Study", preformatted(f"optuna-dashboard {shlex.quote(folder.study)}")),
        *origin_sections(about_sweep(folder.path)),
    ]
    path = out or folder.path / "report.html"
    replace_file(path, page(folder.title, sections))
    return path


def show_search(folder: SweepFolder) -> str:
    return "; ".join(f"{path} = {space}" for path, space in folder.plan.search.items())


def summary(found: Row) -> str:
    states = [row["state"] for row in found["trials"]]
    cells: dict[Any, Any] = {
        "trials": f"{len(states)}, of which {states.count('pruned')} pruned and "
        f"{states.count('fail')} failed"
    }
    winner = next((row for row in found["trials"] if row["number"] == found.get("winner")), None)
    if winner:
        cells[f"winner, trial {winner['number']}"] = (
            f"{told_row(winner)} ({told_params(winner['params'])})"
        )
    for name, own in found.get("confirmed", {}).items():
        cells[Link(f"{name} on held-out seeds", f"{name}/report.html")] = told_confirmed(own)
    return table(cells)


def told_confirmed(own: Row) -> str:
    """What held-out seeds came to, in words."""
    failed = own.get("failed", {})
    words = [f"success {sentence(own['success'], '.1%')}"] if "success" in own else []
    words += [sentence(own)] if "iqm" in own else []
    words += [f"seed {seed} failed: {why}" for seed, why in failed.items()]
    return "; ".join(words)


def told_row(row: Row) -> str:
    """What a trial came to, in words."""
    return "–" if row["value"] is None else told_outcome(row.get("success"), row["value"])


def tells_success(rows: list[Row]) -> bool:
    return any("success" in row for row in rows)


def told_params(params: Row) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else show(value)


def drawings(found: Row, logarithmic: set[str]) -> list[Section]:
    rows = found["trials"]
    charts = [curves_chart(rows, found.get("winner"))]
    if tells_success(rows):
        charts.insert(0, curves_chart(rows, found.get("winner"), "successes", "success"))
    drawn = [
        Section("Over training", "".join(map(chart, charts))),
        Section("Parallel coordinates", chart(coordinates_chart(rows, logarithmic))),
    ]
    if shares := found.get("importance"):
        told = [(name, share, 0.0, share) for name, share in shares.items()]
        said = paragraph("shares of parameters in what distinguishes good trials (PED-ANOVA)")
        drawn.append(Section("Importance", said + intervals(told, 0.0, 1.0, told=False)))
    return drawn


def curves_chart(
    rows: list[Row], winner: int | None, column: str = "values", what: str = "evaluation"
) -> Chart:
    """Each trial's interquartile mean over training: those that ended, those that were pruned, and
    the winner; in the colours of the parallel coordinates."""
    words = {"complete": "", "pruned": ", pruned", "fail": ", failed"}
    lines, shades = [], shades_of(rows)
    for row in sorted(rows, key=lambda r: r["number"] == winner):  # in front of all
        if own := row.get(column):
            steps, values = [int(step) for step in own], [*own.values()]
            best = row["number"] == winner
            style = "dots" if best else "" if row["state"] == "complete" else "dash"
            name = f"trial {row['number']}{', the winner' if best else words.get(row['state'], '')}"
            lines.append(Line(name, steps, values, None, shades[row["number"]], style))
    return Chart("interquartile mean over a trial's seeds", lines, y=what)


def shades_of(rows: list[Row]) -> dict[int, str]:
    """A colour for each trial by its number: from blue for the worst to red for the best, grey
    where it has no value. Where successes come first, by the place in the order."""
    valued = [row for row in rows if row["value"] is not None]
    places = sorted({order_of(row) for row in valued})
    ranked = tells_success(rows)
    sizes = {
        row["number"]: float(places.index(order_of(row))) if ranked else row["value"]
        for row in valued
    }
    least, spread = min(sizes.values(), default=0.0), np.ptp([*sizes.values()] or [0.0]) or 1.0
    return {
        row["number"]: "hsl(0 0% 55%)"
        if row["value"] is None
        else f"hsl({220 - 220 * (sizes[row['number']] - least) / spread:.0f} 75% 50%)"
        for row in rows
    }


def coordinates_chart(rows: list[Row], logarithmic: set[str]) -> Chart:
    """A line for each trial that has a value, through its parameters to it. Parameters that are
    `logarithmic` are searched on such a scale."""
    rows = sorted((row for row in rows if row["value"] is not None), key=order_of)
    params = [*rows[-1]["params"]] if rows else []
    columns = [place([row["params"][name] for row in rows], name in logarithmic) for name in params]
    names = [*params, *["success"] * tells_success(rows), "evaluation"]
    if tells_success(rows):
        columns.append(place([row.get("success", 0.0) for row in rows]))
    columns.append(place([row["value"] for row in rows]))
    shades = shades_of(rows)
    lines = [
        Line(
            f"trial {row['number']}: {told_row(row)}, {told_params(row['params'])}",
            range(len(names)),
            [column[number] for column, _ in columns],
            None,
            shades[row["number"]],
            THIN,
        )
        for number, row in enumerate(rows)
    ]
    notes = [(x, height, words) for x, (_, ticks) in enumerate(columns) for height, words in ticks]
    return Chart("", lines, "", ticks=names, notes=notes, bounds=(-0.05, 1.05))


def place(values: list[Any], log: bool = False) -> tuple[list[float], list[tuple[float, str]]]:
    """Heights from 0 to 1, and what stands beside an axis: numbers by their size or, with `log`, on
    a logarithmic scale; a few values and words one above the other."""
    if not values:
        return [], []
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or len(set(values)) <= max(1, len(values) // 4):
        kinds = sorted(set(values), key=None if numbers else str)
        step = 1 / max(len(kinds) - 1, 1)
        heights = {kind: number * step for number, kind in enumerate(kinds)}
        return [heights[v] for v in values], [(h, shown(kind)) for kind, h in heights.items()]
    array = np.array(values, float)
    log = log and bool((array > 0).all())
    scaled = np.log(array) if log else array
    low, high = scaled.min(), scaled.max()
    span = (high - low) or 1.0
    marks = np.linspace(low, high, 5)
    ticks = [((mark - low) / span, f"{np.exp(mark) if log else mark:.3g}") for mark in marks]
    return ((scaled - low) / span).tolist(), ticks


def trials_table(rows: list[Row], winner: int | None) -> str:
    """The best in front, then those that were pruned or failed."""
    states = ["complete", "pruned", "fail"]

    def order(row: Row) -> tuple[Any, ...]:
        success, score = order_of(row | {"value": row["value"] or 0.0})
        place = states.index(row["state"]) if row["state"] in states else len(states)
        return place, -success, -score, row["number"]

    rows = sorted(rows, key=order)
    names = list(dict.fromkeys(name for row in rows for name in row["params"]))
    lines = [
        [
            Link(row["number"], f"trial-{row['number']}/"),
            "winner" if row["number"] == winner else row["state"],
            told_row(row),
            " ".join(f"{score:.1f}" for score in row["scores"]),
            *(shown(row["params"].get(name, "–")) for name in names),
            row["why"],
        ]
        for row in rows
    ]
    return grid(["trial", "", "evaluation", "of its seeds", *names, ""], lines)
