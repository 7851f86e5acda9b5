"""Standard output and standard error whose reader may leave: `tenfold train … | head`, a terminal
that is closed."""

import codecs
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

# a pipe that nobody reads, a terminal that is gone: by the signal that stands for it
CLOSED = {errno.EPIPE: int(signal.SIGPIPE), errno.EIO: int(signal.SIGHUP)}

# for an output that has only some of our characters; one for one, where columns count
PLAIN = {"±": "+-", "→": "->", "·": "-", "–": "-", "−": "-", "…": ".", "×": "x", "µ": "u"}
PLAIN |= {tick: str(height) for height, tick in enumerate("▁▂▃▄▅▆▇█", 1)}


def replaced(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: what else to write for characters that an output cannot show."""
    assert isinstance(error, UnicodeEncodeError)
    words = "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end])
    return words.encode(error.encoding, "replace").decode(error.encoding), error.end


def show_what_can_be_shown() -> None:
    """Standard output and error replace what their encoding lacks (`LC_ALL=C`), instead of raising
    an error in the middle of a sentence."""
    codecs.register_error("tenfold.replaced", replaced)
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="tenfold.replaced")


class GuardedStream:
    """A standard stream that is written to while something is under way that must be saved first.
    `closed` is called with a signal when nobody reads it any more; what follows goes nowhere."""

    def __init__(self, stream: Any, closed: Callable[[int], None]) -> None:
        self.stream, self.closed = stream, closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        with self.guarded():
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self.guarded():
            self.stream.flush()

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in CLOSED:
                raise
            discard(self.stream)
            self.closed(CLOSED[error.errno])


def discard(stream: Any) -> None:
    """What is written to a stream, and to the other one where both go to the same pipe or terminal,
    goes nowhere from now on: what it still holds would be an error when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):  # it may be closed, or no file at all
        number, null = stream.fileno(), os.open(os.devnull, os.O_WRONLY)
        target = os.fstat(number)
        for other in {number, 1, 2}:
            if os.path.samestat(os.fstat(other), target):
                os.dup2(null, other)
        os.close(null)


@contextlib.contextmanager
def guarded_output(closed: Callable[[int], None]) -> Iterator[None]:
    """Standard output and standard error as `GuardedStream`s."""
    streams = sys.stdout, sys.stderr
    guards = tuple(GuardedStream(stream, closed) for stream in streams)
    sys.stdout, sys.stderr = guards  # type: ignore[assignment]
    try:
        yield
    finally:
        if sys.stdout is guards[0]:
            sys.stdout = streams[0]
        if sys.stderr is guards[1]:
            sys.stderr = streams[1]
