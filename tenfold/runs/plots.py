"""Figures over training: returns and losses, rewards by component; drawn off screen. Numbers of
several seeds as one: the interquartile mean and its bootstrap interval."""

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenfold.runs.metrics import WINDOW

RESAMPLES = 2000


def interquartile_mean(values: np.ndarray) -> Any:
    """The mean of what is left without the lowest and the highest quarter (Agarwal et al., 2021),
    over the first axis."""
    cut = len(values) // 4
    return np.sort(values, axis=0)[cut : len(values) - cut].mean(axis=0)


def bootstrap_interval(values: np.ndarray, share: float = 0.95) -> tuple[Any, Any]:
    """Percentile bootstrap of the interquartile mean over members (the first axis); always the same
    resamples."""
    drawn = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    means = np.array([interquartile_mean(values[rows]) for rows in drawn])
    low, high = np.quantile(means, [(1 - share) / 2, (1 + share) / 2], axis=0)
    return low, high


def together(values: list[float]) -> dict[str, Any]:
    """Several seeds' numbers as one."""
    array = np.array(values, np.float64)
    low, high = bootstrap_interval(array)
    return {
        "seeds": len(values),
        "iqm": float(interquartile_mean(array)),
        "interval": [float(low), float(high)],
        "mean": float(array.mean()),
        "std": float(array.std()),
        "min": float(array.min()),
        "max": float(array.max()),
    }


def sentence(found: dict[str, Any], form: str = ".2f") -> str:
    """What `together` found, in words; `form` is how its numbers are written."""
    low, high = found["interval"]
    return (
        f"{found['iqm']:{form}} (interquartile mean of {found['seeds']} seeds, 95 % interval "
        f"{low:{form}} to {high:{form}})"
    )


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


TITLE = 95  # characters of a title's line on a figure 9 inches wide
# steps, middle, and the band from low to high
Course = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
PARTS = ("reward/", "action/")


@dataclass(frozen=True)
class Curve:
    """A column of the rows of one kind, over training."""

    kind: str
    column: str
    colour: str
    label: str


def entitle(axes: Any, text: str) -> None:
    """A title of several lines if need be, broken between an environment's arguments."""
    axes.set_title(textwrap.fill(re.sub(r",\s*", ", ", text), TITLE), fontsize=10)


def returns_figure(rows: list[dict[str, Any]], title: str, policy: str = "greedy") -> Any:
    """Returns of training and of evaluations; below them what the learner minimised, where it says
    so."""
    losses = loss_columns(rows)
    figure = new_figure(9, 6 if losses else 4)
    panels = figure.subplots(
        1 + bool(losses), 1, sharex=True, height_ratios=(2, 1)[: 1 + bool(losses)], squeeze=False
    )[:, 0]
    above = panels[0]
    episodes = [(r["step"], r["return"]) for r in rows if r["kind"] == "episode"]
    if episodes:
        step, returned = np.array(episodes).T
        above.plot(step, returned, ".", color="0.8", markersize=3, label="training episode")
        total = np.cumsum(np.concatenate([[0.0], returned]))
        first = np.maximum(np.arange(1, len(returned) + 1) - WINDOW, 0)
        mean = (total[1:] - total[first]) / (np.arange(1, len(returned) + 1) - first)
        above.plot(step, mean, color="C0", label=f"mean of {WINDOW} training episodes")
    evaluated = [
        (r["step"], r["mean_return"], r["std_return"]) for r in rows if r["kind"] == "eval"
    ]
    if evaluated:
        step, mean, deviation = np.array(evaluated).T
        above.errorbar(
            step,
            mean,
            deviation,
            color="C3",
            marker="o",
            capsize=3,
            label=f"evaluation ({policy}, ± one deviation)",
        )
    above.set_ylabel("return")
    entitle(above, title)
    if above.get_legend_handles_labels()[0]:
        above.legend(loc="best", fontsize=8)
    if losses:
        plot_losses(panels[1], losses)
    panels[-1].set_xlabel("environment steps")
    return figure


