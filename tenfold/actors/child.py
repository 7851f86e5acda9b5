"""An actor's process: what it shares with the learner, and its whole life."""

import contextlib
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any

from tenfold.actors.actor import WAIT, Actor
from tenfold.config.run import Run
from tenfold.core.errors import UserError
from tenfold.core.system import set_threads
from tenfold.memory.handshake import Handshake
from tenfold.memory.ring import Ring
from tenfold.memory.shared import Segment, Signal
from tenfold.memory.weights import Weights

# words of an actor's line: rounds it may play, the global step, whether to end, questions asked
LET, STEP, STOP, ASK = range(4)
START_UP = 120.0  # seconds for a child to import what it needs


@dataclass
class Link:
    """What the learner and one actor share."""

    index: int
    ring: Ring
    control: Segment  # one line of words
    bell: Signal
    handshake: Handshake
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
        self.handshake.close()


def act_for_learner(
    settings: dict[str, Any], link: Link, weights: Weights, talk: Connection, rounds: int
) -> None:
    """The whole life of an actor's process."""
    actor = None
    try:
        talk.send(("awake",))
        run = Run.of(settings)
        set_threads(1)
        actor = Actor(run, link.index)
        actor.rounds = rounds
        agent = actor.algorithm.make_agent(Run.of(settings | {"device": "cpu"}), actor.envs.spec)
        actor.follow(agent)
        talk.send(("begin", actor.envs.obs, actor.envs.mask))
        link.handshake.answer(link.name, START_UP)
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


def serve(actor: Actor, agent: Any, link: Link, weights: Weights, talk: Connection) -> None:
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
    if what == "restored":
        return what, actor.restore(*given), actor.envs.obs, actor.envs.mask
    return (what, actor.state()) if what == "state" else (what,)
