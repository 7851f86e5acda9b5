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

Ray itself restarts nothing here: constructors would run again and the actor's state would be lost
silently. Lost actors are replaced as `remote.ActorFailures` allows; rows that were requested of
them and never came are counted.
"""

import contextlib
import sys
from collections.abc import Iterator
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tenfold.actors.actor import MAKING, TransitionBatch
from tenfold.actors.child_process import ABSENT, START_UP, ActorLost, too_slow
from tenfold.actors.pool import Explore
from tenfold.actors.ray_actor import (
    INLINE,
    RemoteActor,
    RemoteHandle,
    answer_of,
    pack_order,
    packed,
    rows_of,
)
from tenfold.actors.remote import RemotePool
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.ray_cluster import Head, connect, differing, disconnect, is_placed, require_ray

SAY = 5.0  # seconds after which a person is told what is waited for, and again after ten times that
FAREWELL = 3.0  # seconds for actors to close their environments


class RayPool(RemotePool):
    """Starts actors on a cluster, asks them for rows, watches over them."""

    def __init__(self, run: Run) -> None:
        require_ray()
        super().__init__(run)
        self.row = packed(self.schema)
        self.actors_lost = self.rows_lost = self.version = 0
        self.connected = False
        self.remotes = [RemoteHandle(index) for index in range(run.actors)]
        # rows in one call, at most and at least: while one is played another travels
        self.most, self.least = (run.steps_ahead + 2) // 2, max((run.steps_ahead + 1) // 2, 1)

    # actors

    def bind_agent(self, agent: Any, explore: Explore) -> None:
        self.ray = require_ray()
        connect(self.run.address, self.run.actors + 1)
        self.connected, self.head = True, Head()
        try:
            self.set_weights(agent, 0)
            self.kind = self.ray.remote(
                num_cpus=1,
                max_restarts=0,
                max_task_retries=0,
                scheduling_strategy="SPREAD",
                enable_task_events=False,  # which tell Ray's dashboard of every single call
            )(RemoteActor)
            for remote in self.remotes:
                self.start(remote)
            self.connect_all()
        except BaseException:
            self.close()
            raise

    def start(self, remote: RemoteHandle) -> None:
        remote.handle = self.kind.remote(to_mapping(self.run), remote.index, remote.rounds_taken)
        remote.version, remote.clock, remote.warm = 0, np.inf, False

    def connect_actor(self, remote: RemoteHandle) -> None:
        """Waits until Ray has found a node for an actor, and takes its first observations."""
        remote.node_id, packages = self.placed(remote)
        addresses = {node["NodeID"]: node["NodeManagerAddress"] for node in self.ray.nodes()}
        remote.node = addresses.get(remote.node_id, "a node that is gone")
        if difference := differing(remote.node, packages):
            self.notices.append(difference)
        ref = remote.handle.begin.remote(self.schema)
        making = max(self.run.patience, MAKING)
        self.note_restart(remote, self.recv(remote, ref, making, f"made {self.run.env}"))

    def placed(self, remote: RemoteHandle) -> tuple[str, dict[str, str]]:
        """An actor's node and package versions. While the cluster has no free CPU a message is
        printed, and the wait has no end: a node may be on its way."""
        ref, told_at, end = (
            remote.handle.describe_node.remote(),
            monotonic() + SAY,
            monotonic() + START_UP,
        )
        while not self.ray.wait([ref], timeout=1.0)[0]:
            self.head.require()
            if is_placed(remote.handle):
                if monotonic() > end:
                    raise too_slow("started", START_UP)
                continue
            end = monotonic() + START_UP
            if monotonic() > told_at:
                told_at = monotonic() + 10 * SAY
                has = int(self.ray.cluster_resources().get("CPU", 0))
                print(
                    f"actor {remote.index} of {self.run.actors} waits for a free CPU: each needs "
                    f"one, and the cluster has {has} (Ctrl-C ends the waiting)",
                    file=sys.stderr,
                    flush=True,
                )
        return answer_of(remote, ref)

    def replace(self, remote: RemoteHandle, fault: ActorLost) -> None:
        self.head.require()
        missing = sum(count for _, count in remote.calls)
        first = remote.index * self.worlds
        if self.rollouts:  # whose rows must fit together
            missing += len(remote.rows)
        else:
            self.restarted += [TransitionBatch(remote.index, first, row) for row in remote.rows]
            remote.rounds_taken += len(remote.rows)
        remote.calls.clear()
        remote.rows.clear()
        self.actors_lost, self.rows_lost = self.actors_lost + 1, self.rows_lost + missing
        self.restart(remote, fault, f" ({missing} rows asked of it are lost)" if missing else "")

    def dismiss(self, remote: RemoteHandle) -> None:
        if remote.handle is not None:
            with contextlib.suppress(Exception):  # it is gone, or so is the cluster
                self.ray.kill(remote.handle)
        remote.handle = None

    def close(self) -> None:
        """Lets actors close their environments, ends them, and leaves the cluster."""
        if not self.connected:
            return
        self.connected = False
        try:
            with contextlib.suppress(Exception):
                ends = [
                    remote.handle.end.remote()
                    for remote in self.remotes
                    if remote.handle and remote.warm
                ]
                if ends:
                    self.ray.wait(ends, num_returns=len(ends), timeout=FAREWELL)
        finally:
            for remote in self.remotes:
                self.dismiss(remote)
                remote.calls.clear()
            self.weights = None
            disconnect()

    # rows

    def batches(self, step: int, left: int) -> Iterator[TransitionBatch]:
        """Rows as they come: one of every actor where all go together, otherwise whatever is
        there."""
        slowest, most = (
            min(remote.rounds_taken for remote in self.remotes),
            min(left, self.run.steps_ahead + 1),
        )
        for remote in self.remotes:
            self.request_rows(
                remote, step, (remote.rounds_taken if self.synchronous else slowest) + most
            )
        self.wait()
        yield from self.available_rows(1 if self.synchronous else self.run.steps_ahead + 1)

    def request_rows(self, remote: RemoteHandle, step: int, budget: int) -> None:
        """Requests the rounds that an actor may play and was not asked for yet; small requests only
        where it has nothing else to do."""
        while (due := budget - remote.requested) > 0 and (due >= self.least or not remote.calls):
            if not remote.calls:
                self.last_seen[remote.index] = monotonic()
            count, small, stored = min(due, self.most), b"", ()
            if remote.version != self.version:
                remote.version, (small, *stored) = self.version, self.newest_weights()
            ref = remote.handle.play.remote(pack_order(count, step, self.version, small), *stored)
            remote.calls.append((ref, count))

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
                (remote for remote in self.remotes if not remote.rows),
                key=lambda remote: remote.rounds_taken,
            )
            self.head.require()
            if (
                not missing
                or (not self.synchronous and len(missing) < len(self.remotes))
                or self.restarted
            ):
                return
            self.receive([remote for remote in missing if remote.calls], self.synchronous)

    def receive(self, remotes: list[RemoteHandle], everyone: bool) -> None:
        """The next answers of some actors: those of all, or of whoever is first."""
        before, first = monotonic(), {remote.calls[0][0]: remote for remote in remotes}
        late = (
            min(self.last_seen[remote.index] + self.patience(remote) for remote in remotes) - before
        )
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
            self.last_seen = [monotonic()] * len(self.remotes)
        for remote in (first[ref] for ref in waiting):
            if monotonic() - self.last_seen[remote.index] > self.patience(remote):
                deed = f"finished {remote.calls[0][1]} steps of {self.run.env}"
                if not self.ray.wait([remote.calls[0][0]], timeout=0)[0]:
                    self.replace(remote, too_slow(deed, self.patience(remote)))

    def take_in(self, remote: RemoteHandle) -> None:
        try:
            batch = np.frombuffer(answer_of(remote, remote.calls[0][0]), self.row)
        except ActorLost as fault:
            self.replace(remote, fault)
            return
        remote.calls.popleft()
        remote.rows += rows_of(batch)
        # the last row was played just before it was sent
        remote.clock = min(remote.clock, perf_counter() - float(batch["acted"][-1]))
        remote.warm = True
        self.last_seen[remote.index], self.failures.counts[remote.index] = monotonic(), 0

    def patience(self, remote: RemoteHandle) -> float:
        """Seconds for the answer to a call."""
        patience = self.run.patience if remote.warm else max(self.run.patience, MAKING)
        return patience * remote.calls[0][1]

    def available_rows(self, most: int) -> Iterator[TransitionBatch]:
        """Up to `most` rows of each actor that are there."""
        while self.restarted:
            yield self.restarted.pop(0)
        for remote in self.remotes:
            first, count = remote.index * self.worlds, min(most, len(remote.rows))
            if count:  # what is acted on next is in the last one
                last = remote.rows[count - 1]
                self.spent[remote.index] = last["seconds"]
                self.write_first(first, last["obs"], last.get("mask"))
            for _ in range(count):
                row = remote.rows.popleft()
                remote.rounds_taken += 1
                age = perf_counter() - (float(row["acted"]) + remote.clock)
                self.ages.append((self.version - int(row["version"]), age))
                yield TransitionBatch(remote.index, first, row)

    # requests

    def send(self, remote: RemoteHandle, what: str, *arguments: Any) -> Any:
        return getattr(remote.handle, what).remote(*arguments)

    def recv(self, remote: RemoteHandle, request: Any, seconds: float, deed: str) -> Any:
        end, pause = monotonic() + seconds, self.head.pause
        while not self.ray.wait([request], timeout=min(max(end - monotonic(), 0), pause))[0]:
            self.head.require()
            if monotonic() > end:
                raise too_slow(deed, seconds)
        return answer_of(remote, request)

    def finish_rounds(self) -> None:
        """Requests no more rows and waits until all calls have ended."""
        while busy := [remote for remote in self.remotes if remote.calls]:
            self.head.require()
            self.receive(busy, True)

    def pause(self) -> int:
        self.finish_rounds()
        return max(len(remote.rows) for remote in self.remotes)

    def drain(self) -> Iterator[TransitionBatch]:
        self.finish_rounds()
        deed = f"told the state of {self.run.env}"
        self.states = self.request_all(
            "state", max(self.run.patience, MAKING), deed, lambda index: ()
        )
        yield from self.available_rows(self.run.steps_ahead + 1)

    def set_rounds(self, remote: RemoteHandle, rounds: int) -> None:
        remote.rounds_taken = rounds

    def set_weights(self, agent: Any, step: int) -> None:
        """The next calls bring it."""
        self.agent, self.weights, self.version = agent, None, self.version + 1

    def report(self) -> dict[str, float]:
        lost = {"actors_lost": self.actors_lost, "actors_rows_lost": self.rows_lost}
        return super().report() | (lost if self.actors_lost else {})
