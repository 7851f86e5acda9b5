"""Watches runs from outside, while they train and afterwards: `tenfold watch`, and the reading of
`tenfold report`. Files are read incrementally; nothing of the runs is modified, and their locks are
not touched: /proc/locks lists those that are held."""

import os
import re
import select
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.console import Group as Lines
from rich.live import Live
from rich.text import Text

from tenfold.core.errors import UserError
from tenfold.runs.charts import Experiment, shared_curve
from tenfold.runs.digest import Digest
from tenfold.runs.file_schema import SEEDS, read_json
from tenfold.runs.folder import RunFolder, failure, is_compare, is_run, is_seeds, is_sweep
from tenfold.runs.metrics import outcome, rank
from tenfold.runs.report import group_of_run, group_of_seeds, time_shares
from tenfold.runs.reporter import reporter_of
from tenfold.runs.seeds import SeedsFolder
from tenfold.runs.storage import LOCK
from tenfold.training.display import STYLES, RunStatus, natural_width, printable, status_table

LOCKS = Path("/proc/locks")
RECENT = 60.0  # seconds since the last row of a run that goes on without a lock of its own
LOCKED_ABOVE = 2  # folders above a run that may be locked for it: that of its seeds, of a sweep
DEEPEST = 3  # folders below the one that is named
PAUSE = 1.0  # seconds between two readings
KEYS = 0.1  # seconds between looks at the keyboard
EVENTS = 6  # lines of them
EDGE = 7  # lines of the screen that are not runs': the head, the table's own, the last


def experiments_below(path: Path, deepest: int = DEEPEST, sweeps: bool = False) -> list[Path]:
    """Runs and folders of seeds below a folder, seeds as one, with `sweeps` also their trials;
    sorted by name."""
    experiments = []
    for below in path.iterdir() if path.is_dir() else ():
        if below.is_symlink() or not below.is_dir() or below.name.startswith("."):
            continue
        if is_run(below) or is_seeds(below):
            experiments.append(below)
        elif deepest > 1 and (sweeps or not is_sweep(below)):
            experiments += experiments_below(below, deepest - 1, sweeps)
    return sorted(experiments, key=natural_order)


def natural_order(path: Path) -> list[Any]:
    """A sort key: by name, numbers by value."""
    fragments = re.split(r"(\d+)", str(path))
    return [int(word) if number % 2 else word for number, word in enumerate(fragments)]


def experiments_named(paths: Sequence[Path], sweeps: bool = False) -> list[Path]:
    """The experiments that paths name; for folders all experiments below them."""
    experiments: list[Path] = []
    for path in paths:
        if is_run(path) or is_seeds(path):
            experiments.append(path)
        elif below := experiments_below(path, sweeps=sweeps):
            experiments += below
        elif sweeps and is_sweep(path):
            raise UserError(f"{path} is a sweep whose first trial has not begun yet.")
        elif is_compare(path) or is_sweep(path) or not path.is_dir():
            RunFolder.open(path)  # says what it is instead
        else:
            raise UserError(f"{path} is not a tenfold run, and holds none: name a run's folder.")
    return list(dict.fromkeys(experiments))


def unique_names(paths: Sequence[Path]) -> list[str]:
    """A name for each folder: as few parts of its path as distinguish it."""
    every = [path.absolute().parts for path in paths]
    for count in range(1, max(map(len, every)) + 1):
        names = ["/".join(names_of_parts[-count:]) for names_of_parts in every]
        if len(set(names)) == len(names):
            return names
    return [str(path) for path in paths]


def locked_inodes() -> set[int] | None:
    """The inodes of locked files; None where the kernel does not list them."""
    try:
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return None
    locks = [line.split() for line in lines if " FLOCK " in line]
    return {int(fields[-3].rpartition(":")[2]) for fields in locks if len(fields) >= 8}


def activity(folder: Path, locked: set[int] | None) -> str:
    """Whether a process trains a run: it holds the folder's lock. Where a parent folder is locked,
    the run may be trained on another machine, or be waiting."""

    def is_locked(path: Path) -> bool:
        lock = path / LOCK
        return locked is not None and lock.exists() and lock.stat().st_ino in locked

    if is_locked(folder):
        return "running"
    file = folder / "metrics.jsonl"
    recent = file.exists() and time.time() - file.stat().st_mtime < RECENT
    if locked is None:
        return "running" if recent else "stopped"
    if any(map(is_locked, folder.absolute().parents[:LOCKED_ABOVE])):
        return "running" if recent else "waiting"
    return "stopped"


