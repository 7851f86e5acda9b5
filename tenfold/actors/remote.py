"""What all actors have in common that are not in the learner's process: they are greeted, asked and
heard one by one, and whoever is lost over it is replaced, or is an error."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import numpy as np

from tenfold.actors.actor import part_of
from tenfold.actors.pool import SerialActors
from tenfold.config.run import Run
from tenfold.core.errors import ActorFault
from tenfold.core.system import Clock

RESTARTS = 3  # in a row without a single step


class ActorLost(Exception):
    """An actor's process is gone: how, and its traceback if it had one."""

    def __init__(self, how: str, trace: str = "") -> None:
        super().__init__(how)
        self.how, self.trace = how, trace


def too_slow(deed: str, seconds: float) -> ActorLost:
    return ActorLost(
        f"has not {deed} in {seconds:g} s (the environment hangs, or needs a larger --patience)"
    )


class ActorFailures:
    """How often each actor was lost since its last row."""

    def __init__(self, run: Run) -> None:
        self.run, self.failures = run, [0] * run.actors

    def judge(self, index: int, fault: ActorLost, more: str = "") -> str:
        """The sentence about one in whose place another is started; by the run's policy an error
        instead. `more`: what else was lost with it."""
        self.failures[index] += 1
        again, how = self.run.on_death == "restart", fault.how.rstrip(".")
        if not again or self.failures[index] > RESTARTS:
            times = f", the {self.failures[index]}th time without a step" if again else ""
            raise ActorFault(f"Actor {index} {how}{times}: the run stops.", fault.trace)
        return f"actor {index} {how}{more}; another takes its place"


START_UP = 120.0  # seconds for a process to import what it needs
# seconds this process woke up too late: it was stopped (Ctrl-Z), and so may have been the actors
ABSENT = 1.0


class RemotePool(SerialActors):
    """Each actor has a place, with its `index`; a subclass says what that is, and how the actor is
    greeted, asked, heard and replaced."""

    states: list[dict[str, np.ndarray]]

    @property
    def places(self) -> Sequence[Any]:
        raise NotImplementedError

    def greet(self, place: Any) -> None:
        """Takes a new actor's first observations."""
        raise NotImplementedError

    def replace(self, place: Any, fault: ActorLost) -> None:
        """What becomes of a lost actor: by the run's policy an error, or another in its place."""
        raise NotImplementedError

    def put(self, place: Any, what: str, *given: Any) -> Any:
        """A question to an actor; by what is returned its answer is heard."""
        raise NotImplementedError

    def hear(self, place: Any, question: Any, seconds: float, deed: str) -> Any:
        """An answer within some seconds, or the actor is lost."""
        raise NotImplementedError

    def renew(self, agent: Any, step: int) -> None:
        """Actors act by what an agent has learned by some step."""
        raise NotImplementedError

    def go_on(self, place: Any, rounds: int) -> None:
        """An actor has played so many rounds."""
        raise NotImplementedError

    def expect(self, run: Run) -> None:
        """Before any actor is there."""
        self.foresee(run)
        self.losses = ActorFailures(run)
        # when each was last seen alive, or was given something to do
        self.heard = [monotonic()] * run.actors

    def greet_all(self) -> None:
        for place in self.places:
            try:
                self.greet(place)
            except ActorLost as fault:
                self.replace(place, fault)
        self.began.clear()  # nobody has seen anything of theirs yet

    def show(self, place: Any, seen: tuple[np.ndarray, np.ndarray | None]) -> None:
        """What an actor sees first."""
        self.heard[place.index] = monotonic()
        self.see(place.index * self.worlds, *seen)

    def hear_all(
        self, what: str, seconds: float, deed: str, given: Callable[[int], tuple[Any, ...]]
    ) -> list[Any]:
        """Every actor's answer to a question; whoever dies over it is replaced and asked again, or
        is an error."""
        asked = [self.put(place, what, *given(place.index)) for place in self.places]
        answers: list[Any] = []
        for place, question in zip(self.places, asked, strict=True):
            while len(answers) <= place.index:
                try:
                    answers.append(self.hear(place, question, seconds, deed))
                except ActorLost as fault:
                    self.replace(place, fault)
                    question = self.put(place, what, *given(place.index))
        return answers

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """After `settle`."""
        found = {
            f"{index}.{name}": value
            for index, state in enumerate(self.states)
            for name, value in state.items()
        }
        return {"envs": found}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        self.renew(agent, step)
        saved = state["envs"]
        answers = self.hear_all(
            "restore",
            max(START_UP, self.run.patience),
            f"restored {self.run.env}",
            lambda index: (part_of(saved, f"{index}."),),
        )
        self.began.clear()
        for place, (_, *seen) in zip(self.places, answers, strict=True):
            self.go_on(place, int(saved[f"{place.index}.rounds"]))
            self.show(place, tuple(seen))
        return all(exact for exact, *_ in answers)

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        clock.start()
        self.renew(agent, step)
        clock.lap("publish")
