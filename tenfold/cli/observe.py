"""`tenfold report`, `tenfold watch`."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenfold.cli.flags import add_trust, chosen_run, whole_number
from tenfold.core.domain import Command
from tenfold.core.errors import UserError

SECONDS = "5"
NAP = 0.1  # seconds between looks at signals


def add_named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="runs, folders of seeds, sweeps, or folders that hold such (the latest below runs/ by "
        "default)",
    )
    add_trust(parser)


def paths_named(arguments: argparse.Namespace) -> list[Path]:
    """Those of the command line; the latest run where there is none."""
    return [chosen_run(word) for word in arguments.runs] or [chosen_run(None)]


def add_report(parsers: Any, argv: Sequence[str]) -> None:
    report = parsers.add_parser(
        "report",
        help="write a run's page anew, or one of several runs side by side",
        allow_abbrev=False,
        description="Writes one HTML file with nothing to load: curves to hover over, to zoom into "
        "and to hide, episodes, losses, time by stage, engine, films, settings. Several runs or "
        "folders are compared: settings that differ, interquartile means with intervals, "
        "performance profiles, probability of improvement, sample efficiency.",
    )
    add_named(report)
    report.add_argument(
        "--out",
        metavar="FILE",
        help="where the page goes (RUN/report.html; of a folder of several FOLDER/report.html, of "
        "several that are named ./report.html)",
    )
    report.add_argument(
        "--live",
        nargs="?",
        const=SECONDS,
        metavar="SECONDS",
        help=f"write it again every so many seconds ({SECONDS}) until the runs end or Ctrl-C; the "
        "page in the browser follows by itself",
    )


def report(arguments: argparse.Namespace) -> int:
    from tenfold.runs.folder import is_sweep
    from tenfold.runs.page import require_page
    from tenfold.runs.sweep_folder import require_plan
    from tenfold.training.watch import RunWatcher

    paths = paths_named(arguments)
    if arguments.out == "":
        raise UserError("--out is empty: name a file, or leave it out.")
    out = require_page(Path(arguments.out)) if arguments.out else None
    seconds = 0 if arguments.live is None else whole_number(arguments.live, "--live", 1, 3600)
    for path in paths:
        require_plan(path)
    if len(paths) == 1 and is_sweep(paths[0]) and not seconds:
        from tenfold.runs.report import write_sweep_report
        from tenfold.runs.sweep_folder import SweepFolder

        with placed(out or paths[0] / "report.html"):
            print(write_sweep_report(SweepFolder.open(paths[0], arguments.trust), out))
        return 0
    flag = "--live" if seconds else "report of several"
    for path in filter(is_sweep, paths):
        raise UserError(
            f"{flag} is for runs and folders of seeds, and {path} is a sweep: name one of its "
            f"folders, such as {path / 'trial-0'}."
        )
    watcher = RunWatcher(paths, trust=arguments.trust)
    if len(watcher.refresh()) > 1 or paths[0] not in watcher.groups:
        require_page(page_path(watcher, out))
    with placed(page_path(watcher, out)):
        if seconds and watcher.is_training():
            return follow(watcher, out, seconds)
        if seconds:
            print("none of the runs is being trained: the page is as it will stay", file=sys.stderr)
        print(write_page(watcher, out))
    return 0


def write_page(watcher: Any, out: Path | None = None, live: float = 0.0) -> Path:
    """Of what was read: one run's page, that of many seeds, or a comparison."""
    from tenfold.runs.comparison import write_comparison
    from tenfold.runs.folder import is_seeds
    from tenfold.runs.report import write_run, write_seeds
    from tenfold.runs.seeds import SeedsFolder

    groups = list(watcher.groups.values())
    if len(groups) > 1 or list(watcher.paths) != [groups[0].path]:
        excluded = list(watcher.left_out.values())
        return write_comparison(groups, page_path(watcher, out), live, excluded)
    (group,) = groups
    if is_seeds(group.path):
        return write_seeds(SeedsFolder.open(group.path, watcher.trust), group, None, out, live)
    return write_run(group, out, live)


def page_path(watcher: Any, out: Path | None) -> Path:
    """Where the page of several goes."""
    if out:
        return out
    only = watcher.paths[0] if len(watcher.paths) == 1 else None
    return only / "report.html" if only and only.is_dir() else Path("report.html")


@contextmanager
def placed(page: Path) -> Iterator[None]:
    """Where a page cannot be put there, a sentence says so, and how to put it elsewhere."""
    elsewhere = "--out FILE puts the page elsewhere."
    if page.is_dir():
        raise UserError(f"{page} is a folder, where the page goes: move it away; {elsewhere}")
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{page} cannot be written ({reason}): {elsewhere}") from None


def follow(watcher: Any, out: Path | None, seconds: int) -> int:
    """Writes the page again and again, the last time as one that stays as it is."""
    from tenfold.core.processes import Interrupt

    with Interrupt() as interrupt:
        print(write_page(watcher, out, seconds), flush=True)
        note = "written anew until the runs end; Ctrl-C stops that, and not the runs"
        print(note, file=sys.stderr)
        while watcher.is_training() and not interrupt.signal:
            wait(seconds, lambda: bool(interrupt.signal))
            watcher.refresh()
            write_page(watcher, out, seconds)
        write_page(watcher, out)
    return 0


def wait(seconds: float, called: Callable[[], bool]) -> None:
    """Or until somebody is `called`, by a signal."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not called():
        time.sleep(NAP)


def add_watch(parsers: Any, argv: Sequence[str]) -> None:
    watch = parsers.add_parser(
        "watch",
        help="see runs as they train, in the terminal",
        allow_abbrev=False,
        description="A screen of every run: how far it is, its curve, steps a second, where the "
        "time goes, what is left, and what happened. It only reads their files: q or Ctrl-C ends "
        "it and nothing else. Without a terminal it prints one such screen.",
    )
    add_named(watch)
    watch.add_argument("--once", action="store_true", help="print one screen and end")


def watch(arguments: argparse.Namespace) -> int:
    from tenfold.training.watch import watch_runs

    watch_runs(paths_named(arguments), arguments.once, arguments.trust)
    return 0


REPORT = Command("report", add_report, report)
WATCH = Command("watch", add_watch, watch)
