"""PPO's actor, its learner, the verification of engines, statistics of reward components."""

from typing import Any

import numpy as np
import torch

from tenfold.actors.actor import SimpleActing, check_first_rollout
from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.on_policy import OnPolicyLearner
from tenfold.algorithms.ppo import PlainPPO, PPOAgent
from tenfold.config.run import Run
from tenfold.config.schedules import value_at
from tenfold.core.errors import CheckpointError
from tenfold.core.protocols import State
from tenfold.core.system import Clock
from tenfold.engines.choose import choose_engine
from tenfold.engines.lockstep import Lockstep
from tenfold.envs.adapter import Environments
from tenfold.memory.rollout import ACTED, RolloutBuffer


class PPOActing(SimpleActing):
    """Samples actions; writes components, numbers, log-probability and value into the row, and of a
    recurrent policy the state before and after. An actor that replaces another begins with an empty
    state."""

    def __init__(self, agent: Any, envs: Environments) -> None:
        super().__init__(agent, envs)
        self.hidden, self.next_hidden = np.zeros((2, envs.num_envs, agent.hidden_size), np.float32)

    def act(self, row: dict[str, np.ndarray], step: int, rounds: int) -> np.ndarray:
        """Actions for the environments."""
        agent, envs = self.agent, self.envs
        agent.require_options(envs.mask, envs.location)
        rows = agent.normalised(envs.obs)
        *acted, self.next_hidden[:] = agent.explore(rows, envs.mask, rounds, self.hidden)
        if agent.hidden_size:
            row["memory"][...], row["following"][...] = self.hidden, self.next_hidden
        for name, value in zip(ACTED, acted, strict=True):
            row[name][...] = value
        return agent.for_env(row["chosen"], row["real"])

    def stepped(self) -> None:
        envs = self.envs
        ended = envs.terminated | envs.truncated | envs.skipped
        self.hidden[:] = np.where(ended[:, None], 0, self.next_hidden)

    def state(self) -> dict[str, np.ndarray]:
        return {"memory": self.hidden} if self.agent.hidden_size else {}

    def restore(self, state: dict[str, np.ndarray], exact: bool) -> None:
        """Environments that were reset begin with an empty state."""
        self.hidden[:] = state["memory"] if exact and "memory" in state else 0


class PPOLearner(OnPolicyLearner):
    """Actors, agent, rollout and engine of one run."""

    agent: PPOAgent

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        envs, settings = self.envs, run.agent
        self.rollout = RolloutBuffer(
            settings,  # type: ignore[arg-type]
            envs.layout,
            self.agent.actions,
            envs.num_envs,
            envs.mask is not None,
            envs.component_weights,
            self.agent.hidden_size,
        )
        self.engine, self.engine_choice = choose_engine(run, self.agent, self.rollout, envs)
        local = envs.agents == 1 and self.pool.direct
        if local and not run.verify:
            self.rounds_by = self.engine.rounds_by
        if envs.component_names:
            self.engine.components = ComponentRecord(self.agent, self.rollout, envs)
        if run.verify:
            self.lockstep = PolicyLockstep(self.engine, run.verify)
        self.begin()

    def begin_row(self) -> None:
        """Stores observations that remote actors act on; a local engine stores them itself."""
        if not self.pool.direct:
            self.rollout.begin_row(self.agent.normalised(self.envs.obs), self.envs.mask)

    def learn(self) -> None:
        if not self.pool.direct and not self.agent.updates:
            self.notices.append(check_first_rollout(self.rollout))
        (self.lockstep or self.engine).learn_from_rollout(self.step, self.clock)

    def load_memory(self, state: State, with_rows: bool) -> None:
        discrete, sizes = state["rollout"]["chosen"], np.array(self.agent.actions.sizes, np.int64)
        if (wrong := (discrete < 0) | (discrete >= sizes)).any():
            option = discrete[wrong][0]
            raise CheckpointError(
                f"the rollout holds option {option} of an action, which does not have it."
            )
        self.rollout.load_state(state["rollout"])


