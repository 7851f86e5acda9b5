"""One process at a time writes into a folder."""

import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from tenfold.core.errors import UserError

LOCK = ".lock"


class Claim:
    """Keeps a folder to its holder until it is left or dropped; whoever comes second is refused.
    The kernel holds the lock, so no death of the process leaves one behind; a lock file that lies
    there means nothing."""

    def __init__(self, folder: Path) -> None:
        try:
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise UserError(f"{folder} cannot be written: {error.strerror or error}.") from None
        self.let_go = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # replaced between the two calls
            taken = not os.path.samestat(os.fstat(handle), os.stat(folder / LOCK))
        except (BlockingIOError, FileNotFoundError):
            taken = True
        except OSError:  # a file system without locks, where nothing can be known
            taken = False
        if taken:
            self.let_go()
            raise UserError(
                f"{folder} is being trained by another process: wait until that ends, or stop it."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.let_go()


@contextmanager
def claimed_below(folder: Path) -> Iterator[None]:
    """A run, or many seeds and each of them, kept to this process, as far as there is one."""
    with ExitStack() as held:
        for lock in (*folder.glob(LOCK), *folder.glob(f"*/{LOCK}")):
            held.enter_context(Claim(lock.parent))
        yield
