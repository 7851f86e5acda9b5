"""Charts as numbers: lines, bands and words. A page draws them (`page.js`), and so does a picture
of its own."""

import io
import json
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DIGITS = 6  # of a number on a page
TITLE = 95  # characters of a title's line on a figure 9 inches wide
THIN = "thin"  # one of many, behind what they are together
STYLES = {"": "-", THIN: "-", "dash": "--", "faint": "-", "dots": "-", "steps": "-"}


@dataclass(frozen=True)
class Line:
    """`band` is from low to high. A colour is a number of the palette, or as CSS writes it. Lines
    of one `run` are hidden together, on all charts of a page."""

    name: str
    x: Any
    y: Any
    band: tuple[Any, Any] | None = None
    colour: int | str = 0
    style: str = ""
    run: str = ""


@dataclass(frozen=True)
class Chart:
    """`x` and `y` say what is along the axes. With `ticks`, words stand at 0, 1, 2, … instead of
    numbers; `notes` are words at places, and `bounds` the lowest and the highest that is shown."""

    title: str
    lines: Sequence[Line]
    x: str = "environment steps"
    y: str = ""
    log: bool = False
    small: bool = False
    ticks: Sequence[str] = ()
    notes: Sequence[tuple[float, float, str]] = ()
    bounds: tuple[float, float] | None = None


@dataclass
class Table:
    """Arrays that several lines have in common, each once."""

    kept: list[list[float | None]] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)

    def place(self, values: Any) -> int:
        key = np.asarray(values, float).tobytes()
        if key not in self.places:
            self.places[key] = len(self.kept)
            self.kept.append(numbers(values))
        return self.places[key]


def numbers(values: Any) -> list[float | None]:
    """As JSON has them, with as many digits as anybody sees; None for what is no number."""
    found = [float(f"{value:.{DIGITS}g}") for value in np.asarray(values, float).tolist()]
    return [None if abs(v) == np.inf or v != v else int(v) if v == int(v) else v for v in found]


def as_json(chart: Chart) -> str:
    """What the page's script draws. No character of it means anything to HTML."""
    xs = Table()
    lines = []
    for line in chart.lines:
        low, high = line.band or (None, None)
        lines.append(
            {
                "name": line.name,
                "run": line.run,
                "x": xs.place(line.x),
                "y": numbers(line.y),
                "low": None if low is None else numbers(low),
                "high": None if high is None else numbers(high),
                "colour": line.colour,
                "style": line.style,
            }
        )
    text = json.dumps(
        {
            "title": chart.title,
            "x": chart.x,
            "y": chart.y,
            "log": chart.log,
            "small": chart.small,
            "ticks": list(chart.ticks),
            "notes": [[float(x), float(y), words] for x, y, words in chart.notes],
            "bounds": chart.bounds,
            "xs": xs.kept,
            "lines": lines,
        },
        separators=(",", ":"),
    )
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


# pictures


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
    """Below all axes, where it covers nothing; each word once."""
    handles = {
        word: handle
        for one in axes
        for handle, word in zip(*one.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize=8)


def spelt(text: str) -> str:
    """As it is: between two of this sign Matplotlib would read mathematics."""
    return text.replace("$", r"\$")


def broken(text: str) -> str:
    """Several lines if need be, broken between an environment's arguments."""
    return spelt(textwrap.fill(re.sub(r",\s*", ", ", text), TITLE))


def figure_of(charts: Sequence[Chart], title: str, columns: int = 1) -> Any:
    """The same charts as one picture, under one title."""
    lines = -(-len(charts) // columns)
    figure = new_figure(9, 3.6 * lines + 0.4)
    every = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, chart in zip(every, charts, strict=False):
        draw(axes, chart)
        axes.set_title(broken(title if len(charts) == 1 else chart.title), fontsize=10)
    for axes in every[len(charts) :]:
        axes.set_visible(False)
    if len(charts) > 1:
        figure.suptitle(broken(title), fontsize=10)
    if any(chart.lines for chart in charts):
        add_legend(figure, *every)
    return figure


def draw(axes: Any, chart: Chart) -> None:
    thin = [line for line in chart.lines if line.style == THIN]
    for line in chart.lines:
        colour = line.colour if isinstance(line.colour, str) else f"C{line.colour % 10}"
        label = "_" if line.style == THIN else spelt(line.name)
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
    axes.set(xlabel=spelt(chart.x), ylabel=spelt(chart.y))
    if chart.log:
        axes.set_yscale("log", nonpositive="clip")
