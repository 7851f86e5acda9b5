"""Settings as flags: one for each, help for those of the agent in question, suggestions for other
libraries' names. Also arguments that several commands share, and tables in the terminal."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn

from tenfold.config.agent_config import FieldSpec, field_specs, meaning_of, misspelled_alias
from tenfold.config.files import named
from tenfold.config.notation import nearest, nested, show
from tenfold.config.run import Run
from tenfold.config.schema import Limits, convert_scalar, describe
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import MIGRATION_HINTS

PIPE = 200  # columns of a table where there is no terminal: a pipe cuts no names


def add_run(parser: argparse.ArgumentParser, archive: bool = False) -> None:
    description = "the run's folder or archive" if archive else "the run's folder"
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help=f"{description} (the latest below runs/ by default)"
    )


def add_trust(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="import modules that the settings of somebody else's run or archive name",
    )


def chosen_run(run: str | None) -> Path:
    """The run named, or the latest: the one started last, or where that is gone or unknown the one
    written to last."""
    from tenfold.runs.folder import is_seeds, runs_below
    from tenfold.runs.storage import RUNS, latest, resolve_latest

    if run:
        return resolve_latest(Path(run))
    if path := latest():
        return path
    runs = runs_below(RUNS)
    if not runs:
        raise UserError(
            "There is no run below runs/: name a run's folder, or start one with `tenfold train "
            "cartpole`."
        )
    return runs[0].parent if is_seeds(runs[0].parent) else runs[0]


def whole_number(text: str, flag: str, least: int, most: int = 2**63 - 1) -> int:
    value = convert_scalar(text, int, flag)
    if not least <= value <= most:
        raise ConfigError(flag, f"= {value} is out of range: it must be {Limits(least, most)}.")
    return value


def whole_number_or_none(text: str | None, flag: str, least: int) -> int | None:
    return None if text is None else whole_number(text, flag, least)


def number_of_jobs(text: str | None) -> int:
    """Of --jobs; 0: one a core."""
    return 0 if text is None else whole_number(text, "--jobs", 1, 1024)


def print_table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Cells are text, whatever is in them, or Rich's own."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*head)
    for line in lines:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in line))
    Console(width=None if sys.stdout.isatty() else PIPE).print(table)


SETTINGS = ("train", "sweep", "profile")  # commands that take every setting of a run
ALL = "--help-all"


class Parser(argparse.ArgumentParser):
    """argparse, but a mistake is one sentence that names the nearest flag."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]} (see {self.prog} --help).")

    def understand(self, argv: Sequence[str]) -> argparse.Namespace:
        """`parse_args`, but with the right flag for one that is unknown."""
        arguments, unknown = self.parse_known_args(argv)
        if unknown:
            known = [
                flag for action in self.deepest(argv)._actions for flag in action.option_strings
            ]
            flag = unknown[0].split("=")[0]
            if not flag.startswith("-"):
                raise UserError(f"{flag} was not expected here (see {self.prog} --help).")
            raise UserError(
                f"{flag} is not a flag of this command{meant_by(flag, known, run_in(argv))}."
            )
        return arguments

    def deepest(self, args: Sequence[str]) -> argparse.ArgumentParser:
        """The parser of the command in `args`."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return next((action.choices[a] for a in args if a in action.choices), self)
        return self


def meant_by(flag: str, known: list[str], run: Run | None) -> str:
    """What to write instead of an unknown flag: our name for it, first among the settings of the
    run's agent."""
    word = flag.lstrip("-").replace("-", "_").split(".")[-1]
    mine, everyones = specs_for(run), specs_for(None)
    for specs in (mine, everyones):
        if suggestion := meaning_of(
            {spec.flag: spec for spec in specs if spec.flag in known}, word
        ):
            return suggestion
        if word in MIGRATION_HINTS:
            return f": {MIGRATION_HINTS[word]}"
    known_specs = {spec.flag: spec for spec in mine if spec.flag in known}
    if answer := misspelled_alias(known_specs, word):
        return answer
    others = {spec.flag for spec in everyones} - {spec.flag for spec in mine}
    return nearest(flag, [one for one in known if one not in others])


def run_in(argv: Sequence[str]) -> Run | None:
    """The run that a command line means, by an agent's name, a preset or a file; None where it
    names none."""
    for word in argv:
        if not word.startswith("-") and word not in SETTINGS:
            try:
                return named(word)
            except UserError:  # it is told of when it is used
                continue
    return None


def specs_for(run: Run | None) -> list[FieldSpec]:
    """The settings of a run that trains this one's agent, with the agent's own defaults and words;
    of any without one."""
    if run is None:
        return list(field_specs(Run))
    of_agent = [
        spec for spec in field_specs(type(run.agent), "agent.") if spec.path != "agent.name"
    ]
    return [
        *of_agent,
        *(
            spec
            for spec in field_specs(Run)
            if spec.path == "agent.name" or not spec.path.startswith("agent.")
        ),
    ]


def add_settings(
    parser: argparse.ArgumentParser, argv: Sequence[str], without: Iterable[str] = ()
) -> None:
    """A flag for every setting of a run. Help shows those of the agent that `given` means,
    `--help-all` every one."""
    run, everything = run_in(argv), ALL in argv
    parser.add_argument(ALL, action="help", help="show the settings of every agent")
    of_run = {spec.path: spec for spec in specs_for(None if everything else run)}
    title = (
        "settings"
        if everything
        else f"settings of agent {run.agent.name}"
        if run
        else f"settings of every agent (`{parser.prog} dqn --help`, or that of a preset or a file, "
        "shows an agent's own)"
    )
    group = parser.add_argument_group(title)
    # those of an algorithm of one's own are among its own only
    for spec in ({spec.path: spec for spec in field_specs(Run)} | of_run).values():
        if spec.path not in without:
            unasked = (
                run is None
                and not everything
                and spec.path.startswith("agent.")
                and spec.path != "agent.name"
            )
            hidden = unasked or spec.path not in of_run
            add_setting(group, of_run.get(spec.path, spec), None if everything else run, hidden)


def add_setting(group: Any, spec: FieldSpec, run: Run | None = None, hidden: bool = False) -> None:
    """A flag for one setting. Its value stays text: `convert` judges it, as it does for YAML. Help
    tells what `run` has instead of the default."""
    here = spec.default if run is None or hidden else reduce(getattr, spec.path.split("."), run)
    default_text = f"default {show(spec.default) or 'empty'}" + (
        f", here {show(here)}" if here != spec.default else ""
    )
    text = f"{spec.help} [{describe(spec.hint)}; {default_text}]".replace("%", "%%")
    optional = {"nargs": "?", "const": "true"} if spec.hint in (bool, bool | None) else {}
    group.add_argument(
        spec.flag,
        dest=spec.path,
        metavar="VALUE",
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS if hidden else text,
        **optional,
    )


def settings_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, as nested settings."""
    known = {spec.path for spec in field_specs(Run)}
    return nested(
        {
            path: value
            for path, value in vars(arguments).items()
            if path in known or path.startswith("agent.")
        }
    )
