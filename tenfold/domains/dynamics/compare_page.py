"""The figure and the page of a comparison of policies."""

import base64
import html
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run
from tenfold.runs.figures import add_legend, as_png, new_figure
from tenfold.runs.files import replace_file
from tenfold.runs.report import STYLE, table
from tenfold.runs.seeds import bootstrap_interval, interquartile_mean, sentence

PICTURE, PAGE = "compare.png", "report.html"


def write_figure(path: Path, rows: dict[str, dict[str, Any]], title: str) -> Path:
    """Left the field's error over steps, right R² over horizons: interquartile means over seeds
    with their 95 % intervals."""
    figure = new_figure(10, 4.3)
    left, right = figure.subplots(1, 2)
    for policy, row in rows.items():
        curves = [(right, np.arange(1, len(row["r2"]) + 1), np.array(row["r2s"]))]
        if "field_errors" in row:
            curves.append((left, np.array(row["steps"]), np.array(row["field_errors"]).T))
        for axes, x, values in curves:
            middle, (low, high) = interquartile_mean(values), bootstrap_interval(values)
            (line,) = axes.plot(x, middle, marker=".", label=policy)
            if len(x) > 1:
                axes.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
            else:  # a single point has no band
                around = np.maximum(middle - low, 0), np.maximum(high - middle, 0)
                axes.errorbar(x, middle, around, color=line.get_color(), capsize=4)
    left.set(
        xlabel="environment steps",
        ylabel="error of the field (1: a field of zeros)",
        ylim=(0, None),
    )
    right.set(xlabel="steps ahead", ylabel="R² of observations")
    figure.suptitle(f"{title}: interquartile means, 95 % intervals", fontsize=10)
    add_legend(figure, right)
    replace_file(path / PICTURE, as_png(figure))
    return path / PICTURE


def write_page(path: Path, rows: dict[str, dict[str, Any]], run: Run, title: str) -> Path:
    image = base64.b64encode((path / PICTURE).read_bytes()).decode()
    cells = {
        policy: sentence(row["field_error"]) for policy, row in rows.items() if "field_error" in row
    }
    page = f"""<!doctype html><html lang="en"><meta charset="utf-8">
<title>{html.escape(title)}</title><style>{STYLE}</style>
<h1>{html.escape(title)}</h1>
<p><img alt="errors over steps and R² over horizons, by policy"
src="data:image/png;base64,{image}"></p>
<h2>Error of the field</h2>{table(cells)}
<h2>Runs</h2><p>{" · ".join(f"<a href='{policy}/report.html'>{policy}</a>" for policy in rows)}</p>
<h2>Settings</h2><pre>{html.escape(yaml.safe_dump(to_mapping(run), sort_keys=False))}</pre></html>
"""
    replace_file(path / PAGE, page.encode(errors="replace"))
    return path / PAGE
