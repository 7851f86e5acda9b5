"""`tenfold import`: a run made of a model that Stable-Baselines3 saved."""

import argparse
from collections.abc import Sequence
from typing import Any

from tenfold.cli.flags import add_settings, refuse_empty, settings_given
from tenfold.core.errors import UserError
from tenfold.core.registry import Command, file_options

IMPORTS = """examples:
  tenfold import model.zip --env CartPole-v1              # runs/model
  tenfold eval runs/model
  tenfold resume runs/model --more 100k
  tenfold import model.zip --env LunarLander-v3 --out runs/lander --agent.lr 1e-4
"""


def add_import(parsers: Any, argv: Sequence[str]) -> None:
    importer = parsers.add_parser(
        "import",
        help="make a run of a model that Stable-Baselines3 saved",
        allow_abbrev=False,
        description="Reads a model's zip file (MLP policies of DQN, QRDQN, PPO, MaskablePPO, "
        "RecurrentPPO, SAC, TD3, DDPG) and writes a run that stands where it was saved: weights, "
        "optimiser and settings. No pickle in the file is opened, so that it may be anybody's; "
        "Stable-Baselines3 need not be installed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=IMPORTS,
    )
    importer.add_argument("model", metavar="MODEL", help="the zip file")
    importer.add_argument("--out", metavar="FOLDER", help="where the run goes (runs/NAME)")
    importer.add_argument("--overwrite", action="store_true", help="replace the run in that folder")
    add_settings(importer, argv, ("agent.name", *file_options()))


def import_run(arguments: argparse.Namespace) -> int:
    settings = settings_given(arguments)
    refuse_empty(arguments, out="a folder")
    if not (env := settings.pop("env", "")):
        raise UserError("--env is missing: a model's file does not say which environment it is of.")
    from tenfold.core.system import set_threads
    from tenfold.integrations.sb3.importing import import_model

    set_threads(1)
    run = import_model(arguments.model, env, arguments.out or "", arguments.overwrite, settings)
    for note in run.notes:
        print(f"Note: {note}.")
    print(
        f"{run.class_name}, step {run.step:,} -> {run.path}   play it: tenfold eval {run.path}   "
        f"go on: tenfold resume {run.path} --more 100k"
    )
    return 0


IMPORT = Command("import", add_import, import_run)
