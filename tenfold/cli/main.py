"""The command line. Heavy modules are imported by the command that needs them, so that help and
errors appear at once."""

import argparse
import errno
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tenfold import __version__
from tenfold.cli.flags import Parser, add_setting, add_settings, explorer_leaves, settings_given
from tenfold.config.changes import CHANGEABLE
from tenfold.config.run import AGENTS, ENGINES, Run, named, presets
from tenfold.config.schema import Limits, convert_scalar, leaves_of, read_yaml
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.registry import domains

NAMED = 8  # runs that are named one by one
# by the disk: a person's affair
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
MOST_SEEDS = 10_000  # of one command
# settings that say nothing to recordings
OF_ENVIRONMENTS = (
    "num_envs",
    "actors",
    "where",
    "ahead",
    "on_death",
    "patience",
    "share",
    "vectorize",
    "engine",
    "stack",
    "verify",
    "eval_episodes",
    "eval_policy",
    "eval_steps",
    "episode_limit",
    "agent.name",
    "agent.window",
    "agent.every",
    "agent.updates",
    "agent.learning_starts",
    "agent.first_updates",
)


def parser(given: Sequence[str] = ()) -> Parser:
    """`given` is the command line: help shows what it is about."""
    top = Parser(
        prog="tenfold",
        description="Trains reinforcement-learning agents at the speed of the machine.",
        epilog="tenfold COMMAND --help explains a command.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tenfold {__version__}")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )

    train = commands.add_parser(
        "train",
        help="train an agent: a preset, an agent's name or a YAML file",
        allow_abbrev=False,
        usage="tenfold train WHAT [--SETTING VALUE …]",
        description="Trains an agent. Settings come from WHAT (a preset, an agent's name or a "
        "YAML file); flags change them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=examples(),
    )
    train.add_argument(
        "what",
        metavar="WHAT",
        help=f"a preset ({', '.join(presets())}), an agent ({', '.join(AGENTS)}) or FILE.yaml",
    )
    train.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the run is kept (a new folder: runs/WHAT, runs/WHAT-2, …)",
    )
    train.add_argument(
        "--seeds",
        metavar="N|A..B|A,B,…",
        help="train several seeds: 8 means 0 to 7; also 3..6 or 1,5,9",
    )
    train.add_argument("--jobs", help="seeds trained at the same time (as many as there are cores)")
    train.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run in that folder (runs/WHAT without --out)",
    )
    train.add_argument("--quiet", action="store_true", help="no progress, only the result")
    add_settings(train, given)

    resume = commands.add_parser(
        "resume", help="go on with a run, as if it had never stopped", allow_abbrev=False
    )
    resume.add_argument(
        "run", nargs="?", metavar="RUN", help="the run's folder (the latest below runs/ by default)"
    )
    resume.add_argument("--jobs", help="of a run of many seeds: how many at the same time")
    resume.add_argument("--quiet", action="store_true", help="no progress, only the result")
    group = resume.add_argument_group("settings that can change from here on")
    for leaf in leaves_of(Run):
        if leaf.path in CHANGEABLE:
            add_setting(group, replace(leaf, default="as it was"))
        else:  # known, so that it is refused by name
            group.add_argument(
                leaf.flag,
                dest=leaf.path,
                nargs="?",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )

    evaluate = commands.add_parser(
        "eval", help="play episodes with a trained agent", allow_abbrev=False
    )
    evaluate.add_argument(
        "run", nargs="?", metavar="RUN", help="the run's folder (the latest below runs/ by default)"
    )
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
    for domain in domains():
        domain.add_flags(evaluate)

    fit = commands.add_parser(
        "fit",
        help="learn hidden dynamics from recordings: NPZ, CSV, or an explorer's run",
        allow_abbrev=False,
        description="Trains a model of hidden dynamics on recordings. NPZ: arrays observations, "
        "actions, and dt or time. CSV: columns y0, y1, …, a0, a1, …, optionally time "
        "and episode (or trial). Recordings without actions will do.",
    )
    fit.add_argument(
        "file",
        metavar="FILE",
        help="recordings that end in .npz or .csv, or the folder of an explorer's run",
    )
    fit.add_argument("--dt", help="time of a step, where the file does not say it")
    for what in ("observations", "actions"):
        fit.add_argument(
            f"--{what}",
            default="",
            metavar="NAME[,…]",
            help=f"columns (or arrays) of {what}: names, or what the columns' names begin with",
        )
    fit.add_argument("--seeds", help=argparse.SUPPRESS)
    fit.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the run is kept (a new folder: runs/fit-FILE, runs/fit-FILE-2, …)",
    )
    fit.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run in that folder (runs/fit-FILE without --out)",
    )
    fit.add_argument("--quiet", action="store_true", help="no progress, only the result")
    fit.add_argument("--steps", default=argparse.SUPPRESS, help="gradient steps (3,000)")
    fit.add_argument(
        "--eval-every",
        default=argparse.SUPPRESS,
        dest="eval_every",
        help="gradient steps between looks (500)",
    )
    group = fit.add_argument_group("settings")
    for leaf in explorer_leaves():
        if (
            leaf.path not in ("env", "steps", "eval_every", *OF_ENVIRONMENTS)
            and ".planner." not in leaf.path
        ):
            add_setting(group, leaf)

    compare = commands.add_parser(
        "compare",
        help="run policies of an explorer with the same seeds: one table, one figure",
        allow_abbrev=False,
        description="Runs every policy with the same seeds, all seeds of a policy stacked in one "
        "process; the same command again goes on where it stopped.",
    )
    compare.add_argument("what", metavar="WHAT", help="a preset such as limit-cycle, or FILE.yaml")
    compare.add_argument(
        "--policies",
        default="active,disagreement,random,zero",
        metavar="A,B,…",
        help="which (active,disagreement,random,zero)",
    )
    compare.add_argument("--seeds", default="8", help="how many (8)")
    compare.add_argument(
        "--jobs", help="policies run at the same time (as many as there are cores)"
    )
    compare.add_argument(
        "--out",
        metavar="FOLDER",
        help="where they are kept (runs/compare-WHAT; with other settings runs/compare-WHAT-2, …)",
    )
    compare.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the comparison in that folder (runs/compare-WHAT without --out)",
    )
    compare.add_argument("--quiet", action="store_true", help="no progress, only the result")
    compare.add_argument(
        "--json", action="store_true", help="print one JSON object instead of the table"
    )
    group = compare.add_argument_group("settings")
    for leaf in explorer_leaves():
        if leaf.path not in ("members", "agent.planner.policy"):
            add_setting(group, leaf)

    report = commands.add_parser(
        "report", help="write a run's page and picture anew", allow_abbrev=False
    )
    report.add_argument(
        "run", nargs="?", metavar="RUN", help="the run's folder (the latest below runs/ by default)"
    )
    check = commands.add_parser(
        "check", help="compare every fast path with its plain reference, here", allow_abbrev=False
    )
    check.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="only those with one of these in their name, such as returns",
    )
    bench = commands.add_parser(
        "bench",
        help="time every fast path against its baseline, on this machine",
        allow_abbrev=False,
    )
    bench.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="which (all by default); `pairs` means every registered pair",
    )
    bench.add_argument(
        "--peers",
        action="store_true",
        help="other people's packages too (make bench-peers installs them)",
    )
    bench.add_argument(
        "--json",
        nargs="?",
        const="",
        metavar="FILE",
        help="write the rows, with the machine card; without FILE print them instead of the table",
    )
    bench.add_argument("--list", action="store_true", help="show the names")
    profile = commands.add_parser(
        "profile",
        help="show where a run's time goes, engine by engine",
        allow_abbrev=False,
        usage="tenfold profile WHAT [--SETTING VALUE …]",
    )
    profile.add_argument(
        "what", metavar="WHAT", help="a preset, an agent or FILE.yaml, as for train"
    )
    profile.add_argument(
        "--engine",
        dest="engines",
        metavar="A,B",
        help="which engines (plain, and fused where it fits)",
    )
    profile.add_argument(
        "--for", dest="length", default="3k", metavar="STEPS", help="environment steps to time (3k)"
    )
    profile.add_argument(
        "--trace", metavar="FILE", help="where the Chrome trace goes (profile.json)"
    )
    add_settings(profile, given, without=("engine",))
    commands.add_parser(
        "list", help="show presets, agents, engines, environments and runs", allow_abbrev=False
    )
    return top


