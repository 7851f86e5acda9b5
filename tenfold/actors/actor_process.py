"""An actor's process: what it shares with the learner, its whole life, and how the learner starts
it, asks it, listens to it and ends it."""

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

# words of an actor's line: rounds it may play, the global step, whether to end, questions asked
LET, STEP, STOP, ASK = range(4)


@dataclass
class SharedChannel:
    """What the learner and one actor share."""

    index: int
    ring: Ring
    control: SharedBuffer  # one line of words
    bell: SharedEvent
    name: str
    base: int = 0  # rounds that were played before its ring was made
    words: memoryview = field(init=False)

    def __post_init__(self) -> None:
        self.words = self.control.words()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "words"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    @property
    def played(self) -> int:
        """Rounds that the actor has finished."""
        return self.base + self.ring.published

    @property
    def taken(self) -> int:
        """Rounds whose rows the learner has."""
        return self.played - self.ring.available()

    def close(self) -> None:
        self.ring.close()
        self.words.release()
        self.control.close()
        self.bell.close()


def act_for_learner(
    settings: dict[str, Any],
    link: SharedChannel,
    weights: SharedWeights,
    talk: Connection,
    rounds: int,
) -> None:
    """The whole life of an actor's process."""
    actor = None
    try:
        talk.send(("awake",))
        run = Run.of(settings)
        set_threads(1)
        actor = Actor(run, link.index)
        actor.rounds = rounds
        link.ring.require(actor.schema(), run.env)
        agent = actor.algorithm.make_agent(Run.of(settings | {"device": "cpu"}), actor.envs.spec)
        actor.follow(agent)
        talk.send(("begin", actor.envs.obs, actor.envs.mask))
        serve(actor, agent, link, weights, talk)
    except UserError as error:
        talk.send(("error", str(error), ""))
    except BaseException as error:
        # whatever an environment raises is told to the learner, which tells the person
        words = " ".join("".join(traceback.format_exception_only(error)).split())
        talk.send(("error", words, traceback.format_exc()))
    if actor:
        with contextlib.suppress(Exception):
            actor.envs.close()


def serve(
    actor: Actor, agent: Any, link: SharedChannel, weights: SharedWeights, talk: Connection
) -> None:
    """Rounds as the learner lets them happen, and answers between them."""
    newest, words, answered = agent.published(), link.words, 0
    while True:
        before = perf_counter()
        link.bell.until(
            lambda: bool(words[STOP]) or words[ASK] != answered or actor.rounds < words[LET],  # noqa: B023
            None,
        )
        if words[STOP]:
            return
        if words[ASK] != answered:
            answered += 1
            talk.send(answer(actor, *talk.recv()))
            continue
        slot = None
        while slot is None:  # full: the learner is behind
            slot = link.ring.slot(0.5)
            if words[STOP]:
                return
            if slot is None and words[ASK] != answered:
                break
        if slot is None:
            continue
        actor.seconds[WAIT] += perf_counter() - before
        if weights.read(newest):
            agent.adopt(newest)
        actor.advance(words[STEP], slot, weights.version)
        link.ring.publish()


def answer(actor: Actor, what: str, *given: Any) -> tuple[Any, ...]:
    """To a question between two rounds; it bears the question's name."""
    if what == "restore":
        return what, actor.restore(*given), actor.envs.obs, actor.envs.mask
    return (what, actor.state()) if what == "state" else (what,)


FAREWELL = 3.0  # seconds for a child to end before it is killed


class ActorProcess:
    """The process of one actor, or none."""

    def __init__(self, link: SharedChannel) -> None:
        self.link = link
        self.process: Any = None
        self.talk: Any = None
        self.greeted = False  # it has told its first observations
        self.warm = False  # it has played a row: the first loads kernels
        self.asked = 0

    def start(self, run: Run, weights: SharedWeights) -> None:
        context, link = multiprocessing.get_context("spawn"), self.link
        here, there = context.Pipe()
        self.asked = link.words[ASK] = 0
        # no daemon: environments may have children
        process = context.Process(
            target=enter,
            name=link.name,
            args=(
                signal.SIG_IGN,
                act_for_learner,
                to_mapping(run),
                link,
                weights,
                there,
                link.taken,
            ),
        )
        with spawning():
            process.start()
        there.close()
        self.process, self.talk = process, here

    def dismiss(self) -> None:
        """Ends the process, if it has not ended, and lets go of it."""
        process, talk = self.process, self.talk
        self.process = self.talk = None
        self.greeted = self.warm = False
        if process:
            process.kill()
            process.join()
            process.close()
            talk.close()

    def ask(self, what: str, *given: Any) -> None:
        """The bell rings first: what is given may be more than a pipe holds, and then somebody must
        be reading."""
        self.asked += 1
        self.link.words[ASK] = self.asked
        self.link.bell.give()
        with contextlib.suppress(OSError):  # whoever is dead is noticed when it should answer
            self.talk.send((what, *given))

    def hear(self, kind: str, seconds: float, deed: str) -> tuple[Any, ...]:
        """What it says of this kind within some seconds; or it is lost."""
        end = monotonic() + seconds
        while wait_for([self.talk.fileno(), self.process.sentinel], end - monotonic()):
            said: tuple[Any, ...] = ("error",)
            with contextlib.suppress(EOFError, OSError):
                said = self.talk.recv() if self.talk.poll() else said
            if said[0] == kind:
                return said
            if said[0] == "error":
                raise ActorLost(f"stopped: {said[1]}", said[2]) if said[1:] else self.exit_reason()
        raise too_slow(deed, seconds)

    def exit_reason(self) -> ActorLost:
        """What it said last where it ended, or else how it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.talk.poll():
                kind, *rest = self.talk.recv()
                if kind == "error":
                    return ActorLost(f"stopped: {rest[0]}", rest[1])
        self.process.join(FAREWELL)  # its pipe may end a moment before it does
        code = self.process.exitcode
        if code is None:
            return ActorLost("no longer answers")
        return ActorLost(how_it_ended(code, self.greeted))