class PolicyLockstep(Lockstep):
    """Both engines learn from the same rollout, each with its own parameters."""

    def __init__(self, engine: PlainPPO, every: int) -> None:
        agent = engine.agent
        settings = (agent.config, agent.layout, agent.actions, 0, str(agent.device))
        twin = PPOAgent(*settings, agent.components)
        twin.keys, twin.norm, twin.value_step.norm = agent.keys, agent.norm, agent.value_step.norm
        super().__init__(engine, PlainPPO(twin, engine.rollout, engine.envs), every)
        self.number = 0  # of the phase's update that was last made

    def learn_from_rollout(self, step: int, clock: Clock) -> None:
        """A learning phase by the fast engine, every N-th update of the run by both."""
        fast, lr = self.engine, value_at(self.engine.agent.config.lr, step)

        def learn(engine: Any, clock: Clock) -> bool:
            going = engine.learn(self.number, self.number + 1, step)
            clock.lap("update")
            return going

        clock.start()
        fast.finish()
        for self.number in range(fast.per_phase):
            if not (self.update_both(learn, lr, clock) if self.due else learn(fast, clock)):
                break

    def tied(self) -> bool:
        """Whether rounding decided if target_kl ends the phase."""
        limit = self.plain.agent.config.minibatch_kl_limit
        return bool(abs(self.plain.minibatch_kl - limit) < 1e-3 * limit)

    def copy_memory(self) -> None:
        self.plain.epoch_kl, self.plain.extra_rows = 0.0, self.engine.extra_rows

    def batch(self) -> dict[str, np.ndarray]:
        rows = self.plain.gather(self.number % self.plain.rollout.minibatches)
        return {name: np.ascontiguousarray(value.cpu().numpy()) for name, value in rows.items()}


class ComponentRecord:
    """Means and deviations over the rows of every rollout: of each reward component, and of each
    named number of the action."""

    def __init__(self, agent: Any, rollout: RolloutBuffer, envs: Environments) -> None:
        self.agent, self.rollout = agent, rollout
        self.has_numbers = bool(envs.action_names)
        self.names = (
            *(f"reward/{name}" for name in envs.component_names),
            *(f"action/{name}" for name in envs.action_names),
        )
        self.sums = np.zeros((3, len(self.names)))  # how many, Σ, Σ of squares

    def add_rollout(self) -> None:
        """Counts a full rollout."""
        rollout = self.rollout
        counts = rollout.weight.reshape(-1, 1) > 0
        rewards = rollout.rewards[..., 1:].reshape(len(counts), -1) / rollout.scale
        columns = [(rewards[:, k : k + 1], counts) for k in range(rewards.shape[1])]
        columns += self.numbers(counts) if self.has_numbers else []
        for column, (values, counted) in enumerate(columns):
            rows = values[np.broadcast_to(counted, values.shape)].astype(np.float64)
            self.sums[:, column] += rows.size, rows.sum(), (rows * rows).sum()

    def numbers(self, counts: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of each named number its values and which of them count; where every node chooses, first
        the share that chose the last option, then the numbers of those that their option was taken
        for."""
        rollout, actions = self.rollout, self.agent.actions
        rows, c = len(counts), len(actions.sizes)
        real = self.agent.bounded(rollout.real.reshape(rows, -1))
        if not actions.gates:
            return [(real[:, d : d + 1], counts) for d in range(real.shape[1])]
        mask, discrete = rollout.mask.reshape(rows, c, -1), rollout.chosen.reshape(rows, c)
        width, options = real.shape[1] // c, mask.shape[2]
        allowed = np.take_along_axis(mask, discrete[..., None], 2)[..., 0]
        gated = allowed & counts & (discrete == actions.gates[0] % options)
        shares = [((discrete == options - 1).astype(np.float64), mask.any(2) & counts)]
        return shares + [(real[:, d::width], gated) for d in range(width)]

    def statistics(self) -> dict[str, float]:
        """Means and deviations since the last call."""
        count, total, square = np.maximum(self.sums[0], 1), self.sums[1], self.sums[2]
        mean = total / count
        deviation = np.sqrt(np.maximum(square / count - mean**2, 0))
        empty = not self.sums[0].any()
        self.sums[:] = 0
        if empty:
            return {}
        means = {name: float(m) for name, m in zip(self.names, mean, strict=True)}
        pairs = zip(self.names, deviation, strict=True)
        return means | {f"{name}/std": float(d) for name, d in pairs}

    def state(self) -> Tensors:
        return {"parts": torch.from_numpy(self.sums)}

    def load_state(self, state: Tensors) -> None:
        self.sums[:] = state["parts"].numpy()
