"""Children that end with their parent, whatever happens to it, and leave signals to it."""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing import resource_tracker
from typing import Any

from tenfold.errors import UserError

DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl
STOPS = (signal.SIGINT, signal.SIGTERM)  # both reach a whole group (Ctrl-C, `timeout`, batch systems); the parent decides


def die_with_parent(parent: int) -> None:
    """In a child: the kernel kills it when `parent`, which started it, is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)


class Tie:
    """The first argument of a child's Process: unpickling it ties the child to its parent, seconds before the others have
    imported what they need."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return tie, (self.parent,)


def tie(parent: int) -> None:
    """In a child: it dies with its parent, and only with it; signals for the group are the parent's business."""
    die_with_parent(parent)
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)


def enter(_: None, work: Callable[..., None], *arguments: Any) -> None:
    """Target of a child's Process. This module imports nothing heavy, so the tie comes first."""
    work(*arguments)


@contextlib.contextmanager
def deaf() -> Iterator[None]:
    """A child started in here hears no signal before its tie; the parent hears what came meanwhile afterwards."""
    resource_tracker.ensure_running()  # which lets signals through again when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class TimeUp(BaseException):
    """No `Exception`: what is under way may not take it for one of its own."""


@contextlib.contextmanager
def within(seconds: float, words: str) -> Iterator[None]:
    """An error of these words where something takes longer than that in the main thread, whose signals alone can end it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeUp
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # and again every second, should it have been swallowed
        yield
    except TimeUp:
        raise UserError(f"{words} in {seconds:g} s (the environment hangs, or needs a larger --patience).") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


def refuse_in_child() -> None:
    """Every spawned process reads the user's script: one without a guard would train in each of them, and start more."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UserError("A script that trains in several processes needs `if __name__ == \"__main__\":` around what it does: "
                        "every process reads the script.")
