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
    GLOBAL_STEP,
    REQUESTS,
    STEP_BUDGET,
    STOP,
    ActorProcess,
    SharedChannel,
)
from tenfold.actors.child_process import (
    ABSENT,
    START_UP,
    ActorLost,
    end_children,
    too_slow,
)
from tenfold.actors.pool import Explore
from tenfold.actors.remote import RemotePool
from tenfold.config.run import Run
from tenfold.core.processes import require_guard
from tenfold.memory.ring import Ring
from tenfold.memory.shared import LINE, SharedBuffer, SharedEvent, SharedWeights, wait_for


class ProcessPool(RemotePool):
    """Starts actors, takes their rows, watches over them."""

    def __init__(self, run: Run) -> None:
        require_guard()
        super().__init__(run)
        self.remotes: list[SharedChannel] = []
        self.children: list[ActorProcess] = []

    # processes

    def bind_agent(self, agent: Any, explore: Explore) -> None:
        atexit.register(self.kill)  # before multiprocessing's own, which would wait for them
        try:
            self.weights = SharedWeights(agent.published().shape)
            self.weights.publish(agent.published(), 0)
            for index in range(self.run.actors):
                name = f"actor {index}"
                channel = SharedChannel(
                    index,
                    Ring(self.schema, self.run.steps_ahead + 1),
                    SharedBuffer(LINE, "an actor's words"),
                    SharedEvent(),
                    name,
                )
                for word in (STEP_BUDGET, GLOBAL_STEP, STOP, REQUESTS):
                    channel.control_words[word] = 0
                self.remotes.append(channel)
                self.children.append(ActorProcess(channel))
            for channel in self.remotes:
                self.start(channel)
            self.connect_all()
        except BaseException:
            self.close()
            raise

    def connect_actor(self, remote: SharedChannel) -> None:
        """Receives an actor's first observations."""
        child = self.children[remote.index]
        child.recv("awake", START_UP, "started")
        _, obs, mask = child.recv("begin", max(self.run.patience, MAKING), f"made {self.run.env}")
        child.connected = True
        self.note_restart(remote, (obs, mask))

    def replace(self, remote: SharedChannel, fault: ActorLost) -> None:
        channel, index, first = remote, remote.index, remote.index * self.worlds
        channel.ring.take_over()
        if channel.ring.available():
            self.failures.counts[index] = 0
        while channel.ring.available():  # rows it had finished are good
            row = channel.ring.peek(0)
            assert row is not None
            if not self.rollouts:  # which must fit together
                self.restarted.append(
                    TransitionBatch(index, first, {k: v.copy() for k, v in row.items()})
                )
            channel.ring.release()
        self.restart(channel, fault)
        channel.bell.give()

    def start(self, remote: SharedChannel) -> None:
        self.children[remote.index].begin(self.run, self.weights)

    def dismiss(self, remote: SharedChannel) -> None:
        self.children[remote.index].dismiss()

    def kill(self) -> None:
        for child in self.children:
            child.dismiss()

    def close(self) -> None:
        """Asks all children to stop, kills those that do not, and frees the shared memory."""
        try:
            for channel in self.remotes:
                channel.control_words[STOP] = 1
                channel.bell.give()
            end_children(self.children)
        finally:
            self.kill()
            atexit.unregister(self.kill)
            for channel in self.remotes:
                channel.close()
            self.remotes, self.children = [], []
            if hasattr(self, "weights"):
                self.weights.close()

    # rows

    def batches(self, step: int, left: int) -> Iterator[TransitionBatch]:
        """Rows as they come: one of every actor where all go together, otherwise whatever is
        there."""
        slowest = min(channel.rounds_taken for channel in self.remotes)
        for channel in self.remotes:
            channel.control_words[GLOBAL_STEP] = step
            budget = (
                channel.rounds_taken + left
                if self.synchronous
                else slowest + min(left, self.run.steps_ahead + 1)
            )
            if channel.control_words[STEP_BUDGET] != budget:
                # it had nothing to do until now
                if channel.played >= channel.control_words[STEP_BUDGET]:
                    self.last_seen[channel.index] = monotonic()
                channel.control_words[STEP_BUDGET] = budget
                channel.bell.give()
        self.wait()
        yield from self.available_rows(1 if self.synchronous else self.run.steps_ahead + 1)

    def available_rows(self, most: int) -> Iterator[TransitionBatch]:
        """Up to `most` rows of each actor that are there."""
        while self.restarted:  # of actors that were started again
            yield self.restarted.pop(0)
        for channel in self.remotes:
            for _ in range(min(most, channel.ring.available())):
                row = channel.ring.peek(0)
                assert row is not None
                self.note_row(channel, row)
                yield TransitionBatch(channel.index, channel.index * self.worlds, row)
                channel.ring.release()

    def note_row(self, channel: SharedChannel, row: dict[str, np.ndarray]) -> None:
        now = perf_counter()
        self.last_seen[channel.index], self.failures.counts[channel.index] = monotonic(), 0
        self.children[channel.index].warm = True
        self.spent[channel.index] = row["seconds"]
        self.ages.append((self.weights.newest - int(row["version"]), now - float(row["acted"])))
        self.write_first(channel.index * self.worlds, row["obs"], row.get("mask"))

    def wait(self) -> None:
        """Sleeps until there are rows enough, an actor died, or one has been silent for too
        long."""
        while True:
            missing = [channel for channel in self.remotes if not channel.ring.available()]
            self.watch(missing)
            if (
                not missing
                or (not self.synchronous and len(missing) < len(self.remotes))
                or self.restarted
            ):
                return
            before = monotonic()
            left = max(
                min(self.last_seen[channel.index] + self.patience(channel) for channel in missing)
                - before,
                0.01,
            )
            rows, ends = (
                [channel.ring.data for channel in missing],
                [child.process.sentinel for child in self.children],
            )
            for ready in wait_for([*rows, *ends], left):
                if isinstance(ready, SharedEvent):
                    ready.take()
            if monotonic() - before > left + ABSENT:
                self.last_seen = [monotonic()] * len(self.remotes)

    def watch(self, missing: list[SharedChannel]) -> None:
        """Replaces actors that died, or that have not finished a step in time."""
        for child in self.children:
            if child.process.exitcode is not None:
                self.replace(child.channel, child.exit_reason())
        for channel in missing:
            # it waits for the others
            if channel.rounds_taken >= channel.control_words[STEP_BUDGET]:
                self.last_seen[channel.index] = monotonic()
            if (
                monotonic() - self.last_seen[channel.index] > self.patience(channel)
                and not channel.ring.available()
            ):
                self.replace(
                    channel, too_slow(f"finished a step of {self.run.env}", self.patience(channel))
                )

    def patience(self, channel: SharedChannel) -> float:
        """Seconds for an actor's step."""
        warm = self.children[channel.index].warm
        return self.run.patience if warm else max(self.run.patience, MAKING)

    # requests

    def send(self, remote: SharedChannel, what: str, *arguments: Any) -> str:
        self.children[remote.index].request(what, *arguments)
        return what

    def recv(self, remote: SharedChannel, request: str, seconds: float, deed: str) -> Any:
        """The reply's only item, or a tuple of several."""
        _, *reply = self.children[remote.index].recv(request, seconds, deed)
        return reply[0] if len(reply) == 1 else tuple(reply)

    def finish_rounds(self, what: str) -> list[Any]:
        """Lets no actor begin another round; the replies come when all have finished theirs."""
        for channel in self.remotes:
            channel.control_words[STEP_BUDGET] = 0
        return self.request_all(
            what, self.run.patience, f"finished a step of {self.run.env}", lambda index: ()
        )

    def pause(self) -> int:
        self.finish_rounds("held")
        return max(channel.ring.available() for channel in self.remotes)

    def drain(self) -> Iterator[TransitionBatch]:
        self.states = self.finish_rounds("state")
        yield from self.available_rows(self.run.steps_ahead + 1)

    def set_rounds(self, remote: SharedChannel, rounds: int) -> None:
        remote.base = rounds

    def set_weights(self, agent: Any, step: int) -> None:
        self.weights.publish(agent.published(), step)
