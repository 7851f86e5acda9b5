"""Rounds of PPO: fill a rollout with what the actors bring, learn from it, forget it."""

from typing import Any

import numpy as np

from tenfold.actors.actor import Part
from tenfold.actors.data_check import first_rollout
from tenfold.algorithms.learner import RolloutLearner
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.engines import choose_engine
from tenfold.algorithms.ppo.fused import FusedPPO
from tenfold.algorithms.ppo.lockstep import PolicyLockstep
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError
from tenfold.core.protocols import State
from tenfold.envs.adapter import Episode
from tenfold.memory.rollout import Rollout

# rounds between timed ones where the fused engine runs: a timed round costs several times a whole
# one
RARELY = 499
ACTED, STEPPED = (
    ("chosen", "real", "log_p", "value"),
    ("reward", "terminated", "truncated", "skipped", "final_obs"),
)


class PPOLearner(RolloutLearner):
    """Actors, agent, rollout and engine of one run."""

    agent: PPOAgent

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        envs, settings = self.envs, run.agent
        self.rollout = Rollout(
            settings,  # type: ignore[arg-type]
            envs.layout,
            self.agent.actions,
            envs.num_envs,
            envs.mask is not None,
            envs.component_weights,
        )
        self.engine, self.engine_choice = choose_engine(run, self.agent, self.rollout, envs)
        alone = envs.agents == 1 and self.pool.direct
        if isinstance(self.engine, FusedPPO) and alone and not run.verify:
            self.fused, self.timed_every = self.engine, RARELY
        if run.verify:
            self.lockstep = PolicyLockstep(self.engine, run.verify)
        self.pool.follow(self.agent, self.engine.explore)

    @property
    def memory(self) -> str:
        steps = f"{len(self.rollout.obs):,} x {self.envs.num_envs:,}"
        return f"rollouts of {steps} steps take {self.rollout.bytes / 2**20:,.1f} MiB"

    def round(self, until: int | None = None, most: int | None = None) -> list[Episode]:
        """Act, step, store, and learn when the rollout is full. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode or timed round, not beyond step
        `until`. `most`: rounds that actors may play until the learner says more.
        """
        wait, rollout, clock = self.until_timed(), self.rollout, self.clock
        # the last row's round ends with learning, and that is timed whole
        if self.fused and wait and rollout.left > 1:
            return self.run_fused(min(wait, rollout.left - 1), until)
        scale = 0 if wait else self.timed_every
        if scale:
            clock.start()
        self.begin_row()
        left = self.rounds_left()
        finished, whole = self.collect(min(left, most or left), scale)
        if not whole:
            return finished
        self.engine.store()
        if scale:
            clock.lap("store", scale)
        self.step += self.steps_of(self.envs.skipped, self.envs.worlds)
        self.rounds += 1
        if not rollout.left:
            if not self.pool.direct and not self.agent.updates:
                self.notices.append(first_rollout(rollout))
            (self.lockstep or self.engine).update(self.step, clock)
        if self.agent.norm or rollout.left == len(rollout.obs):
            self.pool.publish(self.agent, self.step, clock)
        return finished

    def begin_row(self) -> None:
        """What actors elsewhere act on, into the rollout's current row; the learner's own engine
        writes it itself."""
        if not self.pool.direct:
            t = int(self.rollout.count[0])
            self.rollout.obs[t] = self.agent.normalised(self.envs.obs)
            if self.envs.mask is not None:
                self.rollout.mask[t] = self.envs.mask

    def forget(self) -> None:
        self.rollout.count[0] = 0

    def take(self, part: Part) -> None:
        """What an actor brought, into the rollout's current row and the latest step of all."""
        envs: Any = self.envs
        t, worlds = int(self.rollout.count[0]), len(part.row["length"])
        for name in ACTED:
            own = envs.lanes(getattr(self.rollout, name)[t], part.first, worlds)
            own[...] = part.row[name].reshape(own.shape)
        for name in (*STEPPED, *(("components",) if envs.component_names else ())):
            envs.put(part.first, name, part.row[name])

    def rounds_left(self) -> int:
        """Rounds that actors may play by the networks they have."""
        if self.agent.norm:  # it learns from every row, and the next one is acted on by it
            return 1
        return min(self.rollout.left, self.pool.rounds_until(self.step, self.next_save()))

    def state(self) -> State:
        """Everything that decides what comes next, by part."""
        return {
            "agent": self.agent.state(),
            "engine": self.engine.state(),
            "rollout": self.rollout.state(),
            "serial": self.counters(),
            **self.pool.state(),
        }

    def load_state(self, state: State, with_rows: bool = True) -> bool:
        """Restores `state`. False where the environments could not be restored exactly."""
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        chosen, sizes = state["rollout"]["chosen"], np.array(self.agent.actions.sizes, np.int64)
        if (wrong := (chosen < 0) | (chosen >= sizes)).any():
            raise CheckpointError(
                f"the rollout holds option {chosen[wrong][0]} of an action, which does not have it."
            )
        self.rollout.load_state(state["rollout"])
        self.load_counters(state)
        exact = self.pool.restore(state, self.agent, self.step)
        if not exact:
            self.forget()  # its last episodes go on nowhere
        return exact
