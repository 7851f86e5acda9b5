"""Actors in processes of their own, one learner in this one; rows by rings, weights by version, no lock and no polling.

    actor 0 ── ring ──┐                     every row: one step of the actor's environments
    actor 1 ── ring ──┼── learner (this process: replay, updates, metrics, checkpoints; it watches the actors as well)
    actor 2 ── ring ──┘        │
       ▲                       │
       └──── weights, version ─┘            one flat vector, two copies

The rate is limited on both sides: the learner runs exactly the updates that are due for the rows it has taken, and an actor
waits that is `ahead` + 1 rows ahead of the learner's last row of the slowest actor. So no policy that acts is older than
2 (A − 1)(ahead + 1) + ahead versions, with A actors. With `ahead` = 0 actors step only when they are let, after the learner
has published: then everything happens in the order in which `Crew` does it, and the numbers are the same bit for bit.
Children die with their parent; memory and bells have no names, so nothing is left behind whoever is killed.
"""

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from tenfold.config import to_mapping
from tenfold.engines.fused import set_threads
from tenfold.errors import UserError
from tenfold.memory.handshake import Handshake
from tenfold.memory.ring import Ring
from tenfold.memory.shared import LINE, Segment, Signal, wait_for
from tenfold.memory.weights import Weights
from tenfold.places.actor import WAIT, Actor, Agent, Gathered, Part, make_agent, part_of
from tenfold.places.crew import Crew
from tenfold.places.watch import die_with_parent
from tenfold.settings import PPO, Run

LET, STEP, STOP, ASK = range(4)  # words of an actor's line: rounds it may play, the global step, whether to end, questions asked
START_UP = 120.0  # seconds for a child to import, make its environments and answer
FAREWELL = 5.0  # seconds for a child to end before it is killed
RESTARTS = 3  # in a row without a single step


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
    def taken(self) -> int:
        """Rounds whose rows the learner has."""
        return self.base + self.ring.published - self.ring.available()

    def close(self) -> None:
        self.ring.close()
        self.words.release()
        self.control.close()
        self.bell.close()
        self.handshake.close()


# in the actor's process ----------------------------------------------------------------------------------------------------


