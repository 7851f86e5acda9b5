"""The command line: commands and exit codes. Heavy modules are imported by the command
that needs them, so that help and errors appear at once."""

import errno
import os
import resource
import sys
from argparse import Namespace
from collections.abc import Sequence
from functools import cache

from tenfold import __version__
from tenfold.cli import results, search_command, tools, train
from tenfold.cli.flags import Parser
from tenfold.config.notation import nearest
from tenfold.core.errors import UserError, described
from tenfold.core.processes import discard, show_what_can_be_shown
from tenfold.core.registry import Command, domains, file_forms

# by the disk: a person's affair
REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)

TOO_MANY = (errno.EMFILE, errno.ENFILE)  # files; so are pipes, and memory that processes share

# commands of former versions
REMOVED = {
    "bench": "benchmarks need a checkout of the repository, where `python bench/all.py` runs them "
    "(--list shows their names)"
}


@cache
def commands() -> dict[str, Command]:
    """By name, in the order of `tenfold --help`."""
    of_domains = [command for domain in domains() for command in domain.commands()]
    everything = (
        *train.COMMANDS,
        *search_command.COMMANDS,
        tools.EVAL,
        *of_domains,
        *results.COMMANDS,
        *tools.COMMANDS,
    )
    return {command.name: command for command in everything}


def parser(argv: Sequence[str] = ()) -> Parser:
    """The parser. With a command line that begins with a command, the flags of the other commands,
    about a thousand, are not made."""
    top = Parser(
        prog="tenfold",
        description="Trains reinforcement-learning agents at the speed of the machine.",
        epilog="tenfold COMMAND --help explains a command.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"tenfold {__version__}")
    parsers = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    known = commands()
    for name in argv[:1] if argv and argv[0] in known else known:
        known[name].add(parsers, argv)
    return top


def require_command(argv: Sequence[str]) -> None:
    """Refuses an unknown command."""
    first, known = argv[0] if argv else "--help", commands()
    if first in known or first in ("-h", "--help", "--version"):
        return
    if first in REMOVED:
        raise UserError(f"{first} is no command any more: {REMOVED[first]}.")
    if first.startswith("-"):
        raise UserError(
            f"{first} stands before the command{nearest(first, ['--help', '--version'])}: write "
            "tenfold COMMAND --FLAG (see tenfold --help)."
        )
    raise UserError(
        f"{first} is not a command{nearest(first, list(known))}: {', '.join(known)} are (see "
        "tenfold --help)."
    )


def run_command(arguments: Namespace) -> int:
    try:
        code = commands()[arguments.command].run(arguments)
        sys.stdout.flush()  # here, where it can be answered that nobody reads it
        return code
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:  # SystemExit, GeneratorExit: nothing of ours raises it
        raise UserError(
            f"An environment or another module of yours ended the program ({described(error)}), "
            "which it must not; what was saved before is untouched."
        ) from error


def find_modules_here() -> None:
    """Makes modules of the current folder importable, for --env my_module:Mine-v0; appended, so
    that they shadow nothing."""
    try:
        here = os.getcwd()
    except FileNotFoundError:
        raise UserError(
            "The folder you are in does not exist any more: change to one that does (cd)."
        ) from None
    if here not in sys.path:
        sys.path.append(here)


def refusal(error: OSError) -> str:
    """An OSError as a sentence; raises it again if it is not about permissions, space or open
    files."""
    if error.errno in TOO_MANY:
        return (
            "too many files are open at the same time, pipes and shared memory of processes among "
            f"them ({resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} are allowed): allow more "
            "with `ulimit -n 4096`, or use fewer --actors or --jobs."
        )
    if error.errno not in REFUSED:
        raise error
    return f"{error.filename or 'a file'} cannot be written or read: {error.strerror}."


def main(argv: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 a check failed, 2 a user's mistake, 128 + n stopped by signal n."""
    show_what_can_be_shown()
    try:
        find_modules_here()
        arguments_given = list(sys.argv[1:] if argv is None else argv)
        if form := next((form for form in file_forms() if form.claims(arguments_given)), None):
            return form.run(arguments_given)
        require_command(arguments_given)
        arguments = parser(arguments_given).understand(arguments_given)
        return run_command(arguments)
    except UserError as error:
        print(f"tenfold: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("tenfold: stopped; what was saved before is untouched.", file=sys.stderr)
        return 130
    except BrokenPipeError:  # of what nobody reads nothing is lost
        discard(sys.stdout)
        discard(sys.stderr)
        return 0
    except OSError as error:
        print(f"tenfold: {refusal(error)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    from tenfold.__main__ import main as start

    sys.exit(start())
