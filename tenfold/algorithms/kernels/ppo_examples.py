"""Examples by which PPO's fused engine is held to the plain one: a rollout that the plain engine
filled, then a learning phase, then the next actions."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tenfold.algorithms.ppo import GRAD, ONLINE, PlainPPO, PPOAgent
from tenfold.algorithms.ppo_fused import FusedPPO
from tenfold.algorithms.ppo_settings import PPO
from tenfold.core.pairs import pair
from tenfold.core.spaces import policy_actions
from tenfold.core.system import Clock
from tenfold.envs.making import make_environments
from tenfold.memory.rollout import RolloutBuffer


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
