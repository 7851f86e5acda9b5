"""The on-policy learner: actors fill a rollout, a row of every actor at a time; the agent learns
when it is full."""

from typing import Any

import numpy as np

from tenfold.actors.actor import TransitionBatch, episodes
from tenfold.algorithms.learner import MANY, ActorLearner
from tenfold.envs.adapter import Episode

# by a step, besides what is acted on next
BROUGHT = ("reward", "terminated", "truncated", "skipped", "final_obs", "components")


class RolloutLearner(ActorLearner):
    """Fills rollouts: a row of every actor makes one row of them. Learns when one is full."""

    @property
    def left(self) -> int:
        """Rows until the rollout is full."""
        raise NotImplementedError

    def begin_row(self) -> None:
        """Notes what is acted on."""
        raise NotImplementedError

    def acted(self) -> dict[str, np.ndarray]:
        """The arrays of the rollout's current row that say how actors acted."""
        raise NotImplementedError

    def store(self) -> None:
        """What the step brought, into the rollout's current row."""
        raise NotImplementedError

    def learn(self) -> None:
        """From a full rollout, which then begins anew."""
        raise NotImplementedError

    def round(self, until: int | None = None, most: int | None = None) -> list[Episode]:
        """Act, step, store, and learn when the rollout is full. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode, not beyond step `until`. `most`:
        rounds that actors may play until the learner says more.
        """
        # the last row's round ends with learning; an engine without stages makes all of it
        whole = self.fused and (self.left - 1 if self.fused.by_stages else MANY)
        if whole:
            return self.run_fused(whole, until)
        self.clock.start()
        self.begin_row()
        left = self.rounds_left()
        finished, whole = self.collect(min(left, most or left))
        if not whole:
            if self.agent.norm:  # it has counted what is acted on next
                self.pool.publish(self.agent, self.step, self.clock)
            return finished
        self.store()
        self.clock.lap("store")
        self.step += self.steps_of(self.envs.skipped, self.envs.worlds)
        self.rounds += 1
        full = not self.left
        if full:
            self.learn()
        if full or self.agent.norm:
            self.pool.publish(self.agent, self.step, self.clock)
        return finished

    def rounds_left(self) -> int:
        """Rounds that actors may play by the networks they have."""
        if self.agent.norm:  # it learns from every row, and the next one is acted on by it
            return 1
        return min(self.left, self.pool.rounds_until(self.step, self.next_save()))

    def take(self, part: TransitionBatch) -> None:
        """What an actor brought, into the rollout's current row and the latest step of all."""
        envs: Any = self.envs
        for name, array in self.acted().items():
            own = envs.lanes(array, part.first, len(part.row["length"]))
            own[...] = part.row[name].reshape(own.shape)
        for name in BROUGHT:
            if name in part.row:
                envs.put(part.first, name, part.row[name])

    def collect(self, left: int) -> tuple[list[Episode], bool]:
        """A row of every actor; the episodes that ended, and whether the row is whole."""
        finished, again = [], False
        shown: list[np.ndarray] = []  # what is acted on next, where it is normalised
        parts = self.pool.collect(self.step, self.rounds, left, self.clock)
        for part in self.rewarded(parts):
            again = again or part.begins
            if part.row and self.agent.norm:
                shown.append(part.row["obs"].copy())
            if part.row and not part.begins:
                self.take(part)
                self.clock.lap("store")
            finished += episodes(part, self.envs.agents)
        if again:
            self.forget()
            for obs in shown:  # of rows that are stored `store` counts it
                self.note_seen(obs)
        return finished, not again

    def next_save(self) -> int:
        """The step up to which actors may go: there nobody is to be ahead of the others, so that
        what is saved is the same wherever they act."""
        every, end = self.run.checkpoint_every, self.run.steps
        return min((self.step // every + 1) * every, end) if every else end

    def settle(self) -> list[Episode]:
        """Before the state is saved: goes on until all actors have come as far as the furthest."""
        finished: list[Episode] = []
        if self.engine:
            self.engine.settle()
        while ahead := self.pool.hold():  # more than once only where an actor was replaced
            for left in range(ahead, 0, -1):
                finished += self.round(most=left)
        if begun := [part.row["obs"] for part in self.rewarded(self.pool.settle()) if part.begins]:
            self.forget()
            for obs in begun if self.agent.norm else ():
                self.note_seen(obs)
            if self.agent.norm:
                self.pool.publish(self.agent, self.step, self.clock)
        return finished
