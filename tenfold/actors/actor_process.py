"""An actor's process: the memory it shares with the learner, its main function, and the learner's
side of it."""

import contextlib
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from tenfold.actors.actor import WAIT, Actor
from tenfold.actors.child_process import ChildProcess, errors_sent
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.system import set_threads
from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedBuffer, SharedEvent, SharedWeights

# words of the shared line: rounds the actor may play, the global step, whether to stop, requests
STEP_BUDGET, GLOBAL_STEP, STOP, REQUESTS = range(4)


@dataclass
class SharedChannel:
    """The memory that the learner and one actor share."""

    index: int
    ring: Ring
    control: SharedBuffer  # one line of words
    bell: SharedEvent
    name: str
    base: int = 0  # rounds that were played before its ring was made
    control_words: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.control_words = self.control.counters()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "control_words"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    @property
    def played(self) -> int:
        """Rounds that the actor has finished."""
        return self.base + self.ring.published

    @property
    def rounds_taken(self) -> int:
        """Rounds whose rows the learner has."""
        return self.played - self.ring.available()

    def close(self) -> None:
        self.ring.close()
        self.control_words.release()
        self.control.close()
        self.bell.close()


def run_actor_process(
    talk: Connection,
    settings: dict[str, Any],
    channel: SharedChannel,
    weights: SharedWeights,
    rounds: int,
) -> None:
    """Main function of an actor's process."""
    actor = None
    with errors_sent(talk):
        run = Run.of(settings)
        set_threads(1)
        actor = Actor(run, channel.index)
        actor.rounds = rounds
        channel.ring.require(actor.schema(), run.env)
        agent = actor.algorithm.make_agent(Run.of(settings | {"device": "cpu"}), actor.envs.spec)
        actor.bind_agent(agent)
        talk.send(("begin", actor.envs.obs, actor.envs.mask))
        serve(actor, agent, channel, weights, talk)
    if actor:
        with contextlib.suppress(Exception):
            actor.envs.close()


def serve(
    actor: Actor, agent: Any, channel: SharedChannel, weights: SharedWeights, talk: Connection
) -> None:
    """Plays rounds while the learner's budget lasts, and answers requests between them."""
    newest, control, answered = agent.published(), channel.control_words, 0
    while True:
        before = perf_counter()
        channel.bell.until(
            lambda: (
                bool(control[STOP])
                or control[REQUESTS] != answered  # noqa: B023
                or actor.rounds < control[STEP_BUDGET]
            ),
            None,
        )
        if control[STOP]:
            return
        if control[REQUESTS] != answered:
            answered += 1
            talk.send(answer(actor, *talk.recv()))
            continue
        slot = None
        while slot is None:  # full: the learner is behind
            slot = channel.ring.slot(0.5)
            if control[STOP]:
                return
            if slot is None and control[REQUESTS] != answered:
                break
        if slot is None:
            continue
        actor.seconds[WAIT] += perf_counter() - before
        if weights.read(newest):
            agent.adopt(newest)
        actor.advance(control[GLOBAL_STEP], slot, weights.version)
        channel.ring.publish()


def answer(actor: Actor, what: str, *arguments: Any) -> tuple[Any, ...]:
    """The reply to a request; its first item is the request's name."""
    if what == "restore":
        return what, actor.restore(*arguments), actor.envs.obs, actor.envs.mask
    return (what, actor.state()) if what == "state" else (what,)


class ActorProcess(ChildProcess):
    """The process of one actor, or none."""

    def __init__(self, channel: SharedChannel) -> None:
        super().__init__(channel.name)
        self.channel = channel
        self.warm = False  # it has played a row: the first loads kernels
        self.requests = 0

    def begin(self, run: Run, weights: SharedWeights) -> None:
        channel, self.warm = self.channel, False
        self.requests = channel.control_words[REQUESTS] = 0
        arguments = to_mapping(run), channel, weights, channel.rounds_taken
        self.start(run_actor_process, *arguments)

    def request(self, what: str, *arguments: Any) -> None:
        """Wakes the actor first: the arguments may be more than a pipe holds, and then it must be
        reading."""
        self.requests += 1
        self.channel.control_words[REQUESTS] = self.requests
        self.channel.bell.give()
        self.send(what, *arguments)