def examples() -> str:
    return """examples:
  tenfold train cartpole --seed 3
  tenfold train dqn --env Acrobot-v1 --steps 100k --agent.double true --agent.n-step 3
  tenfold train dqn --env "FrozenLake-v1(is_slippery=false)" --agent.target "polyak(0.01)"
  tenfold train my.yaml --agent.explore "epsilon(linear(1, 0.05, 20k))"
"""


def chosen_run(given: str | None) -> Path:
    """The run named, or the latest: the one started last, or where that is gone or unknown the one
    written to last."""
    from tenfold.runs.folder import is_seeds, runs_below
    from tenfold.runs.names import RUNS, latest, settled

    if given:
        return settled(Path(given))
    if path := latest():
        return path
    found = runs_below(RUNS)
    if not found:
        raise UserError(
            "There is no run below runs/: name a run's folder, or start one with `tenfold train "
            "cartpole`."
        )
    return found[0].parent if is_seeds(found[0].parent) else found[0]


def whole_number(text: str | None, flag: str, least: int, most: int = 2**63 - 1) -> int | None:
    if text is None:
        return None
    value = convert_scalar(text, int, flag)
    if not least <= value <= most:
        raise ConfigError(flag, f"= {value} is out of range: it must be {Limits(least, most)}.")
    return value


