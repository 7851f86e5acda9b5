"""The on-policy learner: actors fill a rollout, a row of every actor at a time; the agent learns
when it is full."""

from typing import Any

import numpy as np

from tenfold.actors.actor import TransitionBatch, episodes
from tenfold.algorithms.learner import MANY, ActorLearner
from tenfold.core.protocols import State
from tenfold.envs.adapter import Episode

# of a transition, besides the next observation
STEP_FIELDS = ("reward", "terminated", "truncated", "skipped", "final_obs", "components")


class OnPolicyLearner(ActorLearner):
    """Fills a rollout row by row, one part from every actor; learns when it is full.

    A subclass makes `rollout` (rows that are `left`, `begin_row`, `acted`, `forget`, its state) and
    an engine that acts, stores transitions and learns, or does so itself."""

    rollout: Any

    def begin(self) -> None:
        """Starts the actors; call it at the end of the constructor."""
        self.pool.bind_agent(self.agent, self.explore)
        self.note_first()

    def explore(self, step: int, rounds: int) -> np.ndarray:
        """Actions for the environments' current observations, stored in the rollout."""
        return self.engine.explore(step, rounds)

    def store(self) -> None:
        """Stores the transition in the rollout's current row."""
        self.engine.store()

    @property
    def memory_text(self) -> str:
        steps = f"{self.rollout.horizon:,} x {self.envs.num_envs:,}"
        return f"rollouts of {steps} steps take {self.rollout.bytes / 2**20:,.1f} MiB"

    def begin_row(self) -> None:
        """Stores observations and masks in the rollout's current row."""
        self.rollout.begin_row(self.envs.obs, self.envs.mask)

    def learn(self) -> None:
        """Learns from a full rollout."""
        self.engine.learn_from_rollout(self.step, self.clock)

    def forget(self) -> None:
        self.rollout.forget()

    def memory_state(self) -> State:
        return {"rollout": self.rollout.state()}

    def round(self, until: int | None = None, most: int | None = None) -> list[Episode]:
        """Act, step, store, and learn when the rollout is full. Returns the episodes that ended.

        The fused engine plays until the next end of an episode, not beyond step `until`. `most`
        limits the rounds that actors may play before the next call.
        """
        # the last row's round ends with learning, which is the learner's stage but on a device
        limits = {"learner": 0, "engine": self.rollout.left - 1, "device": MANY}
        if rounds := limits[self.rounds_by]:
            return self.engine.run_rounds(self, rounds, until)
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
        full = not self.rollout.left
        if full:
            self.learn()
        if full or self.agent.norm:
            self.pool.publish(self.agent, self.step, self.clock)
        return finished

    def rounds_left(self) -> int:
        """Rounds actors may play before new weights are required."""
        if self.agent.norm:  # it learns from every row, and the next one is acted on by it
            return 1
        return min(self.rollout.left, self.pool.rounds_until(self.step, self.next_save()))

    def take(self, part: TransitionBatch) -> None:
        """Writes an actor's part into the rollout's current row and the environments' last step."""
        envs: Any = self.envs
        for name, array in self.rollout.acted().items():
            rows = envs.lanes(array, part.first, len(part.row["length"]))
            rows[...] = part.row[name].reshape(rows.shape)
        for name in STEP_FIELDS:
            if name in part.row:
                envs.write(part.first, name, part.row[name])

    def collect(self, left: int) -> tuple[list[Episode], bool]:
        """Receives a row of every actor; (the episodes that ended, whether the row is complete)."""
        finished, restarted = [], False
        next_obs: list[np.ndarray] = []  # to be acted on, where it is normalised
        batches = self.pool.collect(self.step, self.rounds, left, self.clock)
        for part in self.rewarded(batches):
            restarted = restarted or part.is_reset
            if part.row and self.agent.norm:
                next_obs.append(part.row["obs"].copy())
            if part.row and not part.is_reset:
                self.take(part)
                self.clock.lap("store")
            finished += episodes(part, self.envs.agents)
        if restarted:
            self.forget()
            for obs in next_obs:  # of rows that are stored `store` counts it
                self.note_seen(obs)
        return finished, not restarted

    def next_save(self) -> int:
        """The step up to which actors may play: at a checkpoint none may be ahead of the others, so
        that its contents do not depend on where they run."""
        every, end = self.run.checkpoint_every, self.run.steps
        return min((self.step // every + 1) * every, end) if every else end

    def settle(self) -> list[Episode]:
        """Before a checkpoint: plays until all actors are at the furthest one's round."""
        finished: list[Episode] = []
        if self.engine:
            self.engine.settle()
        while ahead := self.pool.pause():  # more than once only where an actor was replaced
            for left in range(ahead, 0, -1):
                finished += self.round(most=left)
        if begun := [part.row["obs"] for part in self.rewarded(self.pool.drain()) if part.is_reset]:
            self.forget()
            for obs in begun if self.agent.norm else ():
                self.note_seen(obs)
            if self.agent.norm:
                self.pool.publish(self.agent, self.step, self.clock)
        return finished
