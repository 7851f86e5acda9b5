"""`tenfold report`, `watch`: runs on a page and on a screen; `tenfold export`, `pack`: a policy
as a file that runs elsewhere, a run as an archive."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tenfold.cli.flags import add_run, add_trust, chosen_run, refuse_empty, whole_number
from tenfold.core.errors import UserError
from tenfold.core.registry import Command

SECONDS = "5"
NAP = 0.1  # seconds between looks at signals
EXPORTS = """examples:
  tenfold export runs/cartpole                            # cartpole.onnx
  tenfold export runs/cartpole --checkpoint best --out policy.onnx
  tenfold export runs/cartpole/seed-3 --format torch      # seed-3.pt2
  tenfold export runs/ppo --sample                        # draws, by numbers that are inputs
  python examples/deploy_onnx.py policy.onnx              # onnxruntime and NumPy alone
"""
PACKS = """examples:
  tenfold pack runs/cartpole --licence MIT                # cartpole.zip
  tenfold eval cartpole.zip --checkpoint best
  tenfold export cartpole.zip
"""


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
    """The paths of the command line; the latest run by default."""
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
    refuse_empty(arguments, out="a file")
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
    """Writes the page of one run, of many seeds, or of a comparison."""
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
    """The path of the page of several experiments."""
    if out:
        return out
    only = watcher.paths[0] if len(watcher.paths) == 1 else None
    return only / "report.html" if only and only.is_dir() else Path("report.html")


@contextmanager
def placed(page: Path) -> Iterator[None]:
    """Turns an OSError about a page into a UserError that mentions --out."""
    elsewhere = "--out FILE puts the page elsewhere."
    if page.is_dir():
        raise UserError(f"{page} is a folder, where the page goes: move it away; {elsewhere}")
    try:
        yield
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"{page} cannot be written ({reason}): {elsewhere}") from None


def follow(watcher: Any, out: Path | None, seconds: int) -> int:
    """Rewrites the page while runs are trained, then once more as a static page."""
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
    """Sleeps, or until `called` returns true (a signal)."""
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


def add_export(parsers: Any, argv: Sequence[str]) -> None:
    export = parsers.add_parser(
        "export",
        help="write a policy as an ONNX or torch.export file",
        allow_abbrev=False,
        description="Writes the whole policy of a run: what the environment gives goes in, what it "
        "takes comes out, for any size of batch. The file is tried on 1,000 observations of the "
        "environment before it is kept.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXPORTS,
    )
    add_run(export, archive=True)
    export.add_argument("--format", default="onnx", metavar="onnx|torch", help="of the file (onnx)")
    export.add_argument("--out", metavar="FILE", help="where it goes (NAME.onnx, NAME.pt2)")
    export.add_argument(
        "--checkpoint", default="last", metavar="best|last|STEP", help="which parameters (last)"
    )
    export.add_argument(
        "--sample",
        action="store_true",
        help="draw from the policy, by uniform and normal numbers that are inputs of the file",
    )
    export.add_argument(
        "--mask",
        action="store_true",
        help="an input for masks also where the environment offers none",
    )
    add_trust(export)


def export(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    refuse_empty(arguments, out="a file")
    from tenfold.core.system import set_threads
    from tenfold.shipping.export import export as write

    set_threads(1)
    exported = write(
        path,
        arguments.format,
        arguments.out,
        checkpoint=arguments.checkpoint,
        sample=arguments.sample,
        mask=True if arguments.mask else None,
        trust=arguments.trust,
    )
    about = exported.about
    print(
        f"{about['agent']} on {about['env']}, step {about['step']:,}, {about['policy']}: "
        f"{exported.path} ({exported.path.stat().st_size:,} bytes)"
    )
    for title, ports in (("takes", about["inputs"]), ("gives", about["outputs"])):
        for port in ports:
            shape = ", ".join(map(str, port["shape"]))
            print(f"  {title}  {port['name']}  {port['dtype']}  [{shape}]")
    print(f"  {exported.checked}")
    return 0


def add_pack(parsers: Any, argv: Sequence[str]) -> None:
    pack = parsers.add_parser(
        "pack",
        help="write a run as one archive to share, with a model card",
        allow_abbrev=False,
        description="Writes a zip of settings, metrics and what acting needs of the last and the "
        "best checkpoint, without replay memory, beside a model card: curve, scores, command, "
        "environment, versions, licence. `tenfold eval`, `tenfold export` and ten.load take it by "
        "its path.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=PACKS,
    )
    add_run(pack)
    pack.add_argument("--out", metavar="FILE", help="where it goes (NAME.zip)")
    pack.add_argument(
        "--licence", default="", metavar="WORDS", help="for the card, such as MIT (not stated)"
    )
    pack.add_argument(
        "--episodes",
        default="20",
        help="played for the scores of the card by each checkpoint; 0: those of training (20)",
    )
    add_trust(pack)


def pack(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    refuse_empty(arguments, out="a file")
    episodes = whole_number(arguments.episodes, "--episodes", 0, 10**6)
    from tenfold.config.files import modules_in
    from tenfold.config.schema import to_mapping
    from tenfold.core.system import set_threads
    from tenfold.runs.folder import read_settings
    from tenfold.shipping.pack import pack as write

    set_threads(1)
    how = {"licence": arguments.licence, "episodes": episodes, "trust": arguments.trust}
    file = write(path, arguments.out, **how)
    # of an archive nobody knows who made it
    settings = to_mapping(read_settings(path, arguments.trust))
    trust = " --trust" if any(modules_in(settings)) else ""
    print(f"{file} ({file.stat().st_size:,} bytes)   play it: tenfold eval {file}{trust}")
    return 0


COMMANDS = (
    Command("report", add_report, report),
    Command("watch", add_watch, watch),
    Command("export", add_export, export),
    Command("pack", add_pack, pack),
)
