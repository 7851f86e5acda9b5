"""`tenfold train` and `tenfold resume`."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenfold.cli.closing import finish, finish_seeds
from tenfold.cli.flags import (
    add_run,
    add_setting,
    add_settings,
    add_trust,
    chosen_run,
    number_of_jobs,
    refuse_empty,
    settings_given,
    whole_number_or_none,
)
from tenfold.config.agent_config import field_specs
from tenfold.config.changes import CHANGEABLE
from tenfold.config.files import presets, resolve_run
from tenfold.config.run import Run
from tenfold.core.errors import UserError, told_of
from tenfold.core.registry import Command, algorithms

MOST_SEEDS = 10_000  # of a command
EXAMPLES = """examples:
  tenfold train cartpole --seed 3
  tenfold train dqn --env Acrobot-v1 --steps 100k --agent.double true --agent.n-step 3
  tenfold train dqn --env "FrozenLake-v1(is_slippery=false)" --agent.target "polyak(0.01)"
  tenfold train cartpole --seeds 64 --where ray --address 10.0.0.5:6379
  tenfold train spec.json my_spec train -s env=CartPole-v1      (a spec of SLM-Lab)
  tenfold train my.yaml --agent.explore "epsilon(linear(1, 0.05, 20k))"
  tenfold train ppo.yml --algo ppo --env CartPole-v1      # a file of RL-Zoo
"""


def add_train(parsers: Any, argv: Sequence[str]) -> None:
    train = parsers.add_parser(
        "train",
        help="train an agent: a preset, an agent's name or a YAML file",
        allow_abbrev=False,
        usage="tenfold train WHAT [--SETTING VALUE …]",
        description="Trains an agent. Settings come from WHAT (a preset, an agent's name or a "
        "YAML file); flags change them.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    train.add_argument(
        "what",
        metavar="WHAT",
        help=f"a preset ({', '.join(presets())}), an agent ({', '.join(algorithms())}, or your own "
        "as module:Name) or FILE.yaml",
    )
    train.add_argument(
        "--out",
        metavar="FOLDER",
        help="where the run is kept (a new folder: runs/WHAT, runs/WHAT-2, …)",
    )
    train.add_argument(
        "--seeds",
        metavar="N|A..B|A,B,…",
        help="train several seeds: 8 means 0 to 7; also 3..6 or 1,5,9; with --where ray each of "
        "them is a task of a Ray cluster (and its actors are where it is)",
    )
    train.add_argument(
        "--jobs",
        help="seeds trained at the same time (as many as there are cores; all, where a GPU trains "
        "them together)",
    )
    train.add_argument(
        "--storage",
        metavar="DIR",
        help="with --seeds and --where ray: a folder that all machines of the cluster share, where "
        "the runs are kept (without it their files come here as they train)",
    )
    train.add_argument(
        "--overwrite",
        action="store_true",
        help="replace the run in that folder (runs/WHAT without --out)",
    )
    train.add_argument("--quiet", action="store_true", help="no progress, only the result")
    train.add_argument(
        "--init",
        metavar="RUN",
        help="begin with the weights of another run, a folder or an archive (networks, and running "
        "statistics of observations; all else begins anew)",
    )
    train.add_argument(
        "--checkpoint",
        default="last",
        metavar="last|best|STEP",
        help="which checkpoint of --init (last)",
    )
    add_trust(train)
    add_track(train)
    add_callbacks(train)
    add_settings(train, argv)


def train(arguments: argparse.Namespace) -> int:
    settings = settings_given(arguments)
    if arguments.seeds is not None and "seed" in settings:
        raise UserError(
            "--seed and --seeds exclude each other: give one seed, or say which several."
        )
    refuse_empty(arguments, out="a folder", init="a run's folder or archive")
    if arguments.seeds is None and arguments.jobs is not None:
        raise UserError(
            "--jobs says how many seeds are trained at the same time: give --seeds as well."
        )
    if arguments.storage is not None and (arguments.seeds is None or not arguments.storage):
        raise UserError("--storage is for seeds on a Ray cluster: give --seeds and --where ray.")
    if arguments.init is None and (arguments.checkpoint != "last" or arguments.trust):
        flag = "--trust" if arguments.trust else "--checkpoint"
        raise UserError(f"{flag} is about the run whose weights are taken: give --init as well.")
    run = resolve_run(arguments.what, settings, arguments.quiet)
    jobs = number_of_jobs(arguments.jobs)
    from tenfold.runs.folder import run_name

    where: dict[str, Any] = {
        "name": run_name(arguments.what, run),
        "overwrite": arguments.overwrite,
        "quiet": arguments.quiet,
        "init": arguments.init,
        "checkpoint": arguments.checkpoint,
        "trust": arguments.trust,
    }
    if arguments.seeds is not None:
        from tenfold.training.run_group import train_seeds

        if arguments.callbacks:
            raise UserError("--callback is for one run: leave out --seeds.")
        seeds = seeds_named(arguments.seeds)
        where |= {"storage": arguments.storage or "", "track": arguments.track}
        return finish_seeds(train_seeds(run, seeds, arguments.out or "", jobs=jobs, **where))
    from tenfold.training.loop import train as start

    callbacks = callbacks_of(arguments)
    return finish(start(run, arguments.out or "", **where, callbacks=callbacks))


def add_callbacks(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--callback",
        dest="callbacks",
        action="append",
        default=[],
        metavar="MODULE:NAME",
        help="a class of your own, called at moments of the run (tenfold.Callback); more than once",
    )


def add_track(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--track",
        metavar="NAME,…",
        help="send the metrics to wandb, trackio or mlflow as well (extras of the same names); "
        "tensorboard is always written, to RUN/tensorboard",
    )


def callbacks_of(arguments: argparse.Namespace) -> list[Any]:
    """The user's callbacks, then trackers, which see the numbers that those add to a row."""
    from tenfold.training.callbacks import trackers_named

    return [*callbacks_named(arguments.callbacks), *trackers_named(arguments.track)]


