"""The fused engine of policy gradients: storing a step and choosing the next action is ONE compiled
call, and so are all epochs of minibatches of a learning phase.

It does what the plain engine does, from the same random numbers in the same order; `tests/engines`
holds the two in lockstep. For fully connected networks on the CPU, in float32.
"""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import numpy as np

from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.kernels.ppo import (
    ACT,
    FINISH,
    STORE,
    UPDATE,
    fused_ppo,
    fused_ppo_rounds,
)
from tenfold.algorithms.kernels.ppo_arrays import (
    EMPTY,
    LR,
    MOVED,
    ROUNDS,
    STEP,
    TARGET_KL,
    make_arrays,
)
from tenfold.algorithms.kernels.ppo_recurrent import (
    fused_memory,
    fused_memory_rounds,
    make_memories,
)
from tenfold.algorithms.ppo import GRAD, ONLINE, PlainPPO, PPOAgent
from tenfold.algorithms.ppo_settings import PPO
from tenfold.core.kernels import as_numbers
from tenfold.core.pairs import pair
from tenfold.core.spaces import policy_actions
from tenfold.core.system import Clock
from tenfold.core.tables import table_of
from tenfold.engines.choose import why_not_fused
from tenfold.engines.fused import PATIENCE, SPENT
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.making import make_environments
from tenfold.memory.rollout import RolloutBuffer


class FusedPPO(PlainPPO):
    """Runs rounds by one call each. Parameters, moments, rollout and statistics stay where the
    plain engine keeps them, so a run can change engines at any round."""

    words, whole_rounds = "a learning phase in one compiled call", True

    @classmethod
    def why_not(cls, agent: PPOAgent, run: Any = None) -> str:
        if found := why_not_fused(agent, remembers=True):
            return found
        if agent.config.baseline == "counterfactual":
            return "the baseline is counterfactual"
        if agent.components:
            return "rewards come in components, each with a value of its own"
        unknown = agent.config.squash and agent.config.entropy
        return "the entropy of squashed actions has no closed form" if unknown else ""

    def __init__(self, agent: PPOAgent, rollout: RolloutBuffer, envs: Environments) -> None:
        super().__init__(agent, rollout, envs)
        # whether the rollout's current row holds the actions for the current observations
        self.chosen = False
        self.compiled = (
            envs if isinstance(envs, ControlEnvironments) and not agent.config.squash else None
        )
        batch = int(max(np.diff(self.bounds)))  # sequences
        self.arrays = make_arrays(agent, rollout, envs, self.sums, batch * rollout.sequence_length)
        self.counter, self.rule = self.arrays.counter, self.arrays.rule
        self.spent = self.counter[-len(SPENT) :]
        remembered, self.part, self.rounds = (), fused_ppo, fused_ppo_rounds
        if agent.hidden_size:
            self.memories = make_memories(agent, rollout, batch)
            remembered = (table_of(self.memories),)
            self.part, self.rounds = fused_memory, fused_memory_rounds
        self.given = (
            table_of(self.arrays),
            *remembered,
            rollout.obs.reshape(*rollout.obs.shape[:2], -1),
            envs.obs.reshape(envs.num_envs, -1),
            envs.final_obs.reshape(envs.num_envs, -1),
        )

    def warm_up(self) -> None:
        if self.compiled:
            self.run_compiled(self.compiled, 0)
        self.part(0, *self.given)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        if not self.chosen:
            self.counter[:2] = step, rounds
            self.part(ACT, *self.given)
        self.chosen = False
        return self.actions()

    def actions(self) -> np.ndarray:
        """Those in the rollout's current row, for the environments."""
        if self.counter[EMPTY]:
            assert self.envs.mask is not None
            self.agent.require_options(self.envs.mask, self.envs.place)
        t, rollout = int(self.rollout.count[0]), self.rollout
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def store(self) -> None:
        self.counter[:2] = 0
        self.part(STORE, *self.given)

    def finish(self) -> None:
        self.part(FINISH, *self.given)

    def update(self, step: int, clock: Clock) -> None:
        clock.start()
        self.counter[:2] = step, 0
        self.part(FINISH | UPDATE, *self.given)
        clock.lap("update")

    def learn(self, first: int, last: int, step: int) -> bool:
        self.counter[:4] = step, 0, first, last
        self.part(UPDATE, *self.given)
        return last % self.rollout.minibatches > 0 or self.rule[MOVED] <= self.rule[TARGET_KL]

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Rounds from the given counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.chosen:
            self.explore(step, rounds)
            self.chosen = True
        self.counter[:2] = step, rounds
        if self.compiled:
            self.compiled.begin_rounds()
            self.compiled.end_rounds(self.run_compiled(self.compiled, most))
        else:
            envs, given, actions, part = self.envs, self.given, self.actions, self.part
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(actions())
                part(STORE | ACT, *given)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        bounds = (
            [self.agent.actions.low[0], self.agent.actions.high[0]]
            if self.agent.actions.low
            else [0.0, 0.0]
        )
        return self.rounds(most, *bounds, *envs.given, *self.given)

    def set_lr(self, lr: Any) -> None:
        self.arrays.rule[LR : LR + 4] = as_numbers(lr)

    def load_state(self, state: Tensors) -> None:
        super().load_state(state)
        self.chosen = False


