"""Actors on the machines of a Ray cluster, one learner in this process.

An actor is asked for a few rows at once, by a call that brings what it needs (the step, and the
weights where it has older ones); its answer is these rows as one array. Half of the `ahead` + 1
rows that it may be ahead travel or wait while the other half is being played, so that neither side
waits for the network, and nobody ever has more in flight. What a call brings was the newest when it
was made: no policy that acts is older than in `actors.process_pool`, and with `ahead` = 0 the
numbers are those of `SerialActors` bit for bit.

Weights are one array a version: in the object store once, whoever acts (`ray.put`), or in the call
itself where they are so small that the store would cost more. The last reference is dropped with
the next version.

Ray restarts nothing here: constructors would run again and what an actor knew would be gone without
a word. Lost actors are replaced by `losses.Losses`, and rows that were asked of them and never came
are counted.
"""

import contextlib
import sys
from collections.abc import Iterator
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import MAKING, TransitionBatch
from tenfold.actors.pool import Explore
from tenfold.actors.ray_actor import (
    INLINE,
    RemoteActor,
    RemoteHandle,
    answer_of,
    order_of,
    packed,
    rows_of,
)
from tenfold.actors.remote import ABSENT, START_UP, ActorLost, RemotePool, too_slow
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.ray_cluster import Head, connect, differing, disconnect, is_placed, require_ray

SAY = 5.0  # seconds after which a person is told what is waited for, and again after ten times that
FAREWELL = 3.0  # seconds for actors to close their environments


