"""Actors elsewhere that are lost: how, and what becomes of the run by its own policy."""

from tenfold.config.run import Run
from tenfold.core.errors import ActorFault

RESTARTS = 3  # in a row without a single step


class Lost(Exception):
    """An actor's process is gone: how, and its traceback if it had one."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(how)
        self.how, self.trace = how, trace


def too_slow(deed: str, seconds: float) -> Lost:
    return Lost(
        f"has not {deed} in {seconds:g} s (the environment hangs, or needs a larger --patience)"
    )


class Losses:
    """How often each actor was lost since its last row."""

    def __init__(self, run: Run) -> None:
        self.run, self.failures = run, [0] * run.actors

    def judge(self, index: int, fault: Lost, more: str = "") -> str:
        """The sentence about one in whose place another is started; by the run's policy an error
        instead. `more`: what else was lost with it."""
        self.failures[index] += 1
        again, how = self.run.on_death == "restart", fault.how.rstrip(".")
        if not again or self.failures[index] > RESTARTS:
            times = f", the {self.failures[index]}th time without a step" if again else ""
            raise ActorFault(f"Actor {index} {how}{times}: the run stops.", fault.trace)
        return f"actor {index} {how}{more}; another takes its place"
