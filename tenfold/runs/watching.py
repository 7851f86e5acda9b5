"""`tenfold watch`: runs as they train, on a terminal's whole screen. It reads their files and does
nothing else."""

import os
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.measure import Measurement
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tenfold.core.errors import UserError
from tenfold.core.system import clock_face
from tenfold.runs.curves import Group as Experiment
from tenfold.runs.curves import shared_curve
from tenfold.runs.digest import Digest
from tenfold.runs.folder import failure
from tenfold.runs.looking import Sight
from tenfold.runs.metrics import outcome, rank
from tenfold.runs.report import time_shares
from tenfold.runs.reporter import reporter_of

TICKS = "▁▂▃▄▅▆▇█"
SPARK, BAR = 24, 12  # columns of a curve and of a progress bar
PAUSE = 1.0  # seconds between looks
KEYS = 0.1  # seconds between looks at the keyboard
EVENTS = 6  # lines of them
EDGE = 7  # lines of the screen that are not runs': the head, the table's own, the last
STAGES = 3  # of a run's time that are named
STYLES = {
    "running": "green",
    "failed": "red",
    "waiting": "dim",
    "stopped": "yellow",
    "pruned": "dim",
    "finished": "dim",
}
COLUMNS = ("run", "", "step", "curve", "now", "steps/s", "left", "time")
NARROW = ("time", "", "curve", "steps/s")  # columns that a narrow window has no room for, in order
STAGE_STYLES = ("cyan", "magenta", "yellow", "green", "blue", "red")


def plain(words: Any) -> str:
    """A name as a terminal may show it: what would move its cursor is replaced."""
    return "".join(
        letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in str(words)
    )


def called(group: Experiment, name: str) -> str:
    return plain(f"{group.name} {name}".strip())


def natural_width(drawn: RenderableType) -> int:
    """Of what nothing is cut from."""
    console = Console(width=10_000)
    return Measurement.get(console, console.options, drawn).maximum


def sparkline(values: Any, width: int = SPARK) -> str:
    """A curve in one line of text."""
    array = np.asarray(values, float)
    array = array[np.isfinite(array)]
    if not array.size:
        return ""
    parts = np.array_split(array, min(width, array.size))
    means = np.array([part.mean() for part in parts])
    low, span = means.min(), np.ptp(means)
    heights = (means - low) / span * (len(TICKS) - 1) if span else np.zeros(len(means))
    return "".join(TICKS[round(height)] for height in heights)


