"""The figure and the page of a comparison of policies."""

from pathlib import Path
from typing import Any

import numpy as np

from tenfold.config.run import Run
from tenfold.runs.figures import add_legend, as_png, new_figure
from tenfold.runs.files import replace_file
from tenfold.runs.page import (
    Link,
    Section,
    image,
    origin_sections,
    page,
    paragraph,
    settings_section,
    table,
)
from tenfold.runs.statistics import bootstrap_interval, interquartile_mean, sentence

PICTURE, PAGE = "compare.png", "report.html"


def write_page(
    path: Path, rows: dict[str, dict[str, Any]], run: Run, title: str, about: dict[str, Any]
) -> Path:
    """Writes the picture and the page; `rows` are the results of each policy."""
    picture = as_png(figure_of(rows, title))
    replace_file(path / PICTURE, picture)
    errors = {
        policy: sentence(row["field_error"]) for policy, row in rows.items() if "field_error" in row
    }
    runs = [Link(policy, f"{policy}/report.html") for policy in rows]
    sections = [
        Section("", image(picture, "errors over steps and R² over horizons, by policy")),
        Section("Error of the field", table(errors)),
        Section("Runs", paragraph(*runs)),
        settings_section(run),
        *origin_sections(about),
    ]
    replace_file(path / PAGE, page(title, sections))
    return path / PAGE


def figure_of(rows: dict[str, dict[str, Any]], title: str) -> Any:
    """Left the field's error over steps, right R² over horizons: interquartile means over seeds
    with their 95 % intervals."""
    figure = new_figure(10, 4.3)
    left, right = figure.subplots(1, 2)
    for policy, row in rows.items():
        draw_policy(right, policy, np.arange(1, len(row["r2"]) + 1), np.array(row["r2s"]))
        if "field_errors" in row:
            draw_policy(left, policy, np.array(row["steps"]), np.array(row["field_errors"]).T)
    left.set(
        xlabel="environment steps",
        ylabel="error of the field (1: a field of zeros)",
        ylim=(0, None),
    )
    right.set(xlabel="steps ahead", ylabel="R² of observations")
    figure.suptitle(f"{title}: interquartile means, 95 % intervals", fontsize=10)
    add_legend(figure, right)
    return figure


def draw_policy(axes: Any, policy: str, x: np.ndarray, values: np.ndarray) -> None:
    """Of values [seeds, x]."""
    middle, (low, high) = interquartile_mean(values), bootstrap_interval(values)
    (line,) = axes.plot(x, middle, marker=".", label=policy)
    if len(x) > 1:
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    else:  # a single point has no band
        around = np.maximum(middle - low, 0), np.maximum(high - middle, 0)
        axes.errorbar(x, middle, around, color=line.get_color(), capsize=4)
