"""`tenfold sweep`: a search over settings, and its closing summary."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from tenfold.cli.flags import (
    add_settings,
    number_of_jobs,
    refuse_empty,
    settings_given,
    whole_number,
)
from tenfold.cli.train import seeds_named
from tenfold.config.files import named
from tenfold.core.errors import ConfigError
from tenfold.core.registry import Command

EXAMPLES = """spaces: log(a,b) and range(a,b) of numbers, int(a,b) of whole ones, [a,b,c] of values;
also inside a value that is written as a call: agent.lr=linear(log(1e-4,1e-2), 0, 50k)

examples:
  tenfold sweep cartpole --search "agent.lr=log(1e-4,1e-2)" --search "agent.n_step=[1,3,5]"
  tenfold sweep ppo --env Acrobot-v1 --search "agent.clip=range(0.1,0.4)" --trials 20 --seeds 3
  tenfold resume runs/sweep-cartpole
"""


def add_sweep(parsers: Any, argv: Sequence[str]) -> None:
    sweep = parsers.add_parser(
        "sweep",
        help="search for better settings, over several seeds",
        allow_abbrev=False,
        usage="tenfold sweep WHAT --search SETTING=SPACE … [--trials N] [--seeds N] [--SETTING "
        "VALUE …]",
        description="Searches for better settings of WHAT (a preset, an agent's name or a YAML "
        "file). Trials are ranked and pruned by the interquartile mean of their seeds' "
        "evaluations; the winner and WHAT as it is are then trained with other seeds. The same "
        "command goes on with a sweep that was stopped, and so does `tenfold resume FOLDER`.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    sweep.add_argument("what", metavar="WHAT", help="a preset, an agent or FILE.yaml, as for train")
    sweep.add_argument(
        "--search",
        action="append",
        default=[],
        metavar="SETTING=SPACE",
        help="a setting to search over, such as agent.lr=log(1e-4,1e-2); more than once",
    )
    sweep.add_argument("--trials", default="40", metavar="N", help="how many settings to try (40)")
    sweep.add_argument(
        "--seeds", default="4", metavar="N|A..B|A,B,…", help="seeds of each trial (4: 0 to 3)"
    )
    sweep.add_argument(
        "--confirm",
        default="8",
        metavar="N",
        help="held-out seeds for the winner and for WHAT as it is (8; 0: none)",
    )
    sweep.add_argument(
        "--pruner",
        default="median",
        metavar="median|hyperband|none",
        help="what ends trials early that fall behind others (median)",
    )
    sweep.add_argument(
        "--out", metavar="FOLDER", help="where the sweep is kept (runs/sweep-WHAT, …)"
    )
    sweep.add_argument("--jobs", help="runs at the same time (as many as there are cores)")
    sweep.add_argument("--overwrite", action="store_true", help="replace the sweep in that folder")
    sweep.add_argument("--quiet", action="store_true", help="no progress, only the result")
    sweep.add_argument(
        "--where",
        metavar="local|ray",
        help="where runs are trained: in processes of this machine, or each as a task of a Ray "
        "cluster (--address)",
    )
    sweep.add_argument(
        "--storage",
        metavar="DIR",
        help="with --where ray: a folder that all machines of the cluster share, where the sweep "
        "is kept",
    )
    add_settings(sweep, argv, without=("seed", "where"))


def sweep(arguments: argparse.Namespace) -> int:
    from tenfold.config.search import parse_search

    refuse_empty(arguments, out="a folder", storage="a folder")
    where = {"local": "auto", "ray": "ray", None: None}.get(arguments.where, "")
    if where == "":
        raise ConfigError("--where", f"= {arguments.where} is not one of local, ray.")
    settings = settings_given(arguments)
    settings = {name: value for name, value in settings.items() if name != "where"}
    run = named(arguments.what, settings | ({"where": where} if where else {}))
    search: dict[str, str] = {}
    for text in arguments.search:
        path, space = parse_search(text)
        if path in search:
            raise ConfigError(path, "is searched over twice.")
        search[path] = space
    trials = whole_number(arguments.trials, "--trials", 1, 100_000)
    confirm = whole_number(arguments.confirm, "--confirm", 0, 10_000)
    seeds, jobs = seeds_named(arguments.seeds), number_of_jobs(arguments.jobs)
    from tenfold.runs.folder import destination, run_name
    from tenfold.training.sweep import sweep as start

    out, storage = arguments.out or "", arguments.storage or ""
    name = f"sweep-{run_name(arguments.what, run)}"
    result = start(
        run,
        search,
        trials,
        seeds,
        destination(out, name, arguments.overwrite, storage),
        storage=storage,
        pruner=arguments.pruner,
        confirm=confirm,
        jobs=jobs,
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    return finish_sweep(result)


def finish_sweep(result: Any) -> int:
    """The closing summary of a sweep."""
    from tenfold.runs.reporter import held_out_text, params_text, score_text

    rows, path = result.results["trials"], result.path
    if result.interrupted:
        print(f"Stopped with {len(rows)} trials done. Go on with: tenfold resume {path}")
        return 128 + result.interrupted
    winner = next(row for row in rows if row["number"] == result.results["winner"])
    states = [row["state"] for row in rows]
    print(f"{len(rows)} trials: {states.count('pruned')} pruned, {states.count('fail')} failed")
    print(f"winner, trial {winner['number']}: {params_text(winner['params'])}")
    print(
        f"  in the sweep       {score_text(winner)} (interquartile mean of "
        f"{len(winner['scores'])} seed{'s' * (len(winner['scores']) != 1)})"
    )
    for name, confirmed in result.results["confirmed"].items():
        print(f"  {name + ', held out':18} {held_out_text(confirmed)}")
    if text := result.results["verdict"]:
        print(text)
    print(
        f"results: {path}   report: {path / 'report.html'}   train it: tenfold train "
        f"{path / 'best.yaml'}"
    )
    for name, text in result.failed.items():
        print(f"tenfold: {name}: {text}", file=sys.stderr)
    return 0


COMMANDS = (Command("sweep", add_sweep, sweep),)