def train(arguments: argparse.Namespace) -> int:
    given = settings_given(arguments)
    if arguments.seeds is not None and "seed" in given:
        raise UserError(
            "--seed and --seeds exclude each other: give one seed, or say which several."
        )
    if arguments.seeds is None and arguments.jobs is not None:
        raise UserError(
            "--jobs says how many seeds are trained at the same time: give --seeds as well."
        )
    run = named(arguments.what, given)
    jobs = whole_number(arguments.jobs, "--jobs", 1, 1024) or 0
    where = {
        "name": run_name(arguments.what, run),
        "overwrite": arguments.overwrite,
        "quiet": arguments.quiet,
    }
    if arguments.seeds is not None:
        from tenfold.training.seeds import train_seeds

        return finish_seeds(
            train_seeds(run, seeds_named(arguments.seeds), arguments.out or "", jobs=jobs, **where)
        )
    from tenfold.training.loop import train as start

    return finish(start(run, arguments.out or "", **where))


def run_name(what: str, run: Run) -> str:
    """What the folder of a run is called that was not told where to go."""
    from tenfold.runs.names import named_after

    return f"{what}-{named_after(run.env)}" if what in AGENTS else Path(what).stem


def seeds_named(text: str) -> tuple[int, ...]:
    """8, 3..6 or 1,5,9."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            found: Sequence[int] = range(first, last + 1)
        elif "," in text:
            found = tuple(int(part) for part in text.split(","))
        else:
            found = range(int(text))
    except ValueError:
        found = ()
    # a range may have more than len can tell
    if not found or len(found[: MOST_SEEDS + 1]) > MOST_SEEDS or min(found) < 0:
        raise UserError(
            f"--seeds {text} cannot be read: write a number (8 means 0 to 7), a range (3..6) or a "
            f"list (1,5,9), of at most {MOST_SEEDS:,}."
        )
    return tuple(found)


def finish_seeds(result: Any) -> int:
    """The last words of a run of many seeds."""
    from tenfold.domains.dynamics.shortfall import shortfall
    from tenfold.evaluation.evaluate import onward
    from tenfold.runs.seeds import FINALS, SeedsFolder, latest_rows, sentence, told

    if result.interrupted:
        print(f"{stopped(result.saved)} Go on with: tenfold resume {result.path}")
        return 128 + result.interrupted
    for seed, member in result.summary["seeds"].items():
        numbers = ", ".join(
            f"{name.replace('_', ' ')} {told(name, value)}"
            for name, value in member.items()
            if name != "step" and value is not None
        )
        print(f"  seed {seed:<4} {numbers}")
    for name, form in FINALS.items():
        if name in result.summary:
            print(f"{name.replace('_', ' '):16} {sentence(result.summary[name], form)}")
    for seed, row in latest_rows(SeedsFolder.open(result.path), "fit").items():
        if words := shortfall(row):
            print(f"  seed {seed:<4} {words}")
    next_step = onward(result, many=True)
    print(f"results: {result.path}   report: {result.path / 'report.html'}   {next_step}")
    return 0


def stopped(saved: dict[str, int]) -> str:
    """Of several runs: where each goes on, those that have been saved."""
    if not saved:
        return "Stopped before anything was saved."
    if len(saved) <= NAMED:
        return (
            "Stopped and saved: "
            f"{', '.join(f'{name} at step {step:,}' for name, step in saved.items())}."
        )
    return (
        f"Stopped and saved: {len(saved)} runs at steps {min(saved.values()):,} to "
        f"{max(saved.values()):,}."
    )


def resume(arguments: argparse.Namespace) -> int:
    path, jobs = chosen_run(arguments.run), whole_number(arguments.jobs, "--jobs", 1, 1024) or 0
    change = {"settings": settings_given(arguments), "quiet": arguments.quiet}
    from tenfold.runs.folder import is_seeds

    if is_seeds(path):
        from tenfold.training.seeds import resume_seeds

        return finish_seeds(resume_seeds(path, jobs=jobs, **change))
    if jobs:
        raise UserError(f"--jobs is for a run of many seeds, and {path} is none.")
    from tenfold.training.loop import resume as go_on

    return finish(go_on(path, **change))


def finish(result: Any) -> int:
    """The last words of a run."""
    if result.unsaved:
        print(
            f"tenfold: the end of the run could not be saved: {result.unsaved}; free some space "
            f"and `tenfold resume {result.path}` goes on from the last checkpoint.",
            file=sys.stderr,
        )
        return 2
    if result.interrupted:
        print(
            f"Stopped at step {result.step:,}, the last one, and saved: the run is finished. "
            f"Results: {result.path}"
            if result.finished
            else f"Stopped at step {result.step:,} and saved. Go on with: tenfold resume "
            f"{result.path}"
        )
        return 128 + result.interrupted
    from tenfold.evaluation.evaluate import conclusion, onward

    if result.mean_return is not None:
        print(
            f"mean return of the last {result.episodes} training episodes: "
            f"{result.mean_return:.2f} (exploring)"
        )
    for line in conclusion(result):
        print(line)
    print(f"results: {result.path}   report: {result.path / 'report.html'}   {onward(result)}")
    return 0


def evaluate(arguments: argparse.Namespace) -> int:
    path, episodes = (
        chosen_run(arguments.run),
        whole_number(arguments.episodes, "--episodes", 1, 10**6),
    )
    seed = whole_number(arguments.seed, "--seed", 0)
    from tenfold.core.system import set_threads
    from tenfold.evaluation.evaluate import scores

    # so small a network gains nothing by more, and threads that wait for a busy machine cost
    # seconds
    set_threads(1)
    assert episodes is not None
    options = {name: getattr(arguments, name) for domain in domains() for name in domain.flags}
    found, lines = scores(path, arguments.checkpoint, episodes, seed, arguments.video, options)
    print(json.dumps(found) if arguments.json else "\n".join(lines))
    return 0


def fit(arguments: argparse.Namespace) -> int:
    if arguments.seeds is not None:
        raise UserError("--seeds is not a flag of fit: --members 8 trains 8 seeds side by side.")
    from tenfold.domains.dynamics.fit import fit as start

    dt = None if arguments.dt is None else convert_scalar(arguments.dt, float, "--dt")
    return finish(
        start(
            arguments.file,
            arguments.out or "",
            settings=settings_given(arguments),
            dt=dt,
            observations=arguments.observations,
            actions=arguments.actions,
            overwrite=arguments.overwrite,
            quiet=arguments.quiet,
        )
    )


def compare(arguments: argparse.Namespace) -> int:
    from tenfold.domains.dynamics.compare import compare as start
    from tenfold.domains.dynamics.compare import table_of

    seeds, jobs = (
        whole_number(arguments.seeds, "--seeds", 1, 1024),
        whole_number(arguments.jobs, "--jobs", 1, 1024) or 0,
    )
    assert seeds is not None
    run = named(arguments.what, settings_given(arguments))
    policies = tuple(word.strip() for word in arguments.policies.split(",") if word.strip())
    result = start(
        run,
        policies,
        seeds,
        arguments.out or "",
        name=f"compare-{Path(arguments.what).stem}",
        jobs=jobs,
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    if result.interrupted:
        print(f"{stopped(result.saved)} The same command goes on.")
        return 128 + result.interrupted
    if arguments.json:
        print(
            json.dumps(
                {"path": str(result.path), "env": run.env, "seeds": seeds, "policies": result.rows}
            )
        )
        return 0
    from rich.console import Console
    from rich.table import Table

    head, *lines = table_of(result.rows)
    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
    places = {"results": "compare.json", "figure": "compare.png", "report": "report.html"}
    print("   ".join(f"{what}: {result.path / name}" for what, name in places.items()))
    return 0


def report(arguments: argparse.Namespace) -> int:
    from tenfold.runs.folder import RunFolder, is_seeds
    from tenfold.runs.report import write_report
    from tenfold.runs.seeds import SeedsFolder, write_seeds_report

    path = chosen_run(arguments.run)
    print(
        write_seeds_report(SeedsFolder.open(path))
        if is_seeds(path)
        else write_report(*RunFolder.open(path))
    )
    return 0


def check(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    from tenfold.core.pairs import all_pairs, check_pair

    table = Table("pair", "cases", "max difference", "tolerance", "verdict")
    failed = 0
    chosen = [
        tested
        for tested in all_pairs()
        if not arguments.names or any(name in tested.name for name in arguments.names)
    ]
    if not chosen:
        raise UserError(
            f"No fast path has {' or '.join(arguments.names)} in its name: `tenfold check` without "
            "a name shows all."
        )
    for tested in chosen:
        verdict = check_pair(tested)
        failed += not verdict.equal
        table.add_row(
            verdict.name,
            str(verdict.cases),
            f"{verdict.difference:.2g}",
            verdict.tolerance,
            "[green]equal[/]" if verdict.equal else "[red]DIFFERENT[/]",
        )
    Console(width=None if sys.stdout.isatty() else 200).print(table)  # a pipe cuts no names
    print(
        f"{table.row_count - failed} of {table.row_count} fast paths equal their references on "
        "this machine."
    )
    return 1 if failed else 0


def bench(arguments: argparse.Namespace) -> int:
    from tenfold.cli.measure import as_json, choose, run_all, show_rows
    from tenfold.core.system import set_threads
    from tenfold.runs.files import for_writing

    chosen = choose(arguments.names, arguments.peers)
    if arguments.list:
        print("\n".join(chosen))
        return 0
    file = for_writing(Path(arguments.json), "--json") if arguments.json else None
    set_threads(1)
    rows = run_all(chosen)
    if arguments.json == "":
        print(as_json(rows))
    else:
        show_rows(rows)
    if file:
        file.write_text(as_json(rows) + "\n")
    return 1 if any(row["equal"] is False for row in rows) else 0


def profile(arguments: argparse.Namespace) -> int:
    from tenfold.runs.files import for_writing
    from tenfold.training.profiling import (
        engines_for,
        profile_run,
        show_profiles,
        verdict,
        write_trace,
    )

    run, steps = (
        named(arguments.what, settings_given(arguments)),
        whole_number(arguments.length, "--for", 1, 10**8),
    )
    assert steps is not None
    trace = for_writing(Path(arguments.trace or "profile.json"), "--trace")
    profiles = [profile_run(run, engine, steps) for engine in engines_for(run, arguments.engines)]
    show_profiles(profiles)
    write_trace(profiles, trace)
    print(f"{verdict(profiles)}\ntrace: {trace} (open it at chrome://tracing or ui.perfetto.dev)")
    return 0


def show_list(arguments: argparse.Namespace) -> int:
    from tenfold.envs.making import known_environments
    from tenfold.runs.folder import is_seeds, runs_below
    from tenfold.runs.names import RUNS
    from tenfold.runs.seeds import about_run, about_seeds

    print("presets")
    for name, path in presets().items():
        about = (
            path.read_text().splitlines()[0].lstrip("# ")
            if path.read_text().startswith("#")
            else read_yaml(path).get("env")
        )
        print(f"  {name:20} {about}")
    print("agents")
    for name, agent in AGENTS.items():
        print(f"  {name:20} {(agent.__doc__ or '').splitlines()[0]}")
    print("engines")
    for name, about in ENGINES.items():
        print(f"  {name:20} {about}")
    print("environments that are installed (ppo takes all actions, dqn one Discrete)")
    ids = known_environments()
    for start in range(0, len(ids), 4):
        print("  " + "".join(f"{i:32}" for i in ids[start : start + 4]).rstrip())
    found = runs_below(RUNS)
    if found:
        print("runs")
        many = {path.parent for path in found if is_seeds(path.parent)}
        # as eval and resume take them
        for path in dict.fromkeys(p.parent if p.parent in many else p for p in found):
            print(f"  {path!s:32} {about_seeds(path) if path in many else about_run(path)}")
    return 0


COMMANDS = {
    "train": train,
    "resume": resume,
    "eval": evaluate,
    "fit": fit,
    "compare": compare,
    "report": report,
    "check": check,
    "bench": bench,
    "profile": profile,
    "list": show_list,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a check failed, 2 a user's mistake, 128 + n stopped by signal n."""
    if os.getcwd() not in sys.path:
        # so that --env my_module:Mine-v0 finds my_module.py here; last, so that it shadows nothing
        sys.path.append(os.getcwd())
    try:
        given = list(sys.argv[1:] if argv is None else argv)
        arguments = parser(given).understand(given)
        return COMMANDS[arguments.command](arguments)
    except UserError as error:
        print(f"tenfold: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tenfold: stopped; what was saved before is untouched.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.errno not in REFUSED:
            raise
        print(
            f"tenfold: {error.filename or 'a file'} cannot be written or read: {error.strerror}.",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    from tenfold.__main__ import main as start

    sys.exit(start())
