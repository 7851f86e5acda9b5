"""PPO's engines for the CPU. `FusedPPO`: storing a step and choosing the next action is ONE
compiled call, and so are all epochs of minibatches of a learning phase (`engines.fused`,
`algorithms.kernels.ppo`). `CompiledPPO`: an update is one graph through torch.compile."""

from collections.abc import Iterator
from functools import cached_property
from time import monotonic
from typing import Any

import numpy as np

from tenfold.algorithms.agent import Tensors
from tenfold.algorithms.kernels.ppo import FINISH, ppo_round, ppo_rounds
from tenfold.algorithms.kernels.ppo_examples import EXAMPLES_OF_NETWORKS
from tenfold.algorithms.kernels.ppo_minibatches import COLUMNS, COUNTS, FIRST, LAST, STOPPED
from tenfold.algorithms.kernels.ppo_recurrent import recurrent_round, recurrent_rounds
from tenfold.algorithms.kernels.recurrent_tower import memory_columns
from tenfold.algorithms.ppo import PPO_GRAD, PPO_ONLINE, PlainPPO, PPOAgent
from tenfold.algorithms.ppo_settings import PPO
from tenfold.core.kernels import as_numbers
from tenfold.core.pairs import pair
from tenfold.core.protocols import RoundDriver
from tenfold.core.random import Purpose
from tenfold.core.spaces import policy_actions
from tenfold.core.system import Clock
from tenfold.core.tables import KernelTable, compiled_for
from tenfold.core.work import NO_TEAM
from tenfold.engines.choose import why_not_fused
from tenfold.engines.compiled import Compiled
from tenfold.engines.fused import (
    ACT,
    DUE,
    PATIENCE,
    ROUNDS,
    SPENT,
    STEP,
    STORE,
    UPDATE,
    keys_of,
    norm_arrays,
    on_threads,
    pack_params,
    step_arrays,
    team_for_updates,
    zeros,
)
from tenfold.engines.fused_engine import run_rounds
from tenfold.envs.adapter import Environments
from tenfold.envs.control import ControlEnvironments
from tenfold.envs.making import make_environments
from tenfold.memory.rollout import RolloutBuffer
from tenfold.ops.activations import ACTIVATIONS
from tenfold.ops.mlp import layer_total, output_total
from tenfold.ops.split_mlp import scratch_size

DRAWS = Purpose.ACTION, Purpose.NOISE_ACT, Purpose.SHUFFLE


def ppo_columns(agent: PPOAgent, rollout: RolloutBuffer, batch: int) -> dict[str, np.ndarray]:
    """The agent's arrays and settings, and scratch for minibatches of up to `batch` rows."""
    online: Any = agent.online
    policy, value = np.array(online.policy.sizes), np.array(online.value.sizes)
    reals, sizes = len(agent.actions.low), np.array(agent.actions.sizes, np.int64)
    num_envs, features = rollout.log_p.shape[1], int(policy[0])
    room = [layer_total(s, ACTIVATIONS[agent.config.net.activation]) for s in (policy, value)]
    # the passes of a network with memory are those of its steps
    team = NO_TEAM.copy() if agent.hidden_size else team_for_updates(batch, policy, value)
    return {
        "team": team,
        "block": agent.block.numpy(),
        "updates_made": agent.count,
        "epoch_kl": np.zeros(1),
        "sums_before": np.zeros(len(PlainPPO.names) + 1),
        "keys": keys_of(agent, *DRAWS),
        "sizes": sizes,
        "policy_sizes": policy,
        "value_sizes": value,
        # of a minibatch
        "inputs": zeros(features * batch),
        "hidden": zeros(max(room) * batch),
        "delta": zeros(max(room) * batch),
        "columns": zeros(COLUMNS + reals, batch),
        "chosen": np.zeros((batch, sizes.size), np.int64),
        "mask": np.zeros((batch, rollout.mask.shape[-1]), np.bool_),
        "scratch_t": zeros(max(scratch_size(policy, batch), scratch_size(value, batch))),
        # of acting
        "e_inputs": zeros(features, num_envs),
        "e_hidden": zeros(max(map(output_total, (policy, value))) * num_envs),
        "e_output": zeros(agent.actions.options + reals, num_envs),
        "e_rows": zeros(num_envs, features),
        **norm_arrays(agent),
        **agent.value_step.columns(),
        **pack_params(
            agent,
            normalize_rollout=rollout.normalize,
            normalize_minibatch=agent.config.normalize_advantage == "minibatch",
            value_clipped_alone=agent.config.value_clip_kind == "clipped",
            refuses_empty=agent.config.on_empty == "raise",
        ),
    }


