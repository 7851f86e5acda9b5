"""Before training begins every child proves that it shares the parent's memory, and hears so from
the parent.

The parent writes a random number for each child; the child writes a token derived from it; the
parent answers with another. A child that got a copy of the memory instead, or none, is found here
by its name and not by runs that quietly learn nothing.
"""

import hashlib
import secrets
import time
from collections.abc import Iterable, Mapping
from multiprocessing.process import BaseProcess

from tenfold.core.errors import UserError
from tenfold.memory.shared import LINE, Segment, Signal, wait_for

WORD = 8
SECRET, CHILD, PARENT = 0, 1, 2  # words of a child's line
SILENT = 0  # a token that was not written yet


class Handshake:
    """One line of memory and one bell for each child, by name; a bell for the parent."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = list(names)
        self.segment = Segment(len(self.names) * LINE, "the handshake")
        self.words = self.segment.words()
        self.answered, self.welcome = (
            Signal(),
            {name: Signal() for name in self.names},
        )
        for name in self.names:
            self.renew(name)

    def __getstate__(self) -> dict[str, object]:
        return {name: getattr(self, name) for name in ("names", "segment", "answered", "welcome")}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self.words = self.segment.words()

    def _line(self, name: str) -> int:
        return self.names.index(name) * LINE // WORD

    def renew(self, name: str) -> None:
        """A new random number for a child that will be started in place of one that died."""
        line = self._line(name)
        self.words[line + CHILD] = self.words[line + PARENT] = SILENT
        self.words[line + SECRET] = secrets.randbits(64)

    def answer(self, name: str, timeout: float) -> None:
        """In the child: writes its token and waits for the parent's."""
        line, words = self._line(name), self.words
        expected = token(words[line + SECRET], "parent")
        words[line + CHILD] = token(words[line + SECRET], "child")
        self.answered.give()
        if not self.welcome[name].until(lambda: words[line + PARENT] == expected, timeout):
            raise UserError(
                f"{name} waited {timeout:g} s for the parent's answer at start-up: the parent is "
                "gone, or does not share its memory."
            )

    def wait(self, timeout: float, processes: Mapping[str, BaseProcess] | None = None) -> None:
        """In the parent: returns when every child (or those in `processes`) has answered and was
        answered.

        A process that ends before it answered is an error at once, not after `timeout` seconds.
        """
        end = time.monotonic() + timeout
        missing = list(self.names if processes is None else processes)
        while True:
            self.answered.take()
            for name in list(missing):
                line = self._line(name)
                if self.words[line + CHILD] == token(self.words[line + SECRET], "child"):
                    self.words[line + PARENT] = token(self.words[line + SECRET], "parent")
                    self.welcome[name].give()
                    missing.remove(name)
            if not missing:
                return
            for name in missing:
                if processes and processes[name].exitcode is not None:
                    raise UserError(
                        f"{name} ended with exit code {processes[name].exitcode} before training "
                        "began."
                    )
            left = end - time.monotonic()
            if left <= 0:
                raise UserError(
                    f"{', '.join(missing)} did not answer within {timeout:g} s at start-up: its "
                    "memory is not the parent's, or it is stuck."
                )
            sentinels = [processes[name].sentinel for name in missing] if processes else []
            wait_for([self.answered.fd, *sentinels], left)

    def close(self) -> None:
        self.words.release()
        self.segment.close()
        for bell in (self.answered, *self.welcome.values()):
            bell.close()


def token(secret: int, who: str) -> int:
    """Never SILENT: the lowest bit is set."""
    return (
        int.from_bytes(
            hashlib.blake2b(f"{secret} {who}".encode(), digest_size=8).digest(), "little"
        )
        | 1
    )