def act_for_learner(settings: dict[str, Any], link: Link, weights: Weights, talk: Connection, parent: int, rounds: int) -> None:
    """The whole life of an actor's process."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the learner decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        run = Run.of(settings)
        set_threads(1)
        actor = Actor(run, link.index)
        actor.rounds = rounds
        agent = make_agent(Run.of(settings | {"device": "cpu"}), actor.envs)
        actor.follow(agent)
        link.ring.take_over()
        link.handshake.answer(link.name, START_UP)
        talk.send(("begin", actor.envs.obs, actor.envs.mask))
        serve(actor, agent, link, weights, talk)
    except UserError as error:
        talk.send(("error", str(error)))
    except Exception:  # whatever an environment raises is told to the learner, which tells the person
        talk.send(("error", traceback.format_exc()))


def serve(actor: Actor, agent: Agent, link: Link, weights: Weights, talk: Connection) -> None:
    """Rounds as the learner lets them happen, and answers between them."""
    flat, words, answered = agent.online.flat.numpy(), link.words, 0
    while True:
        before = perf_counter()
        link.bell.until(lambda: bool(words[STOP]) or words[ASK] != answered or actor.rounds < words[LET], None)  # noqa: B023
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
        weights.read(flat)
        actor.advance(words[STEP], slot, weights.version)
        link.ring.publish()


def answer(actor: Actor, what: str, *given: Any) -> tuple[Any, ...]:
    """To a question between two rounds."""
    if what == "restore":
        return "restored", actor.restore(*given), actor.envs.obs, actor.envs.mask
    return ("state", actor.state()) if what == "state" else ("held",)


# in the learner's process ---------------------------------------------------------------------------------------------------


class ProcessCrew(Crew):
    """Starts actors, takes their rows, watches over them."""

    def __init__(self, run: Run) -> None:
        if getattr(multiprocessing.current_process(), "_inheriting", False):
            raise UserError("A script that trains with actors in processes needs `if __name__ == \"__main__\":` around what it "
                            "does: every process reads the script.")
        self.run = run
        probe = Actor(run, 0)
        self.envs, self.schema = Gathered(probe.envs, run.actors), probe.schema()
        self.worlds = probe.envs.worlds
        probe.envs.close()
        self.spent, self.ages = np.zeros((run.actors, 3)), []
        self.policy = isinstance(run.agent, PPO)
        self.together = self.policy or run.ahead == 0  # a round is a row of every actor
        self.context = multiprocessing.get_context("spawn")
        self.links: list[Link] = []
        self.processes: list[Any] = [None] * run.actors
        self.talks: list[Any] = [None] * run.actors
        self.asked = [0] * run.actors
        self.heard = [monotonic()] * run.actors  # when each was last seen alive
        self.failures = [0] * run.actors  # restarts since the last row
        self.began: list[Part] = []

    def follow(self, agent: Agent) -> None:
        try:
            self.weights = Weights(tuple(agent.online.flat.shape))
            self.publish(agent, 0)
            for index in range(self.run.actors):
                name = f"actor {index}"
                link = Link(index, Ring(self.schema, self.run.ahead + 1), Segment(LINE, "an actor's words"), Signal(False),
                            Handshake([name]), name)
                for word in (LET, STEP, STOP, ASK):
                    link.words[word] = 0
                self.links.append(link)
            for link in self.links:
                self.start(link, 0)
            for link in self.links:
                self.greet(link)
        except BaseException:
            self.close()
            raise

    def start(self, link: Link, rounds: int) -> None:
        here, there = self.context.Pipe()
        process = self.context.Process(target=act_for_learner, name=link.name, daemon=True, args=(
            to_mapping(self.run), link, self.weights, there, os.getpid(), rounds))
        process.start()
        there.close()
        self.processes[link.index], self.talks[link.index], self.asked[link.index] = process, here, 0
        link.words[ASK] = 0

    def greet(self, link: Link) -> None:
        """Waits until an actor has proven that it shares our memory, and takes its first observations."""
        try:
            link.handshake.wait(START_UP, {link.name: self.processes[link.index]})
        except UserError as error:
            raise UserError(self.last_words(link) or str(error)) from None
        _, obs, mask = self.hear(link, "begin")
        self.see(link.index * self.worlds, obs, mask)

    # rows

    def collect(self, step: int, left: int) -> Iterator[Part]:
        """Rows as they come: one of every actor where all go together, otherwise whatever is there."""
        slowest = min(link.taken for link in self.links)
        for link in self.links:
            link.words[STEP] = step
            let = link.taken + left if self.together else slowest + self.run.ahead + 1
            if link.words[LET] != let:
                link.words[LET] = let
                link.bell.give()
        self.wait()
        yield from self.taken(1 if self.together else self.run.ahead + 1)

    def taken(self, most: int) -> Iterator[Part]:
        """Up to `most` rows of each actor that are there."""
        yield from self.begun()
        for link in self.links:
            for _ in range(min(most, link.ring.available())):
                row = link.ring.peek(0)
                assert row is not None
                self.note(link, row)
                yield Part(link.index, link.index * self.worlds, row)
                link.ring.release()

    def begun(self) -> Iterator[Part]:
        """First observations of actors that were started again."""
        while self.began:
            yield self.began.pop(0)

    def note(self, link: Link, row: dict[str, np.ndarray]) -> None:
        now = perf_counter()
        self.heard[link.index], self.failures[link.index] = monotonic(), 0
        self.spent[link.index] = row["seconds"]
        self.ages.append((self.weights.newest - int(row["version"]), now - float(row["acted"])))
        self.see(link.index * self.worlds, row["obs"], row.get("mask"))

    def wait(self) -> None:
        """Sleeps until there are rows enough, an actor died, or one has been silent for too long."""
        while True:
            missing = [link for link in self.links if not link.ring.available()]
            self.watch(missing)
            if not missing or (not self.together and len(missing) < len(self.links)) or self.began:
                return
            left = min(self.heard[link.index] for link in missing) + self.run.patience - monotonic()
            rows, ends = [link.ring.data for link in missing], [process.sentinel for process in self.processes]
            for thing in wait_for([*rows, *ends], max(left, 0.01)):
                if isinstance(thing, Signal):
                    thing.take()

    def watch(self, missing: list[Link]) -> None:
        """Actors that died, or that have not finished a step in time though nobody kept them from it."""
        for link in self.links:
            if self.processes[link.index].exitcode is not None:
                self.lost(link, self.last_words(link) or self.how_it_ended(link))
        for link in missing:
            if link.taken >= link.words[LET]:  # it waits for the others
                self.heard[link.index] = monotonic()
            if monotonic() - self.heard[link.index] > self.run.patience and self.processes[link.index].exitcode is None:
                self.processes[link.index].kill()
                self.processes[link.index].join()
                self.lost(link, f"has not finished a step of {self.run.env} in {self.run.patience:g} s (the environment hangs, "
                                "or needs a larger --patience)")

    def last_words(self, link: Link) -> str:
        """What an actor said before it ended."""
        with contextlib.suppress(EOFError, OSError):
            while self.talks[link.index].poll(0.2 if self.processes[link.index].exitcode else 0):
                kind, *rest = self.talks[link.index].recv()
                if kind == "error":
                    return f"stopped: {rest[0].rstrip()}"
        return ""

    def how_it_ended(self, link: Link) -> str:
        code = self.processes[link.index].exitcode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def lost(self, link: Link, how: str) -> None:
        """By the run's policy an error, or another process in its place."""
        self.failures[link.index] += 1
        if self.run.on_death == "stop" or self.failures[link.index] > RESTARTS:
            again = f" ({RESTARTS} times in a row)" if self.run.on_death == "restart" else ""
            raise UserError(f"Actor {link.index} {how}{again}. The run stops; `tenfold resume` goes on from its last checkpoint.")
        self.words = f"actor {link.index} {how}; another took its place"
        while link.ring.available():  # rows it had finished are good
            row = link.ring.peek(0)
            assert row is not None
            if not self.policy:  # whose rollouts must fit together
                self.began.append(Part(link.index, link.index * self.worlds, {k: v.copy() for k, v in row.items()}))
            link.ring.release()
        link.handshake.renew(link.name)
        self.start(link, link.taken)
        self.greet(link)
        self.heard[link.index] = monotonic()
        first = link.index * self.worlds
        obs = self.envs.lanes(self.envs.obs, first, self.worlds).reshape(-1, *self.envs.obs.shape[1:]).copy()
        self.began.append(Part(link.index, first, {"obs": obs}, begins=True))
        link.bell.give()

    # questions

    def ask(self, link: Link, what: str, *given: Any) -> None:
        self.talks[link.index].send((what, *given))
        self.asked[link.index] += 1
        link.words[ASK] = self.asked[link.index]
        link.bell.give()

    def hear(self, link: Link, kind: str) -> tuple[Any, ...]:
        """An actor's answer of this kind; its death or silence is an error."""
        talk, process = self.talks[link.index], self.processes[link.index]
        end = monotonic() + max(self.run.patience, START_UP)
        while monotonic() < end:
            ready = wait_for([talk.fileno(), process.sentinel], 1.0)
            if talk.fileno() in ready:
                try:
                    answer = talk.recv()
                except EOFError:
                    process.join(1)
                    raise UserError(f"Actor {link.index} {self.how_it_ended(link)}.") from None
                if answer[0] == kind:
                    return answer
                if answer[0] == "error":
                    raise UserError(f"Actor {link.index} stopped: {answer[1].rstrip()}")
            elif ready:
                raise UserError(f"Actor {link.index} {self.how_it_ended(link)}.")
        raise UserError(f"Actor {link.index} has not answered in {max(self.run.patience, START_UP):g} s.")

    def hold(self) -> int:
        for link in self.links:
            link.words[LET] = 0
            self.ask(link, "hold")
        for link in self.links:
            self.hear(link, "held")
        return max(link.ring.available() for link in self.links)

    def settle(self) -> Iterator[Part]:
        """Lets nobody begin another round, and takes what they had finished or were about to."""
        for link in self.links:
            link.words[LET] = 0
        self.states: list[dict[str, np.ndarray]] = []
        for link in self.links:
            self.ask(link, "state")
        for link in self.links:
            while not self.talks[link.index].poll(0.01):  # it may be waiting for room in its ring
                self.watch([])
                yield from self.taken(self.run.ahead + 1)
            self.states.append(self.hear(link, "state")[1])
            yield from self.taken(self.run.ahead + 1)

    def state(self) -> dict[str, np.ndarray]:
        """After `settle`."""
        return {f"{link.index}.{name}": value for link, state in zip(self.links, self.states, strict=True)
                for name, value in state.items()}

    def restore(self, state: dict[str, np.ndarray], agent: Agent, step: int) -> bool:
        self.publish(agent, step)
        for link in self.links:
            self.ask(link, "restore", part_of(state, f"{link.index}."))
        exact = True
        for link in self.links:
            _, same, obs, mask = self.hear(link, "restored")
            link.base = int(state[f"{link.index}.rounds"])
            self.see(link.index * self.worlds, obs, mask)
            exact = exact and same
        return exact

    def publish(self, agent: Agent, step: int) -> None:
        self.weights.publish(agent.online.flat.detach().cpu().numpy(), step)

    def close(self) -> None:
        """Ends all children, kindly and then not, and lets go of what was shared."""
        for link in self.links:
            link.words[STOP] = 1
            link.bell.give()
        end = monotonic() + FAREWELL
        for process in filter(None, self.processes):
            process.join(max(end - monotonic(), 0))
            if process.exitcode is None:
                process.kill()
                process.join()
        for link in self.links:
            link.close()
        self.links = []
        if hasattr(self, "weights"):
            self.weights.close()