class FusedPPO(PlainPPO):
    """Runs rounds by one call each. Parameters, moments, rollout and statistics stay where the
    plain engine keeps them, so a run can change engines at any round."""

    description = "a learning phase in one compiled call"
    rounds_by: RoundDriver = "engine"

    @classmethod
    def why_not(cls, agent: PPOAgent, run: Any = None) -> str:
        if obstacle := why_not_fused(agent, remembers=True):
            return obstacle
        if agent.config.baseline == "counterfactual":
            return "the baseline is counterfactual"
        if agent.components:
            return "rewards come in components, each with a value of its own"
        unknown = agent.config.squash and agent.config.entropy
        return "the entropy of squashed actions has no closed form" if unknown else ""

    def __init__(self, agent: PPOAgent, rollout: RolloutBuffer, envs: Environments) -> None:
        super().__init__(agent, rollout, envs)
        # whether the rollout's current row holds the actions for the current observations
        self.has_actions = False
        self.compiled_envs = (
            envs if isinstance(envs, ControlEnvironments) and not agent.config.squash else None
        )
        batch = int(max(np.diff(self.bounds)))  # sequences
        self.counter = np.zeros(COUNTS + len(SPENT), np.int64)
        self.spent = self.counter[-len(SPENT) :]
        self.table = KernelTable(
            {"counter": self.counter, "sums": self.sums},
            rollout.columns(),
            step_arrays(envs),
            ppo_columns(agent, rollout, batch * rollout.sequence_length),
            memory_columns(agent, rollout, batch),
        )
        self.description += on_threads(self.table.arrays["team"])
        recurrent = agent.hidden_size > 0
        self.one_round = recurrent_round if recurrent else ppo_round
        self.many_rounds = recurrent_rounds if recurrent else ppo_rounds
        self.arguments = (
            self.table,
            rollout.obs.reshape(*rollout.obs.shape[:2], -1),
            envs.obs.reshape(envs.num_envs, -1),
            envs.final_obs.reshape(envs.num_envs, -1),
        )
        self.empty = -1  # an environment with a component that has no allowed option

    @cached_property
    def call(self) -> Any:
        return compiled_for(self.one_round, 0, *self.arguments)

    def warm_up(self) -> None:
        if self.compiled_envs:
            self.run_compiled(self.compiled_envs, 0)
        self.call(0, *self.arguments)

    def explore(self, step: int, rounds: int) -> np.ndarray:
        if not self.has_actions:
            self.counter[:2] = step, rounds
            self.empty = self.call(ACT, *self.arguments)
        self.has_actions = False
        return self.actions()

    def actions(self) -> np.ndarray:
        """Those in the rollout's current row, for the environments."""
        if self.empty >= 0:
            self.agent.require_options(self.envs.mask, self.envs.location)
        t, rollout = int(self.rollout.count[0]), self.rollout
        return self.agent.for_env(rollout.chosen[t], rollout.real[t])

    def store(self) -> None:
        self.counter[:2] = 0
        self.call(STORE, *self.arguments)

    def finish(self) -> None:
        self.call(FINISH, *self.arguments)

    def learn_from_rollout(self, step: int, clock: Clock) -> None:
        clock.start()
        self.counter[:2] = step, 0
        self.call(FINISH | UPDATE, *self.arguments)
        clock.lap("update")

    def learn(self, first: int, last: int, step: int) -> bool:
        self.counter[:2], self.counter[DUE] = (step, 0), 1
        self.counter[FIRST], self.counter[LAST] = first, last
        self.call(UPDATE, *self.arguments)
        return bool(self.counter[LAST] != STOPPED)

    run_rounds = run_rounds

    def run(self, step: int, rounds: int, most: int) -> tuple[int, int]:
        """Rounds from these counts until an episode ends, `most` or a moment; returns the
        counts after them."""
        if not self.has_actions:
            self.explore(step, rounds)
            self.has_actions = True
        self.counter[:2] = step, rounds
        if self.compiled_envs:
            self.compiled_envs.begin_rounds()
            self.compiled_envs.end_rounds(self.run_compiled(self.compiled_envs, most))
        else:
            envs, arguments, actions, call = self.envs, self.arguments, self.actions, self.call
            enough = monotonic() + PATIENCE
            for _ in range(most):
                envs.step(actions())
                self.empty = call(STORE | ACT, *arguments)
                if envs.finished or monotonic() > enough:
                    break
        return int(self.counter[STEP]), int(self.counter[ROUNDS])

    def run_compiled(self, envs: ControlEnvironments, most: int) -> int:
        low, high = self.agent.actions.low, self.agent.actions.high
        bounds = [low[0], high[0]] if low else [0.0, 0.0]
        return self.many_rounds(most, *bounds, *envs.kernel_arguments, *self.arguments)

    def set_lr(self, lr: Any) -> None:
        self.table.replace("lr", np.array(as_numbers(lr), np.float64))

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        self.has_actions = False