@dataclass
class RunWatcher:
    """Experiments that are read again and again, including new folders."""

    paths: Sequence[Path]  # as they were named
    sweeps: bool = False  # the trials of sweeps too
    trust: bool = False  # modules are imported, whoever named them

    def __post_init__(self) -> None:
        self.groups: dict[Path, Experiment] = {}
        self.locked: set[int] | None = None
        self.left_out: dict[Path, str] = {}  # by what is wrong with them

    def refresh(self) -> list[Experiment]:
        """Reads all of them. One that cannot be read is left out, unless it was named."""
        self.locked, self.left_out = locked_inodes(), {}
        paths, groups = experiments_named(self.paths, self.sweeps), {}
        for path, name in zip(paths, unique_names(paths), strict=True):
            try:
                groups[path] = self.read(path, name)
            except UserError as error:
                if path in self.paths:
                    raise
                self.left_out[path] = str(error)
        self.groups = groups
        if not groups:
            raise UserError(next(iter(self.left_out.values())))
        return list(groups.values())

    def read(self, path: Path, name: str) -> Experiment:
        if path in self.groups:
            for digest in self.groups[path].members:
                digest.read()
            return replace(self.groups[path], name=name)
        if is_seeds(path):
            return group_of_seeds(SeedsFolder.open(path, self.trust), name=name)
        return group_of_run(*RunFolder.open(path, self.trust), name)

    def state(self, group: Experiment, digest: Digest) -> str:
        """The state of one run."""
        if digest.last.get("step", 0) >= group.run.steps:
            return "finished"
        state = activity(digest.path, self.locked)
        if state == "running":
            return state
        if failure(digest.path):
            return "failed"
        if is_seeds(group.path):  # of a sweep: what became of seeds that are not trained on
            about = read_json(group.path / "seeds.json", SEEDS, "put it back")
            state = about.get("ended") or state
        return state

    def is_training(self) -> bool:
        """Whether any of them is being trained."""
        return any(
            self.state(group, digest) in ("running", "waiting")
            for group in self.groups.values()
            for digest in group.members
        )


class Screen:
    """The screen of `tenfold watch`: a line for each run, and recent events."""

    def __init__(self, paths: Sequence[Path], trust: bool = False) -> None:
        self.watcher, self.first = RunWatcher(paths, sweeps=True, trust=trust), 0
        self.events: deque[Text] = deque(maxlen=200)
        self.states: dict[Path, str] = {}
        self.best: dict[Path, Any] = {}
        self.history: dict[Path, deque[tuple[float, int]]] = {}  # times and steps
        self.refresh()

    def refresh(self) -> None:
        for group in self.watcher.refresh():
            for name, digest in group.digests.items():
                self.record_news(digest, run_name(group, name), self.watcher.state(group, digest))

    def record_news(self, digest: Digest, name: str, state: str) -> None:
        """Records what happened to a run since the last reading."""
        path, step = digest.path, digest.last.get("step", 0)
        history = self.history.setdefault(path, deque(maxlen=30))
        if not history or history[-1][1] != step:
            history.append((time.monotonic(), step))
        if path in self.states:
            for row in digest.news:
                self.record_evaluation(path, name, row)
        else:
            self.best[path] = rank(digest.best) if digest.best else None
        if state != self.states.get(path, "" if state == "failed" else state):
            why = f": {printable(failure(path))}" if state == "failed" else ""
            self.add_event(name, f"{state} at step {step:,}{why}", STYLES[state])
        self.states[path] = state

    def record_evaluation(self, path: Path, name: str, row: dict[str, Any]) -> None:
        best = self.best.get(path)
        better = best is None or rank(row) > best
        self.best[path] = rank(row) if better else best
        success, score = outcome(row)
        share = "" if success is None else f"success {success:.1%}, "
        record = ", the best so far" if better and best is not None else ""
        text = f"evaluated at step {row['step']:,}: {share}{score:,.2f}{record}"
        self.add_event(name, text, "cyan")

    def add_event(self, name: str, text: str, style: str) -> None:
        when = time.strftime("%H:%M:%S")
        self.events.append(Text.assemble((f"{when}  ", "dim"), f"{name}  ", (text, style)))

    def render(self, height: int, keys: bool = True, width: int = 0) -> RenderableType:
        """`height` 0: as many lines as there are runs; `width` 0: unlimited. With `keys`, shows
        events and the keyboard help; without, the errors of failed runs."""
        order = list(STYLES)
        runs = [
            (group, name, digest)
            for group in self.watcher.groups.values()
            for name, digest in group.digests.items()
        ]
        runs.sort(key=lambda run: order.index(self.states[run[2].path]))
        states = [self.states[digest.path] for _, _, digest in runs]
        room = max(height - EDGE - EVENTS, 3) if height else len(runs)
        self.first = max(min(self.first, len(runs) - room), 0)
        visible = runs[self.first : self.first + room]
        counts = [(states.count(state), state) for state in STYLES if state in states]
        head = Text.assemble(
            ("tenfold watch  ", "bold"),
            *((f"{count} {state}  ", STYLES[state]) for count, state in counts),
        )
        if len(visible) < len(runs):
            last = self.first + len(visible)
            head.append(f"runs {self.first + 1} to {last} of {len(runs)}  ", "dim")
        table = status_table([self.status(*run) for run in visible], width)
        if keys:
            below = list(self.events)[-EVENTS:] or [Text("nothing has happened yet", style="dim")]
            below.append(Text("q quits, the runs go on; ↑ ↓ scroll", style="dim"))
        else:
            below = [
                Text.assemble(
                    (f"{run_name(group, name)} failed: ", STYLES["failed"]),
                    printable(failure(digest.path)),
                )
                for group, name, digest in runs
                if self.states[digest.path] == "failed"
            ]
        return Lines(head, table, *below)

    def status(self, group: Experiment, name: str, digest: Digest) -> RunStatus:
        state = self.states[digest.path]
        return RunStatus(
            run_name(group, name),
            digest.last.get("step", 0),
            group.run.steps,
            self.rate(digest) if state == "running" else 0.0,
            state,
            selection_curve(group, digest),
            time_shares([digest]),
        )

    def rate(self, digest: Digest) -> float:
        """Steps per second while it was watched, or as in the run's rows."""
        history = self.history[digest.path]
        if len(history) > 2 and history[-1][0] > history[0][0]:
            return max((history[-1][1] - history[0][1]) / (history[-1][0] - history[0][0]), 0.0)
        return float(digest.last.get("timing", {}).get("steps_per_second", 0.0))


