"""The page of a sweep: what was found, which parameters matter, the trials side by side and over
training, and the winner beside the default on held-out seeds."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.notation import show
from tenfold.runs.files import replace_file
from tenfold.runs.page import (
    Link,
    Section,
    grid,
    image,
    origin_sections,
    page,
    paragraph,
    preformatted,
    settings_section,
    table,
)
from tenfold.runs.plots import as_png, entitle, new_figure, sentence
from tenfold.runs.sweep import BEST, STUDY, SweepFolder, about_sweep

COLOURS = "viridis"
Row = dict[str, Any]


def write_sweep_report(folder: SweepFolder) -> Path:
    found = folder.results()
    rows = found["trials"]
    sections = [
        Section("", summary(found) + paragraph(found["verdict"]) * bool(found.get("verdict"))),
        *pictures(folder, found),
        Section("Trials", trials_table(rows, found.get("winner"))),
        Section("Winner", preformatted((folder.path / BEST).read_text())),
        settings_section(folder.run, {"search": show_search(folder), "pruner": folder.plan.pruner}),
        Section(
            "Study", preformatted(f"optuna-dashboard sqlite:///{(folder.path / STUDY).absolute()}")
        ),
        *origin_sections(about_sweep(folder.path)),
    ]
    replace_file(folder.path / "report.html", page(folder.title, sections))
    return folder.path / "report.html"


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
            f"{winner['value']:.2f} ({told_params(winner['params'])})"
        )
    for name, own in found.get("confirmed", {}).items():
        cells[Link(f"{name} on held-out seeds", f"{name}/report.html")] = told_confirmed(own)
    return table(cells)


def told_confirmed(own: Row) -> str:
    """What held-out seeds came to, in words."""
    failed = own.get("failed", {})
    words = [sentence(own)] if "iqm" in own else []
    words += [f"seed {seed} failed: {why}" for seed, why in failed.items()]
    return "; ".join(words)


def told_params(params: Row) -> str:
    return ", ".join(f"{name} {shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else show(value)


def pictures(folder: SweepFolder, found: Row) -> list[Section]:
    rows, winner = found["trials"], found.get("winner")
    drawn = [
        ("Over training", curves_figure(rows, winner), "interquartile means over training"),
        ("Parallel coordinates", coordinates_figure(rows), "trials over their parameters"),
    ]
    if found.get("importance"):
        told = "shares of parameters in what distinguishes good trials"
        drawn.append(("Importance", importance_figure(found["importance"]), told))
    return [Section(title, image(as_png(figure), words)) for title, figure, words in drawn]


def curves_figure(rows: list[Row], winner: int | None) -> Any:
    """Each trial's interquartile mean over training: those that ended, those that were pruned, and
    the winner."""
    figure = new_figure(9, 4)
    axes = figure.subplots()
    styles = {
        "complete": {"color": "C0", "alpha": 0.5},
        "pruned": {"color": "0.6", "linestyle": "--", "alpha": 0.7},
        "fail": {"color": "C3", "linestyle": ":"},
    }
    labels = {"complete": "ended", "pruned": "pruned", "fail": "failed"}
    for row in rows:
        if not row["values"]:
            continue
        steps, values = [int(step) for step in row["values"]], [*row["values"].values()]
        best = row["number"] == winner
        style = {"color": "C1", "linewidth": 2.5, "zorder": 3} if best else styles[row["state"]]
        label = f"winner, trial {winner}" if best else labels.pop(row["state"], "")
        axes.plot(steps, values, marker=".", label=label or "_", **style)
    axes.set(xlabel="environment steps", ylabel="evaluation")
    entitle(axes, "interquartile mean over a trial's seeds")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)
    return figure


def coordinates_figure(rows: list[Row]) -> Any:
    """A line for each trial that has a value, through its parameters to it; the better, the
    lighter."""
    import matplotlib as mpl

    rows = sorted((row for row in rows if row["value"] is not None), key=lambda r: r["value"])
    names = [*(rows[-1]["params"] if rows else ()), "evaluation"]
    figure = new_figure(max(6, 1.8 * len(names)), 4)
    axes = figure.subplots()
    values = np.array([row["value"] for row in rows], float)
    columns = [place([row["params"][name] for row in rows]) for name in names[:-1]]
    columns.append(place(values.tolist(), decades=np.inf))
    spread = np.ptp(values) or 1.0 if len(values) else 1.0
    colours = mpl.colormaps[COLOURS]
    for number, value in enumerate(values):
        heights = [column[number] for column, _ in columns]
        axes.plot(range(len(names)), heights, color=colours((value - values.min()) / spread))
    for x, (_, ticks) in enumerate(columns):
        axes.axvline(x, color="0.3", linewidth=0.8)
        for height, words in ticks:
            axes.annotate(words, (x, height), fontsize=7, xytext=(3, 0), textcoords="offset points")
    axes.set(ylim=(-0.05, 1.05), yticks=[], xlim=(-0.1, len(names) - 0.5))
    axes.set_xticks(range(len(names)), names, fontsize=8)
    return figure


def place(values: list[Any], decades: float = 1.3) -> tuple[list[float], list[tuple[float, str]]]:
    """Heights from 0 to 1, and what stands beside an axis: numbers by their size, on a logarithmic
    scale where they span as many decades; a few values and words one above the other."""
    if not values:
        return [], []
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or len(set(values)) <= max(1, len(values) // 4):
        kinds = sorted(set(values), key=None if numbers else str)
        step = 1 / max(len(kinds) - 1, 1)
        heights = {kind: number * step for number, kind in enumerate(kinds)}
        return [heights[v] for v in values], [(h, shown(kind)) for kind, h in heights.items()]
    array = np.array(values, float)
    log = array.min() > 0 and np.log10(array.max() / array.min()) > decades
    scaled = np.log(array) if log else array
    low, high = scaled.min(), scaled.max()
    marks = np.linspace(low, high, 5)
    ticks = [
        ((mark - low) / (high - low), f"{np.exp(mark) if log else mark:.3g}") for mark in marks
    ]
    return ((scaled - low) / (high - low)).tolist(), ticks


def importance_figure(shares: dict[str, float]) -> Any:
    figure = new_figure(7, 0.5 + 0.4 * len(shares))
    axes = figure.subplots()
    names = [*reversed(shares)]
    axes.barh(names, [shares[name] for name in names], color="C0")
    axes.set(xlabel="importance (PED-ANOVA)", xlim=(0, 1))
    return figure


def trials_table(rows: list[Row], winner: int | None) -> str:
    """The best in front, then those that were pruned or failed."""
    order = {"complete": 0, "pruned": 1, "fail": 2}
    rows = sorted(rows, key=lambda r: (order[r["state"]], -(r["value"] or 0.0), r["number"]))
    names = list(dict.fromkeys(name for row in rows for name in row["params"]))
    lines = [
        [
            Link(row["number"], f"trial-{row['number']}/"),
            "winner" if row["number"] == winner else row["state"],
            "–" if row["value"] is None else f"{row['value']:.2f}",
            " ".join(f"{score:.1f}" for score in row["scores"]),
            *(shown(row["params"].get(name, "–")) for name in names),
            row["why"],
        ]
        for row in rows
    ]
    return grid(["trial", "", "evaluation", "of its seeds", *names, ""], lines)