class CompiledPPO(Compiled, PlainPPO):
    """As the plain engine, but gradient and step are one compiled call."""

    @classmethod
    def why_not(cls, agent: Any, run: Any = None) -> str:
        return super().why_not(agent, run) or agent.value_step.why_not

    def unchecked_agent(self) -> Any:
        return self.agent.unchecked()

    def examples(self) -> Iterator[Tensors]:
        """A minibatch of zeros of each size; there may be two."""
        self.rollout.weight[:] = 1
        sizes = {size: part for part, size in enumerate(np.diff(self.bounds).tolist())}
        for part in sorted(sizes.values()):
            yield self.minibatch(part)
        self.rollout.weight[:] = 0


# the pair: a rollout that the plain engine filled, a learning phase, the next actions


def phase_examples(rng: np.random.Generator, dtype: str) -> Iterator[tuple[Any, ...]]:
    """Environments, settings and a seed: every option, masked heads, continuous actions,
    minibatches of unequal size."""
    base = {"horizon": 13, "epochs": 2, "net": {"hidden": [9, 6]}}
    for env, options in (
        ("tenfold/CartPole-v1", {}),
        ("tenfold/CartPole-v1", {"value_clip": 0.1, "entropy": 0.05}),
        ("tenfold/CartPole-v1", {"clip_norm": None, "normalize_advantage": False, "clip": 0.01}),
        ("tenfold/CartPole-v1", {"normalize_obs": True, "reward_scale": 0.1, "target_kl": 1e-5}),
        (
            "tenfold/CartPole-v1",
            {"net": {"hidden": [7, 1, 5], "activation": "elu"}, "minibatches": 26},
        ),
        (
            "tenfold/CartPole-v1",
            {"minibatch_size": 5, "normalize_advantage": "minibatch", "lr": "table(0:1e-3, 200:0)"},
        ),
        (
            "tenfold/CartPole-v1",
            {
                "clip": "linear(0.3, 0, 50, 80)",
                "value_clip": "table(0:0.5, 90:0.2, 110:0.01)",
                "value_clip_kind": "clipped",
            },
        ),
        (
            "tenfold/Pendulum-v1",
            {"minibatch_size": 9, "lr": 0.01, "target_kl": 1e-4, "kl_stop": "minibatch"},
        ),
        ("tenfold/Pendulum-v1", {"entropy": 0.01, "std": 0.5}),
        ("tenfold/Pendulum-v1", {"squash": True}),
        ("tenfold/Assign-v0", {"entropy": 0.01}),
        ("tenfold/CartPole-v1", {"net": {"hidden": [7], "memory": "lstm(9)"}}),
        ("tenfold/CartPole-v1", {"net": {"hidden": [], "memory": "gru(6)"}, "minibatches": 1}),
        (
            "tenfold/CartPole-v1",
            {
                "net": {"hidden": [7], "memory": "gru(5)"},
                "minibatch_size": 7,
                "normalize_advantage": "minibatch",
            },
        ),
        (
            "tenfold/Pendulum-v1",
            {"net": {"hidden": [8, 5], "memory": "gru(4)", "activation": "relu"}, "std": 0.5},
        ),
        ("tenfold/Assign-v0", {"net": {"hidden": [5], "memory": "lstm(4)"}, "entropy": 0.01}),
        *EXAMPLES_OF_NETWORKS,
    ):
        count = {} if "minibatch_size" in options else {"minibatches": 3}
        yield env, base | count | options, int(rng.integers(99))


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
    engine.learn_from_rollout(100, Clock())
    learned = (
        agent.block[PPO_ONLINE].numpy().copy(),
        agent.block[PPO_GRAD].numpy().copy(),
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
    name="algorithms.ppo_cpu.learning phase and act",
)
def fused_phase(env: str, options: dict[str, Any], seed: int) -> tuple[np.ndarray, ...]:
    return phase_of(FusedPPO, env, options, seed)