def run_name(group: Experiment, name: str) -> str:
    return printable(f"{group.name} {name}".strip())


def selection_curve(group: Experiment, digest: Digest) -> Any:
    """The run's selection score over training."""
    curves = reporter_of(group.run).curves(group.run)
    available = [curve for curve in curves if curve.key in digest.courses]
    if not available:
        return ()
    curve = available[0] if len(available) > 1 else shared_curve([group], available)
    return digest.courses[curve.key].points()[1]


def watch_runs(paths: Sequence[Path], once: bool = False, trust: bool = False) -> None:
    """Shows the screen until q or Ctrl-C."""
    screen, console = Screen(paths, trust), Console()
    if not screen.states:
        raise UserError("There is no run to watch yet: start one with `tenfold train cartpole`.")
    if not console.is_terminal:  # a file or a pipe has room for everything
        lines = screen.render(0, keys=False)
        Console(width=natural_width(lines)).print(lines)
        return
    if once or not sys.stdin.isatty():
        console.print(screen.render(0, keys=False, width=console.width))
        return
    with keyboard(), Live(console=console, screen=True, auto_refresh=False) as live:
        try:
            read_at = time.monotonic()
            live.update(screen.render(console.height, width=console.width), refresh=True)
            while (key := pressed_key()) not in ("q", "Q", "\x03"):
                screen.first += {"\x1b[A": -1, "k": -1, "\x1b[B": 1, "j": 1}.get(key, 0)
                due = time.monotonic() - read_at >= PAUSE
                if due:
                    screen.refresh()
                    read_at = time.monotonic()
                if key or due:
                    live.update(screen.render(console.height, width=console.width), refresh=True)
        except KeyboardInterrupt:
            pass


@contextmanager
def keyboard() -> Iterator[None]:
    """Reads keys unbuffered and without echo; restores the terminal afterwards."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def pressed_key() -> str:
    """The pressed key, or an empty string after a moment; an arrow is three characters."""
    if not select.select([sys.stdin], [], [], KEYS)[0]:
        return ""
    key = os.read(sys.stdin.fileno(), 1)
    if key == b"\x1b" and select.select([sys.stdin], [], [], 0)[0]:
        key += os.read(sys.stdin.fileno(), 2)
    return key.decode(errors="replace") or "q"  # nothing: the terminal is gone
