"""PPO as an actor acts by it (it draws from the policy, and notes probability and value), and its
rounds: fill a rollout with what the actors bring, learn from it, forget it."""

import numpy as np

from tenfold.actors.actor import SimpleActing, first_rollout
from tenfold.algorithms.learner import RolloutLearner
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.plain import PolicyLockstep
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError
from tenfold.core.protocols import State
from tenfold.engines.choose import choose_engine
from tenfold.memory.rollout import Rollout

ACTED = ("chosen", "real", "log_p", "value")


class PPOActing(SimpleActing):
    """Draws actions; components, numbers, log-probability and value go into the row."""

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments."""
        agent, envs = self.agent, self.envs
        found = agent.explore(agent.normalised(envs.obs), envs.mask, rounds)
        for name, value in zip(ACTED, found, strict=True):
            row[name][...] = value
        return agent.for_env(row["chosen"], row["real"])


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
        if self.engine.whole_rounds and alone and not run.verify:
            self.fused = self.engine
        if run.verify:
            self.lockstep = PolicyLockstep(self.engine, run.verify)
        self.pool.follow(self.agent, self.engine.explore)

    @property
    def memory(self) -> str:
        steps = f"{len(self.rollout.obs):,} x {self.envs.num_envs:,}"
        return f"rollouts of {steps} steps take {self.rollout.bytes / 2**20:,.1f} MiB"

    @property
    def left(self) -> int:
        return self.rollout.left

    def store(self) -> None:
        self.engine.store()

    def learn(self) -> None:
        if not self.pool.direct and not self.agent.updates:
            self.notices.append(first_rollout(self.rollout))
        (self.lockstep or self.engine).update(self.step, self.clock)

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

    def acted(self) -> dict[str, np.ndarray]:
        return {name: getattr(self.rollout, name)[self.rollout.count[0]] for name in ACTED}

    def memory_state(self) -> State:
        return {"rollout": self.rollout.state()}

    def load_memory(self, state: State, with_rows: bool) -> None:
        chosen, sizes = state["rollout"]["chosen"], np.array(self.agent.actions.sizes, np.int64)
        if (wrong := (chosen < 0) | (chosen >= sizes)).any():
            raise CheckpointError(
                f"the rollout holds option {chosen[wrong][0]} of an action, which does not have it."
            )
        self.rollout.load_state(state["rollout"])
