"""Signals, and children that end with their parent, whatever happens to it."""

import ast
import codecs
import contextlib
import errno
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker, spawn
from pathlib import Path
from typing import Any, Self

from tenfold.core.errors import UserError

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl
# all reach a whole group (Ctrl-C, `timeout`, batch systems, a terminal that closes); the parent
# decides
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HINT_AFTER = 1.0  # seconds that a stop takes before a person is told what a second signal does
# what a child does before anything else: the kernel kills it when its parent is gone; one that is
# gone already leaves no heir
TIE = (
    f"import os; from ctypes import CDLL; CDLL(None).prctl({DEATH_SIGNAL}, {int(signal.SIGKILL)}); "
    "os.getppid() == {parent} or os._exit(1); "
)


def heeded() -> tuple[signal.Signals, ...]:
    """Those of STOPS that are not to be ignored: what `nohup` starts outlives its terminal."""
    hangup = signal.getsignal(signal.SIGHUP)
    return STOPS[:-1] if hangup is signal.SIG_IGN else STOPS


@contextlib.contextmanager
def spawning(reads_script: bool = True) -> Iterator[None]:
    """Children started in here die with their parent from their first line on, seconds before they
    have imported what they need. They hear no signal before `enter`; the parent hears what came
    meanwhile afterwards. `reads_script`: they import the program that this process runs."""
    usual, usual_data = spawn.get_command_line, spawn.get_preparation_data
    script = getattr(sys.modules["__main__"], "__file__", None)
    reads_script &= script is None or Path(script).is_file()  # python - has the file <stdin>

    def without_script(name: str) -> dict[str, Any]:
        data = usual_data(name)
        return {key: value for key, value in data.items() if not key.startswith("init_main_from")}

    def tied(**arguments: Any) -> list[str]:
        *command, program, flag = usual(**arguments)
        return [*command, TIE.format(parent=os.getpid()) + program, flag]

    resource_tracker.ensure_running()  # which lets signals through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        spawn.get_command_line = tied if sys.platform == "linux" else usual
        spawn.get_preparation_data = usual_data if reads_script else without_script
        yield
    finally:
        spawn.get_command_line, spawn.get_preparation_data = usual, usual_data
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def enter(stopped: Any, work: Callable[..., None], *arguments: Any) -> None:
    """Target of a child's Process. `stopped` is what it does about signals that stop, those that
    came while it started too."""
    for number in heeded():
        signal.signal(number, stopped)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    work(*arguments)


def leave(number: int, frame: Any) -> None:
    """In a child: out at once. As an exception a signal would surface in compilers and callbacks,
    which print tracebacks."""
    os._exit(128 + number)


class Interrupt:
    """Notes Ctrl-C, SIGTERM or SIGHUP, so that a loop can end and its state be saved, and calls
    `heard`; a second one stops at once, as whoever heeded them before does. An output that nobody
    reads any more counts as a first one."""

    def __init__(self, heard: Callable[[], None] = lambda: None) -> None:
        self.signal, self.heard = 0, heard
        self.noted, self.over = threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self.before = {}
        self.guard = contextlib.ExitStack()
        if threading.current_thread() is threading.main_thread():
            self.guard.enter_context(guarded_output(self.stop))
            if multiprocessing.parent_process() is None:  # else the parent tells
                threading.Thread(target=self.hint, daemon=True).start()
            self.before = {number: signal.signal(number, self.note) for number in heeded()}
        return self

    def stop(self, number: int) -> None:
        """As by a first signal; nothing where there was one."""
        if not self.signal:
            self.signal = number
            self.heard()

    def note(self, number: int, frame: Any) -> None:
        if not self.signal:
            self.noted.set()
            self.stop(number)
        elif number == signal.SIGHUP:  # a shell and the kernel both say that a terminal is closed
            return
        elif callable(before := self.before[signal.Signals(number)]):
            before(number, frame)
        else:
            raise KeyboardInterrupt

    def hint(self) -> None:
        """In a thread of its own: says how to end what does not end by itself, such as an
        environment's endless loop."""
        self.noted.wait()
        if not self.over.wait(HINT_AFTER):
            again = "Ctrl-C again" if self.signal == signal.SIGINT else "a second signal"
            print(
                f"tenfold: stopping after the step under way, to save; {again} ends it at once, "
                "with what was saved before.",
                file=sys.stderr,
                flush=True,
            )

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.noted.set()
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.guard.close()


def how_it_ended(code: int, began: bool) -> str:
    """A process with this exit code; `began`: it came as far as its work."""
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    if code in (128 + number for number in STOPS):  # it heeded it by itself
        return f"was stopped by {signal_name(code - 128)}"
    hint = (
        ""
        if began
        else ' before it began (is there a script without `if __name__ == "__main__":` around '
        "what it does? "
        "every process reads it)"
    )
    return f"ended with exit code {code}{hint}"


def signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has none
        return f"signal {number}"


class TimeUp(BaseException):
    """No `Exception`: what is under way may not take it for one of its own."""


@contextlib.contextmanager
def within(seconds: float, message: str) -> Iterator[None]:
    """An error of these words where something takes longer than that in the main thread, whose
    signals alone can end it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    try:
        # and again every second, should it have been swallowed
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
        yield
    except TimeUp:
        raise UserError(
            f"{message} in {seconds:g} s (the environment hangs, or needs a larger --patience)."
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


def require_guard() -> None:
    """Before processes start: they would read a script that has no guard, train in each of them,
    and die of it."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if (
        script
        and Path(script).is_file()
        and "__name__" not in Path(script).read_text(errors="replace")
    ):
        raise UserError(
            f"{Path(script).name} trains in several processes, and every one of them reads the "
            "script: put what it "
            'does below `if __name__ == "__main__":`.'
        )


def has_guard() -> bool:
    """Whether this program can be read by another process without being carried out: it has an
    `if __name__ == "__main__":`, or is no file."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if not script or not Path(script).is_file():
        return True
    try:
        lines = ast.parse(Path(script).read_text(errors="replace")).body
    except (SyntaxError, ValueError):  # a program in another form, such as an archive
        return False
    tests = [ast.unparse(line.test) for line in lines if isinstance(line, ast.If)]
    return any("__name__" in test and "__main__" in test for test in tests)


def refuse_in_child() -> None:
    """Every spawned process reads the user's script: one without a guard would train in each of
    them, and start more."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError(
            'A script that trains in several processes needs `if __name__ == "__main__":` around '
            "what it does: "
            "every process reads the script."
        )


# a pipe that nobody reads, a terminal that is gone: by the signal that stands for it
CLOSED = {errno.EPIPE: int(signal.SIGPIPE), errno.EIO: int(signal.SIGHUP)}

# for an output that has only some of our characters; one for one, where columns count
PLAIN = {"±": "+-", "→": "->", "·": "-", "–": "-", "−": "-", "…": ".", "×": "x", "µ": "u"}
PLAIN |= {tick: str(height) for height, tick in enumerate("▁▂▃▄▅▆▇█", 1)}


def replaced(error: UnicodeError) -> tuple[str, int]:
    """A codec's error handler: what else to write for characters that an output cannot show."""
    assert isinstance(error, UnicodeEncodeError)
    plain = "".join(PLAIN.get(letter, "?") for letter in error.object[error.start : error.end])
    return plain.encode(error.encoding, "replace").decode(error.encoding), error.end


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
