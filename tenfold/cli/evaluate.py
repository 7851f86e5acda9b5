"""`tenfold eval` and `tenfold report`."""

import argparse
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tenfold.cli.arguments import add_run, chosen_run, whole_number, whole_number_or_none
from tenfold.core.domain import Command
from tenfold.core.errors import UserError
from tenfold.core.registry import domain_of, domains


def add_eval(parsers: Any, given: Sequence[str]) -> None:
    evaluate = parsers.add_parser(
        "eval", help="play episodes with a trained agent", allow_abbrev=False
    )
    add_run(evaluate)
    evaluate.add_argument("--episodes", default="20", help="how many (20)")
    evaluate.add_argument(
        "--checkpoint", default="last", metavar="best|last|STEP", help="which parameters (last)"
    )
    evaluate.add_argument("--seed", help="seeds the episodes (the run's seed by default)")
    evaluate.add_argument(
        "--video",
        nargs="?",
        const="",
        metavar="FILE",
        help="film an episode: .gif or .mp4 (RUN/video.gif)",
    )
    evaluate.add_argument("--json", action="store_true", help="print one JSON object")
    meet_domain(given)
    for domain in domains():
        domain.add_flags(evaluate)


def meet_domain(given: Sequence[str]) -> None:
    """A run's environment may be of a domain beside the user, whose flags are then known too."""
    if given[:1] != ["eval"]:
        return
    from tenfold.runs.folder import RunFolder, is_run

    # what is wrong with the run is said when it is judged
    with suppress(UserError, OSError, ValueError):
        named = [word for word in given[1:2] if not word.startswith("-")]
        path = chosen_run(named[0] if named else None)
        if is_run(path):
            domain_of(RunFolder.open(path)[1].env)


def evaluate(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    episodes = whole_number(arguments.episodes, "--episodes", 1, 10**6)
    seed = whole_number_or_none(arguments.seed, "--seed", 0)
    from tenfold.core.system import set_threads
    from tenfold.evaluation.evaluate import scores

    # so small a network gains nothing by more, and threads that wait for a busy machine cost
    # seconds
    set_threads(1)
    options = {name: getattr(arguments, name) for domain in domains() for name in domain.flags}
    found, lines = scores(path, arguments.checkpoint, episodes, seed, arguments.video, options)
    print(json.dumps(found) if arguments.json else "\n".join(lines))
    return 0


def add_report(parsers: Any, given: Sequence[str]) -> None:
    add_run(
        parsers.add_parser("report", help="write a run's page and picture anew", allow_abbrev=False)
    )


def report(arguments: argparse.Namespace) -> int:
    from tenfold.runs.folder import RunFolder, is_seeds
    from tenfold.runs.report import write_report
    from tenfold.runs.seeds import SeedsFolder, write_seeds_report

    path = chosen_run(arguments.run)
    if is_seeds(path):
        print(write_seeds_report(SeedsFolder.open(path)))
    else:
        print(write_report(*RunFolder.open(path)))
    return 0


EVAL = Command("eval", add_eval, evaluate)
REPORT = Command("report", add_report, report)
