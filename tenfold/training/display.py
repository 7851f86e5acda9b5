"""What a person sees while a run goes on: a live panel on a terminal, a line now and then
elsewhere."""

import math
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
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


class Display:
    """`update` is cheap; call it at every log row. Everything goes to standard error, so that
    output can be piped."""

    def __init__(
        self,
        title: str,
        steps: int,
        first_step: int,
        quiet: bool = False,
        reporter: Reporter = USUAL,
    ) -> None:
        """`reporter` is that of the run's algorithm."""
        self.console, self.quiet, self.reporter = Console(stderr=True), quiet, reporter
        self.title, self.steps, self.first = title, steps, first_step
        self.started = self.spoke = time.monotonic()
        self.pause = FIRST_LINE
        self.told: set[str] = set()  # by runs beside one another
        self.live: Live | None = None
        if self.console.is_terminal and not quiet:
            self.live = Live(console=self.console, refresh_per_second=REFRESH, transient=True)
            self.live.start()

    def say(self, sentence: str, always: bool = False) -> None:
        """`always`: also in a quiet run, for what a person must not miss."""
        if self.quiet and not always:
            return
        self.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def announce(self, words: str, run: Run) -> None:
        """Several runs begin, `run` among them: what a person should know of them."""
        self.say(words)
        for note in advice(run):
            self.say(f"Note: {note}")

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def rate(self, step: int) -> float:
        """Steps a second; 0 where a resume is still behind what was told before it."""
        return max(step - self.first, 0) / max(self.seconds(), 1e-9)

    def update(
        self, step: int, metrics: Metrics, clock: Clock, exploring: dict[str, float]
    ) -> None:
        self.show(step, self.numbers(metrics, exploring), clock.sentence())

    def show(self, step: int, more: dict[str, str], time_shares: str = "") -> None:
        """The progress, and what else there is to say."""
        rate = self.rate(step)
        numbers = {
            "step": f"{step:,} of {self.steps:,}",
            "steps/s": f"{rate:,.0f}",
            "left": clock_face((self.steps - step) / rate if rate else math.inf),
            **more,
        }
        if self.live is not None:
            table = Table.grid(padding=(0, 2))
            table.add_row(Text("progress", style="dim"), ProgressBar(self.steps, step, width=40))
            for name, value in numbers.items():
                table.add_row(Text(name, style="dim"), Text(value))
            if time_shares:
                table.add_row(Text("time", style="dim"), Text(time_shares))
            self.live.update(Group(Text(self.title, style="bold"), table))
        elif time.monotonic() - self.spoke > min(self.pause, LINE_SECONDS):
            self.spoke, self.pause = time.monotonic(), self.pause * 1.5
            self.say("  ".join(f"{name} {value}" for name, value in numbers.items()))

    def numbers(self, metrics: Metrics, exploring: dict[str, float]) -> dict[str, str]:
        latest: dict[str, Any] = metrics.latest
        found = {}
        if metrics.returns:
            found["return"] = (
                f"{sum(metrics.returns) / len(metrics.returns):.1f} (last {len(metrics.returns)} "
                "episodes)"
            )
        found |= self.reporter.now(latest)
        found |= {name: f"{value:.3g}" for name, value in exploring.items()}
        if "loss" in latest:
            found["loss"] = f"{latest['loss']:.4g}"
        return found

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()
            self.live = None


class Aside(Display):
    """Of one of several runs, beside the display of all: it says what a person must not miss, and
    whose it is."""

    def __init__(self, whole: Display, name: str, first_step: int) -> None:
        self.whole, self.name, self.first = whole, name, first_step
        self.started = whole.started
        self.live, self.quiet = None, False

    def say(self, sentence: str, always: bool = False) -> None:
        if always and sentence not in self.whole.told:  # once, where all would say it
            self.whole.told.add(sentence)
            self.whole.say(f"{self.name}: {sentence}", always=True)

    def update(
        self, step: int, metrics: Metrics, clock: Clock, exploring: dict[str, float]
    ) -> None:
        """All are shown together."""
