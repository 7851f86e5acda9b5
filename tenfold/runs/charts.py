"""Charts as data: lines, bands and labels, drawn by the page's script (`page.js`) or as PNG
pictures; and the charts of training curves: one run, several seeds with the interval of their
interquartile mean, several groups."""

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.runs.digest import PARTS as QUARTERS
from tenfold.runs.digest import Course, Digest, Histogram, aligned, merged
from tenfold.runs.statistics import LEAST, bootstrap_interval, interquartile_mean

TITLE = 95  # characters of a title's line on a figure 9 inches wide
THIN = "thin"  # one of many, behind what they are together
EACH = 64  # runs of a group whose curves are drawn one by one
QUARTER = ("first quarter", "second quarter", "third quarter", "last quarter")
LABELS = {"q": "mean Q of actions taken", "epsilon": "ε", "lr": "learning rate", "kl": "KL"}
DECADES = 100.0  # a column that spans so much is shown on a logarithmic scale
STYLES = {"": "-", THIN: "-", "dash": "--", "faint": "-", "dots": "-", "steps": "-"}


@dataclass(frozen=True)
class Line:
    """`band` is from low to high. A colour is an index of the palette or a CSS colour. Lines of one
    `run` are hidden together, on all charts of a page."""

    name: str
    x: Any
    y: Any
    band: tuple[Any, Any] | None = None
    colour: int | str = 0
    style: str = ""
    run: str = ""


@dataclass(frozen=True)
class Chart:
    """`x` and `y` label the axes. With `ticks`, these labels stand at 0, 1, 2, … instead of
    numbers; `notes` are texts at positions, and `bounds` the limits of the y axis."""

    title: str
    lines: Sequence[Line]
    x: str = "environment steps"
    y: str = ""
    log: bool = False
    small: bool = False
    ticks: Sequence[str] = ()
    notes: Sequence[tuple[float, float, str]] = ()
    bounds: tuple[float, float] | None = None


def new_figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import (
        FigureCanvasAgg,
    )  # here: drawing is the only thing that needs matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def as_png(figure: Any) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    return content.getvalue()


