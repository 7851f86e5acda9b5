"""What several commands read from their command lines, and how they print tables."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tenfold.config.schema import Limits, convert_scalar
from tenfold.core.errors import ConfigError, UserError

PIPE = 200  # columns of a table where there is no terminal: a pipe cuts no names


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the run's folder (the latest below runs/ by default)"
    )


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


def print_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(*head)
    for line in lines:
        table.add_row(*line)
    Console(width=None if sys.stdout.isatty() else PIPE).print(table)
