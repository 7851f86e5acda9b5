"""`tenfold fit` and `tenfold compare`."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tenfold.cli.closing import finish, stopped
from tenfold.cli.flags import (
    add_setting,
    number_of_jobs,
    print_table,
    settings_given,
    specs_for,
    whole_number,
)
from tenfold.config.agent_config import FieldSpec
from tenfold.config.files import named
from tenfold.config.run import Run
from tenfold.config.schema import convert_scalar
from tenfold.core.errors import UserError
from tenfold.core.registry import Command
from tenfold.domains.dynamics.config import Explorer

# settings that say nothing to recordings
OF_ENVIRONMENTS = (
    "num_envs",
    "actors",
    "where",
    "ahead",
    "on_death",
    "patience",
    "share",
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


def settings() -> list[FieldSpec]:
    """Of a run of an explorer."""
    return specs_for(Run(agent=Explorer()))


def add_place(parser: argparse.ArgumentParser, kept: str, what: str) -> None:
    """Where the results go."""
    usual = {"run": "runs/fit-FILE", "comparison": "runs/compare-WHAT"}[what]
    parser.add_argument("--out", metavar="FOLDER", help=f"where {kept}")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help=f"replace the {what} in that folder ({usual} without --out)",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress, only the result")


def add_fit(parsers: Any, arguments: Sequence[str]) -> None:
    fit = parsers.add_parser(
        "fit",
        help="learn hidden dynamics from recordings: NPZ, CSV, NWB, HDF5, MAT, an explorer's run",
        allow_abbrev=False,
        description="Trains a model of hidden dynamics on recordings. NPZ: arrays observations, "
        "actions, and dt or time. CSV: columns y0, y1, …, a0, a1, …, optionally time "
        "and episode (or trial). NWB: spike times, counted in bins of --bin seconds. HDF5: names "
        "of NPZ or of LFADS. MAT: names of NPZ. Recordings without actions will do.",
    )
    fit.add_argument(
        "file",
        metavar="FILE",
        nargs="+",
        help="recordings (.npz, .csv, .nwb, .h5, .hdf5, .mat), or the folder of an explorer's run; "
        "several with --shared",
    )
    fit.add_argument(
        "--shared",
        action="store_true",
        help="fit several sessions by one dynamics, each with readouts of its own",
    )
    fit.add_argument(
        "--bin", metavar="SECONDS", help="width of the bins in which spike times are counted (NWB)"
    )
    fit.add_argument("--dt", help="time of a step, where the file does not say it")
    for what in ("observations", "actions"):
        fit.add_argument(
            f"--{what}",
            default="",
            metavar="NAME[,…]",
            help=f"columns (or arrays, or series of NWB) of {what}: names, or what the columns' "
            "names begin with",
        )
    fit.add_argument(
        "--latent",
        metavar="N|auto",
        help="numbers of the hidden state (2); auto tries 1 to 6 on steps that are held back and "
        "takes the fewest that foretell as well as the best",
    )
    fit.add_argument("--seeds", help=argparse.SUPPRESS)
    add_place(fit, "the run is kept (a new folder: runs/fit-FILE, runs/fit-FILE-2, …)", "run")
    fit.add_argument("--steps", default=argparse.SUPPRESS, help="gradient steps (3,000)")
    fit.add_argument(
        "--eval-every",
        default=argparse.SUPPRESS,
        dest="eval_every",
        help="gradient steps between looks (500)",
    )
    group = fit.add_argument_group("settings")
    without = ("env", "steps", "eval_every", *OF_ENVIRONMENTS)
    for leaf in settings():
        if leaf.path not in without and ".planner." not in leaf.path:
            add_setting(group, leaf)


def fit(arguments: argparse.Namespace) -> int:
    if arguments.seeds is not None:
        raise UserError("--seeds is not a flag of fit: --members 8 trains 8 seeds side by side.")
    from tenfold.domains.dynamics.offline import fit as start

    result = start(
        arguments.file if len(arguments.file) > 1 else arguments.file[0],
        arguments.out or "",
        settings=settings_given(arguments),
        dt=None if arguments.dt is None else convert_scalar(arguments.dt, float, "--dt"),
        bin=None if arguments.bin is None else convert_scalar(arguments.bin, float, "--bin"),
        shared=arguments.shared,
        observations=arguments.observations,
        actions=arguments.actions,
        latent=latent_of(arguments.latent),
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    return finish(result)


def latent_of(text: str | None) -> Any:
    """Parses --latent: a number, auto, or nothing."""
    if text is None or text.strip() == "auto":
        return text and "auto"
    try:
        return whole_number(text, "--latent", 1, 64)
    except UserError:
        raise UserError(
            f"--latent {text} is neither auto nor a whole number from 1 to 64."
        ) from None


def add_compare(parsers: Any, arguments: Sequence[str]) -> None:
    compare = parsers.add_parser(
        "compare",
        help="run policies of an explorer with the same seeds: one table, one figure",
        allow_abbrev=False,
        description="Runs every policy with the same seeds, all seeds of a policy stacked in one "
        "process; the same command again goes on where it stopped.",
    )
    compare.add_argument(
        "what", metavar="WHAT", nargs="+", help="a preset such as limit-cycle, or FILE.yaml"
    )
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
    kept = "they are kept (runs/compare-WHAT; with other settings runs/compare-WHAT-2, …)"
    add_place(compare, kept, "comparison")
    compare.add_argument(
        "--json", action="store_true", help="print one JSON object instead of the table"
    )
    group = compare.add_argument_group("settings")
    for leaf in settings():
        if leaf.path not in ("members", "agent.planner.policy"):
            add_setting(group, leaf)


def compare(arguments: argparse.Namespace) -> int:
    from tenfold.domains.dynamics.compare import compare as start
    from tenfold.domains.dynamics.compare import table_of

    what, *others = arguments.what
    if others or Path(what).is_dir():
        raise UserError(
            f"compare runs the policies of one explorer, such as `tenfold compare limit-cycle`; "
            f"runs that are there are laid side by side by `tenfold report "
            f"{' '.join(arguments.what)}`."
        )
    seeds = whole_number(arguments.seeds, "--seeds", 1, 1024)
    run = named(what, settings_given(arguments))
    result = start(
        run,
        tuple(word.strip() for word in arguments.policies.split(",") if word.strip()),
        seeds,
        arguments.out or "",
        name=f"compare-{Path(what).stem}",
        jobs=number_of_jobs(arguments.jobs),
        overwrite=arguments.overwrite,
        quiet=arguments.quiet,
    )
    if result.interrupted:
        print(f"{stopped(result.saved)} The same command goes on.")
        return 128 + result.interrupted
    if arguments.json:
        summary = {
            "path": str(result.path),
            "env": run.env,
            "seeds": seeds,
            "policies": result.rows,
        }
        print(json.dumps(summary))
        return 0
    head, *lines = table_of(result.rows)
    print_table(head, lines)
    places = {"results": "compare.json", "figure": "compare.png", "report": "report.html"}
    print("   ".join(f"{what}: {result.path / name}" for what, name in places.items()))
    return 0


COMMANDS = (Command("fit", add_fit, fit), Command("compare", add_compare, compare))
