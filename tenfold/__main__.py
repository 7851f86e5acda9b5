"""`python -m tenfold` and the command `tenfold`: installs signal handlers, then imports everything
else."""

import atexit
import contextlib
import os
import signal
import sys
from typing import Any

CURSOR = b"\x1b[?25h"  # shows it: the live panel hides it


def leave(number: int, frame: Any) -> None:
    """Handles Ctrl-C, SIGTERM or SIGHUP when nothing can be saved, or the second such signal:
    prints one line and exits at once.

    As an exception it would surface in imports, compilers and callbacks, which print tracebacks of
    their own. Children die with this process.
    """
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        os.write(
            2,
            (CURSOR if os.isatty(2) else b"")
            + b"tenfold: stopped; what was saved before is untouched.\n",
        )
    os._exit(128 + number)


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
            continue  # under nohup
        signal.signal(number, leave)
        # Python puts SIG_DFL back when all is done, and would die of it
        atexit.register(signal.signal, number, signal.SIG_IGN)
    from tenfold.cli.main import main as command_line

    return command_line()


if __name__ == "__main__":
    sys.exit(main())
