"""`tenfold eval` and `tenfold report`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenfold.cli.arguments import add_run, chosen_run, whole_number, whole_number_or_none
from tenfold.core.errors import UserError
from tenfold.core.protocols import Command
from tenfold.core.registry import domains


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
    usual = len(evaluate._actions)
    for domain in domains():
        domain.add_flags(evaluate)
    evaluate.set_defaults(of_domains=[action.dest for action in evaluate._actions[usual:]])


def evaluate(arguments: argparse.Namespace) -> int:
    path = chosen_run(arguments.run)
    episodes = whole_number(arguments.episodes, "--episodes", 1, 10**6)
    seed = whole_number_or_none(arguments.seed, "--seed", 0)
    from tenfold.core.system import set_threads
    from tenfold.runs.folder import is_seeds

    # so small a network gains nothing by more, and threads that wait for a busy machine cost
    # seconds
    set_threads(1)
    many = is_seeds(path)
    found, tell = (evaluate_seeds if many else evaluate_run)(path, arguments, episodes, seed)
    if arguments.json:
        print(json.dumps(found))
    else:
        tell(found)
    return 0


def evaluate_run(
    path: Path, arguments: argparse.Namespace, episodes: int, seed: int | None
) -> tuple[dict[str, Any], Any]:
    """What was found of a run, and the function that tells it."""
    from tenfold.evaluation.evaluate import evaluate as judged
    from tenfold.evaluation.evaluate import is_explorer, scores, tell, tell_fit
    from tenfold.runs.folder import RunFolder

    if is_explorer(path):
        if arguments.video is not None:
            raise UserError(
                "--video films a policy at play, and an explorer has a field to show: see its "
                "report."
            )
        from tenfold.domains.dynamics.fit import rows_judged

        verdict: Any = judged(path, episodes, arguments.checkpoint, seed)
        words = rows_judged(RunFolder.open(path)[1].env)
        return {"run": str(path), **verdict.row()}, lambda found: tell_fit(found, words)
    there = deployment(arguments)
    return scores(path, arguments.checkpoint, episodes, seed, arguments.video, there), tell


def evaluate_seeds(
    path: Path, arguments: argparse.Namespace, episodes: int, seed: int | None
) -> tuple[dict[str, Any], Any]:
    """The same of many seeds."""
    from tenfold.evaluation.evaluate import scores_of_seeds, tell_seeds
    from tenfold.runs.seeds import SeedsFolder

    folder, checkpoint = SeedsFolder.open(path), arguments.checkpoint
    if folder.run.agent.name == "explorer":
        from tenfold.domains.dynamics.seeds import judge_seeds, tell_identified

        found = judge_seeds(folder, episodes, checkpoint, seed)
        return found, lambda found: tell_identified(found, checkpoint, episodes)
    there = deployment(arguments)
    if arguments.video is not None:
        raise UserError(
            "--video films one agent: name a seed's folder, for example "
            f"{folder.member(folder.seeds[0])}."
        )
    return scores_of_seeds(path, checkpoint, episodes, seed, there), tell_seeds


def deployment(arguments: argparse.Namespace) -> Any:
    """Where a trained policy is tried, by the flags of domains."""
    from tenfold.domains.durotaxis.evaluation import Deployment

    options = {name: getattr(arguments, name) for name in arguments.of_domains}
    options["nodes"] = whole_number_or_none(options["nodes"], "--nodes", 1)
    return Deployment(**options)


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