def callbacks_named(names: Sequence[str]) -> list[Any]:
    """An instance of each class, with arguments in call notation:
    my_module:Patience(patience=5)."""
    from tenfold.config.notation import parse_call
    from tenfold.core.registry import import_by_name
    from tenfold.envs.arguments import parse_value

    callbacks = []
    for text in names:
        name, positional, named = parse_call(text, "--callback")
        kind = import_by_name(name)
        with told_of(f"--callback {text}"):
            arguments = {key: parse_value(value) for key, value in named.items()}
            callbacks.append(kind(*map(parse_value, positional), **arguments))
    return callbacks


def seeds_named(text: str) -> tuple[int, ...]:
    """8, 3..6 or 1,5,9."""
    try:
        if ".." in text:
            first, last = (int(part) for part in text.split(".."))
            seeds: Sequence[int] = range(first, last + 1)
        elif "," in text:
            seeds = tuple(int(part) for part in text.split(","))
        else:
            seeds = range(int(text))
    except ValueError:
        seeds = ()
    # a range may have more than len can tell
    if not seeds or len(seeds[: MOST_SEEDS + 1]) > MOST_SEEDS or min(seeds) < 0:
        raise UserError(
            f"--seeds {text} cannot be read: write a number (8 means 0 to 7), a range (3..6) or a "
            f"list (1,5,9), of at most {MOST_SEEDS:,}."
        )
    return tuple(seeds)


def add_resume(parsers: Any, argv: Sequence[str]) -> None:
    resume = parsers.add_parser(
        "resume", help="go on with a run, as if it had never stopped", allow_abbrev=False
    )
    add_run(resume)
    resume.add_argument(
        "--more",
        metavar="STEPS",
        help="go on so many steps beyond the end that the run was to have (--steps: to that step)",
    )
    resume.add_argument("--jobs", help="of a run of many seeds: how many at the same time")
    resume.add_argument("--quiet", action="store_true", help="no progress, only the result")
    add_trust(resume)
    add_track(resume)
    add_callbacks(resume)
    group = resume.add_argument_group("settings that can change from here on")
    for spec in field_specs(Run):
        if spec.path in CHANGEABLE:
            add_setting(group, replace(spec, default="as it was"))
        else:  # known, so that it is refused by name
            group.add_argument(
                spec.flag,
                dest=spec.path,
                nargs="?",
                default=argparse.SUPPRESS,
                help=argparse.SUPPRESS,
            )


def resume(arguments: argparse.Namespace) -> int:
    path, jobs = chosen_run(arguments.run), number_of_jobs(arguments.jobs)
    settings = settings_given(arguments)
    how: dict[str, Any] = {"quiet": arguments.quiet, "trust": arguments.trust}
    more = whole_number_or_none(arguments.more, "--more", 1)
    from tenfold.runs.folder import is_seeds, is_sweep

    if is_sweep(path):
        from tenfold.cli.search_command import finish_sweep
        from tenfold.training.sweep import resume_sweep

        if settings or more is not None:
            raise UserError(f"{path} is a sweep, whose settings stay as they are.")
        if arguments.track is not None:
            raise UserError(f"--track is for runs and folders of seeds, and {path} is a sweep.")
        return finish_sweep(resume_sweep(path, jobs=jobs, **how))
    if is_seeds(path):
        from tenfold.training.run_group import resume_seeds

        how["track"] = arguments.track
        return finish_seeds(resume_seeds(path, settings=settings, more=more, jobs=jobs, **how))
    if jobs:
        raise UserError(f"--jobs is for a run of many seeds, and {path} is none.")
    from tenfold.training.loop import resume as go_on

    how["callbacks"] = callbacks_of(arguments)
    return finish(go_on(path, settings=settings, more=more, **how))


COMMANDS = (Command("train", add_train, train), Command("resume", add_resume, resume))
