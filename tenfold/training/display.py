"""Runs on a terminal: the table of `tenfold watch`, and the live panel of a training run, or a line
from time to time where standard error is no terminal."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tenfold.config.changes import advice
from tenfold.config.run import Run
from tenfold.core.system import Clock, clock_face
from tenfold.runs.metrics import Metrics
from tenfold.runs.reporter import USUAL, Reporter

FIRST_LINE, LINE_SECONDS = 1.0, 5.0  # where there is no terminal: soon at first, then rarer
REFRESH = 4  # a second
TICKS = "▁▂▃▄▅▆▇█"
SPARK, BAR = 24, 12  # columns of a curve and of a progress bar
STAGES = 3  # of a run's time that are named
STAGE_STYLES = ("cyan", "magenta", "yellow")
STYLES = {  # by a run's state; what trains comes first
    "running": "green",
    "failed": "red",
    "waiting": "dim",
    "stopped": "yellow",
    "pruned": "dim",
    "finished": "dim",
}
COLUMNS = ("run", "", "step", "curve", "now", "steps/s", "left", "time")
RIGHT = ("step", "now", "steps/s", "left")
OPTIONAL = ("time", "", "curve", "steps/s")  # left out of a narrow window, in this order


def printable(name: Any) -> str:
    """A name without control characters: each of them is replaced."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(name)
    )


def natural_width(renderable: RenderableType) -> int:
    """The number of columns that a renderable needs to be shown in full."""
    console = Console(width=10_000)
    return Measurement.get(console, console.options, renderable).maximum


def sparkline(values: Any, width: int = SPARK) -> str:
    """A curve as one line of text."""
    array = np.asarray(values, float)
    array = array[np.isfinite(array)]
    if not array.size:
        return ""
    means = np.array([chunk.mean() for chunk in np.array_split(array, min(width, array.size))])
    low, span = means.min(), np.ptp(means)
    heights = (means - low) / span * (len(TICKS) - 1) if span else np.zeros(len(means))
    return "".join(TICKS[round(height)] for height in heights)


@dataclass(frozen=True)
class RunStatus:
    """One run as a row of the table; `rate` is in steps a second, `shares` of its time by stage."""

    name: str
    step: int
    steps: int
    rate: float = 0.0
    state: str = "running"
    curve: Any = ()
    shares: Mapping[str, float] = field(default_factory=dict)

    def cells(self) -> dict[str, RenderableType]:
        """The cells by column."""
        left = self.state
        if left in ("running", "finished"):
            left = "–" if left == "finished" else "?"
            left = clock_face((self.steps - self.step) / self.rate) if self.rate else left
        largest = sorted(self.shares.items(), key=lambda share: -share[1])[:STAGES]
        stages = [
            (f"{printable(stage)} {share:.0%} ", style)
            for (stage, share), style in zip(largest, STAGE_STYLES, strict=False)
        ]
        steps = max(self.steps, 1)
        return {
            "run": Text(printable(self.name), style=STYLES[self.state]),
            "": ProgressBar(steps, min(self.step, steps), width=BAR),
            "step": Text(f"{self.step:,}"),
            "curve": Text(sparkline(self.curve), style="cyan"),
            "now": Text(f"{self.curve[-1]:,.1f}" if len(self.curve) else "–"),
            "steps/s": Text(f"{self.rate:,.0f}" if self.rate else "–"),
            "left": Text(left),
            "time": Text.assemble(*stages),
        }


def status_table(runs: Sequence[RunStatus], width: int = 0) -> Table:
    """A row for each run, with as many columns as fit into `width` (0: all). Long names are
    wrapped."""
    rows, table = [run.cells() for run in runs], Table()
    empty = () if any(len(run.curve) for run in runs) else ("curve", "now")
    for dropped in range(len(OPTIONAL) + 1):
        columns = [name for name in COLUMNS if name not in (*OPTIONAL[:dropped], *empty)]
        table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
        for name in columns:
            justify = "right" if name in RIGHT else "left"
            table.add_column(name, justify=justify, no_wrap=name != "run", overflow="fold")
        for cells in rows:
            table.add_row(*(cells[name] for name in columns))
        if not width or natural_width(table) <= width:
            break
    return table


