"""What processes of the tests have before they are forked: the package, and all that Numba imports when a kernel is first called."""

import os
import resource
import sys
from pathlib import Path

import tenfold.cli
import tenfold.places.processes
import tenfold.seeds
import tenfold.training  # noqa: F401
from tenfold.__main__ import main
from tenfold.ops.random import Purpose, draw_bits, key

draw_bits(key(0, Purpose.INIT), 0)


def command(arguments: tuple[str, ...], folder: Path, words: Path, largest: int) -> None:
    """`tenfold ARGUMENTS…` in this process: its folder, where its words go, and the largest file it can write."""
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(words / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr, sys.argv = open(1, "w"), open(2, "w"), ["tenfold", *arguments]  # noqa: SIM115
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.exit(main())
