"""Actors in processes of their own, one learner in this one; rows by rings, weights by version, no
lock and no polling.

    actor 0 ── ring ──┐                     every row: one step of the actor's environments
    actor 1 ── ring ──┼── learner (this process: replay, updates, metrics, checkpoints; it watches
    the actors as well)
    actor 2 ── ring ──┘        │
       ▲                       │
       └──── weights, version ─┘            one flat vector, two copies

The rate is limited on both sides: the learner runs exactly the updates that are due for the rows it
has taken, and an actor waits that is `ahead` + 1 rows ahead of the learner's last row of the
slowest actor. So no policy that acts is older than 2 (A − 1)(ahead + 1) + ahead versions, with A
actors. With `ahead` = 0 actors step only when they are let, after the learner has published: then
everything happens in the order in which `SerialActors` does it, and the numbers are the same
bit for bit.
Children die with their parent; memory and bells have no names, so nothing is left behind whoever is
killed.
"""

import atexit
from collections.abc import Iterator
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import MAKING, TransitionBatch
from tenfold.actors.actor_process import (
    ASK,
    FAREWELL,
    LET,
    STEP,
    STOP,
    ActorProcess,
    SharedChannel,
)
from tenfold.actors.pool import Explore
from tenfold.actors.remote import ABSENT, START_UP, ActorLost, RemotePool, too_slow
from tenfold.config.run import Run
from tenfold.core.processes import require_guard
from tenfold.memory.ring import Ring
from tenfold.memory.shared import LINE, SharedBuffer, SharedEvent, SharedWeights, wait_for


