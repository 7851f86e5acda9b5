"""An actor's process as the learner sees it: to start, to ask, to listen to, to end."""

import contextlib
import multiprocessing
import signal
from time import monotonic
from typing import Any

from tenfold.actors.child import ASK, Link, act_for_learner
from tenfold.config.mappings import to_mapping
from tenfold.config.run import Run
from tenfold.core.processes import enter, how_it_ended, spawning
from tenfold.memory.shared import wait_for
from tenfold.memory.weights import Weights

FAREWELL = 3.0  # seconds for a child to end before it is killed


class Lost(Exception):
    """An actor's process is gone: how, and its traceback if it had one."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(how)
        self.how, self.trace = how, trace


def too_slow(deed: str, seconds: float) -> Lost:
    return Lost(
        f"has not {deed} in {seconds:g} s (the environment hangs, or needs a larger --patience)"
    )


class Child:
    """The process of one actor, or none."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.process: Any = None
        self.talk: Any = None
        self.greeted = False  # it has told its first observations
        self.warm = False  # it has played a row: the first loads kernels
        self.asked = 0

    def start(self, run: Run, weights: Weights) -> None:
        context, link = multiprocessing.get_context("spawn"), self.link
        here, there = context.Pipe()
        self.asked = link.words[ASK] = 0
        # no daemon: environments may have children
        process = context.Process(
            target=enter,
            name=link.name,
            args=(
                signal.SIG_IGN,
                act_for_learner,
                to_mapping(run),
                link,
                weights,
                there,
                link.taken,
            ),
        )
        with spawning():
            process.start()
        there.close()
        self.process, self.talk = process, here

    def dismiss(self) -> None:
        """Ends the process, if it has not ended, and lets go of it."""
        process, talk = self.process, self.talk
        self.process = self.talk = None
        self.greeted = self.warm = False
        if process:
            process.kill()
            process.join()
            process.close()
            talk.close()

    def ask(self, what: str, *given: Any) -> None:
        """The bell rings first: what is given may be more than a pipe holds, and then somebody must
        be reading."""
        self.asked += 1
        self.link.words[ASK] = self.asked
        self.link.bell.give()
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send((what, *given))

    def hear(self, kind: str, seconds: float, deed: str) -> tuple[Any, ...]:
        """What it says of this kind within some seconds; or it is lost."""
        end = monotonic() + seconds
        while wait_for([self.talk.fileno(), self.process.sentinel], end - monotonic()):
            said: tuple[Any, ...] = ("error",)
            with contextlib.suppress(EOFError, OSError):
                said = self.talk.recv() if self.talk.poll() else said
            if said[0] == kind:
                return said
            if said[0] == "error":
                raise Lost(f"stopped: {said[1]}", said[2]) if said[1:] else self.exit_reason()
        raise too_slow(deed, seconds)

    def exit_reason(self) -> Lost:
        """What it said last where it ended, or else how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.talk.poll():
                kind, *rest = self.talk.recv()
                if kind == "error":
                    return Lost(f"stopped: {rest[0]}", rest[1])
        self.process.join(FAREWELL)  # its pipe may end a moment before it does
        code = self.process.exitcode
        if code is None:
            return Lost("no longer answers")
        return Lost(how_it_ended(code, self.greeted))