def seeds_figure(
    members: list[list[dict[str, Any]]], curves: Sequence[Curve], title: str, ylabel: str
) -> Any:
    """Curves of several seeds, given the rows of each: every one, their interquartile mean, and its
    95 % interval."""
    figure = new_figure(9, 4.5)
    axes = figure.subplots()
    for curve in curves:
        steps, values = values_over_steps(members, curve.kind, curve.column)
        if steps.size:
            draw_thinly(axes, steps, values, curve.colour)
            axes.plot(steps, interquartile_mean(values), color=curve.colour, label=curve.label)
            axes.fill_between(
                steps, *bootstrap_interval(values), color=curve.colour, alpha=0.2, linewidth=0
            )
    axes.set(xlabel="environment steps", ylabel=ylabel)
    entitle(axes, title)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="best", fontsize=8)
    return figure


def draw_thinly(axes: Any, steps: np.ndarray, values: np.ndarray, colour: str) -> None:
    """A line for each row, all as one thing to draw: there may be hundreds."""
    from matplotlib.collections import LineCollection

    lines = np.stack([np.broadcast_to(steps, values.shape), values], axis=-1)
    alpha = max(0.05, 0.2 * min(1.0, 16 / len(values)))
    drawn = LineCollection(list(lines), colors=colour, alpha=alpha, linewidths=0.8)
    axes.add_collection(drawn)
    axes.autoscale_view()


def values_over_steps(
    members: list[list[dict[str, Any]]], kind: str, column: str
) -> tuple[np.ndarray, np.ndarray]:
    """Steps [T] and values [members, T] where every member has a row; members log at the same
    steps."""
    found = [
        {r["step"]: r[column] for r in rows if r["kind"] == kind and column in r}
        for rows in members
    ]
    steps = sorted(set.intersection(*(set(member) for member in found)))
    return np.array(steps), np.array([[member[step] for step in steps] for member in found])


def course_of_seeds(members: list[list[dict[str, Any]]], name: str) -> Course | None:
    """A part's interquartile mean over seeds, with a band of its 95 % interval; None where they
    have no step in common."""
    steps, values = values_over_steps(members, "train", name)
    if not steps.size:
        return None
    return steps, interquartile_mean(values), *bootstrap_interval(values)


def loss_columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Steps and the two curves of the lower panel: loss and Q of Q-learning, or the two losses of a
    policy with values."""
    for names in (("loss", "q"), ("value_loss", "policy_loss")):
        found = [
            [r["step"], *(r[name] for name in names)]
            for r in rows
            if r["kind"] == "train" and all(n in r for n in names)
        ]
        if found:
            return dict(zip(("step", *names), np.array(found, np.float64).T, strict=True))
    return {}


def plot_losses(axes: Any, losses: dict[str, np.ndarray]) -> None:
    step, (name, left), (other, right) = losses["step"], *list(losses.items())[1:]
    axes.plot(step, np.maximum(left, 1e-12), color="C1")
    axes.set(yscale="log")
    axes.set_ylabel(name.replace("_", " "), color="C1")
    beside = axes.twinx()
    beside.plot(step, right, color="C2")
    beside.set_ylabel(
        "mean Q of actions taken" if other == "q" else other.replace("_", " "), color="C2"
    )


def part_names(rows: list[dict[str, Any]]) -> list[str]:
    """Columns of rewards by component and of the action's numbers."""
    last = next(
        (
            row
            for row in reversed(rows)
            if row["kind"] == "train" and any(n.startswith(PARTS) for n in row)
        ),
        {},
    )
    return [name for name in last if name.startswith(PARTS) and not name.endswith("/std")]


def course_of(rows: list[dict[str, Any]], name: str) -> Course:
    """A part's mean over training, with a band of one deviation."""
    own = [row for row in rows if row["kind"] == "train" and name in row]
    step, mean = (np.array([row[key] for row in own], np.float64) for key in ("step", name))
    spread = np.array([row.get(f"{name}/std", 0.0) for row in own])
    return step, mean, mean - spread, mean + spread


def parts_figure(courses: dict[str, Course], band: str) -> Any:
    """A panel for each reward component, without its weight, and for each number of the action."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    lines = -(-len(courses) // 3)
    figure = new_figure(10, 1.7 * lines + 0.4)
    for place, (name, (step, middle, low, high)) in enumerate(courses.items()):
        axes = figure.add_subplot(lines, 3, place + 1)
        colour = "C0" if name.startswith("reward/") else "C2"
        axes.fill_between(step, low, high, color=colour, alpha=0.2, linewidth=0)
        axes.plot(step, middle, color=colour)
        axes.set_title(name.replace("/", ": "), fontsize=8)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel(f"a step's mean, components without weights ({band})", fontsize=9)
    return figure
