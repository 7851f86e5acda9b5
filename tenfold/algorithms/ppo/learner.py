"""Actor and learner of a policy in one process: fill a rollout, learn from it, forget it."""

from typing import Any

import numpy as np

from tenfold.actors.actor import episodes, make_agent
from tenfold.actors.choose import make_crew
from tenfold.actors.data_check import first_rollout
from tenfold.actors.inline import Crew
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.fused import FusedPPO
from tenfold.algorithms.ppo.lockstep import PolicyLockstep
from tenfold.config.run import PPO, Run
from tenfold.core.errors import CheckpointError
from tenfold.core.timing import EVERY, Clock
from tenfold.engines.choose import choose_policy_engine
from tenfold.envs.adapter import Episode
from tenfold.envs.making import make_environments
from tenfold.memory.replay import Replay
from tenfold.memory.rollout import Rollout

# rounds between timed ones where the fused engine runs: a timed round costs several times a whole
# one
RARELY = 499


class OnPolicy:
    """Environments, agent, rollout and engine of one run, and the counters that make it go on where
    it stopped."""

    replay: Replay | None = None  # nothing outlives a learning phase

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, PPO)
        self.run = run
        self.crew, self.where = make_crew(run)
        self.envs = (
            self.crew.envs
            if self.crew
            else make_environments(run.env, run.num_envs, run.seed, run.vectorize, True)
        )
        agent = make_agent(run, self.envs)
        assert isinstance(agent, PPOAgent)
        self.agent = agent
        self.rollout = Rollout(
            run.agent,
            self.envs.layout,
            agent.actions,
            self.envs.num_envs,
            self.envs.mask is not None,
            self.envs.component_weights,
        )
        self.engine, self.engine_choice = choose_policy_engine(
            run, self.agent, self.rollout, self.envs
        )
        alone = self.envs.agents == 1 and not self.crew
        self.fused = (
            self.engine if isinstance(self.engine, FusedPPO) and alone and not run.verify else None
        )
        self.timed_every = EVERY
        if self.fused:
            self.timed_every = RARELY
        self.lockstep = PolicyLockstep(self.engine, run.verify) if run.verify else None
        self.clock = Clock()
        self.step = self.rounds = 0
        self.remarks: list[str] = []  # for the person, about what happened
        if self.crew:
            self.crew.follow(agent)

    @property
    def engine_name(self) -> str:
        return self.engine_choice.split(",")[0]

    @property
    def device(self) -> str:
        return str(self.agent.device)

    @property
    def memory(self) -> str:
        steps = f"{len(self.rollout.obs):,} x {self.envs.num_envs:,}"
        return f"rollouts of {steps} steps take {self.rollout.bytes / 2**20:,.1f} MiB"

    def time_every_round(self) -> None:
        """For a profile: by stages, one call after another, each timed."""
        self.timed_every = 1
        self.fused = None

    def round(self, until: int | None = None) -> list[Episode]:
        """Act, step, store, and learn when the rollout is full. Returns the episodes that ended.

        The fused engine goes on to the next end of an episode or timed round, not beyond step
        `until`.
        """
        if self.crew:
            return self.crew_round(self.crew)
        envs, clock, every = self.envs, self.clock, self.timed_every
        # rounds until the next timed one; the first may compile kernels
        wait = (EVERY - 1 - self.rounds) % every
        timed = wait == 0
        # the last row's round ends with learning, and that is timed whole
        left = self.rollout.left - 1
        if self.fused and not timed and left:
            most = wait if until is None else min(wait, -((self.step - until) // envs.num_envs))
            self.step, self.rounds = self.fused.run(self.step, self.rounds, min(most, left))
            return envs.finished
        if timed:
            clock.start()
        action = self.engine.explore(self.step, self.rounds)
        if timed:
            clock.lap("act", every)
        envs.step(action)
        if timed:
            clock.lap("env", every)
        self.engine.store()
        if timed:
            clock.lap("store", every)
        self.count_step()
        if not self.rollout.left:
            (self.lockstep or self.engine).update(self.step, clock)
        return envs.finished

    def count_step(self) -> None:
        envs = self.envs
        self.step += (
            envs.worlds if envs.agents > 1 else envs.num_envs - int(np.count_nonzero(envs.skipped))
        )
        self.rounds += 1

    def crew_round(self, crew: Crew, most: int | None = None) -> list[Episode]:
        """One row of every actor into the rollout; when it is full learns, and lets actors know.
        `most`: rounds that actors may play until the learner says more."""
        envs, rollout, clock = crew.envs, self.rollout, self.clock
        clock.start()
        t, finished = int(rollout.count[0]), []
        rollout.obs[t] = self.agent.normalised(envs.obs)
        if envs.mask is not None:
            rollout.mask[t] = envs.mask
        again = False
        # the running statistics learn from every row, and the next one is acted on by them
        left = (
            1
            if self.agent.norm
            else min(rollout.left, crew.rounds_until(self.step, self.next_save()))
        )
        for part in crew.collect(self.step, min(left, most or left)):
            if part.begins:
                again = True
                continue
            clock.lap("wait")
            worlds = len(part.row["length"])
            for name in ("chosen", "real", "log_p", "value"):
                own = envs.lanes(getattr(rollout, name)[t], part.first, worlds)
                own[...] = part.row[name].reshape(own.shape)
            more = ("components",) if envs.component_names else ()
            for name in ("reward", "terminated", "truncated", "skipped", "final_obs", *more):
                envs.put(part.first, name, part.row[name])
            finished += episodes(part, envs.agents)
            clock.lap("store")
        # an actor was replaced: its episodes go on nowhere, and the others' rows have lost their
        # company
        if again:
            rollout.count[0] = 0
            return finished
        self.engine.store()
        clock.lap("store")
        self.count_step()
        if not rollout.left:
            if not self.agent.updates:
                self.remarks.append(first_rollout(rollout))
            (self.lockstep or self.engine).update(self.step, clock)
            clock.start()
        if self.agent.norm or rollout.left == len(rollout.obs):
            crew.publish(self.agent, self.step)
            clock.lap("publish")
        return finished

    def next_save(self) -> int:
        """The step up to which actors may go: there nobody is to be ahead of the others, so that
        what is saved is the same wherever they act."""
        every, end = self.run.checkpoint_every, self.run.steps
        return min((self.step // every + 1) * every, end) if every else end

    def settle(self) -> list[Episode]:
        """Before the state is saved: goes on until all actors have come as far as the furthest."""
        finished: list[Episode] = []
        if self.crew:
            # more than once only where an actor was replaced meanwhile
            while ahead := self.crew.hold():
                for left in range(ahead, 0, -1):
                    finished += self.crew_round(self.crew, left)
            if any(part.begins for part in self.crew.settle()):
                self.rollout.count[0] = 0
        return finished

    def state(self) -> dict[str, dict[str, Any]]:
        """Everything that decides what comes next, by part."""
        counters = {"step": np.array(self.step), "rounds": np.array(self.rounds)}
        return {
            "agent": self.agent.state(),
            "engine": self.engine.state(),
            "rollout": self.rollout.state(),
            "envs": (self.crew or self.envs).state(),
            "serial": counters,
        }

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        """Restores `state`. False where the environments could not be restored exactly."""
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        chosen, sizes = state["rollout"]["chosen"], np.array(self.agent.actions.sizes, np.int64)
        if (wrong := (chosen < 0) | (chosen >= sizes)).any():
            raise CheckpointError(
                f"the rollout holds option {chosen[wrong][0]} of an action, which does not have it."
            )
        self.rollout.load_state(state["rollout"])
        self.step, self.rounds = int(state["serial"]["step"]), int(state["serial"]["rounds"])
        crew, saved = self.crew, state["envs"]
        exact = crew.restore(saved, self.agent, self.step) if crew else self.envs.restore(saved)
        if not exact:
            self.rollout.count[0] = 0  # its last episodes go on nowhere
        return exact

    def close(self) -> None:
        (self.crew or self.envs).close()