def add_legend(figure: Any, *axes: Any) -> None:
    """A legend below all axes, without duplicates."""
    handles = {
        word: handle
        for one in axes
        for handle, word in zip(*one.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)


def escape_dollars(text: str) -> str:
    """Escapes $, which starts a formula in Matplotlib."""
    return text.replace("$", r"\$")


def wrap_title(text: str) -> str:
    """Wraps a long title between an environment's arguments."""
    return escape_dollars(textwrap.fill(re.sub(r",\s*", ", ", text), TITLE))


def figure_of(charts: Sequence[Chart], title: str, columns: int = 1) -> Any:
    """The charts as one figure with a common title."""
    lines = -(-len(charts) // columns)
    figure = new_figure(9, 3.6 * lines + 0.4)
    every = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, chart in zip(every, charts, strict=False):
        draw(axes, chart)
        axes.set_title(wrap_title(title if len(charts) == 1 else chart.title), fontsize=10)
    for axes in every[len(charts) :]:
        axes.set_visible(False)
    if len(charts) > 1:
        figure.suptitle(wrap_title(title), fontsize=10)
    if any(chart.lines for chart in charts):
        add_legend(figure, *every)
    return figure


def draw(axes: Any, chart: Chart) -> None:
    thin = [line for line in chart.lines if line.style == THIN]
    for line in chart.lines:
        colour = line.colour if isinstance(line.colour, str) else f"C{line.colour % 10}"
        label = "_" if line.style == THIN else escape_dollars(line.name)
        alpha = max(0.05, 0.3 * min(1.0, 16 / len(thin))) if line.style == THIN else 1.0
        axes.plot(
            line.x,
            line.y,
            color=colour,
            alpha=alpha,
            label=label,
            linestyle=STYLES[line.style],
            linewidth=0.8 if line.style in (THIN, "faint") else 1.6,
            marker="." if line.style == "dots" or len(line.x) == 1 else None,
            drawstyle="steps" if line.style == "steps" else "default",
        )
        if line.band:
            axes.fill_between(line.x, *line.band, color=colour, alpha=0.2, linewidth=0)
    axes.set(xlabel=escape_dollars(chart.x), ylabel=escape_dollars(chart.y))
    if chart.log:
        axes.set_yscale("log", nonpositive="clip")


@dataclass(frozen=True)
class Curve:
    """A column of the rows of one kind, over training."""

    kind: str
    column: str
    colour: str
    label: str

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.column


@dataclass(frozen=True)
class Experiment:
    """Runs that differ in nothing but their seeds, by name; or a single run."""

    name: str
    path: Path
    run: Run
    digests: Mapping[str, Digest]
    about: Mapping[str, Any]

    @property
    def members(self) -> list[Digest]:
        return list(self.digests.values())


def lines_of(
    group: Experiment,
    curve: Curve,
    name: str,
    colour: int,
    run: str = "",
    with_members: bool = True,
) -> list[Line]:
    """A column of a group: for one run a band from minimum to maximum (for evaluations one standard
    deviation), for several their interquartile mean with its interval, and each of them."""
    courses = {
        names: course
        for names, digest in group.digests.items()
        if (course := digest.courses.get(curve.key))
    }
    if not courses:
        return []
    if len(group.digests) == 1:
        steps, middle, *band = next(iter(courses.values())).points()
        spread = spread_of(group.members[0], curve)
        if spread is not None and len(spread) == len(middle):
            band = [middle - spread, middle + spread]
        wide = bool(np.any(band[0] < band[1]))
        return [Line(name, steps, middle, (band[0], band[1]) if wide else None, colour, run=run)]
    steps, values = aligned(list(courses.values()))
    if not steps.size:
        return []
    band = bootstrap_interval(values) if len(values) >= LEAST else None
    whole = Line(name, steps, interquartile_mean(values), band, colour, run=run)
    names, stride = list(courses), -(-len(courses) // EACH)
    thin = [
        Line(f"{names[k]}, {name}", steps, values[k], None, colour, THIN, run)
        for k in range(0, len(names), stride)
        if with_members
    ]
    return [*thin, whole]


def spread_of(digest: Digest, curve: Curve) -> np.ndarray | None:
    """The standard deviation of a column that is a mean."""
    column = {"mean_return": "std_return"}.get(curve.column, f"{curve.column}/std")
    course = digest.courses.get((curve.kind, column))
    return course.points()[1] if course else None


def course_chart(
    groups: Sequence[Experiment], curves: Sequence[Curve], title: str, along: str, upwards: str
) -> Chart:
    """The main curves over training. One group: every curve in its own colour, and for one run its
    episodes; several groups: one curve each."""
    lines: list[Line] = []
    if len(groups) > 1:
        curve = shared_curve(groups, curves)
        for number, group in enumerate(groups):
            lines += lines_of(group, curve, group.name, number, group.name)
        return Chart(f"{title}: {curve.label}", lines, along, upwards)
    group = groups[0]
    if len(group.digests) == 1 and group.members[0].episodes:
        episode = Curve("episode", "return", "C7", "training episodes, least to most")
        (line,) = lines_of(group, episode, episode.label, 7)
        lines.append(Line(line.name, line.x, line.y, line.band, 7, "faint"))
    for curve in curves:
        lines += lines_of(group, curve, curve.label, int(curve.colour[1:]))
    return Chart(title, lines, along, upwards)


def shared_curve(groups: Sequence[Experiment], curves: Sequence[Curve]) -> Curve:
    """The last curve that every run has: evaluations, where all were evaluated."""
    for curve in reversed(curves):
        if all(curve.key in digest.courses for group in groups for digest in group.members):
            return curve
    return curves[0]


def panels(
    groups: Sequence[Experiment], kind: str, along: str, include: Callable[[str], bool]
) -> list[Chart]:
    """A small chart for each column that `include` selects: losses, KL, entropy, ε, …"""
    names = dict.fromkeys(
        name for group in groups for digest in group.members for name in digest.names(kind)
    )
    charts = []
    for name in filter(include, names):
        label = LABELS.get(name, name.replace("_", " ").replace("/", ": "))
        curve = Curve(kind, name, "C0", label)
        lines = [
            line
            for number, group in enumerate(groups)
            for line in lines_of(
                group,
                curve,
                group.name if len(groups) > 1 else curve.label,
                number,
                group.name if len(groups) > 1 else "",
                with_members=False,
            )
        ]
        if lines:
            charts.append(Chart(curve.label, lines, along, log=spans_decades(lines), small=True))
    return charts


def spans_decades(lines: Iterable[Line]) -> bool:
    """Whether positive numbers span more than two decades."""
    values = np.concatenate([np.asarray(line.y, float) for line in lines])
    return bool(values.min() > 0 and values.max() / values.min() > DECADES)


def histograms(groups: Sequence[Experiment]) -> list[Chart]:
    """Returns and lengths of episodes: for one group by quarters of training, for several in the
    last quarter in which all have episodes."""
    charts = []
    for label, name in (("return of an episode", "returns"), ("length of an episode", "lengths")):
        merged_runs = [
            merged([getattr(digest, name) for digest in group.members]) for group in groups
        ]
        if not all(one.counts.size for one in merged_runs):
            continue
        if len(groups) == 1:
            lines = [
                bars(merged_runs[0], part, QUARTER[part], part)
                for part in range(QUARTERS)
                if merged_runs[0].counts[part].any()
            ]
            title = f"{label}, by quarters of training"
        else:
            quarters = [
                k for k in range(QUARTERS) if all(one.counts[k].any() for one in merged_runs)
            ]
            if not quarters:
                continue
            lines = [
                bars(one, quarters[-1], group.name, number, group.name)
                for number, (group, one) in enumerate(zip(groups, merged_runs, strict=True))
            ]
            title = f"{label}, {QUARTER[quarters[-1]]} of training"
        charts.append(Chart(title, lines, label, "share of episodes", small=True))
    return charts


def bars(one: Histogram, part: int, name: str, colour: int, run: str = "") -> Line:
    """The outline of a histogram."""
    shares = one.counts[part] / one.counts[part].sum()
    edges = one.edges
    x = np.concatenate([edges, edges[-1:]])
    return Line(name, x, np.concatenate([[0.0], shares, [0.0]]), None, colour, "steps", run)


def steps_to(group: Experiment, curve: Curve, target: float) -> float | None:
    """The step at which a group's interquartile mean first reached a target; None: never."""
    courses: list[Course] = [
        course for digest in group.members if (course := digest.courses.get(curve.key))
    ]
    if not courses:
        return None
    steps, values = aligned(courses)
    reached = np.flatnonzero(interquartile_mean(values) >= target) if steps.size else []
    return float(steps[reached[0]]) if len(reached) else None