class RayPool(RemotePool):
    """Starts actors on a cluster, asks them for rows, watches over them."""

    def __init__(self, run: Run) -> None:
        require_ray()
        self.expect(run)
        self.row = packed(self.schema)
        self.actors_lost = self.rows_lost = self.version = 0
        self.connected, self.seats = False, [RemoteHandle(index) for index in range(run.actors)]
        # rows in one call, at most and at least: while one is played another travels
        self.most, self.least = (run.steps_ahead + 2) // 2, max((run.steps_ahead + 1) // 2, 1)

    @property
    def places(self) -> list[RemoteHandle]:
        return self.seats

    # actors

    def follow(self, agent: Any, explore: Explore) -> None:
        self.ray = require_ray()
        connect(self.run.address, self.run.actors + 1)
        self.connected, self.head = True, Head()
        try:
            self.renew(agent, 0)
            self.kind = self.ray.remote(
                num_cpus=1,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                enable_task_events=False,  # which tell Ray's dashboard of every single call
            )(RemoteActor)
            for seat in self.seats:
                self.start(seat)
            self.greet_all()
        except BaseException:
            self.close()
            raise

    def start(self, seat: RemoteHandle) -> None:
        seat.handle = self.kind.remote(to_mapping(self.run), seat.index, seat.taken)
        seat.version, seat.clock, seat.warm = 0, np.inf, False

    def greet(self, place: RemoteHandle) -> None:
        """Waits until Ray has found a node for an actor, and takes its first observations."""
        seat = place
        seat.node_id, there = self.placed(seat)
        found = {node["NodeID"]: node["NodeManagerAddress"] for node in self.ray.nodes()}
        seat.node = found.get(seat.node_id, "a node that is gone")
        if words := differing(seat.node, there):
            self.notices.append(words)
        ref = seat.handle.begin.remote(self.schema)
        making = max(self.run.patience, MAKING)
        self.show(seat, self.hear(seat, ref, making, f"made {self.run.env}"))

    def placed(self, seat: RemoteHandle) -> tuple[str, dict[str, str]]:
        """An actor's first words. While the cluster has no processor free for it a person is told,
        and there is no end to the waiting: one may be on its way."""
        ref, told_at, end = seat.handle.hello.remote(), monotonic() + SAY, monotonic() + START_UP
        while not self.ray.wait([ref], timeout=1.0)[0]:
            self.head.require()
            if is_placed(seat.handle):
                if monotonic() > end:
                    raise too_slow("started", START_UP)
                continue
            end = monotonic() + START_UP
            if monotonic() > told_at:
                told_at = monotonic() + 10 * SAY
                has = int(self.ray.cluster_resources().get("CPU", 0))
                print(
                    f"actor {seat.index} of {self.run.actors} waits for a free CPU: each needs "
                    f"one, and the cluster has {has} (Ctrl-C ends the waiting)",
                    file=sys.stderr,
                    flush=True,
                )
        return answer_of(seat, ref)

    def replace(self, place: RemoteHandle, fault: ActorLost) -> None:
        self.head.require()
        seat = place
        missing = sum(count for _, count in seat.calls)
        first = seat.index * self.worlds
        if self.rollouts:  # whose rows must fit together
            missing += len(seat.rows)
        else:
            self.began += [TransitionBatch(seat.index, first, row) for row in seat.rows]
            seat.taken += len(seat.rows)
        seat.calls.clear()
        seat.rows.clear()
        self.actors_lost, self.rows_lost = self.actors_lost + 1, self.rows_lost + missing
        while True:
            self.dismiss(seat)
            lost = f" ({missing} rows asked of it are lost)" if missing else ""
            self.notices.append(self.losses.judge(seat.index, fault, lost))
            self.start(seat)
            try:
                self.greet(seat)
                break
            except ActorLost as again:
                fault, missing = again, 0
        self.began.append(self.begins(seat.index))

    def dismiss(self, seat: RemoteHandle) -> None:
        if seat.handle is not None:
            with contextlib.suppress(Exception):  # it is gone, or so is the cluster
                self.ray.kill(seat.handle)
        seat.handle = None

    def close(self) -> None:
        """Lets actors close their environments, ends them, and leaves the cluster."""
        if not self.connected:
            return
        self.connected = False
        try:
            with contextlib.suppress(Exception):
                ends = [
                    seat.handle.end.remote() for seat in self.seats if seat.handle and seat.warm
                ]
                if ends:
                    self.ray.wait(ends, num_returns=len(ends), timeout=FAREWELL)
        finally:
            for seat in self.seats:
                self.dismiss(seat)
                seat.calls.clear()
            self.weights = None
            disconnect()

    # rows

    def parts(self, step: int, left: int) -> Iterator[TransitionBatch]:
        """Rows as they come: one of every actor where all go together, otherwise whatever is
        there."""
        slowest, most = min(seat.taken for seat in self.seats), min(left, self.run.steps_ahead + 1)
        for seat in self.seats:
            self.ask(seat, step, (seat.taken if self.together else slowest) + most)
        self.wait()
        yield from self.delivered(1 if self.together else self.run.steps_ahead + 1)

    def ask(self, seat: RemoteHandle, step: int, let: int) -> None:
        """Calls for what an actor may play beyond what it was asked for; little calls only where it
        has nothing else to do."""
        while (want := let - seat.asked) > 0 and (want >= self.least or not seat.calls):
            if not seat.calls:
                self.heard[seat.index] = monotonic()
            count, small, stored = min(want, self.most), b"", ()
            if seat.version != self.version:
                seat.version, (small, *stored) = self.version, self.newest_weights()
            ref = seat.handle.play.remote(order_of(count, step, self.version, small), *stored)
            seat.calls.append((ref, count))

    def newest_weights(self) -> tuple[bytes, *tuple[Any, ...]]:
        """As a call brings them: in its order, or once into the store for all actors if they are
        not small."""
        if self.weights is None:
            flat = self.agent.published()
            small = flat.nbytes < INLINE
            self.weights = (flat.tobytes(),) if small else (b"", self.ray.put(flat))
        return self.weights

    def wait(self) -> None:
        """Sleeps until there are rows enough, an actor died, or one has been silent for too
        long."""
        while True:
            missing = sorted(
                (seat for seat in self.seats if not seat.rows), key=lambda seat: seat.taken
            )
            self.head.require()
            if not missing or (not self.together and len(missing) < len(self.seats)) or self.began:
                return
            self.receive([seat for seat in missing if seat.calls], self.together)

    def receive(self, seats: list[RemoteHandle], everyone: bool) -> None:
        """The next answers of some actors: those of all, or of whoever is first."""
        before, first = monotonic(), {seat.calls[0][0]: seat for seat in seats}
        late = min(self.heard[seat.index] + self.patience(seat) for seat in seats) - before
        ready, waiting = self.ray.wait(
            list(first),
            num_returns=len(first) if everyone else 1,
            timeout=min(max(late, 0.01), self.head.pause),
        )
        if len(waiting) > 1 and ready:  # one look at many costs Ray as much as one at each
            more, waiting = self.ray.wait(waiting, num_returns=len(waiting), timeout=0)
            ready += more
        for ref in ready:
            self.take_in(first[ref])
        if monotonic() - before > late + ABSENT:
            self.heard = [monotonic()] * len(self.seats)
        for seat in (first[ref] for ref in waiting):
            if monotonic() - self.heard[seat.index] > self.patience(seat):
                deed = f"finished {seat.calls[0][1]} steps of {self.run.env}"
                if not self.ray.wait([seat.calls[0][0]], timeout=0)[0]:
                    self.replace(seat, too_slow(deed, self.patience(seat)))

    def take_in(self, seat: RemoteHandle) -> None:
        try:
            batch = np.frombuffer(answer_of(seat, seat.calls[0][0]), self.row)
        except ActorLost as fault:
            self.replace(seat, fault)
            return
        seat.calls.popleft()
        seat.rows += rows_of(batch)
        # the last row was played just before it was sent
        seat.clock = min(seat.clock, perf_counter() - float(batch["acted"][-1]))
        seat.warm = True
        self.heard[seat.index], self.losses.failures[seat.index] = monotonic(), 0

    def patience(self, seat: RemoteHandle) -> float:
        """Seconds for the answer to a call."""
        each = self.run.patience if seat.warm else max(self.run.patience, MAKING)
        return each * seat.calls[0][1]

    def delivered(self, most: int) -> Iterator[TransitionBatch]:
        """Up to `most` rows of each actor that are there."""
        while self.began:
            yield self.began.pop(0)
        for seat in self.seats:
            first, count = seat.index * self.worlds, min(most, len(seat.rows))
            if count:  # what is acted on next is in the last one
                last = seat.rows[count - 1]
                self.spent[seat.index] = last["seconds"]
                self.see(first, last["obs"], last.get("mask"))
            for _ in range(count):
                row = seat.rows.popleft()
                seat.taken += 1
                age = perf_counter() - (float(row["acted"]) + seat.clock)
                self.ages.append((self.version - int(row["version"]), age))
                yield TransitionBatch(seat.index, first, row)

    # words

    def put(self, place: RemoteHandle, what: str, *given: Any) -> Any:
        return getattr(place.handle, what).remote(*given)

    def hear(self, place: RemoteHandle, question: Any, seconds: float, deed: str) -> Any:
        end, pause = monotonic() + seconds, self.head.pause
        while not self.ray.wait([question], timeout=min(max(end - monotonic(), 0), pause))[0]:
            self.head.require()
            if monotonic() > end:
                raise too_slow(deed, seconds)
        return answer_of(place, question)

    def rest(self) -> None:
        """Asks nobody for more; all calls come to their end."""
        while busy := [seat for seat in self.seats if seat.calls]:
            self.head.require()
            self.receive(busy, True)

    def hold(self) -> int:
        self.rest()
        return max(len(seat.rows) for seat in self.seats)

    def settle(self) -> Iterator[TransitionBatch]:
        self.rest()
        deed = f"told the state of {self.run.env}"
        self.states = self.hear_all("state", max(self.run.patience, MAKING), deed, lambda index: ())
        yield from self.delivered(self.run.steps_ahead + 1)

    def go_on(self, place: RemoteHandle, rounds: int) -> None:
        place.taken = rounds

    def renew(self, agent: Any, step: int) -> None:
        """The next calls bring it."""
        self.agent, self.weights, self.version = agent, None, self.version + 1

    def report(self) -> dict[str, float]:
        lost = {"actors_lost": self.actors_lost, "actors_rows_lost": self.rows_lost}
        return super().report() | (lost if self.actors_lost else {})
