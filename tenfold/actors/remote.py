"""The base of pools whose actors run in other processes: connect, request, receive. An actor that
is lost is replaced, or is an error."""

from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np

from tenfold.actors.actor import TransitionBatch, sample_actor, with_prefix
from tenfold.actors.child_process import START_UP, ActorLost
from tenfold.actors.pool import PoolBase, joined_states
from tenfold.config.run import Run
from tenfold.core.errors import ActorFault
from tenfold.core.registry import algorithm
from tenfold.core.system import Clock

RESTARTS = 3  # in a row without a single step


class ActorFailures:
    """How often each actor was lost since its last row."""

    def __init__(self, run: Run) -> None:
        self.run, self.counts = run, [0] * run.actors

    def judge(self, index: int, fault: ActorLost, more: str = "") -> str:
        """The sentence about one in whose place another is started; by the run's policy an error
        instead. `more`: what else was lost with it."""
        self.counts[index] += 1
        again, how = self.run.on_death == "restart", fault.how.rstrip(".")
        if not again or self.counts[index] > RESTARTS:
            times = f", the {self.counts[index]}th time without a step" if again else ""
            raise ActorFault(f"Actor {index} {how}{times}: the run stops.", fault.trace)
        return f"actor {index} {how}{more}; another takes its place"


class RemotePool(PoolBase):
    """Each actor has a remote with its `index`; a subclass says what that is, and how an actor is
    connected, asked and replaced."""

    states: list[dict[str, np.ndarray]]
    remotes: list[Any]

    def __init__(self, run: Run) -> None:
        self.probe_schema(run)
        self.failures = ActorFailures(run)
        # when each was last known to be alive, or was given something to do
        self.last_seen = [monotonic()] * run.actors

    def probe_schema(self, run: Run) -> None:
        """The rows that actors will deliver, from one that is made here and closed."""
        probe = sample_actor(run)
        self.prepare(run, probe.envs)
        self.schema = probe.schema()
        probe.envs.close()
        # rows of all actors make one row of a rollout
        self.rollouts = algorithm(run.agent.name).on_policy
        self.synchronous = self.rollouts or run.steps_ahead == 0  # a round is a row of every actor
        self.asynchronous = not self.synchronous
        self.restarted: list[TransitionBatch] = []  # of actors that were started again

    def connect_actor(self, remote: Any) -> None:
        """Receives a new actor's first observations."""
        raise NotImplementedError

    def replace(self, remote: Any, fault: ActorLost) -> None:
        """Saves the rows of a lost actor, and restarts it."""
        raise NotImplementedError

    def start(self, remote: Any) -> None:
        """Starts an actor's process."""
        raise NotImplementedError

    def dismiss(self, remote: Any) -> None:
        """Ends an actor's process, if it has not ended."""
        raise NotImplementedError

    def restart(self, remote: Any, fault: ActorLost, lost: str = "") -> None:
        """Starts another actor in place of a lost one, as often as the run's `on_death` allows.
        `lost`: what else was lost with it."""
        while True:
            self.dismiss(remote)
            self.notices.append(self.failures.judge(remote.index, fault, lost))
            self.start(remote)
            try:
                self.connect_actor(remote)
                break
            except ActorLost as again:
                fault, lost = again, ""
        self.restarted.append(self.reset_batch(remote.index))

    def send(self, remote: Any, what: str, *arguments: Any) -> Any:
        """Sends a request; `recv` takes what this returns."""
        raise NotImplementedError

    def recv(self, remote: Any, request: Any, seconds: float, deed: str) -> Any:
        """The reply to a request; ActorLost where it takes longer than `seconds`."""
        raise NotImplementedError

    def set_weights(self, agent: Any, step: int) -> None:
        """Actors use the agent's parameters of this step from now on."""
        raise NotImplementedError

    def set_rounds(self, remote: Any, rounds: int) -> None:
        """Sets the number of rounds that an actor has played."""
        raise NotImplementedError

    def connect_all(self) -> None:
        for remote in self.remotes:
            try:
                self.connect_actor(remote)
            except ActorLost as fault:
                self.replace(remote, fault)
        self.restarted.clear()  # no observation of theirs was used yet

    def note_restart(self, remote: Any, first: tuple[np.ndarray, np.ndarray | None]) -> None:
        """An actor's first observations and masks."""
        self.last_seen[remote.index] = monotonic()
        self.write_first(remote.index * self.worlds, *first)

    def reset_batch(self, index: int) -> TransitionBatch:
        """The first observations of an actor that was started again."""
        first, arrays = index * self.worlds, {"obs": self.envs.obs}
        if self.envs.mask is not None:
            arrays["mask"] = self.envs.mask
        row = {
            name: self.envs.lanes(array, first, self.worlds).reshape(-1, *array.shape[1:]).copy()
            for name, array in arrays.items()
        }
        return TransitionBatch(index, first, row, is_reset=True)

    def request_all(
        self, what: str, seconds: float, deed: str, arguments: Callable[[int], tuple[Any, ...]]
    ) -> list[Any]:
        """Every actor's reply. An actor that dies over it is replaced and asked again, or is an
        error."""
        requests = [self.send(remote, what, *arguments(remote.index)) for remote in self.remotes]
        replies: list[Any] = []
        for remote, request in zip(self.remotes, requests, strict=True):
            while len(replies) <= remote.index:
                try:
                    replies.append(self.recv(remote, request, seconds, deed))
                except ActorLost as fault:
                    self.replace(remote, fault)
                    request = self.send(remote, what, *arguments(remote.index))
        return replies

    def state(self) -> dict[str, dict[str, np.ndarray]]:
        """After `drain`."""
        return {"envs": joined_states(self.states)}

    def restore(self, state: dict[str, dict[str, np.ndarray]], agent: Any, step: int) -> bool:
        self.set_weights(agent, step)
        saved = state["envs"]
        replies = self.request_all(
            "restore",
            max(START_UP, self.run.patience),
            f"restored {self.run.env}",
            lambda index: (with_prefix(saved, f"{index}."),),
        )
        self.restarted.clear()
        for remote, (_, *first) in zip(self.remotes, replies, strict=True):
            self.set_rounds(remote, int(saved[f"{remote.index}.rounds"]))
            self.note_restart(remote, tuple(first))
        return all(exact for exact, *_ in replies)

    def publish(self, agent: Any, step: int, clock: Clock) -> None:
        clock.start()
        self.set_weights(agent, step)
        clock.lap("publish")