class ProcessPool(RemotePool):
    """Starts actors, takes their rows, watches over them."""

    def __init__(self, run: Run) -> None:
        require_guard()
        self.expect(run)
        self.links: list[SharedChannel] = []
        self.children: list[ActorProcess] = []

    @property
    def places(self) -> list[SharedChannel]:
        return self.links

    # processes

    def follow(self, agent: Any, explore: Explore) -> None:
        atexit.register(self.kill)  # before multiprocessing's own, which would wait for them
        try:
            self.weights = SharedWeights(agent.published().shape)
            self.weights.publish(agent.published(), 0)
            for index in range(self.run.actors):
                name = f"actor {index}"
                link = SharedChannel(
                    index,
                    Ring(self.schema, self.run.steps_ahead + 1),
                    SharedBuffer(LINE, "an actor's words"),
                    SharedEvent(),
                    name,
                )
                for word in (LET, STEP, STOP, ASK):
                    link.words[word] = 0
                self.links.append(link)
                self.children.append(ActorProcess(link))
            for child in self.children:
                child.start(self.run, self.weights)
            self.greet_all()
        except BaseException:
            self.close()
            raise

    def greet(self, place: SharedChannel) -> None:
        """Takes an actor's first observations."""
        link, child = place, self.children[place.index]
        child.hear("awake", START_UP, "started")
        _, obs, mask = child.hear("begin", max(self.run.patience, MAKING), f"made {self.run.env}")
        child.greeted = True
        self.show(link, (obs, mask))

    def replace(self, place: SharedChannel, fault: ActorLost) -> None:
        link, index, first = place, place.index, place.index * self.worlds
        child = self.children[index]
        link.ring.take_over()
        if link.ring.available():
            self.losses.failures[index] = 0
        while link.ring.available():  # rows it had finished are good
            row = link.ring.peek(0)
            assert row is not None
            if not self.rollouts:  # which must fit together
                self.began.append(
                    TransitionBatch(index, first, {k: v.copy() for k, v in row.items()})
                )
            link.ring.release()
        while True:
            child.dismiss()
            self.notices.append(self.losses.judge(index, fault))
            child.start(self.run, self.weights)
            try:
                self.greet(link)
                break
            except ActorLost as again:
                fault = again
        self.began.append(self.begins(index))
        link.bell.give()

    def kill(self) -> None:
        for child in self.children:
            child.dismiss()

    def close(self) -> None:
        """Ends all children, kindly and then not, and lets go of what was shared."""
        try:
            for link in self.links:
                link.words[STOP] = 1
                link.bell.give()
            end = monotonic() + FAREWELL
            # the others are still importing: there is nothing to wait for
            for child in self.children:
                if child.greeted:
                    child.process.join(max(end - monotonic(), 0))
        finally:
            self.kill()
            atexit.unregister(self.kill)
            for link in self.links:
                link.close()
            self.links, self.children = [], []
            if hasattr(self, "weights"):
                self.weights.close()

    # rows

    def parts(self, step: int, left: int) -> Iterator[TransitionBatch]:
        """Rows as they come: one of every actor where all go together, otherwise whatever is
        there."""
        slowest = min(link.taken for link in self.links)
        for link in self.links:
            link.words[STEP] = step
            let = (
                link.taken + left
                if self.together
                else slowest + min(left, self.run.steps_ahead + 1)
            )
            if link.words[LET] != let:
                if link.played >= link.words[LET]:  # it had nothing to do until now
                    self.heard[link.index] = monotonic()
                link.words[LET] = let
                link.bell.give()
        self.wait()
        yield from self.taken(1 if self.together else self.run.steps_ahead + 1)

    def taken(self, most: int) -> Iterator[TransitionBatch]:
        """Up to `most` rows of each actor that are there."""
        while self.began:  # of actors that were started again
            yield self.began.pop(0)
        for link in self.links:
            for _ in range(min(most, link.ring.available())):
                row = link.ring.peek(0)
                assert row is not None
                self.note(link, row)
                yield TransitionBatch(link.index, link.index * self.worlds, row)
                link.ring.release()

    def note(self, link: SharedChannel, row: dict[str, np.ndarray]) -> None:
        now = perf_counter()
        self.heard[link.index], self.losses.failures[link.index] = monotonic(), 0
        self.children[link.index].warm = True
        self.spent[link.index] = row["seconds"]
        self.ages.append((self.weights.newest - int(row["version"]), now - float(row["acted"])))
        self.see(link.index * self.worlds, row["obs"], row.get("mask"))

    def wait(self) -> None:
        """Sleeps until there are rows enough, an actor died, or one has been silent for too
        long."""
        while True:
            missing = [link for link in self.links if not link.ring.available()]
            self.watch(missing)
            if not missing or (not self.together and len(missing) < len(self.links)) or self.began:
                return
            before = monotonic()
            left = max(
                min(self.heard[link.index] + self.patience(link) for link in missing) - before, 0.01
            )
            rows, ends = (
                [link.ring.data for link in missing],
                [child.process.sentinel for child in self.children],
            )
            for thing in wait_for([*rows, *ends], left):
                if isinstance(thing, SharedEvent):
                    thing.take()
            if monotonic() - before > left + ABSENT:
                self.heard = [monotonic()] * len(self.links)

    def watch(self, missing: list[SharedChannel]) -> None:
        """Actors that died, or that have not finished a step in time though nobody kept them from
        it."""
        for child in self.children:
            if child.process.exitcode is not None:
                self.replace(child.link, child.exit_reason())
        for link in missing:
            if link.taken >= link.words[LET]:  # it waits for the others
                self.heard[link.index] = monotonic()
            if (
                monotonic() - self.heard[link.index] > self.patience(link)
                and not link.ring.available()
            ):
                self.replace(
                    link, too_slow(f"finished a step of {self.run.env}", self.patience(link))
                )

    def patience(self, link: SharedChannel) -> float:
        """Seconds for an actor's step."""
        warm = self.children[link.index].warm
        return self.run.patience if warm else max(self.run.patience, MAKING)

    # words

    def put(self, place: SharedChannel, what: str, *given: Any) -> str:
        self.children[place.index].ask(what, *given)
        return what

    def hear(self, place: SharedChannel, question: str, seconds: float, deed: str) -> Any:
        """Where the answer is one thing, that."""
        _, *said = self.children[place.index].hear(question, seconds, deed)
        return said[0] if len(said) == 1 else tuple(said)

    def rest(self, what: str) -> list[Any]:
        """Lets nobody begin another round; answers come when all have finished the one they are
        in."""
        for link in self.links:
            link.words[LET] = 0
        return self.hear_all(
            what, self.run.patience, f"finished a step of {self.run.env}", lambda index: ()
        )

    def hold(self) -> int:
        self.rest("held")
        return max(link.ring.available() for link in self.links)

    def settle(self) -> Iterator[TransitionBatch]:
        self.states = self.rest("state")
        yield from self.taken(self.run.steps_ahead + 1)

    def go_on(self, place: SharedChannel, rounds: int) -> None:
        place.base = rounds

    def renew(self, agent: Any, step: int) -> None:
        self.weights.publish(agent.published(), step)
