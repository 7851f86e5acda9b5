"""Gantt charts of schedules: text for a terminal, and figures."""

from typing import Any

from tenfold.domains.jobshop.schedule import Schedule
from tenfold.runs.charts import new_figure

SYMBOLS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def gantt_text(schedule: Schedule, width: int = 100) -> str:
    """A row for each machine, a letter for each job, dots where it stands still. Where a letter
    stands for more than one time unit it shows the middle of that span, so an operation shorter
    than a letter may be hidden."""
    if not schedule:
        return "nothing is scheduled yet"
    span, machines = max(s.end for s in schedule), max(s.machine for s in schedule) + 1
    label = len(f"machine {machines - 1} ")
    room = max(width - label - 2, 8)
    columns = span * (room // span) if span <= room else room
    rows = [["·"] * columns for _ in range(machines)]
    for job, _, machine, start, end in schedule:
        for c in range(columns):
            if start <= (c + 0.5) * span / columns < end:
                rows[machine][c] = SYMBOLS[job] if job < len(SYMBOLS) else "#"
    chart = [f"{f'machine {m} ':<{label}}|{''.join(row)}|" for m, row in enumerate(rows)]
    axis = "0" + f"{span}".rjust(columns)
    return "\n".join([*chart, " " * label + axis])


def gantt_figure(schedule: Schedule, title: str = "") -> Any:
    """The chart as a Matplotlib figure; bars are labelled and coloured by job."""
    from matplotlib import colormaps

    span, machines = (
        max((s.end for s in schedule), default=1),
        max((s.machine for s in schedule), default=0) + 1,
    )
    jobs = max((s.job for s in schedule), default=0) + 1
    colours: Any = colormaps["tab10" if jobs <= 10 else "tab20" if jobs <= 20 else "turbo"]
    figure = new_figure(10, 1.2 + 0.45 * machines)
    figure.set_dpi(110)
    axes = figure.add_subplot()
    for job, _, machine, start, end in schedule:
        colour = colours(job) if jobs <= 20 else colours(job / jobs)
        axes.broken_barh(
            [(start, end - start)],
            (machine - 0.4, 0.8),
            facecolors=[colour],
            edgecolors=["black"],
            linewidth=0.5,
        )
        if end - start >= span / 60:  # room for a number
            axes.text(
                (start + end) / 2,
                machine,
                f"{job}",
                ha="center",
                va="center",
                fontsize=8,
                clip_on=True,
            )
    axes.set(
        xlim=(0, span),
        ylim=(machines - 0.5, -0.5),
        yticks=range(machines),
        xlabel="time",
        ylabel="machine",
        title=title or f"{jobs} jobs, makespan {span}",
    )
    return figure
