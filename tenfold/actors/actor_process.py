"""An actor's process: the memory it shares with the learner, its main function, and the learner's
side of it: start, request, receive, stop."""

import contextlib
import multiprocessing
import signal
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import monotonic, perf_counter
from typing import Any

from tenfold.actors.actor import WAIT, Actor
from tenfold.actors.remote import ActorLost, too_slow
from tenfold.config.run import Run
from tenfold.config.schema import to_mapping
from tenfold.core.errors import UserError
from tenfold.core.processes import enter, how_it_ended, spawning
from tenfold.core.system import set_threads
from tenfold.memory.ring import Ring
from tenfold.memory.shared import SharedBuffer, SharedEvent, SharedWeights, wait_for

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
    settings: dict[str, Any],
    channel: SharedChannel,
    weights: SharedWeights,
    talk: Connection,
    rounds: int,
) -> None:
    """Main function of an actor's process."""
    actor = None
    try:
        talk.send(("awake",))
        run = Run.of(settings)
        set_threads(1)
        actor = Actor(run, channel.index)
        actor.rounds = rounds
        channel.ring.require(actor.schema(), run.env)
        agent = actor.algorithm.make_agent(Run.of(settings | {"device": "cpu"}), actor.envs.spec)
        actor.bind_agent(agent)
        talk.send(("begin", actor.envs.obs, actor.envs.mask))
        serve(actor, agent, channel, weights, talk)
    except UserError as error:
        talk.send(("error", str(error), ""))
    except BaseException as error:
        # whatever an environment raises is told to the learner, which tells the person
        message = " ".join("".join(traceback.format_exception_only(error)).split())
        talk.send(("error", message, traceback.format_exc()))
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


FAREWELL = 3.0  # seconds for a child to end before it is killed


class ActorProcess:
    """The process of one actor, or none."""

    def __init__(self, channel: SharedChannel) -> None:
        self.channel = channel
        self.process: Any = None
        self.talk: Any = None
        self.connected = False  # it has sent its first observations
        self.warm = False  # it has played a row: the first loads kernels
        self.requests = 0

    def start(self, run: Run, weights: SharedWeights) -> None:
        context, channel = multiprocessing.get_context("spawn"), self.channel
        learner_end, actor_end = context.Pipe()
        self.requests = channel.control_words[REQUESTS] = 0
        # no daemon: environments may have children
        process = context.Process(
            target=enter,
            name=channel.name,
            args=(
                signal.SIG_IGN,
                run_actor_process,
                to_mapping(run),
                channel,
                weights,
                actor_end,
                channel.rounds_taken,
            ),
        )
        with spawning():
            process.start()
        actor_end.close()
        self.process, self.talk = process, learner_end

    def dismiss(self) -> None:
        """Ends the process, if it has not ended, and lets go of it."""
        process, talk = self.process, self.talk
        self.process = self.talk = None
        self.connected = self.warm = False
        if process:
            process.kill()
            process.join()
            process.close()
            talk.close()

    def request(self, what: str, *arguments: Any) -> None:
        """Wakes the actor first: the arguments may be more than a pipe holds, and then it must be
        reading."""
        self.requests += 1
        self.channel.control_words[REQUESTS] = self.requests
        self.channel.bell.give()
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send((what, *arguments))

    def recv(self, kind: str, seconds: float, deed: str) -> tuple[Any, ...]:
        """Its reply of this kind; ActorLost where it dies or takes longer than `seconds`."""
        end = monotonic() + seconds
        while wait_for([self.talk.fileno(), self.process.sentinel], end - monotonic()):
            reply: tuple[Any, ...] = ("error",)
            with contextlib.suppress(EOFError, OSError):
                reply = self.talk.recv() if self.talk.poll() else reply
            if reply[0] == kind:
                return reply
            if reply[0] == "error":
                raise (
                    ActorLost(f"stopped: {reply[1]}", reply[2]) if reply[1:] else self.exit_reason()
                )
        raise too_slow(deed, seconds)

    def exit_reason(self) -> ActorLost:
        """The error it sent before it ended, or else how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.talk.poll():
                kind, *details = self.talk.recv()
                if kind == "error":
                    return ActorLost(f"stopped: {details[0]}", details[1])
        self.process.join(FAREWELL)  # its pipe may end a moment before it does
        code = self.process.exitcode
        if code is None:
            return ActorLost("no longer answers")
        return ActorLost(how_it_ended(code, self.connected))
