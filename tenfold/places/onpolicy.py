"""Actor and learner of a policy in one process: fill a rollout, learn from it, forget it."""

from typing import Any

import numpy as np

from tenfold.agents.ppo import PPOAgent
from tenfold.engines.choose import choose_policy_engine
from tenfold.engines.fused_ppo import FusedPPO
from tenfold.engines.verify_ppo import PolicyLockstep
from tenfold.envs.vector import Episode, make_environments
from tenfold.memory.replay import Replay
from tenfold.memory.rollout import Rollout
from tenfold.record.clock import EVERY, Clock
from tenfold.settings import PPO, Run
from tenfold.spaces import policy_actions

RARELY = 499  # rounds between timed ones where the fused engine runs: a timed round costs several times a whole one


class OnPolicy:
    """Environments, agent, rollout and engine of one run, and the counters that make it go on where it stopped."""

    replay: Replay | None = None  # nothing outlives a learning phase

    def __init__(self, run: Run) -> None:
        assert isinstance(run.agent, PPO)
        self.run = run
        self.envs = make_environments(run.env, run.num_envs, run.seed, run.vectorize, policy=True)
        actions = policy_actions(self.envs.action_space, run.env)
        self.agent = PPOAgent(run.agent, self.envs.layout, actions, run.seed, "cpu" if run.device == "auto" else run.device)
        self.rollout = Rollout(run.agent, self.envs.layout, actions, self.envs.num_envs, self.envs.mask is not None)
        self.engine, self.engine_choice = choose_policy_engine(run, self.agent, self.rollout, self.envs)
        self.fused = self.engine if isinstance(self.engine, FusedPPO) and not run.verify else None
        self.timed_every = EVERY
        if self.fused:
            self.timed_every = RARELY
        self.lockstep = PolicyLockstep(self.engine, run.verify) if run.verify else None
        self.clock = Clock()
        self.step = self.rounds = 0

    @property
    def engine_name(self) -> str:
        return self.engine_choice.split(",")[0]

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

        The fused engine goes on to the next end of an episode or timed round, not beyond step `until`.
        """
        envs, clock, every = self.envs, self.clock, self.timed_every
        wait = (EVERY - 1 - self.rounds) % every  # rounds until the next timed one; the first may compile kernels
        timed = wait == 0
        left = self.rollout.left - 1  # the last row's round ends with learning, and that is timed whole
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
        self.step += envs.num_envs - int(np.count_nonzero(envs.skipped))
        self.rounds += 1
        if not self.rollout.left:
            (self.lockstep or self.engine).update(self.step, clock)
        return envs.finished

    def state(self) -> dict[str, dict[str, Any]]:
        """Everything that decides what comes next, by part."""
        counters = {"step": np.array(self.step), "rounds": np.array(self.rounds)}
        return {"agent": self.agent.state(), "engine": self.engine.state(), "rollout": self.rollout.state(),
                "envs": self.envs.state(), "serial": counters}

    def load_state(self, state: dict[str, dict[str, Any]], with_replay: bool = True) -> bool:
        """Restores `state`. False where the environments could not be restored exactly."""
        self.agent.load_state(state["agent"])
        self.engine.load_state(state["engine"])
        self.rollout.load_state(state["rollout"])
        self.step, self.rounds = int(state["serial"]["step"]), int(state["serial"]["rounds"])
        exact = self.envs.restore(state["envs"])
        if not exact:
            self.rollout.count[0] = 0  # its last episodes go on nowhere
        return exact

    def close(self) -> None:
        self.envs.close()