class Display:
    """Shows the progress of a training run. `update` is cheap: call it at every log row. Everything
    goes to standard error, so that output can be piped."""

    def __init__(
        self,
        title: str,
        steps: int,
        first_step: int,
        quiet: bool = False,
        reporter: Reporter = USUAL,
    ) -> None:
        """`reporter` is the one of the run's algorithm."""
        self.console, self.quiet, self.reporter = Console(stderr=True), quiet, reporter
        self.title, self.steps, self.first = title, steps, first_step
        self.started = self.printed = time.monotonic()
        self.pause = FIRST_LINE
        self.warnings: set[str] = set()  # of the seeds that are trained together
        self.live: Live | None = None
        if self.console.is_terminal and not quiet:
            self.live = Live(console=self.console, refresh_per_second=REFRESH, transient=True)
            self.live.start()

    def say(self, sentence: str, always: bool = False) -> None:
        """`always`: also in a quiet run, for important warnings."""
        if self.quiet and not always:
            return
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def announce(self, title: str, run: Run, lines: Sequence[str] = ()) -> None:
        """Several runs begin, `run` among them: prints their title and notes about their
        settings."""
        for line in (title, *lines):
            self.say(line)
        for note in advice(run):
            self.say(f"Note: {note}")

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def rate(self, step: int) -> float:
        """Steps per second; 0 where a resumed run has not reached its previous step."""
        return max(step - self.first, 0) / max(self.seconds(), 1e-9)

    def update(
        self, step: int, metrics: Metrics, clock: Clock, exploring: dict[str, float]
    ) -> None:
        latest, numbers = metrics.latest, dict[str, str]()
        if episodes := len(metrics.returns):
            mean = sum(metrics.returns) / episodes
            numbers["return"] = f"{mean:.1f} (last {episodes} episodes)"
        numbers |= self.reporter.now(latest)
        numbers |= {name: f"{value:.3g}" for name, value in exploring.items()}
        if "loss" in latest:
            numbers["loss"] = f"{latest['loss']:.4g}"
        self.show(step, numbers, clock.sentence())

    def show(self, step: int, numbers: Mapping[str, str], time_shares: str = "") -> None:
        """Shows the progress and further numbers."""
        rate = self.rate(step)
        if self.live is not None:
            grid = Table.grid(padding=(0, 2))
            for name, value in {**numbers, "time": time_shares}.items():
                if value:
                    grid.add_row(Text(name, style="dim"), Text(value))
            status = RunStatus(self.title, step, self.steps, rate)
            self.live.update(Group(status_table([status], self.console.width), grid))
        elif time.monotonic() - self.printed > min(self.pause, LINE_SECONDS):
            self.printed, self.pause = time.monotonic(), self.pause * 1.5
            left = clock_face((self.steps - step) / rate if rate else math.inf)
            progress = {"step": f"{step:,} of {self.steps:,}", "steps/s": f"{rate:,.0f}"}
            numbers = progress | {"left": left, **numbers}
            self.say("  ".join(f"{name} {value}" for name, value in numbers.items()))

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


class SeedDisplay(Display):
    """The display of one seed of several that share a display: it prints only important warnings,
    with the seed's name."""

    def __init__(self, shared: Display, name: str, first_step: int) -> None:
        self.shared, self.name, self.first = shared, name, first_step
        self.started = shared.started
        self.live, self.quiet = None, False

    def say(self, sentence: str, always: bool = False) -> None:
        if always and sentence not in self.shared.warnings:  # once, where all would say it
            self.shared.warnings.add(sentence)
            self.shared.say(f"{self.name}: {sentence}", always=True)

    def update(
        self, step: int, metrics: Metrics, clock: Clock, exploring: dict[str, float]
    ) -> None:
        """The shared display shows all seeds together."""
