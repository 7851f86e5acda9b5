"""The folder runs/: where a run goes that was not told where, and which one was started last; and
the lock by which one process at a time writes into a folder."""

import contextlib
import errno
import fcntl
import os
import shutil
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import get_native_id
from typing import Any, Self

from tenfold.config.run import Run, presets
from tenfold.core.errors import UserError
from tenfold.core.registry import algorithms
from tenfold.runs.files import writing

LOCK = ".lock"


class FolderLock:
    """Keeps a folder to its holder until it is left or dropped; whoever comes second is refused.
    The kernel holds the lock, so no death of the process leaves one behind; a lock file that lies
    there means nothing."""

    def __init__(self, folder: Path) -> None:
        with writing(folder):
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        self.release = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # replaced between the two calls
            taken = not os.path.samestat(os.fstat(handle), os.stat(folder / LOCK))
        except (BlockingIOError, FileNotFoundError):
            taken = True
        except OSError:  # a file system without locks, where nothing can be known
            taken = False
        if taken:
            self.release()
            raise UserError(
                f"{folder} is being trained by another process: wait until that ends, or stop it."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()


@contextmanager
def locked_below(folder: Path) -> Iterator[None]:
    """A run, or many seeds and each of them, kept to this process, as far as there is one."""
    with ExitStack() as held:
        for lock in (*folder.glob(LOCK), *folder.glob(f"*/{LOCK}")):
            held.enter_context(FolderLock(lock.parent))
        yield


RUNS = Path("runs")
LATEST = "latest"
SEVERAL = ("seeds.json", "compare.json", "sweep.json")  # what a folder of several runs holds
# said by `rename` where something is there already
TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)


@dataclass(frozen=True)
class Numbered:
    """The first free one of PATH, PATH-2, PATH-3, …"""

    path: Path

    def __iter__(self) -> Iterator[Path]:
        yield self.path
        for number in count(2):
            yield self.path.with_name(f"{self.path.name}-{number}")


Target = Path | Numbered


def destination(out: str | Path, name: str, overwrite: bool, below: str | Path = RUNS) -> Target:
    """Where a new run goes: `out`, or without it a folder of its own `below` runs/, which
    `overwrite` says to replace."""
    home = Path(below or RUNS)
    if out and home != RUNS and not Path(out).resolve().is_relative_to(home.resolve()):
        raise UserError(f"{out} is not in {home}, the folder that all machines share.")
    if out:
        path = settled(Path(out))
        return path.resolve() if path.is_symlink() else path
    return home / name if overwrite else Numbered(home / name)


def named_after(env: str) -> str:
    """An environment's id as a folder may be called."""
    return env.split("(")[0].replace("/", "-").replace(":", "-")


def run_name(what: Any, run: Run) -> str:
    """What the folder of a run is called that was not told where to go: after the preset or the
    file that it was started by, or after its environment."""
    if not isinstance(what, str):
        return named_after(run.env)
    if what not in presets() and (what in algorithms() or ":" in what):
        # of one's own: without its module
        return f"{run.agent.name.rpartition(':')[2]}-{named_after(run.env)}"
    return Path(what).stem


def install(target: Target, fill: Callable[[Path], None]) -> tuple[Path, FolderLock]:
    """A new folder, locked: `fill` writes it under a hidden name, so that it is whole when it
    comes to its place, and before what was there goes. Of two that want the same number one gets
    the next."""
    first = target.path if isinstance(target, Numbered) else target
    made = first.absolute()
    # threads may train side by side
    made = made.with_name(f".{made.name}.{os.getpid()}-{get_native_id()}.new")
    held = locked_below(first) if isinstance(target, Path) else contextlib.nullcontext()
    try:
        with writing(first), held:
            made.mkdir(parents=True)
            fill(made)
            lock = FolderLock(made)  # it stays with the folder when that is renamed
            path = moved(made, target)
    except UserError:
        shutil.rmtree(made, ignore_errors=True)
        raise
    turn_latest(path)
    return path, lock


def moved(made: Path, target: Target) -> Path:
    if isinstance(target, Path):
        replaced, there = made.with_suffix(".old"), target.exists()
        if there:
            target.rename(replaced)  # whole or not at all
        try:
            path = made.rename(target)
        except OSError:
            with contextlib.suppress(FileNotFoundError):
                replaced.rename(target)
            raise
        if there:
            shutil.rmtree(replaced, ignore_errors=True)
        return path
    for path in target:
        try:
            return made.rename(path)
        except OSError as error:
            if error.errno not in TAKEN:
                raise
    raise AssertionError("numbers do not end")


def turn_latest(path: Path) -> None:
    """Makes runs/latest a link to a run below runs/ that starts, where links can be made. One of
    several is no run of its own."""
    link, run = RUNS.absolute() / LATEST, path.absolute()
    if not run.is_relative_to(link.parent) or any((run.parent / name).exists() for name in SEVERAL):
        return
    turned = link.with_name(f".{LATEST}.{os.getpid()}-{get_native_id()}")
    with contextlib.suppress(OSError):
        turned.unlink(missing_ok=True)
        turned.symlink_to(run.relative_to(link.parent), target_is_directory=True)
        try:
            turned.replace(link)
        finally:
            turned.unlink(missing_ok=True)


def latest() -> Path | None:
    """The run that runs/latest names, if it is still there."""
    path = settled(RUNS / LATEST)
    return path if any((path / name).exists() for name in ("run.json", *SEVERAL)) else None


def settled(path: Path) -> Path:
    """The run itself where runs/latest leads to it: the link may be turned while somebody works
    there."""
    if LATEST not in path.parts:
        return path
    found = path.resolve()
    here = Path.cwd()
    return (
        found.relative_to(here) if not path.is_absolute() and found.is_relative_to(here) else found
    )
