"""What processes of the tests have before they are forked: the package, all that Numba imports when
a kernel is first called, and figures that are left white."""

import gc
import importlib
import os
import resource
import sys
from pathlib import Path

import unpainted  # noqa: F401

from tenfold.__main__ import main
from tenfold.core.random import Purpose, draw_bits, key

for name in ("cli.main", "actors.processes", "training.many", "training.loop"):
    importlib.import_module(f"tenfold.{name}")
draw_bits(key(0, Purpose.INIT), 0)
gc.freeze()  # which a fork shares then


def command(arguments: tuple[str, ...], folder: Path, words: Path, largest: int) -> None:
    """`tenfold ARGUMENTS…` in this process: its folder, where its words go, and the largest file it
    can write, if there is one."""
    os.setsid()
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(words / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr, sys.argv = open(1, "w"), open(2, "w"), ["tenfold", *arguments]  # noqa: SIM115
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.exit(main())