class Screen:
    """What is on it: a line for each run, and what happened to them."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.sight, self.first = Sight(paths, sweeps=True, trust=trust), 0
        self.events: deque[Text] = deque(maxlen=200)
        self.states: dict[Path, str] = {}
        self.best: dict[Path, Any] = {}
        self.rates: dict[Path, deque[tuple[float, int]]] = {}
        self.look()

    def look(self) -> None:
        for group in self.sight.look():
            for name, digest in group.digests.items():
                self.note(group, name, digest)

    def note(self, group: Experiment, name: str, digest: Digest) -> None:
        """What is new of a run since the last look."""
        path, state = digest.path, self.sight.state(group, digest)
        words = called(group, name)
        seen = self.rates.setdefault(path, deque(maxlen=30))
        step = digest.last.get("step", 0)
        if not seen or seen[-1][1] != step:
            seen.append((time.monotonic(), step))
        if path in self.states:
            for row in digest.news:
                self.judge(path, words, row)
        else:
            self.best[path] = rank(digest.best) if digest.best else None
        if state != self.states.get(path, "" if state == "failed" else state):
            why = f": {plain(failure(path))}" if state == "failed" else ""
            self.say(words, f"{state} at step {step:,}{why}", STYLES[state])
        self.states[path] = state

    def judge(self, path: Path, words: str, row: dict[str, Any]) -> None:
        best = self.best.get(path)
        better = best is None or rank(row) > best
        self.best[path] = rank(row) if better else best
        success, score = outcome(row)
        share = "" if success is None else f"success {success:.1%}, "
        told = f"evaluated at step {row['step']:,}: {share}{score:,.2f}"
        self.say(words, told + (", the best so far" if better and best is not None else ""), "cyan")

    def say(self, whose: str, what: str, style: str) -> None:
        when = time.strftime("%H:%M:%S")
        self.events.append(Text.assemble((f"{when}  ", "dim"), f"{whose}  ", (what, style)))

    # drawn

    def drawn(self, height: int, keys: bool = True, width: int = 0) -> RenderableType:
        """`height` 0: as many lines as there are runs; `width` 0: as wide as they are; `keys`: for
        a person who can press some, and is told what happened; else what failed is told."""
        every = [
            (group, name, digest)
            for group in self.sight.groups.values()
            for name, digest in group.digests.items()
        ]
        order = list(STYLES)  # what goes on is in front
        every.sort(key=lambda one: order.index(self.states[one[2].path]))
        states = [self.states[digest.path] for _, _, digest in every]
        room = max(height - EDGE - EVENTS, 3) if height else len(every)
        self.first = max(min(self.first, len(every) - room), 0)
        shown = every[self.first : self.first + room]
        counts = {state: states.count(state) for state in STYLES if state in states}
        head = Text.assemble(
            ("tenfold watch  ", "bold"),
            *((f"{count} {state}  ", STYLES[state]) for state, count in counts.items()),
        )
        if len(shown) < len(every):
            last = self.first + len(shown)
            head.append(f"runs {self.first + 1} to {last} of {len(every)}  ", "dim")
        table = self.table(shown, width)
        events = list(self.events)[-EVENTS:] or [Text("nothing has happened yet", style="dim")]
        last = [Text("q quits, the runs go on; ↑ ↓ scroll", style="dim")] if keys else []
        return Group(head, table, *(events if keys else self.failures(every)), *last)

    def failures(self, every: Sequence[tuple[Experiment, str, Digest]]) -> list[Text]:
        return [
            Text.assemble(
                (f"{called(group, name)} failed: ", STYLES["failed"]), plain(failure(digest.path))
            )
            for group, name, digest in every
            if self.states[digest.path] == "failed"
        ]

    def table(self, shown: Sequence[tuple[Experiment, str, Digest]], width: int) -> Table:
        """With as many columns as there is room for; a name goes on in a second line where it is
        longer than what is left."""
        lines = [self.line(*one) for one in shown]
        table = Table()
        for number in range(len(NARROW) + 1):
            table = Table(box=None, pad_edge=False, expand=False, header_style="dim")
            places = [k for k, one in enumerate(COLUMNS) if one not in NARROW[:number]]
            for heading in (COLUMNS[k] for k in places):
                right = heading in ("step", "now", "steps/s", "left")
                wraps = heading == "run"
                table.add_column(
                    heading,
                    justify="right" if right else "left",
                    no_wrap=not wraps,
                    overflow="fold",
                )
            for line in lines:
                table.add_row(*(line[k] for k in places))
            if not width or natural_width(table) <= width:
                break
        return table

    def line(self, group: Experiment, name: str, digest: Digest) -> list[RenderableType]:
        state, last = self.states[digest.path], digest.last
        step, steps = last.get("step", 0), max(group.run.steps, 1)
        curve = self.curve(group, digest)
        rate = self.rate(digest) if state == "running" else 0.0
        left = clock_face((steps - step) / rate) if rate else "–" if state == "finished" else "?"
        return [
            Text(called(group, name), style=STYLES[state]),
            ProgressBar(steps, min(step, steps), width=BAR),
            Text(f"{step:,}"),
            Text(sparkline(curve), style="cyan"),
            Text(f"{curve[-1]:,.1f}" if len(curve) else "–"),
            Text(f"{rate:,.0f}" if rate else "–"),
            Text(left if state in ("running", "finished") else state),
            stages(digest),
        ]

    def curve(self, group: Experiment, digest: Digest) -> np.ndarray:
        """What the run is judged by, over training."""
        curves = reporter_of(group.run).curves(group.run)
        there = [own for own in curves if (own.kind, own.column) in digest.courses]
        if not there:
            return np.zeros(0)
        chosen = there[0] if len(there) > 1 else shared_curve([group], there)
        return digest.courses[chosen.kind, chosen.column].points()[1]

    def rate(self, digest: Digest) -> float:
        """Steps a second since they were first seen, or as the run says itself."""
        seen = self.rates[digest.path]
        if len(seen) > 2 and seen[-1][0] > seen[0][0]:
            return max((seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]), 0.0)
        return float(digest.last.get("timing", {}).get("steps_per_second", 0.0))


def stages(digest: Digest) -> Text:
    """Where the time went: the largest parts."""
    shares = sorted(time_shares([digest]).items(), key=lambda share: -share[1])
    parts = [
        (f"{plain(stage)} {share:.0%} ", STAGE_STYLES[number])
        for number, (stage, share) in enumerate(shares[:STAGES])
    ]
    return Text.assemble(*parts)


# the terminal


def watch_runs(paths: Sequence[Path], once: bool = False, trust: bool = False) -> None:
    """Until q, Ctrl-C or, where nothing is left to wait for, a key."""
    screen, console = Screen(paths, trust), Console()
    if not screen.states:
        raise UserError("There is no run to watch yet: start one with `tenfold train cartpole`.")
    if not console.is_terminal:  # a file or a pipe has room for everything
        drawn = screen.drawn(0, keys=False)
        Console(width=natural_width(drawn)).print(drawn)
        return
    if once or not sys.stdin.isatty():
        console.print(screen.drawn(0, keys=False, width=console.width))
        return
    with keyboard(), Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            looked = time.monotonic()
            live.update(screen.drawn(console.height, width=console.width), refresh=True)
            while (key := pressed()) not in ("q", "Q", "\x03"):
                screen.first += {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1}.get(key, 0)
                if key or time.monotonic() - looked >= PAUSE:
                    if time.monotonic() - looked >= PAUSE:
                        screen.look()
                        looked = time.monotonic()
                    live.update(screen.drawn(console.height, width=console.width), refresh=True)
        except KeyboardInterrupt:
            pass


@contextmanager
def keyboard() -> Iterator[None]:
    """Keys as they are pressed, and not shown; the terminal is put back as it was."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def pressed() -> str:
    """A key, after a moment none; an arrow is three characters."""
    if not select.select([sys.stdin], [], [], KEYS)[0]:
        return ""
    key = os.read(sys.stdin.fileno(), 1)
    if key == b"\x1b" and select.select([sys.stdin], [], [], 0)[0]:
        key += os.read(sys.stdin.fileno(), 2)
    return key.decode(errors="replace") or "q"  # nothing: the terminal is gone