def phase_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Environments, settings and a seed: every option, masked heads, continuous actions,
    minibatches of unequal size."""
    base = {"horizon": 13, "epochs": 2, "minibatches": 3, "net": {"hidden": [9, 6]}}
    for env, options in (
        ("tenfold/CartPole-v1", {}),
        ("tenfold/CartPole-v1", {"value_clip": 0.1, "entropy": 0.05}),
        ("tenfold/CartPole-v1", {"clip_norm": None, "normalize_advantage": False, "clip": 0.01}),
        ("tenfold/CartPole-v1", {"normalize_obs": True, "reward_scale": 0.1, "target_kl": 1e-5}),
        (
            "tenfold/CartPole-v1",
            {"net": {"hidden": [7, 1, 5], "activation": "elu"}, "minibatches": 26},
        ),
        ("tenfold/Pendulum-v1", {"entropy": 0.01, "std": 0.5}),
        ("tenfold/Pendulum-v1", {"squash": True}),
        ("tenfold/Assign-v0", {"entropy": 0.01}),
        ("tenfold/CartPole-v1", {"net": {"hidden": [7], "memory": "lstm(9)"}}),
        ("tenfold/CartPole-v1", {"net": {"hidden": [], "memory": "gru(6)"}, "minibatches": 1}),
        (
            "tenfold/Pendulum-v1",
            {"net": {"hidden": [8, 5], "memory": "gru(4)", "activation": "relu"}, "std": 0.5},
        ),
        ("tenfold/Assign-v0", {"net": {"hidden": [5], "memory": "lstm(4)"}, "entropy": 0.01}),
    ):
        yield env, base | options, int(rng.integers(99))


def phase_of(
    kind: type[PlainPPO], env: str, options: dict[str, Any], seed: int
) -> tuple[np.ndarray, ...]:
    """A rollout that the plain engine filled, then a learning phase, then the next actions."""
    config, envs = (
        PPO.of({"name": "ppo", **options}),
        make_environments(env, 2, seed, policy=True),
    )
    actions = policy_actions(envs.action_space, env)
    agent = PPOAgent(config, envs.layout, actions, seed)
    masked = envs.mask is not None
    rollout = RolloutBuffer(config, envs.layout, actions, 2, masked, None, agent.hidden_size)
    plain, engine = PlainPPO(agent, rollout, envs), kind(agent, rollout, envs)
    for rounds in range(config.horizon):
        envs.step(plain.explore(0, rounds))
        plain.store()
    engine.update(100, Clock())
    learned = (
        agent.block[ONLINE].numpy().copy(),
        agent.block[GRAD].numpy().copy(),
        rollout.order.copy(),
    )
    return (
        *learned,
        engine.explore(100, config.horizon),
        rollout.log_p[0].copy(),
        rollout.value[0].copy(),
        agent.count,
    )


def plain_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(PlainPPO, env, options, seed)


@pair(
    plain_phase,
    phase_examples,
    rtol=1e-3,
    atol=1e-4,
    name="engines.fused_ppo.learning phase and act",
)
def fused_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(FusedPPO, env, options, seed)
