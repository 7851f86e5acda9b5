"""PPO as an actor acts by it (it draws from the policy, and notes probability and value), and its
rounds: fill a rollout with what the actors bring, learn from it, forget it."""

from typing import Any

import numpy as np

from tenfold.actors.actor import SimpleActing, first_rollout
from tenfold.algorithms.on_policy import RolloutLearner
from tenfold.algorithms.ppo.agent import PPOAgent
from tenfold.algorithms.ppo.plain import PolicyLockstep
from tenfold.config.run import Run
from tenfold.core.errors import CheckpointError
from tenfold.core.protocols import State
from tenfold.engines.choose import choose_engine
from tenfold.envs.adapter import Environments
from tenfold.envs.mask_faults import refuse_choiceless
from tenfold.memory.rollout import Rollout

ACTED = ("chosen", "real", "log_p", "value")


class PPOActing(SimpleActing):
    """Draws actions; components, numbers, log-probability and value go into the row."""

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments."""
        agent, envs = self.agent, self.envs
        self.require_options()
        found = agent.explore(agent.normalised(envs.obs), envs.mask, rounds)
        for name, value in zip(ACTED, found, strict=True):
            row[name][...] = value
        return agent.for_env(row["chosen"], row["real"])

    def require_options(self) -> None:
        """An error where a component has no allowed option, and may not be absent."""
        mask = self.envs.mask
        if mask is not None and self.agent.config.on_empty == "raise":
            refuse_choiceless(self.agent.mask_form, mask, self.envs.place)


class RecurrentActing(PPOActing):
    """The same of an agent that remembers: what it remembered before a row and behind it goes into
    the row too. An actor that takes another's place remembers nothing."""

    def __init__(self, agent: Any, envs: Environments) -> None:
        super().__init__(agent, envs)
        self.memory, self.following = np.zeros((2, envs.num_envs, agent.held), np.float32)

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        agent, envs = self.agent, self.envs
        self.require_options()
        row["memory"][...] = self.memory
        seen = agent.normalised(envs.obs)
        *found, self.following[:] = agent.explore(seen, envs.mask, rounds, self.memory)
        row["following"][...] = self.following
        for name, value in zip(ACTED, found, strict=True):
            row[name][...] = value
        return agent.for_env(row["chosen"], row["real"])

    def stepped(self) -> None:
        envs = self.envs
        ended = envs.terminated | envs.truncated | envs.skipped
        self.memory[:] = np.where(ended[:, None], 0, self.following)

    def state(self) -> dict[str, np.ndarray]:
        return {"memory": self.memory}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """Environments that began anew are remembered nothing of."""
        self.memory[:] = state["memory"] if exact else 0


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
            self.agent.held,
        )
        self.engine, self.engine_choice = choose_engine(run, self.agent, self.rollout, envs)
        alone = envs.agents == 1 and self.pool.direct
        if self.engine.whole_rounds and alone and not run.verify:
            self.fused = self.engine
        if run.verify:
            self.lockstep = PolicyLockstep(self.engine, run.verify)
        self.pool.follow(self.agent, self.engine.explore)
        self.note_first()

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
        self.rollout.memory[:] = 0  # actors elsewhere bring what they remember

    def acted(self) -> dict[str, np.ndarray]:
        rollout = self.rollout
        held = {"memory": rollout.memory, "following": rollout.following} if rollout.held else {}
        return {name: getattr(rollout, name)[rollout.count[0]] for name in ACTED} | held

    def memory_state(self) -> State:
        return {"rollout": self.rollout.state()}

    def load_memory(self, state: State, with_rows: bool) -> None:
        chosen, sizes = state["rollout"]["chosen"], np.array(self.agent.actions.sizes, np.int64)
        if (wrong := (chosen < 0) | (chosen >= sizes)).any():
            raise CheckpointError(
                f"the rollout holds option {chosen[wrong][0]} of an action, which does not have it."
            )
        self.rollout.load_state(state["rollout"])
