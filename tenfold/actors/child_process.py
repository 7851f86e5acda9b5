"""A child process of this one: start, send, receive, stop; what it sends when it fails, and how one
is lost."""

import contextlib
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from tenfold.core.errors import UserError
from tenfold.core.processes import enter, how_it_ended, spawning
from tenfold.memory.shared import wait_for

START_UP = 120.0  # seconds for a process to import what it needs
FAREWELL = 3.0  # seconds for a child to end before it is killed
# seconds this process woke up too late: it was stopped (Ctrl-Z), and so may have been its children
ABSENT = 1.0


class ActorLost(Exception):
    """A process is gone: how, and its traceback if it had one."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(how)
        self.how, self.trace = how, trace


def too_slow(deed: str, seconds: float) -> ActorLost:
    return ActorLost(
        f"has not {deed} in {seconds:g} s (the environment hangs, or needs a larger --patience)"
    )


@contextlib.contextmanager
def errors_sent(talk: Connection) -> Iterator[None]:
    """In the child: says that it is awake; whatever ends its work is told to the parent, which
    tells the person. A parent that no longer listens wants the child's end."""
    with contextlib.suppress(BrokenPipeError):
        try:
            talk.send(("awake",))
            yield
        except BrokenPipeError:
            raise
        except UserError as error:
            talk.send(("error", str(error), ""))
        except BaseException as error:
            message = " ".join("".join(traceback.format_exception_only(error)).split())
            talk.send(("error", message, traceback.format_exc()))


class ChildProcess:
    """A process that is tied to this one, or none."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Any = None
        self.talk: Any = None
        self.connected = False  # it has come as far as its work

    def start(self, work: Callable[..., None], *arguments: Any, reads_script: bool = True) -> None:
        """`work` is called with its end of a pipe and the arguments. It hears no signal that stops:
        this process decides."""
        context = multiprocessing.get_context("spawn")
        parent_end, child_end = context.Pipe()
        # no daemon: environments may have children
        process = context.Process(
            target=enter, name=self.name, args=(signal.SIG_IGN, work, child_end, *arguments)
        )
        with spawning(reads_script):
            process.start()
        child_end.close()
        self.process, self.talk = process, parent_end

    def dismiss(self) -> None:
        """Ends the process, if it has not ended, and lets go of it."""
        process, talk = self.process, self.talk
        self.process = self.talk = None
        self.connected = False
        if process:
            process.kill()
            process.join()
            process.close()
            talk.close()

    def send(self, what: str, *arguments: Any) -> None:
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send((what, *arguments))

    def recv(self, kind: str, seconds: float, deed: str) -> tuple[Any, ...]:
        """Its reply of this kind; ActorLost where it dies or takes longer than `seconds`."""
        end = monotonic() + seconds
        while wait_for([self.talk.fileno(), self.process.sentinel], end - monotonic()):
            reply: tuple[Any, ...] = ("error",)
            with contextlib.suppress(EOFError, OSError):
                reply = self.talk.recv() if self.talk.poll() else reply
            if reply[0] == kind:
                return reply
            if reply[0] == "error":
                raise (
                    ActorLost(f"stopped: {reply[1]}", reply[2]) if reply[1:] else self.exit_reason()
                )
        raise too_slow(deed, seconds)

    def exit_reason(self) -> ActorLost:
        """The error it sent before it ended, or else how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.talk.poll():
                kind, *details = self.talk.recv()
                if kind == "error":
                    return ActorLost(f"stopped: {details[0]}", details[1])
        self.process.join(FAREWELL)  # its pipe may end a moment before it does
        code = self.process.exitcode
        if code is None:
            return ActorLost("no longer answers")
        return ActorLost(how_it_ended(code, self.connected))


def end_children(children: Sequence[ChildProcess]) -> None:
    """Waits a moment for children that were asked to stop. Those that are still importing are not
    waited for."""
    end = monotonic() + FAREWELL
    for child in children:
        if child.connected:
            child.process.join(max(end - monotonic(), 0))
