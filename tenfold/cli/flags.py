"""Settings as flags, with help for the agent in question and suggestions for other libraries'
names; arguments that several commands share, and tables in the terminal."""

import argparse
import sys
from argparse import SUPPRESS
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NoReturn, get_args

from tenfold.config.agent_config import FieldSpec, field_specs, meaning_of, misspelled_alias
from tenfold.config.files import named
from tenfold.config.notation import nearest, nested, show
from tenfold.config.run import Run, specs_for
from tenfold.config.schema import Limits, convert_scalar, describe
from tenfold.core.errors import ConfigError, UserError
from tenfold.core.other_libraries import MIGRATION_HINTS
from tenfold.core.registry import file_options

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
    """The run named, or the latest: the one started last, or if that is gone the one written to
    last."""
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


def refuse_empty(arguments: argparse.Namespace, **flags: str) -> None:
    """Refuses an empty value of flags; each is given with what it names."""
    for name, what in flags.items():
        if getattr(arguments, name) == "":
            raise UserError(f"--{name} is empty: name {what}, or leave it out.")


def number_of_jobs(text: str | None) -> int:
    """The value of --jobs; 0: one per core."""
    return 0 if text is None else whole_number(text, "--jobs", 1, 1024)


def print_table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> None:
    """Prints a table; strings are escaped, Rich's renderables are not."""
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
    """argparse, with errors in one sentence that names the nearest flag."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]} (see {self.prog} --help).")

    def understand(self, argv: Sequence[str]) -> argparse.Namespace:
        """`parse_args` with a suggestion for an unknown flag."""
        # a command of its own may have its words among the flags
        parse = self.parse_known_args if self._subparsers else self.parse_known_intermixed_args
        arguments, unknown = parse(argv)
        if unknown:
            known = [
                flag for action in self.deepest(argv)._actions for flag in action.option_strings
            ]
            flag = unknown[0].split("=")[0]
            if not flag.startswith("-"):
                raise UserError(f"{flag} was not expected here (see {self.prog} --help).")
            suggestion = suggest_flag(flag, known, run_of_command(argv))
            raise UserError(f"{flag} is not a flag of this command{suggestion}.")
        return arguments

    def deepest(self, args: Sequence[str]) -> argparse.ArgumentParser:
        """The parser of the command in `args`."""
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return next((action.choices[a] for a in args if a in action.choices), self)
        return self


def suggest_flag(flag: str, known: list[str], run: Run | None) -> str:
    """A suggestion for an unknown flag, first among the settings of the run's agent."""
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


def run_of_command(argv: Sequence[str]) -> Run | None:
    """The run of a command line, given by an agent's name, a preset or a file; None if there is
    none."""
    for word in argv:
        if not word.startswith("-") and word not in SETTINGS:
            try:
                return named(word)
            except UserError:  # it is told of when it is used
                continue
    return None


def add_settings(
    parser: argparse.ArgumentParser, argv: Sequence[str], without: Iterable[str] = ()
) -> None:
    """Adds a flag for every setting of a run. Help shows those of the agent in the command line,
    `--help-all` all of them."""
    run, everything = run_of_command(argv), ALL in argv
    for name, text in file_options().items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(
            flag, dest=name, metavar="VALUE", nargs="?", const="true", default=SUPPRESS, help=text
        )
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
    """Adds a flag for one setting. Its value stays text: `convert` checks it, as it does for YAML.
    The help shows the value in `run` besides the default."""
    here = spec.default if run is None or hidden else reduce(getattr, spec.path.split("."), run)
    default_text = f"default {show(spec.default) or 'empty'}" + (
        f", here {show(here)}" if here != spec.default else ""
    )
    text = f"{spec.help} [{describe(spec.hint)}; {default_text}]".replace("%", "%%")
    optional = {"nargs": "?", "const": "true"} if bool in (spec.hint, *get_args(spec.hint)) else {}
    group.add_argument(
        spec.flag,
        dest=spec.path,
        metavar="VALUE",
        default=SUPPRESS,
        help=SUPPRESS if hidden else text,
        **optional,
    )


def settings_given(arguments: argparse.Namespace) -> dict[str, Any]:
    """The flags that were given, as nested settings (and options of another library's file)."""
    known = {spec.path for spec in field_specs(Run)} | file_options().keys()
    return nested(
        {
            path: value
            for path, value in vars(arguments).items()
            if path in known or path.startswith("agent.")
        }
    )
