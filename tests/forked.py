"""What processes of the tests have before they are forked: the package, all that Numba imports when
a kernel is first called, and figures that are left white. And what they then do."""

import gc
import importlib
import os
import resource
import sys
import warnings
from pathlib import Path

import unpainted  # noqa: F401
import unsynced  # noqa: F401

from tenfold.__main__ import main
from tenfold.core.random import Purpose, draw_bits, key

for name in (
    "cli.main",
    "actors.process_pool",
    "actors.split_envs",
    "training.run_group",
    "training.loop",
):
    importlib.import_module(f"tenfold.{name}")
draw_bits(key(0, Purpose.INIT), 0)
gc.freeze()  # which a fork shares then


def speak(words: Path) -> None:
    """What this process says from now on goes to files of this folder."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(words / name, os.O_WRONLY | os.O_CREAT), number)
    sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115


def compiling(script: str, names: list[str], places: list[str], words: Path) -> None:
    """A script for Triton's compiler, which nothing that is imported here has asked for yet: it
    does not interpret then."""
    assert "triton" not in sys.modules
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["TRITON_CACHE_DIR"] = str(words / "cache")
    speak(words)
    warnings.simplefilter("ignore")
    sys.argv, sys.path[:0] = ["-c", *names], places
    exec(script, {"__name__": "__main__"})
    sys.stdout.flush()


def command(arguments: tuple[str, ...], folder: Path, words: Path, largest: int) -> None:
    """`tenfold ARGUMENTS…` in this process: its folder, where its words go, and the largest file it
    can write, if there is one."""
    os.setsid()
    os.chdir(folder)
    speak(words)
    sys.argv = ["tenfold", *arguments]
    if largest:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
    sys.exit(main())
